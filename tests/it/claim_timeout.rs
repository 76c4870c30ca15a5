//! What waits for minutes before it gives up.

use std::time::Duration;

use crate::common::{
    RUNTIME, apply,
    beds::{Wish, alone},
    delete, eventually, get, list, ready, workload,
};
use serde_json::json;

#[test]
fn a_city_policy_waits_for_what_it_claims_and_gives_up_after_two_minutes() {
    RUNTIME.block_on(async {
        let lent = alone(Wish::default()).await;
        let world = &*lent;
        let (ns, hub) = world.namespace("waits").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        // A companion's binding that the policy has claimed, and that nothing releases.
        let claimed = json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "namespace": hub, "name": "stuck-configmap",
                "annotations": { "propagationpolicy.karmada.io/name": "city-dfw" },
            },
            "spec": { "resource": { "apiVersion": "v1", "kind": "ConfigMap", "namespace": hub, "name": "stuck" } },
        });
        apply(&world.hub, claimed).await;
        delete(&world.project, "Workload", &ns, "web").await;
        let told = |reason: &'static str| {
            let hub = hub.clone();
            async move {
                let events = list(&world.hub, "Event", &hub).await;
                events.into_iter().filter(|e| e.data["reason"] == reason).map(|e| e.data["note"].to_string()).collect()
            }
        };
        eventually("it is told what it waits for", || async {
            let notes: Vec<String> = told("AwaitingCompanions").await;
            let says = notes.iter().any(|note| note.contains("1 companion(s) are still claimed by this policy"));
            if says { Ok(()) } else { Err(format!("{notes:?}")) }
        })
        .await;
        assert!(
            get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.is_none(),
            "nobody else waits for it"
        );
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert!(get(&world.hub, "PropagationPolicy", &hub, "city-dfw").await.is_some(), "two minutes are not over");
        eventually("it gives up", || async {
            let left = get(&world.hub, "PropagationPolicy", &hub, "city-dfw").await;
            if left.is_none() { Ok(()) } else { Err("still there".into()) }
        })
        .await;
        let (waits, gave_up): (Vec<String>, Vec<String>) =
            (told("AwaitingCompanions").await, told("CompanionsStillClaimed").await);
        assert_eq!((waits.len(), gave_up.len()), (1, 1), "each is told once");
        let text = world.operators[0].metrics().await.unwrap();
        assert!(text.lines().any(|line| line == "compute_federation_guard_given_up_total 1"), "{text}");
        delete(&world.hub, "ResourceBinding", &hub, "stuck-configmap").await;
    });
}
