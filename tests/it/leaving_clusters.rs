//! Clusters that a city leaves. The drain of one fails while the manager restarts. The other one is deleted.

use std::time::Duration;

use crate::{
    common::{
        ABSENT, RUNTIME, World,
        beds::{Wish, alone},
        condition, delete, eventually,
        example_app::deploy,
        get, list, merge, never_within, ready,
    },
    one_place::{guarded, label, start, uids},
};
use kube::ResourceExt;
use serde_json::{Value, json};

const DRAIN: &str = "compute.datumapis.com/drain";
const FAILED: &str = "compute.datumapis.com/drain-failed";
/// Karmada's finalizer, which keeps a Cluster until nothing is bound to it.
const FINALIZER: &str = "karmada.io/cluster-controller";

async fn drain(world: &World, on: bool) {
    let value = if on { json!("true") } else { Value::Null };
    let patch = json!({ "metadata": { "annotations": { DRAIN: value } } });
    merge(&world.hub, "Cluster", "", "cell-dfw", patch).await;
}

/// Fails unless the failed drain is reported on the Cluster and on the deployment, and counted.
async fn is_reported(world: &World, ns: &str, why: &str) -> Result<(), String> {
    let events = list(&world.hub, "Event", "default").await;
    let notes = events.iter().filter(|event| event.data["reason"] == "DrainFailed").map(|event| &event.data["note"]);
    let notes: Vec<&str> = notes.filter_map(Value::as_str).collect();
    if !notes.iter().any(|note| note.contains(why)) {
        return Err(format!("on the Cluster: {notes:?}"));
    }
    let wd = get(&world.project, "WorkloadDeployment", ns, "web-p-dfw").await.ok_or("no deployment")?;
    let said = condition(&wd, "Federated");
    if said["reason"] != "DrainWaiting" || !said["message"].as_str().is_some_and(|text| text.contains(why)) {
        return Err(said.to_string());
    }
    let metrics = world.operators[0].metrics().await.map_err(|error| error.to_string())?;
    let mut drains = metrics.lines().filter(|line| line.starts_with("compute_federation_drains{"));
    let counted = drains.any(|line| line.contains("city=\"dfw\"") && line.ends_with("state=\"failed\"} 1"));
    if counted { Ok(()) } else { Err("the gauge does not count it".to_owned()) }
}

/// Returns the drain failure on the city's policy, and the generation of the policy.
async fn said(world: &World, hub: &str) -> (Option<String>, Option<i64>) {
    let policy = get(&world.hub, "PropagationPolicy", hub, "city-dfw").await.unwrap();
    (policy.annotations().get(FAILED).cloned(), policy.metadata.generation)
}

#[test]
fn failed_drain_is_reported_by_the_next_manager_and_not_restarted() {
    RUNTIME.block_on(async {
        let management = "timing:\n  arrivalSeconds: 20\n  pollSeconds: 0.5\n";
        let mut world = alone(Wish { management: management.into(), ..Wish::default() }).await;
        let (ns, hub) = world.namespace("failed").await;
        start(&world, &ns, "web", &["dfw"]).await;
        ready(&world, &ns, "web", 1).await;
        guarded(&world, &hub, "cell-dfw").await;
        label(&world.hub, "cell-ord", Some("dfw")).await;
        // No Instance becomes ready on the target.
        world.bed.serve_instances_of("ord", false).await.unwrap();
        drain(&world, true).await;
        let why = format!("{hub} did not arrive on cell-ord");
        eventually("the drain has failed", || is_reported(&world, &ns, &why)).await;
        guarded(&world, &hub, "cell-dfw").await;
        eventually("it is back", || async {
            let (dfw, ord) = (uids(&world.dfw, &hub).await, uids(&world.ord, &hub).await);
            if dfw.len() == 2 && ord.is_empty() { Ok(()) } else { Err(format!("{dfw:?} {ord:?}")) }
        })
        .await;
        ready(&world, &ns, "web", 1).await;
        let before = (said(&world, &hub).await, uids(&world.dfw, &hub).await);
        assert!(before.0.0.as_ref().is_some_and(|text| text.contains("cell-ord")), "{before:?}");
        // The next manager knows the failure only from the policy.
        world.operators[0].process.kill();
        for event in list(&world.hub, "Event", "default").await {
            delete(&world.hub, "Event", "default", &event.name_any()).await;
        }
        world.restart_manager(&[]).await;
        eventually("the next manager reports it", || is_reported(&world, &ns, &why)).await;
        never_within(ABSENT * 2, "it is begun again", || async {
            let now = (said(&world, &hub).await, uids(&world.dfw, &hub).await);
            (now != before || !uids(&world.ord, &hub).await.is_empty()).then_some(now)
        })
        .await;
        // A new request starts the drain again.
        world.bed.serve_instances_of("ord", true).await.unwrap();
        drain(&world, false).await;
        eventually("it is called off", || async {
            let (failed, _) = said(&world, &hub).await;
            failed.map_or(Ok(()), Err)
        })
        .await;
        drain(&world, true).await;
        guarded(&world, &hub, "cell-ord").await;
        ready(&world, &ns, "web", 1).await;
        eventually("it is on the other cluster", || async {
            let (dfw, ord) = (uids(&world.dfw, &hub).await, uids(&world.ord, &hub).await);
            if dfw.is_empty() && ord.len() == 2 { Ok(()) } else { Err(format!("{dfw:?} {ord:?}")) }
        })
        .await;
    });
}

/// A user deletes the Cluster of a city. Karmada keeps the Cluster until nothing is bound to it, and removes its deployments at
/// once.
#[test]
fn deployments_of_a_deleted_cluster_move_to_its_ready_successor() {
    RUNTIME.block_on(async {
        let management = "timing:\n  pollSeconds: 0.5\n";
        let world = alone(Wish { management: management.into(), ..Wish::default() }).await;
        let mut places = Vec::new();
        for _ in 0..2 {
            let (ns, hub) = world.namespace("deleted").await;
            deploy(&world, &ns, &["dfw"]).await;
            places.push((ns, hub));
        }
        for (ns, hub) in &places {
            ready(&world, ns, "web", 1).await;
            guarded(&world, hub, "cell-dfw").await;
        }
        label(&world.hub, "cell-ord", Some("dfw")).await;
        if world.bed.stand_in().is_some() {
            merge(&world.hub, "Cluster", "", "cell-dfw", json!({ "metadata": { "finalizers": [FINALIZER] } })).await;
        }
        let cluster = get(&world.hub, "Cluster", "", "cell-dfw").await.unwrap();
        assert!(cluster.finalizers().iter().any(|finalizer| finalizer == FINALIZER), "{:?}", cluster.finalizers());
        delete(&world.hub, "Cluster", "", "cell-dfw").await;
        for (ns, hub) in &places {
            eventually("it is on the successor, and nothing of it where it was", || async {
                let there = get(&world.ord, "Secret", hub, "db").await.is_some();
                let left = get(&world.dfw, "Secret", hub, "db").await.is_some();
                let (dfw, ord) = (uids(&world.dfw, hub).await, uids(&world.ord, hub).await);
                let moved = there && !left && dfw.is_empty() && ord.len() == 2;
                if moved { Ok(()) } else { Err(format!("{there} {left} {dfw:?} {ord:?}")) }
            })
            .await;
            ready(&world, ns, "web", 1).await;
            guarded(&world, hub, "cell-ord").await;
        }
        if world.bed.stand_in().is_some() {
            let cluster = get(&world.hub, "Cluster", "", "cell-dfw").await.unwrap();
            assert!(cluster.metadata.deletion_timestamp.is_some(), "the Cluster is still terminating");
            merge(&world.hub, "Cluster", "", "cell-dfw", json!({ "metadata": { "finalizers": null } })).await;
        }
        eventually("the Cluster is deleted, because nothing is bound to it", || async {
            let left = get(&world.hub, "Cluster", "", "cell-dfw").await;
            left.map_or(Ok(()), |left| Err(format!("{:?}", left.finalizers())))
        })
        .await;
        let before = uids(&world.ord, &places[0].1).await;
        // The Cluster joins again with its name and label. The moved deployments stay where they are.
        world.bed.join("dfw").await.unwrap();
        never_within(Duration::from_secs(2), "it moves back", || async {
            let now = uids(&world.ord, &places[0].1).await;
            (now != before).then_some(now)
        })
        .await;
    });
}
