//! Drains while Karmada's scheduler or the way back is unavailable.

use crate::{
    common::{ABSENT, RUNTIME, eventually, get, merge, skip},
    drains::{Obstacle, Stage, stage},
};
use serde_json::{Value, json};

/// Waits until the first group in each namespace's policy has a name with this part.
async fn policies_have(stage: &Stage, group: &str) {
    for place in &stage.places {
        eventually(&format!("the policy has {group}"), || async {
            let policy = get(&stage.world.hub, "PropagationPolicy", &place.hub, "city-dfw").await.ok_or("no policy")?;
            let name = policy.data["spec"]["placement"]["clusterAffinities"][0]["affinityName"].to_string();
            if name.contains(group) { Ok(()) } else { Err(name) }
        })
        .await;
    }
}

#[test]
fn drain_cancelled_during_a_scheduler_outage_moves_nothing() {
    RUNTIME.block_on(async {
        let mut stage = Box::pin(stage(1, 20)).await;
        if stage.world.bed.stand_in().is_none() {
            skip!("Karmada's own processes are not stopped by a test");
        }
        let before = stage.all(stage.from).await;
        stage.world.bed.stop_stand_in();
        stage.drain(true).await;
        policies_have(&stage, "moving-").await;
        stage.drain(false).await;
        policies_have(&stage, "city").await;
        stage.world.bed.restart_stand_in().await.unwrap();
        stage.settled(stage.from, stage.to).await;
        tokio::time::sleep(ABSENT).await; // the test checks that nothing happens in this time
        assert_eq!(stage.all(stage.from).await, before, "deployments that have not moved stay");
        stage.state(None).await;
    });
}

#[test]
fn drain_of_a_cordoned_cluster_reports_the_missing_way_back_first() {
    RUNTIME.block_on(async {
        let mut stage = Box::pin(stage(1, 40)).await;
        Obstacle::Provider.set(&mut stage, true).await;
        let before = stage.all(stage.from).await;
        let cordoned = |on: bool| {
            let taints = json!([{ "key": "maintenance", "effect": "NoSchedule" }]);
            json!({ "spec": { "taints": if on { taints } else { Value::Null } } })
        };
        let (hub, from) = (stage.world.hub.clone(), stage.from.cluster());
        merge(&hub, "Cluster", "", &from, cordoned(true)).await;
        stage.drain(true).await;
        let said =
            "has the taint maintenance:NoSchedule, so a namespace that does not arrive on cell-ord cannot return";
        stage.reported_on_the_cluster("DrainWaiting", said).await;
        stage.state(Some("waiting")).await;
        assert_eq!(stage.all(stage.from).await, before, "nothing has begun");
        merge(&hub, "Cluster", "", &from, cordoned(false)).await;
        stage.reported_on_the_cluster("DrainFailed", Obstacle::Provider.told()).await;
        stage.settled(stage.from, stage.to).await;
    });
}
