//! Drains without a way back.

use super::*;

const TAINT: &str = "has the taint k:NoSchedule";

/// The old cluster was cordoned before the drain, and could not take back a failed namespace. That was not reported before.
#[test]
fn drain_without_a_way_back_is_reported_before_it_begins() {
    let mut world = World::new(&["n1", "n2"]);
    world.cluster("a").obstacle = Some(TAINT.into());
    let events = world.look();
    let said = "Cluster a has the taint k:NoSchedule, so a namespace that does not arrive on b cannot return";
    assert!(events.contains("DrainWaiting") && events.contains(said) && events.contains("600 s"), "{events}");
    assert_eq!((world.transfers().len(), world.drain().state()), (0, "waiting"));
    assert_eq!(world.look(), "[]", "once");
    world.wait(9);
    world.look();
    assert!(world.transfers().is_empty());
    world.wait(1);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"], "it was reported, and the pause is over");
    world.arrive("n1", "b", true);
    world.look();
    assert_eq!(world.transfers(), ["n2>b"], "it is not said for each");
}

#[test]
fn drain_begins_once_the_way_back_opens_and_reports_if_it_closes_again() {
    let mut world = World::new(&["n1", "n2"]);
    world.cluster("a").obstacle = Some(TAINT.into());
    world.look();
    world.cluster("a").obstacle = None;
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
    world.cluster("a").obstacle = Some(TAINT.into());
    world.wait(10);
    world.arrive("n1", "b", true);
    let events = world.look();
    assert!(world.transfers().is_empty() && events.contains("cannot return"), "{events}");
}

#[test]
fn drain_of_a_dead_cluster_does_not_wait_for_a_way_back() {
    for (what, edit) in [
        ("it does not answer", (|a| a.ready = Err("away".into())) as fn(&mut ClusterFacts)),
        ("it is given up", |a| a.dead = true),
        ("it is being deleted", |a| a.deleting = true),
        ("it is able", |a| a.obstacle = None),
    ] {
        let mut world = World::new(&["n1"]);
        world.cluster("a").obstacle = Some(TAINT.into());
        edit(world.cluster("a"));
        world.look();
        assert_eq!(world.transfers(), ["n1>b"], "{what}");
    }
}
