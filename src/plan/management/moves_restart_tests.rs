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
            world.moves.clear();
        }
        world.look();
        assert_eq!(world.transfers(), ["n1>b"], "restarted: {restarted}");
        world.arrive("n1", "b", true);
        world.look();
        assert_eq!(world.transfers(), ["n2>b"], "restarted: {restarted}");
    }
}

#[test]
fn where_nothing_ran_nothing_has_to_run() {
    let mut world = World::new(&["n1"]);
    world.arrive("n1", "a", false);
    world.look();
    world.arrive("n1", "b", false);
    world.look();
    assert!(world.moves.is_empty(), "its image is no good anywhere");
}

#[test]
fn one_that_was_never_applied_anywhere_holds_up_nothing() {
    let mut world = World::new(&["n1"]);
    let broken = |cluster: &str| (cluster.to_owned(), Presence { applied: 1, ..presence(2) });
    world.namespaces.get_mut("n1").unwrap().on = [broken("a")].into();
    world.look();
    world.namespaces.get_mut("n1").unwrap().on = [broken("b")].into();
    world.look();
    assert!(world.moves.is_empty());
}
