//! Hostile Workloads, with deployments that users created: a Workload writes its own deployments and no others.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use crate::plan::management::workload::{fan_out, placement};
use crate::{
    api::{
        compute::{Workload, WorkloadDeployment},
        meta::{annotation, finalizer, label},
        names::CityCode,
    },
    plan::{
        Op, Project, Shared, Write,
        hostile::{ANNOTATIONS, LABELS, OWN, marks, template},
        ownership,
    },
    timing::Timing,
};

const CITIES: [&[&str]; 4] = [&["dfw"], &["dfw", "ord"], &["DFW", "dfw"], &["../x", "ord"]];
const PLACEMENTS: [&str; 3] = ["p", "p-dfw", "../p"];
/// Names of deployments that users created: names that the Workload uses itself, other names, and a name without a city.
const NAMES: [&str; 5] = ["web-p-dfw", "web-p-ord", "web-p", "shop", "web-p-dfw-0"];

/// Returns the owners of a deployment that a user created. Owners are none, the Workload without control, an earlier Workload of
/// its name, another Workload, or the Workload itself.
fn owner(n: usize) -> Value {
    let reference = |kind: &str, uid: &str, controller: bool| json!([{ "apiVersion": "compute.datumapis.com/v1alpha", "kind": kind, "name": "web", "uid": uid, "controller": controller }]);
    match n {
        0 => json!([]),
        1 => reference("Workload", "w1", false),
        2 => reference("Workload", "w0", true),
        3 => reference("Workload", "victim", true),
        _ => reference("Workload", "w1", true),
    }
}

fn deployment() -> impl Strategy<Value = WorkloadDeployment> {
    let refers = select(&["w1", "victim"][..]);
    (marks(&LABELS), marks(&ANNOTATIONS), select(&NAMES[..]), 0..5_usize, refers, any::<bool>()).prop_map(
        |(labels, annotations, name, owned, refers, deleting)| {
            let mut object = json!({
                "metadata": {
                    "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": "5",
                    "labels": labels, "annotations": annotations, "ownerReferences": owner(owned),
                },
                "spec": {
                    "workloadRef": { "name": "web", "uid": refers }, "placementName": "p", "cityCode": "dfw",
                    "template": template(&labels, &annotations), "scaleSettings": { "minReplicas": 900 },
                },
            });
            if deleting {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                object["metadata"]["finalizers"] = json!([finalizer::FEDERATOR]);
            }
            serde_json::from_value(object).unwrap()
        },
    )
}

fn workload() -> impl Strategy<Value = Workload> {
    let placed = (select(&PLACEMENTS[..]), select(&CITIES[..]));
    (marks(&LABELS), marks(&ANNOTATIONS), placed, any::<bool>()).prop_map(
        |(labels, annotations, (placement, cities), deleting)| {
            let mut object = json!({
                "metadata": {
                    "name": "web", "namespace": "shop", "uid": "w1", "resourceVersion": "3", "generation": 1,
                    "labels": labels, "annotations": annotations, "finalizers": [finalizer::WORKLOAD],
                },
                "spec": {
                    "template": template(&labels, &annotations),
                    "placements": [{ "name": placement, "cityCodes": cities, "scaleSettings": { "minReplicas": 1 } }],
                },
            });
            if deleting {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            serde_json::from_value(object).unwrap()
        },
    )
}

fn observed(workload: Workload, there: &BTreeMap<String, WorkloadDeployment>) -> fan_out::Observed {
    let named = placement::names(&workload).into_iter();
    let named = named.filter_map(|name| Some((name.clone(), Shared::from(there.get(&name)?.clone()))));
    let refers = there.values().filter(|wd| wd.spec.workload_ref.uid == "w1");
    fan_out::Observed {
        named: named.collect(),
        deployments: refers.cloned().map(Shared::from).collect(),
        workload: workload.into(),
        bound: ["dfw", "ord"].map(|city| CityCode::parse(city).unwrap()).into(),
        namespace_uid: Some("own".into()),
        networks: None,
        locations_fail: None,
        unreadable: Vec::new(),
        contested: false,
        timing: Timing::default(),
    }
}

/// True if the body has only our metadata and nothing of the Workload's own metadata.
fn says_only_ours(body: &Value) -> bool {
    let metadata = &body["metadata"];
    metadata["labels"] == json!({ label::WORKLOAD_UID: "w1" })
        && metadata["annotations"] == json!({ annotation::FEDERATION_NAMESPACE: OWN })
        && metadata["finalizers"] == json!([finalizer::FEDERATOR])
        && metadata["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1 && owners[0]["uid"] == "w1")
        && body["spec"]["template"]["spec"]["controller"].is_null()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_workload_writes_only_its_own_deployments(
        workload in workload(), by_hand in prop::collection::vec(deployment(), 0..4),
    ) {
        let there: BTreeMap<String, _> = by_hand.into_iter().map(|wd| (wd.name_any(), wd)).collect();
        let own = |write: &Write<Project>| there.get(&write.object.name).is_none_or(|wd| {
            // A deployment without a controller may be adopted, and is not deleted.
            let adopts = matches!(write.op, Op::Apply { .. }) && ownership::may_adopt(&workload, wd);
            adopts || ownership::is_controlled_by(wd, &workload)
        });
        let writes: Vec<Write<Project>> = fan_out::plan(&observed(workload.clone(), &there), Timestamp::UNIX_EPOCH).steps;
        for write in writes {
            prop_assert_eq!(&*write.object.namespace, "shop", "{:?}", write);
            if write.object.name == "web" {
                continue; // its own status and finalizer
            }
            prop_assert!(own(&write), "{:?}", write);
            match &write.op {
                Op::Apply { body, force, status: false, .. } => {
                    prop_assert!(write.object.name.starts_with("web-p-") && says_only_ours(&body.to_value()), "{:?}", write);
                    prop_assert!(!force || there.contains_key(&write.object.name), "forces fields of an unseen deployment: {:?}", write);
                }
                Op::Delete { uid, .. } => prop_assert_eq!(uid, &format!("uid-{}", write.object.name)),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
