//! Namespaces that do not begin to move.

use super::*;

/// Found by reading: one namespace whose policy the hub did not take kept its place for ever, and with it every other.
#[test]
fn one_that_does_not_begin_gives_its_place_to_others_and_is_tried_after_them() {
    let mut world = World::new(&["n1", "n2", "n3"]);
    world.look();
    world.wait(9);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
    world.wait(1);
    world.look();
    assert_eq!(world.transfers(), ["n2>b"]);
    assert!(world.waits().contains("n1"), "{}", world.waits());
    world.arrive("n2", "b", true);
    world.look();
    assert_eq!(world.transfers(), ["n3>b"]);
    world.arrive("n3", "b", true);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"], "it is tried again");
    world.wait(20);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"], "nobody else waits");
    world.arrive("n1", "b", true);
    let events = world.look();
    assert!(world.moves.is_empty() && events.contains("DrainEnded"), "{events}");
}

/// Found by reading: the time to arrive ran while the scheduler was away, and what it moved at last was brought back at once.
#[test]
fn the_time_to_arrive_begins_when_something_moves() {
    let mut world = World::new(&["n1"]);
    for _ in 0..15 {
        world.look();
        world.wait(1);
    }
    world.look();
    world.arrive("n1", "b", false);
    world.wait(1);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
    world.wait(9);
    let events = world.look();
    assert!(events.contains("DrainFailed") && world.transfers() == ["n1>a"], "{events}");
}

/// Found by reading: it was told in the one look in which the scheduler was asked again, and the gauge said `moving` in all others.
#[test]
fn what_is_not_moved_is_told_once_and_as_long_as_it_lasts() {
    let mut world = World::new(&["n1"]);
    world.look();
    world.wait(1);
    assert!(world.look().contains("Karmada leaves them there"));
    for _ in 0..3 {
        assert_eq!((world.look().as_str(), world.moves[&dfw()].state()), ("[]", "waiting"));
        world.wait(1);
    }
}

/// Found by reading: the Cluster said that Karmada left it there, which had never been asked.
#[test]
fn why_nothing_begins_is_told_as_it_is() {
    let hidden = "this operator cannot read ResourceBinding n1/web";
    for (trouble, words) in [
        (PolicyTrouble::Unreadable, "this operator cannot read its PropagationPolicy"),
        (PolicyTrouble::Leaving, "its PropagationPolicy is being deleted"),
        (PolicyTrouble::Unknown(hidden.into()), hidden),
        (
            PolicyTrouble::Refused("webhook says no".into()),
            "the hub does not take its PropagationPolicy: webhook says no",
        ),
    ] {
        let mut world = World::new(&["n1"]);
        world.namespaces.get_mut("n1").unwrap().policy_trouble = Some(trouble);
        world.look();
        for minutes in [1, 9] {
            world.wait(minutes);
            let events = world.look();
            assert!(events.contains(words) && !events.contains("Karmada leaves"), "{events}");
            assert_eq!(world.look(), "[]", "once");
        }
        world.wait(60);
        assert_eq!(world.look(), "[]", "as long as nothing changes");
        assert_eq!(world.transfers(), ["n1>b"]);
    }
}

#[test]
fn what_the_scheduler_moves_after_its_place_was_given_away_is_followed() {
    for called_off in [false, true] {
        let mut world = World::new(&["n1", "n2"]);
        world.look();
        world.wait(10);
        world.look();
        assert_eq!(world.transfers(), ["n2>b"]);
        let half = [("a".to_owned(), presence(1)), ("b".to_owned(), presence(1))];
        world.namespaces.get_mut("n1").unwrap().on = half.into();
        world.cluster("a").draining = !called_off;
        world.look();
        if called_off {
            assert_eq!(world.transfers(), ["n1>b"], "a namespace is not left on two clusters");
            continue;
        }
        assert_eq!(world.transfers(), ["n1>b", "n2>b"]);
        world.arrive("n1", "b", false);
        world.wait(9);
        world.look();
        assert_eq!(world.transfers(), ["n1>b", "n2>b"]);
        world.wait(1);
        world.look();
        assert_eq!(world.transfers(), ["n1>a"], "it is proved like every other");
    }
}

#[test]
fn what_gave_its_place_away_goes_on_by_itself_once_the_cluster_is_able() {
    let mut world = World::new(&["n1"]);
    world.look();
    world.wait(10);
    world.look();
    world.cluster("b").obstacle = Some("has the taint k:NoSchedule".into());
    world.look();
    assert!(world.transfers().is_empty() && world.waits().contains("k:NoSchedule"), "{}", world.waits());
    world.wait(30);
    world.look();
    world.cluster("b").obstacle = None;
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
}

/// What cannot be brought back may stay for ever where it is, and is told.
#[test]
fn what_does_not_come_back_holds_up_no_other() {
    let mut world = World::new(&["n1", "n2"]);
    world.look();
    world.arrive("n1", "b", false);
    world.wait(10);
    world.look();
    assert_eq!(world.transfers(), ["n1>a"]);
    world.clusters.insert("c".into(), ClusterFacts::labelled("dfw"));
    world.look();
    assert_eq!(world.transfers(), ["n1>a"], "one at a time");
    world.wait(10);
    world.look();
    assert_eq!(world.transfers(), ["n1>a", "n2>c"]);
}
