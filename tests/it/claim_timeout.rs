//! Timeouts that last minutes in production, and seconds here.

use std::time::Duration;

use crate::common::{
    PATIENCE, RUNTIME, apply,
    beds::{Wish, alone},
    delete, eventually, eventually_within, get, list, ready, workload,
};
use jiff::Timestamp;
use serde_json::json;
use testbed::audit::Audit;

/// Time for which a policy waits here.
const RELEASE: Duration = Duration::from_secs(6);

#[test]
fn city_policy_waits_for_claimed_companions_until_its_timeout() {
    RUNTIME.block_on(async {
        let seconds = RELEASE.as_secs();
        let management = format!("timing:\n  deletionPatienceSeconds: {seconds}\n  pollSeconds: 1\n");
        let stay = alone(Wish { management, ..Wish::default() }).await;
        let world = &*stay;
        let (ns, hub) = world.namespace("waits").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        // The policy has claimed the binding of a companion, and nothing releases it.
        let claimed = json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "namespace": hub, "name": "stuck-configmap",
                "annotations": { "propagationpolicy.karmada.io/name": "city-dfw" },
            },
            "spec": { "resource": { "apiVersion": "v1", "kind": "ConfigMap", "namespace": hub, "name": "stuck" } },
        });
        apply(&world.hub, claimed).await;
        let on_hub = Audit::mark(&world.bed.hub);
        delete(&world.project, "Workload", &ns, "web").await;
        let events_of = |reason: &'static str| {
            let hub = hub.clone();
            async move {
                let mut events = list(&world.hub, "Event", &hub).await;
                events.retain(|event| event.data["reason"] == reason);
                events
            }
        };
        eventually("the wait is reported", || async {
            let events = events_of("AwaitingCompanions").await;
            let notes: Vec<String> = events.iter().map(|event| event.data["note"].to_string()).collect();
            let says = notes.iter().any(|note| note.contains("this policy still claims 1 companion(s)"));
            if says { Ok(()) } else { Err(format!("{notes:?}")) }
        })
        .await;
        eventually("the deployment is deleted", || async {
            let left = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await;
            if left.is_none() { Ok(()) } else { Err("still there".into()) }
        })
        .await;
        eventually_within(PATIENCE * 2, "the policy is deleted after the timeout", || async {
            let left = get(&world.hub, "PropagationPolicy", &hub, "city-dfw").await;
            if left.is_none() { Ok(()) } else { Err("still there".into()) }
        })
        .await;
        let (waits, gave_up) = (events_of("AwaitingCompanions").await, events_of("CompanionsStillClaimed").await);
        assert_eq!((waits.len(), gave_up.len()), (1, 1), "each is reported once");
        let since: Timestamp = waits[0].data["eventTime"].as_str().unwrap().parse().unwrap();
        let asked = on_hub.requests().unwrap();
        let removal =
            asked.iter().find(|r| r.verb == "delete" && r.resource == "propagationpolicies" && r.namespace == hub);
        let waited = removal.unwrap().at.duration_since(since).as_secs_f64();
        // The Event comes with the first poll after the deployment is deleted. On a slow machine that is seconds later.
        assert!(waited > RELEASE.as_secs_f64() / 2.0, "it waited for {waited} s");
        let text = world.operators[0].metrics().await.unwrap();
        assert!(text.lines().any(|line| line == "compute_federation_guard_given_up_total 1"), "{text}");
        delete(&world.hub, "ResourceBinding", &hub, "stuck-configmap").await;
    });
}
