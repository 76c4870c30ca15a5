//! What may begin where nothing could come back.

use super::*;

const TAINT: &str = "has the taint k:NoSchedule";

/// Found by reading: cordoned before it was drained, as is usual, the old cluster could not take back what the new one could
/// not run, and nobody had said so before.
#[test]
fn nothing_begins_on_a_cluster_that_could_not_take_it_back_before_that_was_said() {
    let mut world = World::new(&["n1", "n2"]);
    world.cluster("a").obstacle = Some(TAINT.into());
    let events = world.look();
    let said = "Cluster a has the taint k:NoSchedule, so that what does not arrive on b could not come back";
    assert!(events.contains("DrainWaiting") && events.contains(said) && events.contains("600 s"), "{events}");
    assert_eq!((world.transfers().len(), world.moves[&dfw()].state()), (0, "waiting"));
    assert_eq!(world.look(), "[]", "once");
    world.wait(9);
    world.look();
    assert!(world.transfers().is_empty());
    world.wait(1);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"], "it was said, and nobody has minded");
    world.arrive("n1", "b", true);
    world.look();
    assert_eq!(world.transfers(), ["n2>b"], "it is not said for each");
}

#[test]
fn a_way_back_that_is_opened_is_not_waited_for_and_one_that_is_closed_again_is_said_again() {
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
    assert!(world.transfers().is_empty() && events.contains("could not come back"), "{events}");
}

#[test]
fn what_nobody_would_want_back_does_not_wait() {
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
