//! Two managers on one cell by mistake. Each undoes the other's writes, and both slow down.

use std::time::Duration;

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Wish, alone},
    binary, condition, eventually, get, list, ready, workload,
};
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use testbed::{audit::Audit, operator::Operator};

/// Longest pause before one of them repeats a write that the other has undone.
const PAUSE: &str = "timing:\n  takeoverPauseSeconds: 4\n";
/// Time for which the writes are counted.
const WHILE: Duration = Duration::from_secs(8);

/// Returns the number of status writes in a namespace of cell dfw during the conflict.
async fn writes(world: &World, namespace: &str) -> usize {
    let mark = Audit::mark(world.bed.cell("dfw").unwrap());
    tokio::time::sleep(WHILE).await;
    let requests = mark.requests().unwrap();
    let counts = |r: &&testbed::audit::Request| r.namespace == namespace && r.resource.ends_with("/status");
    requests.iter().filter(counts).filter(|r| ["patch", "update"].contains(&&*r.verb)).count()
}

async fn told(client: &Client, namespace: &str, name: &str) {
    eventually(&format!("it is reported on {name}"), || async {
        let events = list(client, "Event", namespace).await;
        let told = events.iter().filter(|event| event.data["reason"] == "WritesTakenBack");
        let on = told.filter(|event| event.data["regarding"]["name"] == name).count();
        if on > 0 { Ok(()) } else { Err(format!("{} events", events.len())) }
    })
    .await;
}

async fn gauge(operator: &Operator, positive: bool) {
    eventually("the contested object is counted", || async {
        let text = operator.metrics().await.map_err(|error| error.to_string())?;
        let lines = text.lines().filter(|line| line.starts_with("compute_contested_objects{"));
        let counted: f64 = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        if (counted > 0.0) == positive { Ok(()) } else { Err(counted.to_string()) }
    })
    .await;
}

#[test]
fn two_managers_of_one_cell_slow_down_their_conflict() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { cell: PAUSE.into(), networks_and_quota: true, ..Wish::default() }).await;
        let (ns, hub) = world.namespace("two").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;

        // The second manager has no quota credentials, and reports that on every Instance.
        world.bed.options_mut().quota = false;
        let second = Operator::cell(&world.bed, binary(), "dfw", &[]).unwrap();
        told(&world.dfw, &hub, "web-p-dfw-0").await;
        let written = writes(&world, &hub).await;
        assert!(written < 40, "{written} writes to statuses in {WHILE:?}");
        let first = world.of_cell("dfw");
        gauge(&world.operators[first], true).await;
        let uid = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap().metadata.uid;
        drop(second);
        eventually("the first manager continues", || async {
            let instance = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.ok_or("gone")?;
            let said = condition(&instance, "QuotaGranted");
            assert_eq!(instance.metadata.uid, uid, "it runs on");
            if said["reason"] == "QuotaAvailable" { Ok(()) } else { Err(said.to_string()) }
        })
        .await;
        gauge(&world.operators[first], false).await;
    });
}

#[test]
fn go_manager_still_writing_a_status_is_answered_slowly() {
    RUNTIME.block_on(async {
        let world = alone(Wish { cell: PAUSE.into(), ..Wish::default() }).await;
        let (ns, hub) = world.namespace("rival").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        let deployments = api(&world.dfw, "WorkloadDeployment", &hub);
        let rival = tokio::spawn(async move {
            // The rival updates the whole status whenever the message differs.
            let params = PatchParams { field_manager: Some("manager".into()), ..PatchParams::default() };
            loop {
                let live = deployments.get("web-p-dfw").await.unwrap();
                if condition(&live, "Available")["message"] != "as Go says it" {
                    let mut conditions = live.data["status"]["conditions"].as_array().unwrap().clone();
                    for condition in &mut conditions {
                        condition["message"] = json!("as Go says it");
                    }
                    let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
                    deployments.patch_status("web-p-dfw", &params, &patch).await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        told(&world.dfw, &hub, "web-p-dfw").await;
        let written = writes(&world, &hub).await;
        rival.abort();
        assert!(written < 20, "{written} writes to statuses in {WHILE:?}");
        eventually("it reports its status again", || async {
            let live = get(&world.dfw, "WorkloadDeployment", &hub, "web-p-dfw").await.ok_or("gone")?;
            let said = condition(&live, "Available");
            if said["message"] == "1/1 instances are ready" { Ok(()) } else { Err(said.to_string()) }
        })
        .await;
    });
}
