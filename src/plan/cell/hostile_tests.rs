//! Deployments and Instances with hostile content, as Karmada brings them to a cell. Each deployment changes only its own
//! Instances in its own namespace, and their copies on the hub.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use super::{
    Features, instances,
    write_back::{self, OnHub, Rival},
};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::{annotation, finalizer, gate, label},
    },
    plan::{
        Kind, Object, Op, Shared, Step,
        hostile::{ANNOTATIONS, LABELS, marks, steers_karmada, template, with},
        ownership,
    },
    timing::Timing,
};

const OWN: &str = "ns-0b0f9a3e-6f0e-4b39-9a57-0d8f7f6f3b11";
const CELL: &str = "cell-own";

fn deployment() -> impl Strategy<Value = WorkloadDeployment> {
    let replicas = prop_oneof![4 => 0..3_i32, 1 => Just(i32::MAX)];
    (marks(&LABELS), marks(&ANNOTATIONS), replicas).prop_map(|(labels, annotations, replicas)| {
        serde_json::from_value(json!({
            "metadata": {
                "name": "web", "namespace": OWN, "uid": "d1", "resourceVersion": "1", "generation": 1,
                "labels": labels, "annotations": annotations,
            },
            "spec": {
                "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw",
                "template": template(&labels, &annotations), "scaleSettings": { "minReplicas": 1 },
                "replicas": replicas,
            },
        }))
        .unwrap()
    })
}

/// Returns an Instance with these labels and annotations, and with all identity labels. `owner` controls it.
fn instance(name: &str, labels: &Value, annotations: &Value, owner: &str) -> Instance {
    let mut all = json!(ownership::OF_AN_INSTANCE.map(|key| (key, "x")).into_iter().collect::<BTreeMap<_, _>>());
    all.as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": OWN, "uid": format!("uid-{name}"), "resourceVersion": "5",
            "labels": all, "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:10Z",
            "ownerReferences": [{ "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "name": "web", "uid": owner, "controller": true }],
        },
        "spec": template(labels, annotations)["spec"],
    }))
    .unwrap()
}

const NAMES: [&str; 5] = ["web-0", "web-1", "web-7", "web", "shop-0"];

fn observed() -> impl Strategy<Value = instances::Observed> {
    let some = || (select(&NAMES[..]), marks(&LABELS), marks(&ANNOTATIONS));
    let sets = (prop::collection::vec(some(), 0..3), prop::collection::vec(some(), 0..2));
    (deployment(), sets).prop_map(|(deployment, (own, others))| {
        let of = |all: Vec<(&'static str, Value, Value)>, owner: &str| {
            let all =
                all.into_iter().map(|(name, labels, annotations)| (name, instance(name, &labels, &annotations, owner)));
            // Names are unique.
            all.collect::<BTreeMap<_, _>>()
        };
        let own = of(own, "d1");
        let others = of(others, "victim").into_iter().filter(|(name, _)| !own.contains_key(name));
        instances::Observed {
            deployment: deployment.into(),
            in_the_way: others.map(|(_, instance)| instance.into()).collect(),
            instances: own.into_values().map(Shared::from).collect(),
            unreadable: BTreeSet::new(),
            features: Features { networks: false, quota: true, abandon_claims: false, data: true },
            networks: None,
            failing: false,
            timing: Timing::default(),
        }
    })
}

/// True if a new Instance has only the deployment's labels, closed gates, and a gate start of now.
fn is_as_made(body: &Value) -> bool {
    let (metadata, spec) = (&body["metadata"], &body["spec"]);
    let own =
        [(label::WORKLOAD_UID, "w1"), (label::WORKLOAD_DEPLOYMENT_UID, "d1"), (label::WORKLOAD_DEPLOYMENT_NAME, "web")];
    let foreign = [label::UPSTREAM_CLUSTER, label::UPSTREAM_NAMESPACE, label::CELL_UID];
    let gates = [gate::NETWORK, gate::QUOTA, gate::REFERENCED_DATA].map(|name| json!({ "name": name }));
    let owners = metadata["ownerReferences"].as_array();
    own.iter().all(|(key, value)| metadata["labels"][*key] == *value)
        && foreign.iter().all(|key| metadata["labels"][*key].is_null())
        && !steers_karmada(&metadata["labels"])
        && metadata["finalizers"] == json!([finalizer::QUOTA])
        && owners.is_some_and(|owners| owners.len() == 1 && owners[0]["uid"] == "d1")
        && spec["controller"]["schedulingGates"] == json!(gates)
        && spec["controller"]["templateHash"] != "forged"
        && spec["location"].is_null()
        && metadata["annotations"][annotation::REFERENCED_DATA_GATE_START] == "1970-01-01T00:00:00Z"
}

/// Generates the facts about an Instance of the deployment for its write-back.
fn shown() -> impl Strategy<Value = write_back::Observed> {
    let some = || (marks(&LABELS), marks(&ANNOTATIONS));
    let copies = (prop::option::of(some()), prop::option::of((some(), any::<bool>())));
    (some(), deployment(), copies, any::<[bool; 2]>()).prop_map(
        |((labels, annotations), deployment, (copy, rival), [is_there, is_controlled])| {
            let place = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "shop")];
            let on_hub = |(labels, annotations): (Value, Value), cell: &str| {
                instance("web-0", &with(labels, &[(label::CELL_UID, cell)]), &annotations, "h1")
            };
            write_back::Observed {
                object: Object::named::<Instance>(OWN, "web-0"),
                instance: is_there.then(|| instance("web-0", &labels, &annotations, "d1").into()),
                deployment: is_controlled.then(|| deployment.into()),
                namespace_labels: place.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
                cell: CELL.into(),
                copy: copy.map(|copy| on_hub(copy, CELL).into()),
                hub: OnHub::Unread,
                rival: rival.map_or(Rival::Unread, |(rival, is_older)| {
                    let mut rival = on_hub(rival, "cell-victim");
                    rival.metadata.creation_timestamp = rival.metadata.creation_timestamp.filter(|_| !is_older);
                    Rival::Present(rival.into())
                }),
                timing: Timing::default(),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn deployment_with_hostile_content_writes_only_its_own_instances(observed in observed()) {
        let own = |uid: &str| observed.instances.iter().any(|instance| instance.metadata.uid.as_deref() == Some(uid));
        for write in instances::plan(&observed, Timestamp::UNIX_EPOCH).steps {
            prop_assert_eq!(&*write.object.namespace, OWN, "{:?}", write);
            if write.object.kind == Kind::WorkloadDeployment {
                prop_assert_eq!(&*write.object.name, "web");
                continue;
            }
            prop_assert_eq!(write.object.kind, Kind::Instance);
            match &write.op {
                Op::Create { body, .. } => {
                    prop_assert!(["web-0", "web-1"].contains(&&*write.object.name), "{:?}", write);
                    prop_assert!(is_as_made(body), "{:#}", body);
                }
                Op::Delete { uid, .. } => prop_assert!(own(uid), "{:?}", write),
                op @ (Op::Merge { .. } | Op::Apply { .. }) => {
                    prop_assert!(own(op.asked().unwrap()["metadata"]["uid"].as_str().unwrap()), "{:?}", write);
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    #[test]
    fn copy_with_hostile_content_keeps_namespace_labels_and_cell_uid(observed in shown()) {
        for step in write_back::plan(&observed, Timestamp::UNIX_EPOCH).steps {
            let write = match step {
                Step::Remote(write) => write,
                Step::Local(write) => {
                    prop_assert_eq!((&*write.object.namespace, &*write.object.name), (OWN, "web-0"), "{:?}", write);
                    prop_assert!(!matches!(write.op, Op::Delete { .. }), "{:?}", write);
                    continue;
                }
            };
            prop_assert_eq!(&*write.object.namespace, OWN, "{:?}", write);
            let held = matches!(&observed.rival, Rival::Present(_)) && observed.copy.is_none();
            match &write.op {
                Op::Apply { body, status: false, .. } => {
                    let labels = &body["metadata"]["labels"];
                    prop_assert!(!held, "another cell's: {:?}", write);
                    prop_assert_eq!(&labels[label::UPSTREAM_CLUSTER], "cluster-shop");
                    prop_assert_eq!(&labels[label::UPSTREAM_NAMESPACE], "shop");
                    prop_assert_eq!(&labels[label::CELL_UID], CELL);
                    prop_assert!(!steers_karmada(labels), "{}", labels);
                    prop_assert!(body["metadata"]["annotations"].is_null(), "{:?}", body);
                }
                // Another cell's copy is requested, not written.
                Op::Merge { body, .. } if held => {
                    let ask = json!({ annotation::CLAIMED_BY_CELL: CELL });
                    prop_assert_eq!(&body["metadata"]["annotations"], &ask);
                    prop_assert!(body["metadata"]["labels"].is_null() && body["spec"].is_null(), "{}", body);
                }
                Op::Delete { uid, .. } => {
                    prop_assert!(observed.instance.is_none() && observed.copy.as_ref().is_some_and(|copy| copy.metadata.uid.as_ref() == Some(uid)));
                }
                _ => prop_assert!(!held || matches!(write.op, Op::ConfirmAbsent | Op::ConfirmPresent { .. }), "{:?}", write),
            }
        }
    }
}
