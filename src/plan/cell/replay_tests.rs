//! A snapshot from a log line gives the same decision as when it was recorded.

use std::fmt::Debug;

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Features, instance, instances, quota, write_back};
use crate::{
    plan::{Op, Plan, Step, Write, recorded::recorded},
    timing::Timing,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Reads `snapshot` and plans, then plans again from the re-serialized snapshot. Both plans must be equal.
fn replay<O, S, G>(snapshot: Value, plan: fn(&O, Timestamp) -> Plan<S, G>) -> Plan<S, G>
where
    O: Serialize + DeserializeOwned,
    S: Debug,
    G: Debug,
{
    let observed: O = serde_json::from_value(snapshot).unwrap();
    let decided = plan(&observed, NOW);
    let again = plan(&recorded(&observed), NOW);
    assert_eq!(format!("{decided:?}"), format!("{again:?}"));
    decided
}

fn template() -> Value {
    json!({
        "runtime": { "resources": { "instanceType": "datumcloud/d1-standard-2" }, "sandbox": { "containers": [{
            "name": "c", "image": "i:1", "envFrom": [{ "secretRef": { "name": "db" } }],
        }] } },
        "networkInterfaces": [{ "network": { "name": "default" } }],
    })
}

fn deployment() -> Value {
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": {
            "name": "wd", "namespace": "ns-1", "uid": "d1", "generation": 2,
            "annotations": {
                "compute.datumapis.com/expected-referenced-data": "[\"Secret/db\"]",
                "compute.datumapis.com/source-generation": "2",
                "resourcetemplate.karmada.io/uid": "h1",
            },
        },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": template() }, "scaleSettings": { "minReplicas": 1 },
        },
    })
}

fn instance(edit: impl FnOnce(&mut Value)) -> Value {
    let mut spec = template();
    spec["controller"] =
        json!({ "templateHash": "h", "schedulingGates": [{ "name": "Network" }, { "name": "ReferencedData" }] });
    let mut object = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": {
            "name": "wd-0", "namespace": "ns-1", "uid": "i", "resourceVersion": "5", "generation": 3,
            "ownerReferences": [{
                "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "name": "wd", "uid": "d1",
                "controller": true,
            }],
        },
        "spec": spec,
        "status": { "conditions": [] },
    });
    edit(&mut object);
    object
}

fn networks() -> Value {
    json!({
        "locations": [{ "name": "dfw-1" }],
        "bindings": [], "contexts": [], "claims": [], "subnets": [],
    })
}

fn only<P>(steps: &[Write<P>]) -> &Write<P> {
    let [write] = steps else { panic!("{steps:?}") };
    write
}

#[test]
fn deployment_snapshot_replays_to_same_plan() {
    let features = json!({ "networks": true, "quota": true, "abandon_claims": false, "data": true });
    let recorded = json!({
        "deployment": deployment(), "instances": [], "in_the_way": [], "features": features, "networks": networks(),
        "timing": Timing::default(),
    });
    let plan = replay::<instances::Observed, _, _>(recorded, instances::plan);
    let written: Vec<String> = plan.steps.iter().map(|write| write.object.to_string()).collect();
    assert_eq!(written, ["WorkloadDeployment ns-1/wd", "NetworkBinding ns-1/wd-net-0", "Instance ns-1/wd-0"]);
}

#[test]
fn instance_snapshot_replays_to_same_plan() {
    let features =
        serde_json::to_value(Features { networks: true, quota: true, data: true, abandon_claims: false }).unwrap();
    let recorded = |companions: Value| {
        let (instance, deployment) = (instance(|_| ()), deployment());
        json!({
            "instance": instance, "deployment": deployment, "features": features,
            "networks": networks(), "companions": companions,
        })
    };
    let reason = |companions: Value| {
        let plan = replay::<instance::Observed, _, _>(recorded(companions), instance::plan);
        let Op::Apply { body, status: true, .. } = &only(&plan.steps).op else { panic!("{plan:?}") };
        body["status"]["conditions"][0]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason(json!([])), "AwaitingPropagation");
    assert_eq!(reason(json!(["Secret/db"])), "Ready");
}

/// The Instance gets the location by which its networks were judged.
#[test]
fn instance_without_location_gets_its_networks_location() {
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": NOW.to_string() }]);
    let object = |name: &str, spec: Value, status: Value| {
        let owner = &instance(|_| ())["metadata"]["ownerReferences"];
        json!({
            "metadata": { "name": name, "namespace": "ns-1", "uid": name, "resourceVersion": "3", "ownerReferences": owner },
            "spec": spec, "status": status,
        })
    };
    let (here, context) = (json!({ "name": "dfw-1" }), json!({ "name": "default-dfw" }));
    let networks = json!({
        "locations": [here],
        "bindings": [object("wd-net-0", json!({ "network": { "name": "default" }, "location": here }),
            json!({ "conditions": ready, "networkContextRef": { "namespace": "ns-1", "name": "default-dfw" } }))],
        "contexts": [object("default-dfw", json!({}), json!({ "conditions": ready }))],
        "claims": [object("c", json!({
            "subnetClass": "private", "networkContext": context, "location": here, "ipFamily": "IPv4",
        }), json!({ "conditions": ready, "subnetRef": { "name": "s" } }))],
        "subnets": [object("s", json!({ "networkContext": context }), json!({ "conditions": ready }))],
    });
    let gated = instance(|object| object["spec"]["controller"]["schedulingGates"] = json!([{ "name": "Network" }]));
    let features = json!({ "networks": true, "quota": false, "data": false, "abandon_claims": false });
    let recorded = json!({
        "instance": gated, "deployment": deployment(), "features": features, "networks": networks, "companions": null,
    });
    let plan = replay::<instance::Observed, _, _>(recorded, instance::plan);
    let Op::Merge { body, .. } = &only(&plan.steps).op else { panic!("{plan:?}") };
    assert_eq!(body["spec"], json!({ "controller": { "schedulingGates": [] }, "location": here }));
}

#[test]
fn quota_snapshot_replays_to_same_plan() {
    let held = instance(|object| object["metadata"]["finalizers"] = json!([crate::api::meta::finalizer::QUOTA]));
    let recorded = |claim: Value| {
        json!({
            "instance": held,
            "address": { "project": "shop", "namespace": "default" },
            "claim": claim, "watched": true,
            "cell": { "uid": "u", "cluster": "dfw-1" },
            "timing": Timing::default(),
        })
    };
    let plan = replay::<quota::Observed, _, _>(recorded(json!("Absent")), quota::plan);
    let made = plan.steps.iter().any(
        |step| matches!(step, Step::Remote(write) if write.object.to_string() == "ResourceClaim default/instance-wd-0"),
    );
    assert!(made, "{plan:?}");
    let unknown = json!({ "Unknown": { "cause": "NoProject", "message": "no answer" } });
    let plan = replay::<quota::Observed, _, _>(recorded(unknown), quota::plan);
    assert_eq!(plan.signals, [quota::Signal::Failed(quota::Cause::NoProject)]);
}

#[test]
fn write_back_snapshot_replays_to_same_plan() {
    let labelled = instance(|object| {
        for key in crate::plan::ownership::OF_AN_INSTANCE {
            object["metadata"]["labels"][key] = json!("x");
        }
    });
    let recorded = json!({
        "object": { "kind": "Instance", "namespace": "ns-1", "name": "wd-0" },
        "instance": labelled, "deployment": deployment(),
        "namespace_labels": {
            "meta.datumapis.com/upstream-cluster-name": "cluster-shop",
            "meta.datumapis.com/upstream-namespace": "default",
        },
        "cell": "u", "copy": null, "rival": "Unread", "timing": Timing::default(),
    });
    let plan = replay::<write_back::Observed, _, _>(recorded, write_back::plan);
    assert_eq!(plan.steps.len(), 3, "its owner, its place, then itself: {plan:?}");
}
