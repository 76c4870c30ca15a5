//! Screens of the traces of Instances, data and Clusters.

use serde_json::{Value, json};

use super::{
    cluster::ClusterTrace,
    data::{DataFacts, DataTrace},
    instance::{InstanceFacts, InstanceTrace},
    *,
};
use crate::screen::Screen;

/// A hub with two cells. The one of ord is tainted and drained, and three deployments wait for it.
pub fn hub() -> HubFacts {
    let cluster = |city: &str, taint: Option<&str>| {
        json!({
            "city": city, "label": city, "ready": { "Ok": null }, "generation": 1, "deleting": false,
            "obstacle": taint.map(|taint| format!("has the taint {taint}")),
            "taints": taint.into_iter().collect::<Vec<_>>(), "draining": taint.is_some(),
        })
    };
    let copy = |name: &str, city: &str, ready: i64| json!({ "namespace": "ns-1", "name": name, "upstream": "demo", "city": city, "desired": 2, "ready": ready });
    let bound = |name: Option<&str>, clusters: &Value, unscheduled: Option<&str>| {
        json!({
            "namespace": "ns-1", "deployment": name, "city": null, "clusters": clusters, "unscheduled": unscheduled,
        })
    };
    let on = |ready: i64, trouble: Option<&str>| json!({ "desired": 2, "ready": ready, "trouble": trouble });
    serde_json::from_value(json!({
        "now": "2026-01-01T12:00:00Z",
        "clusters": { "Found": {
            "cell-dfw": cluster("dfw", None),
            "cell-ord": cluster("ord", Some("maintenance=on:NoSchedule")),
        } },
        "copies": { "Found": [
            copy("a-edge-dfw", "DFW", 2), copy("a-edge-ord", "ord", 1), copy("b-edge-ord", "ord", 0),
            copy("c-edge-ord", "ord", 0),
        ] },
        "bindings": { "Found": [
            bound(Some("a-edge-dfw"), &json!({ "cell-dfw": on(2, None) }), None),
            bound(Some("a-edge-ord"), &json!({ "cell-ord": on(1, None) }), None),
            bound(Some("b-edge-ord"), &json!({ "cell-ord": on(0, Some("secrets \"db\" already exists")) }), None),
            bound(Some("c-edge-ord"), &json!({}), Some("NoClusterFit: 0/2 clusters are available")),
            bound(None, &json!({ "cell-dfw": on(0, None) }), None),
        ] },
    }))
    .unwrap()
}

#[test]
fn trace_of_a_cluster_lists_its_deployments_and_what_waits_there() {
    let trace = ClusterTrace::of(&hub(), "cell-ord");
    let expected = "\
Cluster cell-ord · READY, CLOSED
✔ city      ord
✔ ready     yes
✖ scheduler brings nothing new here: the Cluster has the taint maintenance=on:NoSchedule
▲ taints    maintenance=on:NoSchedule
▲ drain     yes
✔ data      0 ConfigMaps and Secrets

NAMESPACE  IN THE PROJECT  CITY  DEPLOYMENTS  READY
ns-1       demo            ord   2            1/4

Waits there:
· ns-1/a-edge-ord  1 of 2 Instances are ready
✖ ns-1/b-edge-ord  not applied: secrets \"db\" already exists
✖ ns-1/c-edge-ord  has no cluster: NoClusterFit: 0/2 clusters are available
";
    assert_eq!(trace.text(Screen::PLAIN), expected);
    assert_eq!(trace.exit(), Exit::Platform);
    let mut fresh = hub();
    if let crate::seen::Seen::Found(bindings) = &mut fresh.bindings {
        bindings.retain(|bound| bound.deployment.as_deref() != Some("b-edge-ord"));
        for bound in bindings {
            bound.unscheduled = None;
        }
    }
    let text = ClusterTrace::of(&fresh, "cell-ord").text(Screen::PLAIN);
    assert!(text.contains("· ns-1/b-edge-ord  has no binding\n"), "{text}");
    assert!(text.contains("· ns-1/c-edge-ord  has no cluster yet"), "{text}");
    let well = ClusterTrace::of(&hub(), "cell-dfw");
    assert!(well.text(Screen::PLAIN).ends_with("Nothing waits there.\n"));
    assert_eq!(well.exit(), Exit::Well);
    let absent = ClusterTrace::of(&hub(), "cell-lhr");
    assert!(absent.text(Screen::PLAIN).contains("? Cluster cell-lhr does not exist"));
    assert_eq!(absent.exit(), Exit::CouldNotAsk);
}

fn data() -> DataFacts {
    let meta = |uid: &str, version: &str, template: Option<&str>| json!({ "Found": { "uid": uid, "version": version, "template": template } });
    serde_json::from_value(json!({
        "now": "2026-01-01T12:00:00Z", "context": "shop", "namespace": "demo", "data": "Secret/db",
        "source": meta("s", "812", None),
        "workloads": { "Found": { "hello": [
            { "asked_by": "container web: env PASSWORD", "optional": false },
            { "asked_by": "volume keys", "optional": true },
        ] } },
        "deployments": { "Found": [
            { "deployment": "hello-edge-dfw", "workload": "hello", "city": "dfw", "clusters": { "Found": ["cell-dfw"] } },
            { "deployment": "hello-edge-lhr", "workload": "hello", "city": "lhr", "clusters": "Absent" },
            { "deployment": "hello-edge-ord", "workload": "hello", "city": "ord", "clusters": { "Found": ["cell-ord"] } },
        ] },
        "hub_namespace": "ns-1", "copy": meta("h", "40", None), "binding": "Absent",
        "cells": { "cell-dfw": meta("c", "7", Some("h")), "cell-ord": meta("x", "9", None) },
    }))
    .unwrap()
}

#[test]
fn trace_of_a_secret_names_its_users_and_the_cities_that_have_it() {
    let trace = DataTrace::of(&data());
    let expected = "\
Secret demo/db · project shop · used by 1 Workload(s) in 3 city(s)

WORKLOAD  CITIES         FIELD                        OPTIONAL
hello     dfw, lhr, ord  container web: env PASSWORD  no
hello     dfw, lhr, ord  volume keys                  yes

✔ project         uid s, resourceVersion 812
✔ hub             a copy, uid h, resourceVersion 40
✔ dfw (cell-dfw)  has it, uid c, resourceVersion 7
· lhr             its deployment has no binding yet
✖ ord (cell-ord)  has another object of this name, uid x, resourceVersion 9
";
    assert_eq!(trace.text(Screen::PLAIN), expected);
    assert_eq!(trace.exit(), Exit::Platform);
    let mut facts = data();
    facts.source = crate::seen::Seen::Absent;
    let absent = DataTrace::of(&facts);
    assert_eq!(absent.exit(), Exit::Tenant);
    assert!(absent.text(Screen::PLAIN).contains("✖ project         does not exist (SourceNotFound)"));
    facts.source = crate::seen::Seen::Denied("secrets are forbidden".to_owned());
    facts.cells.clear();
    facts.workloads = crate::seen::Seen::Found([].into());
    let hidden = DataTrace::of(&facts);
    assert_eq!(hidden.exit(), Exit::CouldNotAsk);
    assert!(hidden.text(Screen::PLAIN).contains("? project"));
}

fn instance(conditions: &Value, gates: &Value) -> Value {
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": { "namespace": "demo", "name": "hello-edge-ord-0", "uid": "i" },
        "spec": {
            "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [],
            "controller": { "templateHash": "h", "schedulingGates": gates },
        },
        "status": { "conditions": conditions },
    })
}

#[test]
fn trace_of_an_instance_has_its_conditions_its_gates_and_its_planes() {
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "the message",
            "lastTransitionTime": "2026-01-01T11:53:50Z",
        })
    };
    let conditions = json!([
        condition("Ready", "False", "QuotaExceeded"),
        condition("QuotaGranted", "False", "QuotaExceeded"),
        condition("ReferencedDataReady", "True", "Ready"),
    ]);
    let gates = json!([{ "name": "Quota" }, { "name": "ReferencedData" }]);
    let on_cell =
        json!([condition("Ready", "False", "QuotaExceeded"), condition("WrittenBack", "False", "HubRefused")]);
    let facts: InstanceFacts = serde_json::from_value(json!({
        "name": "hello-edge-ord-0",
        "instance": { "Found": instance(&conditions, &gates) },
        "hub": "Absent",
        "cells": { "cell-ord": { "Found": instance(&on_cell, &gates) } },
        "deployment": {
            "now": "2026-01-01T12:00:00Z", "context": "shop", "namespace": "demo", "name": "hello",
            "workload": "Unknown", "deployments": "Absent", "clusters": "Unknown",
        },
    }))
    .unwrap();
    let trace = InstanceTrace::of(&facts);
    let expected = "\
Instance demo/hello-edge-ord-0 · project shop · NOT READY for 6m10s
Waits for the PLATFORM: QuotaExceeded.

CONDITION            STATUS  REASON         WHO ACTS  SINCE  MESSAGE
Ready                False   QuotaExceeded  platform  6m10s  the message
QuotaGranted         False   QuotaExceeded  platform  6m10s  the message
ReferencedDataReady  True    Ready          –         6m10s  the message

Gates that it waits for: Quota (met: ReferencedData)

✖ project   Ready=False QuotaExceeded
✖ hub       does not exist
✖ cell-ord  Ready=False QuotaExceeded, WrittenBack=False HubRefused
";
    assert_eq!(trace.text(Screen::PLAIN), expected);
    assert_eq!(trace.exit(), Exit::Platform);
    let absent = InstanceTrace::of(&InstanceFacts { instance: crate::seen::Seen::Absent, ..facts });
    assert_eq!(absent.exit(), Exit::CouldNotAsk);
    assert!(absent.text(Screen::PLAIN).contains("? Instance demo/hello-edge-ord-0 does not exist in the project"));
}

#[tokio::test(start_paused = true)]
async fn watch_prints_what_changes_until_it_is_ready() {
    let traces = std::cell::RefCell::new(vec!["cell-dfw", "cell-ord", "cell-ord"]);
    let read = async || {
        let name = traces.borrow_mut().pop().unwrap();
        let mut trace = ClusterTrace::of(&hub(), name);
        trace.time = Timestamp::now();
        Any::Cluster(trace)
    };
    let mut out = Vec::new();
    let exit = watch(read, Output::plain(Form::Text), &mut out).await.unwrap();
    assert_eq!(exit, Exit::Well);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.matches("Cluster cell-ord · ").count(), 1, "the second is the same as the first: {text}");
    assert_eq!(text.matches("Cluster cell-dfw · ").count(), 1, "{text}");
}

#[test]
fn graph_of_a_trace_quotes_its_texts() {
    let trace: Trace = serde_json::from_value(json!({
        "time": "2026-01-01T12:00:00Z", "context": "shop", "namespace": "demo", "workload": "hello", "generation": null,
        "ways": [{
            "deployment": "hello-edge-ord", "city": "ord", "ready": 0, "desired": 1, "clusters": [],
            "steps": [
                { "link": "project", "mark": "well", "text": "it" },
                { "link": "binding", "mark": "broken", "text": "none" },
            ],
            "broken": { "link": "binding", "reason": "NotScheduled", "message": "a \"b\"\nc", "waitsFor": "platform" },
        }],
    }))
    .unwrap();
    let expected = r#"digraph trace {
  rankdir=LR;
  node [shape=box, style=filled, fontname="sans-serif"];
  workload [label="Workload demo/hello", fillcolor=salmon];
  d0_project [label="ord project\nit", fillcolor=palegreen];
  workload -> d0_project;
  d0_binding [label="ord binding\nnone\nNotScheduled: a \"b\"\nc", fillcolor=salmon];
  d0_project -> d0_binding;
}
"#;
    assert_eq!(dot::dot(&trace), expected);
}
