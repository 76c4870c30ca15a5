//! Hostile Instances, in a project and on the hub: a project shows only its own Instances from the hub. They neither show nor
//! change objects of another tenant.

use jiff::Timestamp;
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use crate::plan::management::projector::projection::{self, Observed, Quarantine};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::{annotation, label},
    },
    plan::{
        Kind, NamespaceFacts, Op, Shared, Step,
        hostile::{ANNOTATIONS, LABELS, OWN, VICTIM, marks, steers_karmada, template, with},
        ownership,
    },
};

/// The cell that Karmada has bound the deployment to.
const BOUND: &str = "cell-own";
/// Image of an Instance on the hub, by its namespace.
const IMAGES: [(&str, &str); 2] = [(OWN, "own"), (VICTIM, "victim")];

fn instance(namespace: &str, uid: &str, labels: &Value, annotations: &Value, owners: &Value) -> Instance {
    let image = IMAGES.iter().find(|(place, _)| *place == namespace).map_or("by-hand", |(_, image)| image);
    let mut spec = template(&json!({}), &json!({}))["spec"].take();
    spec["runtime"]["sandbox"]["containers"][0]["image"] = json!(image);
    serde_json::from_value(json!({
        "metadata": {
            "name": "web-0", "namespace": namespace, "uid": uid, "resourceVersion": "5",
            "labels": labels, "annotations": annotations, "ownerReferences": owners,
        },
        "spec": spec,
    }))
    .unwrap()
}

/// Returns owners that a user may write on an Instance.
fn owners(n: usize) -> Value {
    let reference = |kind: &str, uid: &str, controller: bool| json!([{ "apiVersion": "compute.datumapis.com/v1alpha", "kind": kind, "name": "web", "uid": uid, "controller": controller }]);
    match n {
        0 => json!([]),
        1 => reference("WorkloadDeployment", "p1", false),
        2 => reference("WorkloadDeployment", "p1", true),
        _ => reference("Workload", "victim", true),
    }
}

fn deployment() -> WorkloadDeployment {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "p1" },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw",
            "template": template(&json!({}), &json!({})), "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

/// Returns the projector's snapshot of one place: the Instance in the hub namespace, and Instances elsewhere that name the place.
fn observed() -> impl Strategy<Value = Observed> {
    let place = [
        (label::UPSTREAM_CLUSTER, "cluster-shop"),
        (label::UPSTREAM_NAMESPACE, "shop"),
        (label::WORKLOAD_DEPLOYMENT_NAME, "web"),
    ];
    let some = || (marks(&LABELS), marks(&ANNOTATIONS), 0..4_usize);
    let bound = select(&[Some(BOUND), Some("cell-victim"), None][..]);
    (prop::option::of(some()), prop::option::of(some()), prop::option::of(some()), bound, any::<bool>()).prop_map(
        move |(source, foreign, shown, bound, has_deployment)| {
            let on_hub = |namespace: &str, (labels, annotations, owned): (Value, Value, usize)| {
                Shared::from(instance(namespace, "h", &with(labels, &place), &annotations, &owners(owned)))
            };
            Observed {
                namespace: "shop".into(),
                name: "web-0".into(),
                facts: Some(NamespaceFacts { uid: "own".into(), ..NamespaceFacts::default() }),
                source: source.map(|source| on_hub(OWN, source)),
                foreign: foreign.map(|foreign| on_hub(VICTIM, foreign)).into_iter().collect(),
                deployment: has_deployment.then(|| deployment().into()),
                projection: shown
                    .map(|(labels, annotations, n)| instance("shop", "x", &labels, &annotations, &owners(n)).into()),
                bound: bound.map(str::to_owned),
                too_large: false,
                unbound: None,
                members: None,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn projection_shows_only_instance_of_its_own_hub_namespace(observed in observed()) {
        let plan = projection::plan(&observed, Timestamp::UNIX_EPOCH);
        for (n, step) in plan.steps.iter().enumerate() {
            match step {
                Step::Local(write) => {
                    let place = (write.object.kind, &*write.object.namespace, &*write.object.name);
                    prop_assert_eq!(place, (Kind::Instance, "shop", "web-0"), "{:?}", write);
                    if matches!(write.op, Op::Delete { .. }) {
                        let is_ours = observed.projection.as_deref().is_some_and(ownership::is_projection);
                        prop_assert!(is_ours && observed.source.is_none(), "{:?}", write);
                        let before = n.checked_sub(1).map(|before| &plan.steps[before]);
                        let is_confirmed = matches!(before, Some(Step::Remote(look))
                            if look.op == Op::ConfirmAbsent && look.object.namespace == OWN && look.object.name == "web-0");
                        prop_assert!(is_confirmed, "{:?}", plan.steps);
                    } else if let Some(body) = write.op.asked() {
                        let text = body.to_string();
                        prop_assert!(!text.contains("\"image\":\"victim\""), "{}", body);
                        prop_assert!(!steers_karmada(&body["metadata"]["labels"]), "{}", body);
                        let owners = body["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                        prop_assert!(owners.iter().all(|owner| owner["uid"] == "p1"), "{}", body);
                    }
                }
                Step::Remote(write) => {
                    prop_assert_eq!((&*write.object.namespace, &*write.object.name), (OWN, "web-0"), "{:?}", write);
                    let Op::Merge { body, .. } = &write.op else {
                        prop_assert!(write.op == Op::ConfirmAbsent, "{:?}", write);
                        continue;
                    };
                    // It is handed over only to the cell that Karmada has bound and that asks for it.
                    let source = observed.source.as_deref().unwrap();
                    prop_assert_eq!(body["metadata"]["labels"][label::CELL_UID].as_str(), observed.bound.as_deref());
                    prop_assert_eq!(ownership::asking_cell(source), observed.bound.as_ref());
                    let former = &body["metadata"]["annotations"][annotation::FORMER_CELL];
                    prop_assert_eq!(former.as_str(), ownership::cell_of(source).map(String::as_str));
                }
            }
        }
        let reported = plan.signals.iter().filter(|signal| signal.why == Quarantine::Unidentifiable).count();
        prop_assert_eq!(reported, observed.foreign.len(), "each claimant from elsewhere is reported");
    }
}
