//! A drain of a city that runs on two Clusters. The Go operator's policies cause that if both have the label.

use crate::{
    common::{ABSENT, RUNTIME, api, eventually, get},
    drains::{Obstacle, Stage, stage},
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// Writes the policies as the Go operator does, and waits until both cells have everything.
async fn share(stage: &mut Stage) {
    stage.world.operators[0].process.kill();
    let city = json!({ "matchLabels": { "topology.datum.net/city-code": "dfw" } });
    let placement = json!({ "clusterAffinity": { "labelSelector": city }, "clusterAffinities": null });
    let params = PatchParams { field_manager: Some("manager".into()), ..PatchParams::default() };
    for place in &stage.places {
        let policies = api(&stage.world.hub, "PropagationPolicy", &place.hub);
        let patch = json!({ "spec": { "placement": placement } });
        policies.patch("city-dfw", &params, &Patch::Merge(patch)).await.unwrap();
    }
    for place in &stage.places {
        eventually("both have it", || async {
            let (here, there) = (stage.uids(stage.from, place).await, stage.uids(stage.to, place).await);
            if here.len() == 3 && there.len() == 3 { Ok(()) } else { Err(format!("{here:?} {there:?}")) }
        })
        .await;
    }
    stage.world.restart_manager(&[]).await;
}

/// Everything left the running cluster, in every namespace at once, and nothing brought it back.
#[test]
fn drain_of_a_shared_city_waits_until_the_other_cluster_runs_it() {
    RUNTIME.block_on(async {
        let mut stage = Box::pin(stage(2, 20)).await;
        Obstacle::Provider.set(&mut stage, true).await;
        share(&mut stage).await;
        let before = stage.all(stage.from).await;
        stage.drain(true).await;
        stage.reported_on_the_cluster("DrainWaiting", Obstacle::Provider.told()).await;
        stage.state(Some("waiting")).await;
        tokio::time::sleep(ABSENT).await; // the test checks that nothing happens in this time
        assert_eq!(stage.all(stage.from).await, before, "nothing is given up that the other does not run");
        // Cancelled, the drain leaves no change.
        stage.drain(false).await;
        stage.state(None).await;
        for place in &stage.places {
            let policy = get(&stage.world.hub, "PropagationPolicy", &place.hub, "city-dfw").await.unwrap();
            assert_eq!(policy.data["spec"]["placement"]["clusterAffinities"], Value::Null);
        }
        assert_eq!(stage.all(stage.from).await, before);
        stage.drain(true).await;
        stage.state(Some("waiting")).await;
        let successor = stage.all(stage.to).await;
        Obstacle::Provider.set(&mut stage, false).await;
        stage.settled(stage.to, stage.from).await;
        assert_eq!(stage.all(stage.to).await, successor, "running objects are not recreated");
        stage.state(None).await;
    });
}
