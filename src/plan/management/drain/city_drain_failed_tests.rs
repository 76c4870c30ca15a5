//! Clusters on which a city did not arrive.

use super::*;

/// Taints of users, and of Karmada.
fn taint(cluster: &mut ClusterFacts, own: &[&str]) {
    cluster.taints = own.iter().map(|taint| (*taint).to_owned()).collect();
    cluster.generation += 1;
}

#[test]
fn namespace_that_does_not_arrive_is_returned_and_no_other_follows() {
    let mut world = World::new(&["n1", "n2"]);
    world.look();
    world.arrive("n1", "b", false);
    world.wait(9);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
    world.wait(1);
    let events = world.look();
    assert!(events.contains("DrainFailed") && events.contains("none of 1 instance(s) is programmed on b"), "{events}");
    assert_eq!((world.transfers(), world.drain().state()), (vec!["n1>a".to_owned()], "failed"));
    world.arrive("n1", "a", true);
    world.look();
    assert!(world.transfers().is_empty());
    world.wait(60);
    assert_eq!((world.look().as_str(), world.transfers().len()), ("[]", 0), "it is not tried for ever");
    // Karmada's own taints change the cluster's generation, and do not count.
    taint(world.cluster("b"), &[]);
    world.look();
    assert!(world.transfers().is_empty());
    // Another cluster is tried.
    let mut other = ClusterFacts::labelled("dfw");
    other.generation = 1;
    world.clusters.insert("c".into(), other);
    world.look();
    assert_eq!(world.transfers(), ["n1>c"]);
    world.clusters.remove("c");
    world.look();
    // A user has repaired the first one.
    taint(world.cluster("b"), &["seen-to:PreferNoSchedule"]);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
}

#[test]
fn failed_drain_requested_again_is_tried_again() {
    let mut world = World::new(&["n1"]);
    world.look();
    world.arrive("n1", "b", false);
    world.wait(10);
    world.look();
    assert_eq!(world.transfers(), ["n1>a"], "also the only namespace is brought back");
    world.arrive("n1", "a", true);
    world.look();
    world.cluster("a").draining = false;
    world.look();
    assert!(world.decision.drains.is_empty());
    world.cluster("a").draining = true;
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
}

/// The only namespace was on its way back, so nothing was on the drained cluster. The drain counted as recalled then. The policy,
/// which saw the namespace return before the drain did, forgot the failure, and the namespace was sent to the same cluster again.
#[test]
fn failure_of_the_only_namespace_is_kept_while_it_returns() {
    let mut world = World::new(&["n1"]);
    world.look();
    world.arrive("n1", "b", false);
    world.wait(10);
    world.look();
    world.look();
    assert_eq!((world.transfers(), world.drain().state()), (vec!["n1>a".to_owned()], "failed"));
    assert!(world.drain().from.contains("a") && world.waits().contains("did not arrive on b"), "{:?}", world.drain());
    world.arrive("n1", "a", true);
    world.follow();
    assert!(world.namespaces["n1"].failed.contains_key("b"));
    world.look();
    assert!(world.transfers().is_empty(), "{:?}", world.transfers());
}

/// Runs minute by minute. Namespaces arrive at once, and run on `a` only. Returns the attempts on other clusters.
fn pass(world: &mut World, minutes: usize) -> Vec<String> {
    let mut tried = Vec::new();
    for _ in 0..minutes {
        world.look();
        for transfer in world.transfers() {
            let (name, to) = transfer.split_once('>').unwrap();
            if !world.namespaces[name].has(to) {
                world.arrive(name, to, to == "a");
                tried.extend((to != "a").then(|| transfer.clone()));
            }
        }
        world.wait(1);
    }
    tried
}

/// Only the last failure was recorded, so two bad targets were tried in turn forever.
#[test]
fn several_bad_targets_are_tried_once_each() {
    let mut world = World::new(&["n1", "n2"]);
    world.clusters.insert("c".into(), ClusterFacts::labelled("dfw"));
    assert_eq!(pass(&mut world, 60), ["n1>b", "n1>c"]);
    assert!(pass(&mut world, 600).is_empty());
    let waits = world.waits();
    assert!(waits.contains("arrive on b") && waits.contains("arrive on c"), "{waits}");
    taint(world.cluster("b"), &["seen-to:PreferNoSchedule"]);
    assert_eq!(pass(&mut world, 600), ["n1>b"], "the failed cluster was mended");
}
