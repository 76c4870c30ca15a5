//! Restarts of the manager while a city moves: the next manager reads the state off the hub.

use serde_json::json;

use super::*;
use crate::api::karmada::PropagationPolicy;

/// After a restart, a deployment that the cell had not reported on yet counted as arrived, because its desired Instances were
/// unknown.
#[test]
fn unreported_deployment_has_not_arrived() {
    let silent = ClusterShare { unreported: 1, desired: 0, current: 0, ..share(1) };
    for restarted in [false, true] {
        let mut world = World::new(&["n1", "n2"]);
        world.look();
        world.namespaces.get_mut("n1").unwrap().on = [("b".to_owned(), silent)].into();
        if restarted {
            world.restart();
        }
        world.look();
        assert_eq!(world.transfers(), ["n1>b"], "restarted: {restarted}");
        world.arrive("n1", "b", true);
        world.look();
        assert_eq!(world.transfers(), ["n2>b"], "restarted: {restarted}");
    }
}

/// A new manager did not know the state before the transfer. It waited for Instances that had never run, and reported a failure.
#[test]
fn namespace_without_running_instances_arrives_without_them() {
    for restarted in [false, true] {
        let mut world = World::new(&["n1"]);
        world.arrive("n1", "a", false);
        world.look();
        world.arrive("n1", "b", false);
        if restarted {
            world.restart();
        }
        world.look();
        assert!(world.decision.drains.is_empty(), "its image is no good anywhere, restarted: {restarted}");
    }
}

#[test]
fn deployment_never_applied_does_not_block_arrival() {
    for restarted in [false, true] {
        let mut world = World::new(&["n1"]);
        let broken = |cluster: &str| (cluster.to_owned(), ClusterShare { applied: 1, ..share(2) });
        world.namespaces.get_mut("n1").unwrap().on = [broken("a")].into();
        world.look();
        world.namespaces.get_mut("n1").unwrap().on = [broken("b")].into();
        if restarted {
            world.restart();
        }
        world.look();
        assert!(world.decision.drains.is_empty(), "restarted: {restarted}");
    }
}

/// A policy of an earlier version has no record. Then everything has to arrive, and the time begins at the first decision.
#[test]
fn transfer_without_a_record_is_followed_and_recorded() {
    let mut world = World::new(&["n1"]);
    world.look();
    let there = world.namespaces.get_mut("n1").unwrap();
    let policy = json!({
        "metadata": { "name": "city-dfw" },
        "spec": { "resourceSelectors": [], "placement": { "clusterAffinities": [
            { "affinityName": "moving-1-4", "clusterNames": ["b"] }, { "affinityName": "holding-1-4", "clusterNames": ["a"] },
        ] } },
    });
    let policy: PropagationPolicy = serde_json::from_value(policy).unwrap();
    there.transfer = PlacementStatus::of_policy(&policy, START).transfer;
    world.restart();
    world.look();
    assert_eq!((world.transfers(), &*world.transfer("n1").attempt), (vec!["n1>b".to_owned()], "1-4"));
    world.wait(1);
    world.look();
    assert_ne!(world.transfer("n1").attempt, "1-4", "it is asked for again");
    world.arrive("n1", "b", false);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"], "it is not known that nothing ran there");
    world.arrive("n1", "b", true);
    world.look();
    assert!(world.decision.drains.is_empty() && world.transfers().is_empty());
}

/// After a restart, a returning namespace goes on returning.
#[test]
fn returning_namespace_continues_without_proof() {
    let mut world = World::new(&["n1"]);
    world.look();
    world.arrive("n1", "b", false);
    world.wait(10);
    world.look();
    world.restart();
    world.look();
    assert_eq!(world.transfers(), ["n1>a"]);
    assert!(world.transfer("n1").is_back());
}

/// A failure was only kept in memory, so every new manager moved one namespace again.
#[test]
fn failed_drain_is_not_tried_again_by_the_next_manager() {
    for back in [false, true] {
        let mut world = World::new(&["n1", "n2"]);
        world.look();
        world.arrive("n1", "b", false);
        world.wait(10);
        world.look();
        if back {
            world.arrive("n1", "a", true);
            world.look();
        }
        world.restart();
        let events = world.look();
        assert!(events.contains("DrainFailed") && events.contains("n1 did not arrive on b"), "{events}");
        world.arrive("n1", "a", true);
        for _ in 0..60 {
            world.look();
            assert!(world.transfers().is_empty());
            world.wait(1);
        }
        assert_eq!(world.drain().state(), "failed");
        world.restart();
        world.cluster("b").taints = vec!["seen-to:PreferNoSchedule".to_owned()];
        world.look();
        assert_eq!(world.transfers(), ["n1>b"], "somebody has seen to it");
    }
}

/// The policies may not have followed yet.
#[test]
fn failed_drain_requested_again_at_once_is_tried_again() {
    let mut world = World::new(&["n1"]);
    world.look();
    world.arrive("n1", "b", false);
    world.wait(10);
    world.look();
    let said = world.namespaces["n1"].failed.clone();
    assert!(said.contains_key("b"));
    world.arrive("n1", "a", true);
    world.cluster("a").draining = false;
    world.recalled.insert("a".into(), world.now);
    world.look();
    world.namespaces.get_mut("n1").unwrap().failed = said;
    world.cluster("a").draining = true;
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
}
