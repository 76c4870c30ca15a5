use serde_json::Value;

use super::*;
use crate::plan::{Object, Op};

fn instance(gates: &[&str]) -> Instance {
    let gates: Vec<Value> = gates.iter().map(|name| json!({ "name": name })).collect();
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": { "name": "web-0", "namespace": "ns-1", "uid": "i", "resourceVersion": "5" },
        "spec": {
            "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [],
            "controller": { "templateHash": "h", "schedulingGates": gates },
        },
    }))
    .unwrap()
}

fn deployment(replicas: i32, reported: Option<i32>) -> WorkloadDeployment {
    let status =
        reported.map(|desired| json!({ "desiredReplicas": desired, "observedGeneration": 1, "conditions": [] }));
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": { "name": "web", "namespace": "ns-1", "uid": "d", "labels": { label::UPSTREAM_NAMESPACE: "shop" } },
        "spec": {
            "workloadRef": { "name": "web", "uid": "w" }, "placementName": "p", "cityCode": "dfw",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 }, "replicas": replicas,
        },
        "status": status,
    }))
    .unwrap()
}

fn some_write() -> Write<Cell> {
    Write::confirm_absent(Object::named::<Instance>("ns-1", "web-0")).into()
}

/// Returns type, reason, note and related object of the Event that belongs to a write.
fn told(write: &Write<Cell>) -> Option<(String, String, String, Value)> {
    let Op::Create { body, .. } = write.told()?.op else { panic!("{write:?}") };
    let text = |key: &str| body[key].as_str().unwrap().to_owned();
    Some((text("type"), text("reason"), text("note"), body["related"].clone()))
}

#[test]
fn waiting_instance_new_bad_reason_warns_once() {
    let gated = instance(&["Quota"]);
    let running = instance(&[]);
    let verdict = |reason: Reason| Verdict::no(reason, "why");
    let before = |reason: Reason| verdict(reason).into_condition(&[], "QuotaGranted", Some(1), Timestamp::UNIX_EPOCH);
    for (of, before, now, warns) in [
        (&gated, None, Reason::QuotaNoBudget, true),
        (&gated, None, Reason::AwaitingPropagation, true),
        (&gated, Some(before(Reason::PendingEvaluation)), Reason::QuotaExceeded, true),
        (&gated, Some(before(Reason::QuotaExceeded)), Reason::QuotaExceeded, false),
        (&gated, None, Reason::PendingEvaluation, false),
        (&gated, None, Reason::QuotaAvailable, false),
        (&running, None, Reason::QuotaBackendUnavailable, false),
    ] {
        let write = warn(some_write(), of, before.as_ref(), &verdict(now.clone()), Timestamp::UNIX_EPOCH);
        let expected = warns.then(|| ("Warning".to_owned(), now.to_string(), "why".to_owned(), Value::Null));
        assert_eq!(told(&write), expected, "{now} after {before:?}");
    }
}

#[test]
fn data_gate_opening_is_a_normal_event() {
    for (gates, reports) in [(&["Network", "ReferencedData"][..], true), (&["Network", "Quota"], false)] {
        let event = told(&opens(some_write(), &instance(gates), Timestamp::UNIX_EPOCH));
        let event = event.map(|(severity, reason, ..)| (severity, reason));
        assert_eq!(event, reports.then(|| ("Normal".to_owned(), "GateOpened".to_owned())), "{gates:?}");
    }
}

#[test]
fn events_of_deletion_and_scaling_name_the_workload() {
    let workload = json!({ "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload", "namespace": "shop",
        "name": "web", "uid": "w" });
    for (is_surplus, note) in
        [(true, "Scaling down to 2 replicas"), (false, "Replacing it with the deployment's current template")]
    {
        let write = terminates(some_write(), &deployment(2, None), &instance(&[]), is_surplus, Timestamp::UNIX_EPOCH);
        let expected = ("Normal".to_owned(), "Terminating".to_owned(), note.to_owned(), workload.clone());
        assert_eq!(told(&write), Some(expected));
    }
    for (reported, note) in [(None, None), (Some(3), None), (Some(2), Some("Scaled from 2 to 3 replicas"))] {
        let write = scales(some_write(), &deployment(3, reported), Timestamp::UNIX_EPOCH);
        let expected = note.map(|note| ("Normal".to_owned(), "Scaled".to_owned(), note.to_owned(), workload.clone()));
        assert_eq!(told(&write), expected, "{reported:?}");
    }
}
