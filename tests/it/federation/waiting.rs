//! The conditions that tools wait for, and the status writes that they cost.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use kube::{api::WatchParams, core::WatchEvent};
use serde_json::Value;
use testbed::{go_program::Program, kstatus, pki::User};

use super::*;
use crate::common::skipping::skipped;

/// `kubectl wait --for=condition=Available` returned at the first ready Instance of the first city.
#[test]
fn kubectl_wait_for_ready_returns_when_every_instance_of_every_city_runs() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("wait").await;
        apply(&world.project, workload(&ns, "web", &["dfw", "ord"], 2)).await;
        // The definition's default covers the time before the operator has seen the Workload.
        let first = get(&world.project, "Workload", &ns, "web").await.unwrap();
        assert!(first.data["status"]["observedGeneration"].is_i64(), "{}", first.data["status"]);
        assert_ne!(condition(&first, "Ready")["status"], "True", "{}", first.data["status"]);
        let bin = testbed::binaries::find_with_kubectl(&|_| ()).unwrap();
        let mut kubectl = tokio::process::Command::new(bin.join("kubectl"));
        kubectl.arg(format!("--kubeconfig={}", world.bed.project.kubeconfig(&User::Admin).display()));
        kubectl.args(["-n", &ns, "wait", "--for=condition=Ready", "workloads.compute.datumapis.com/web"]);
        let done = kubectl.arg("--timeout=120s").kill_on_drop(true).output().await.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let web = get(&world.project, "Workload", &ns, "web").await.unwrap();
        assert_eq!(condition(&web, "Ready")["message"], "4 of 4 Instances are ready");
        for counter in ["replicas", "readyReplicas", "updatedReplicas", "desiredReplicas"] {
            assert_eq!(web.data["status"][counter], 4, "{counter}: {}", web.data["status"]);
        }
        judged(world, &ns).await;
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

/// Lets kstatus judge the objects of a namespace in which everything runs.
async fn judged(world: &crate::common::World, ns: &str) {
    let program = match kstatus::build().unwrap() {
        Program::Built(program) => program,
        Program::Missing(what) => return skipped(&format!("kstatus' own code does not judge the objects: {what}")),
    };
    let mut objects = Vec::new();
    for kind in ["Workload", "WorkloadDeployment", "Instance"] {
        objects.extend(list(&world.project, kind, ns).await.iter().map(|object| {
            let mut object = json!(object);
            object["kind"] = json!(kind);
            object["apiVersion"] = json!("compute.datumapis.com/v1alpha");
            object
        }));
    }
    assert_eq!(objects.len(), 1 + 2 + 4);
    let answers = kstatus::judge(&program, &objects).unwrap();
    assert!(answers.iter().all(|answer| answer == "Current"), "{answers:?}");
}

/// Returns a status without the parts that tools wait for.
fn without_readiness(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|c| !["Ready", "Reconciling", "Stalled"].iter().any(|type_| c["type"] == *type_));
    }
    if let Some(fields) = status.as_object_mut() {
        fields.remove("observedGeneration");
        fields.retain(|_, value| *value != json!(0) && *value != json!([]));
    }
    status
}

#[test]
fn readiness_costs_at_most_one_status_write_of_a_deployment() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, _) = world.namespace("readiness").await;
        apply(&world.project, workload(&ns, "first", &["ord"], 1)).await;
        ready(world, &ns, "first", 1).await;
        let watched = |kind: &'static str, name: &str| {
            let api = api(&world.project, kind, &ns);
            let seen = Arc::new(Mutex::new(Vec::<Value>::new()));
            let (kept, field) = (seen.clone(), format!("metadata.name={name}"));
            let task = tokio::spawn(async move {
                let mut events = api.watch(&WatchParams::default().fields(&field), "0").await.unwrap().boxed();
                while let Some(Ok(event)) = events.next().await {
                    if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                        kept.lock().unwrap().push(object.data["status"].clone());
                    }
                }
            });
            (seen, task)
        };
        let (of_workload, one) = watched("Workload", "second");
        let (of_deployment, other) = watched("WorkloadDeployment", "second-p-ord");
        apply(&world.project, workload(&ns, "second", &["ord"], 1)).await;
        eventually("it is ready", || async {
            let second = get(&world.project, "Workload", &ns, "second").await.ok_or("gone")?;
            if condition(&second, "Ready")["status"] == "True" {
                Ok(())
            } else {
                Err(second.data["status"].to_string())
            }
        })
        .await;
        tokio::time::sleep(Duration::from_secs(2)).await; // for the last event
        one.abort();
        other.abort();
        for (kind, seen) in [("Workload", of_workload), ("WorkloadDeployment", of_deployment)] {
            let mut with = seen.lock().unwrap().clone();
            with.dedup();
            let mut without: Vec<Value> = with.iter().map(without_readiness).collect();
            without.dedup();
            // The first version has no status of the operator.
            let (with, without) = (with.len() - 1, without.len() - 1);
            eprintln!("{kind}: {with} status writes, {without} without the conditions of tools");
            assert!(with > 0 && with <= without + 1, "{kind}: {with} status writes, {without} without");
        }
    });
}
