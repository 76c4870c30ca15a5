//! Cities of which each deployment runs on several clusters, as the Go operator has left them.

use super::*;

/// On each of these clusters all deployments of the namespace, and so many instances that run.
fn shared(world: &mut World, name: &str, on: &[(&str, i64)]) {
    let each = |current| Presence { shared: 1, current, ..presence(1) };
    world.namespaces.get_mut(name).unwrap().on =
        on.iter().map(|(cluster, current)| ((*cluster).to_owned(), each(*current))).collect();
}

/// Found by reading: a drain took such a city off the cluster that ran it, in every namespace at once, whether or not the
/// other ran anything, and nothing brought it back.
#[test]
fn nothing_is_given_up_that_the_other_cluster_does_not_run() {
    let mut world = World::new(&["n1", "n2"]);
    for name in ["n1", "n2"] {
        shared(&mut world, name, &[("a", 1), ("b", 0)]);
    }
    let events = world.look();
    assert!(world.transfers().is_empty(), "{:?}", world.moves);
    let why = "n1: none of 1 instance(s) is programmed on b";
    assert!(events.contains("DrainWaiting") && events.contains(why), "{events}");
    assert_eq!((world.look().as_str(), world.moves[&dfw()].state()), ("[]", "waiting"), "once");
    world.wait(60);
    world.look();
    assert!(world.transfers().is_empty(), "however long it takes");
    // Not taken by the other cluster at all.
    let refused = Presence { applied: 0, ..world.namespaces["n1"].on["b"] };
    world.namespaces.get_mut("n1").unwrap().on.insert("b".into(), Presence { current: 1, ..refused });
    world.look();
    assert!(world.waits().contains("n1: 1 of 1 deployment(s) are not applied on b"), "{}", world.waits());
    shared(&mut world, "n1", &[("a", 1), ("b", 1)]);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
    world.arrive("n1", "b", true);
    world.look();
    assert!(world.transfers().is_empty() && world.waits().contains("n2: none of 1"), "{:?}", world.moves);
    shared(&mut world, "n2", &[("a", 1), ("b", 1)]);
    world.look();
    world.arrive("n2", "b", true);
    let events = world.look();
    assert!(world.moves.is_empty() && events.contains("DrainEnded"), "{events}");
}

#[test]
fn what_one_has_alone_goes_before_what_several_have_is_proved() {
    let mut world = World::new(&["n1", "n2"]);
    shared(&mut world, "n1", &[("a", 1), ("b", 0)]);
    world.look();
    assert_eq!(world.transfers(), ["n2>b"]);
    world.arrive("n2", "b", true);
    world.look();
    assert!(world.transfers().is_empty() && world.waits().contains("n1: none of 1"), "{:?}", world.moves);
}

#[test]
fn what_did_not_run_anywhere_is_not_to_run_first() {
    let mut world = World::new(&["n1"]);
    shared(&mut world, "n1", &[("a", 0), ("b", 0)]);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
}

#[test]
fn a_third_cluster_is_not_taken_what_it_has() {
    let mut world = World::new(&["n1"]);
    world.clusters.insert("c".into(), ClusterFacts::labelled("dfw"));
    shared(&mut world, "n1", &[("a", 1), ("b", 1), ("c", 1)]);
    world.look();
    assert!(world.transfers().is_empty() && world.waits().contains("runs on c as well"), "{:?}", world.moves);
    world.cluster("c").draining = true;
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
}

#[test]
fn what_does_not_run_once_it_is_alone_comes_back() {
    let mut world = World::new(&["n1"]);
    shared(&mut world, "n1", &[("a", 1), ("b", 1)]);
    world.look();
    world.arrive("n1", "b", false);
    world.wait(10);
    let events = world.look();
    assert!(events.contains("DrainFailed") && world.transfers() == ["n1>a"], "{events}");
}

#[test]
fn called_off_or_refused_before_anything_is_given_up_both_keep_it() {
    for called_off in [true, false] {
        let mut world = World::new(&["n1"]);
        shared(&mut world, "n1", &[("a", 1), ("b", 1)]);
        world.look();
        assert_eq!(world.transfers(), ["n1>b"]);
        world.cluster("a").draining = !called_off;
        world.cluster("b").obstacle = (!called_off).then(|| "has the taint k:NoSchedule".into());
        world.look();
        assert!(world.transfers().is_empty(), "{:?}", world.moves);
    }
}

/// The scheduler may be away for long: that is no time in which something did not arrive.
#[test]
fn what_the_scheduler_does_not_get_to_gives_its_place_to_others_and_is_not_taken_back() {
    let mut world = World::new(&["n1", "n2"]);
    for name in ["n1", "n2"] {
        shared(&mut world, name, &[("a", 1), ("b", 1)]);
    }
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
    for _ in 0..10 {
        world.wait(1);
        world.look();
    }
    assert_eq!(world.transfers(), ["n2>b"], "{:?}", world.moves);
    world.arrive("n1", "b", false);
    world.wait(9);
    world.look();
    assert!(world.transfers().contains(&"n1>b".to_owned()), "its time begins now: {:?}", world.moves);
}

#[test]
fn the_next_manager_follows_what_the_last_one_had_asked_for() {
    let mut world = World::new(&["n1"]);
    shared(&mut world, "n1", &[("a", 1), ("b", 1)]);
    world.look();
    world.restart();
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
}
