use serde_json::{Value, json};

use super::*;
use crate::{planes::Contexts, screen::Screen, seen::Seen};

fn facts(deployments: &Value) -> Facts {
    serde_json::from_value(json!({
        "now": "2026-01-01T12:00:00Z", "context": "shop", "namespace": "demo", "name": "hello",
        "workload": { "Found": {
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload",
            "metadata": { "namespace": "demo", "name": "hello", "uid": "w", "generation": 7 },
            "spec": { "template": template(), "placements": [] },
            "status": { "observedGeneration": 7, "conditions": [
                condition("Ready", "False", "NotScheduled", "ord waits", "2026-01-01T11:53:50Z"),
            ] },
        } },
        "deployments": { "Found": deployments },
        "clusters": { "NotAsked": "not asked: give --hub-context" },
    }))
    .unwrap()
}

fn template() -> Value {
    json!({ "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } })
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, since: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
        "observedGeneration": 1,
    })
}

fn deployment(city: &str, ready: i32, conditions: &Value) -> Value {
    let hidden = json!({ "NotAsked": "not asked: give --hub-context" });
    json!({
        "object": {
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
            "metadata": { "namespace": "demo", "name": format!("hello-edge-{city}"), "uid": city, "generation": 1 },
            "spec": {
                "workloadRef": { "name": "hello", "uid": "w" }, "placementName": "edge", "cityCode": city,
                "template": template(), "scaleSettings": { "minReplicas": 2 },
            },
            "status": { "readyReplicas": ready, "conditions": conditions },
        },
        "instances": { "Found": [] }, "hub_namespace": null,
        "copy": hidden, "policy": hidden, "binding": hidden, "companions": {}, "cells": {},
    })
}

fn ready() -> Value {
    json!([condition("Ready", "True", "ReplicasAvailable", "2 of 2 Instances are ready", "2026-01-01T11:00:00Z")])
}

fn waits(reason: &str) -> Value {
    json!([condition("Ready", "False", reason, "the message", "2026-01-01T11:53:50Z")])
}

#[test]
fn trace_with_the_rights_of_a_tenant_names_the_reason_and_what_is_hidden() {
    let facts = facts(&json!([deployment("dfw", 2, &ready()), deployment("ord", 0, &waits("NotScheduled"))]));
    let trace = Trace::of(&facts);
    assert_eq!(trace.exit(), Exit::Platform);
    let expected = "\
Workload demo/hello · project shop · generation 7, seen 7 · NOT READY for 6m10s
Waits for the PLATFORM: NotScheduled in ord.

✔ dfw  hello-edge-dfw  2/2   project ✔  data ✔  hub ?  policy ?  binding ?  cell ✔  gates ✔  instances ✔  shown ✔

✖ ord  hello-edge-ord  0/2
  ✔ project   WorkloadDeployment demo/hello-edge-ord, generation 1
  ✔ data      it refers to none
  ? hub       not asked: give --hub-context
  ? policy    not asked: give --hub-context
  ✖ binding   not asked: give --hub-context
    NotScheduled  since 6m10s   <- FIRST BROKEN LINK
    the message
  · cell      none yet
  · gates     open
  · instances 0 of 2 ready
  · shown     0 in the project

WHY     kubectl compute explain NotScheduled
TELL    the platform: shop demo/hello-edge-ord NotScheduled since 2026-01-01T11:53:50Z
";
    assert_eq!(text::text(&trace, Screen::PLAIN), expected);
}

/// With a missing Secret in both cities, the sentence named only the last one.
#[test]
fn trace_names_each_city_that_waits_for_the_same_reason() {
    let cities = ["ord", "dfw"].map(|city| deployment(city, 0, &waits("SourceNotFound")));
    let ams = deployment("ams", 0, &waits("Resolving"));
    let text = text::text(&Trace::of(&facts(&json!([cities[0], cities[1], ams]))), Screen::PLAIN);
    assert!(text.contains("Waits for the TENANT: SourceNotFound in dfw, ord.\n"), "{text}");
}

#[test]
fn advice_has_the_steps_of_whoever_can_act_with_the_names_of_the_trace() {
    let of = |reason: &str, hub: bool| {
        let mut waiting = deployment("ord", 0, &waits(reason));
        waiting["hub_namespace"] = if hub { json!("ns-1") } else { Value::Null };
        text::text(&Trace::of(&facts(&json!([waiting]))), Screen::PLAIN)
    };
    let platform = of("NotScheduled", true);
    assert!(platform.contains("DO      1. ") && platform.contains("-n ns-1 describe resourcebindings"), "{platform}");
    assert!(platform.contains("ALERT   ComputeDeploymentsBlocked"), "{platform}");
    let tenant = of("SourceNotFound", false);
    assert!(tenant.contains("DO      1. ") && !tenant.contains("TELL"), "{tenant}");
    assert!(!tenant.contains("NAMESPACE"), "{tenant}");
    assert!(!of("InstancesProvisioning", true).contains("DO "), "it is in progress");
}

#[test]
fn advice_names_the_contexts_and_the_cluster_that_the_trace_knows() {
    let of = |reason: &str| {
        let mut waiting = deployment("ord", 0, &waits(reason));
        waiting["hub_namespace"] = json!("ns-1");
        let mut facts = facts(&json!([waiting]));
        facts.contexts = Contexts { hub: Some("karmada".into()), cells: [("cell-ord".into(), "pop".into())].into() };
        let mut trace = Trace::of(&facts);
        trace.ways[0].clusters = vec!["cell-ord".to_owned()];
        text::text(&trace, Screen::PLAIN)
    };
    let away = of("ClusterNotReady");
    assert!(away.contains("kubectl --context karmada describe cluster cell-ord"), "{away}");
    assert!(away.contains("label cluster CLUSTER topology"), "the label goes to another Cluster: {away}");
    let silent = of("CellNotReporting");
    assert!(silent.contains("kubectl --context pop -n ns-1 get wd hello-edge-ord"), "{silent}");
    let held = of("QuotaClaimHeld");
    assert!(held.contains("cell dead CLUSTER"), "the holder is another Cluster: {held}");
    let refused = of("ProjectRefused");
    assert!(refused.contains("--context shop"), "{refused}");
}

#[test]
fn ready_of_an_earlier_generation_is_pending() {
    let mut changed = deployment("dfw", 2, &ready());
    changed["object"]["metadata"]["generation"] = json!(2);
    let trace = Trace::of(&facts(&json!([changed])));
    assert_eq!(trace.ways[0].broken.as_ref().map(|broken| &*broken.reason), Some("Pending"));
    assert_ne!(trace.exit(), Exit::Well);
}

#[test]
fn exit_code_says_who_has_to_act() {
    let of = |reasons: &[&str]| {
        let all: Vec<Value> = reasons
            .iter()
            .zip(["dfw", "ord", "lhr"])
            .map(|(reason, city)| deployment(city, 0, &waits(reason)))
            .collect();
        Trace::of(&facts(&json!(all))).exit()
    };
    assert_eq!(of(&["SourceNotFound"]), Exit::Tenant);
    assert_eq!(of(&["QuotaExceeded"]), Exit::Platform);
    assert_eq!(of(&["InstancesProvisioning"]), Exit::InProgress);
    assert_eq!(of(&["InstancesProvisioning", "ImageUnavailable"]), Exit::Tenant, "progress hides no problem");
    assert_eq!(of(&["SourceNotFound", "NotApplied"]), Exit::Platform, "the higher rank counts");
}

#[test]
fn workload_without_deployments_is_explained_by_its_own_condition() {
    let trace = Trace::of(&facts(&json!([])));
    let broken = trace.broken.as_ref().unwrap();
    assert_eq!(broken.reason, "NotScheduled");
    let mut absent = facts(&json!([]));
    (absent.workload, absent.deployments) = (Seen::Absent, Seen::Unknown);
    let trace = Trace::of(&absent);
    assert_eq!(trace.exit(), Exit::CouldNotAsk);
    assert!(text::text(&trace, Screen::PLAIN).contains("Workload demo/hello does not exist"));
    absent.workload = Seen::Denied("workloads is forbidden".to_owned());
    assert!(text::text(&Trace::of(&absent), Screen::PLAIN).contains("not visible with your rights"));
}

#[test]
fn deployment_of_the_go_operator_is_judged_by_its_older_conditions() {
    let since = "2026-01-01T11:00:00Z";
    let of = |conditions: &Value| Trace::of(&facts(&json!([deployment("dfw", 0, conditions)]))).ways[0].broken.clone();
    let good = condition("Available", "True", "StableInstanceFound", "", since);
    let bad = condition("ReferencedDataReady", "False", "SourceNotFound", "Secret db", since);
    assert_eq!(of(&json!([good, bad])).unwrap().reason, "SourceNotFound");
    assert_eq!(of(&json!([good])), None);
    assert_eq!(of(&json!([])).unwrap().reason, "Pending");
}
