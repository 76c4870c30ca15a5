//! A manager that dies while a city moves: the next one reads off the hub what it goes on with.

use super::*;

/// Seen when a manager died in that moment: what a cluster has taken and its cell has not reported on yet counted as arrived,
/// since nothing was known to be asked for there.
#[test]
fn what_no_cell_has_reported_on_has_not_arrived() {
    let silent = Presence { unreported: 1, desired: 0, current: 0, ..presence(1) };
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

/// Found by reading: nothing of how it was before was known to the manager that came after, which waited for what had never run, and
/// said that the drain had failed.
#[test]
fn where_nothing_ran_nothing_has_to_run() {
    for restarted in [false, true] {
        let mut world = World::new(&["n1"]);
        world.arrive("n1", "a", false);
        world.look();
        world.arrive("n1", "b", false);
        if restarted {
            world.restart();
        }
        world.look();
        assert!(world.moves.is_empty(), "its image is no good anywhere, restarted: {restarted}");
    }
}

#[test]
fn one_that_was_never_applied_anywhere_holds_up_nothing() {
    for restarted in [false, true] {
        let mut world = World::new(&["n1"]);
        let broken = |cluster: &str| (cluster.to_owned(), Presence { applied: 1, ..presence(2) });
        world.namespaces.get_mut("n1").unwrap().on = [broken("a")].into();
        world.look();
        world.namespaces.get_mut("n1").unwrap().on = [broken("b")].into();
        if restarted {
            world.restart();
        }
        world.look();
        assert!(world.moves.is_empty(), "restarted: {restarted}");
    }
}

/// The version before this one named its attempts without how it was before: everything is asked for, as that version did.
#[test]
fn what_the_version_before_began_is_followed() {
    let mut world = World::new(&["n1"]);
    world.look();
    let begun = Transfer { from: "a".into(), to: "b".into(), attempt: "1-4".into() };
    world.namespaces.get_mut("n1").unwrap().standing = Some(begun.clone());
    world.restart();
    world.look();
    assert_eq!(world.moves[&dfw()].transfers["n1"].transfer, begun);
    world.wait(1);
    world.look();
    assert_eq!(world.moves[&dfw()].transfers["n1"].transfer.attempt, "1-5");
    world.arrive("n1", "b", false);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"], "it is not known that nothing ran there");
    world.arrive("n1", "b", true);
    world.look();
    assert!(world.moves.is_empty());
}

/// It is brought back by a manager that died again.
#[test]
fn what_is_on_its_way_back_goes_on_and_is_not_proved_there() {
    let mut world = World::new(&["n1"]);
    world.look();
    world.arrive("n1", "b", false);
    world.wait(10);
    world.look();
    world.restart();
    world.look();
    assert_eq!(world.transfers(), ["n1>a"]);
    assert!(Attempt::is_back(&world.moves[&dfw()].transfers["n1"].transfer.attempt));
}

/// Found by reading: a failure was remembered in memory alone, so that every new manager moved one namespace once more.
#[test]
fn what_failed_is_not_tried_again_by_the_next_manager() {
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
        assert_eq!(world.moves[&dfw()].state(), "failed");
        world.restart();
        world.cluster("b").taints = vec!["seen-to:PreferNoSchedule".to_owned()];
        world.look();
        assert_eq!(world.transfers(), ["n1>b"], "somebody has seen to it");
    }
}

/// The policies may not have followed yet.
#[test]
fn asked_for_anew_at_once_a_drain_that_failed_is_tried_again() {
    let mut world = World::new(&["n1"]);
    world.look();
    world.arrive("n1", "b", false);
    world.wait(10);
    world.look();
    let said = world.namespaces["n1"].failed.clone();
    assert!(said.contains_key("b"));
    world.arrive("n1", "a", true);
    world.cluster("a").draining = false;
    world.look();
    world.namespaces.get_mut("n1").unwrap().failed = said;
    world.cluster("a").draining = true;
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
}
