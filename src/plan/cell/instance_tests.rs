use super::*;
use crate::plan::Op;
use serde_json::Value;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const OFF: Features = Features { networks: false, quota: false };

fn instance(generation: i64, gates: &[&str], conditions: &Value) -> Instance {
    let gates: Vec<Value> = gates.iter().map(|name| json!({ "name": name })).collect();
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": { "name": "wd-0", "namespace": "ns", "uid": "i0", "resourceVersion": "5", "generation": generation },
        "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [], "controller": { "templateHash": "h", "schedulingGates": gates } },
        "status": { "conditions": conditions },
    }))
    .unwrap()
}

fn condition(type_: &str, status: &str, reason: &str, generation: i64) -> Value {
    json!({ "type": type_, "status": status, "reason": reason, "message": "m", "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

/// Plans and carries out until nothing is left to do; returns the operations.
fn settle(instance: &mut Instance) -> Vec<&'static str> {
    let mut done = Vec::new();
    loop {
        let Some(write) = plan(instance, OFF, NOW).steps.into_iter().next() else { return done };
        match write.op {
            Op::Apply { body, status: true, .. } => {
                done.push("status");
                let new: Vec<Condition> = serde_json::from_value(body["status"]["conditions"].clone()).unwrap();
                let conditions = &mut instance.status.as_mut().unwrap().conditions;
                conditions.retain(|c| new.iter().all(|n| n.type_ != c.type_));
                conditions.extend(new);
            }
            Op::Merge { body, .. } => {
                done.push("gates");
                assert_eq!(
                    (&body["metadata"]["resourceVersion"], &body["metadata"]["uid"]),
                    (&json!("5"), &json!("i0"))
                );
                let left = serde_json::from_value(body["spec"]["controller"]["schedulingGates"].clone()).unwrap();
                instance.spec.controller.as_mut().unwrap().scheduling_gates = left;
                *instance.metadata.generation.as_mut().unwrap() += 1;
            }
            other => panic!("{other:?}"),
        }
        assert!(done.len() < 10, "{done:?}");
    }
}

fn ready_of(instance: &Instance) -> &Condition {
    find(&instance.status.as_ref().unwrap().conditions, "Ready").unwrap()
}

#[test]
fn the_gates_of_features_that_are_off_open_on_a_recorded_verdict() {
    let mut object = instance(1, &["Network", "Quota"], &json!([]));
    assert_eq!(settle(&mut object), ["status", "gates", "status"], "verdict, gates, verdict for the new generation");
    assert!(gates(&object).is_empty());
    let quota = find(&object.status.as_ref().unwrap().conditions, "QuotaGranted").unwrap();
    assert_eq!((quota.reason.as_str(), quota.observed_generation), ("QuotaDisabled", Some(2)));
    assert_eq!(ready_of(&object).reason, reason::PENDING_PROGRAMMING);
}

#[test]
fn a_verdict_on_an_older_generation_opens_no_gate() {
    let stale = json!([condition("QuotaGranted", "True", "QuotaDisabled", 1), condition("Ready", "False", "x", 1)]);
    let object = instance(2, &["Quota"], &stale);
    let quota = Features { quota: true, ..OFF };
    assert!(open_gates(&object, quota, &object.status.as_ref().unwrap().conditions).is_none());
    let fresh = json!([condition("QuotaGranted", "True", "QuotaAvailable", 2)]);
    let object = instance(2, &["Quota"], &fresh);
    assert!(open_gates(&object, quota, &object.status.as_ref().unwrap().conditions).is_some());
}

#[test]
fn gates_that_nobody_can_judge_stay_shut() {
    let mut object = instance(1, &["Network", "Quota", "ReferencedData"], &json!([]));
    settle(&mut object);
    assert_eq!(gates(&object).iter().map(|g| g.name.as_str()).collect::<Vec<_>>(), ["ReferencedData"]);
    assert_eq!(ready_of(&object).message, "Scheduling gates present: ReferencedData");
    let networks = Features { networks: true, quota: false };
    let object = instance(1, &["Network"], &json!([]));
    assert!(open_gates(&object, networks, &[]).is_none());
}

#[test]
fn readiness_follows_the_provider_and_tells_its_words() {
    for (conditions, status, reason) in [
        (json!([]), ConditionStatus::False, "PendingProgramming"),
        (json!([condition("Programmed", "Unknown", "Pending", 1)]), ConditionStatus::False, "PendingProgramming"),
        (json!([condition("Programmed", "False", "ImageUnavailable", 1)]), ConditionStatus::False, "ImageUnavailable"),
        (json!([condition("Programmed", "True", "Programmed", 1)]), ConditionStatus::False, "Provisioning"),
        (
            json!([condition("Programmed", "True", "Programmed", 1), condition("Available", "False", "Starting", 1)]),
            ConditionStatus::False,
            "Starting",
        ),
        (
            json!([condition("Programmed", "True", "Programmed", 1), condition("Available", "True", "Available", 1)]),
            ConditionStatus::True,
            "Available",
        ),
    ] {
        let mut object = instance(1, &[], &conditions);
        settle(&mut object);
        assert_eq!((ready_of(&object).status, ready_of(&object).reason.as_str()), (status, reason), "{conditions}");
    }
}
