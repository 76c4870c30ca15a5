//! Cities with each deployment on several clusters, as the Go operator left them.

use super::*;

/// Puts all deployments of the namespace on each of these clusters, with this number of running instances.
fn shared(world: &mut World, name: &str, on: &[(&str, i64)]) {
    let each = |current| ClusterShare { shared: 1, current, ..share(1) };
    world.namespaces.get_mut(name).unwrap().on =
        on.iter().map(|(cluster, current)| ((*cluster).to_owned(), each(*current))).collect();
}

/// A drain removed a shared city from the cluster that ran it, in every namespace at once, although the other ran nothing.
#[test]
fn shared_namespace_is_kept_until_the_other_cluster_runs_it() {
    let mut world = World::new(&["n1", "n2"]);
    for name in ["n1", "n2"] {
        shared(&mut world, name, &[("a", 1), ("b", 0)]);
    }
    let events = world.look();
    assert!(world.transfers().is_empty(), "{:?}", world.decision);
    let why = "n1: none of 1 instance(s) is programmed on b";
    assert!(events.contains("DrainWaiting") && events.contains(why), "{events}");
    assert_eq!((world.look().as_str(), world.drain().state()), ("[]", "waiting"), "once");
    world.wait(60);
    world.look();
    assert!(world.transfers().is_empty(), "however long it takes");
    // The other cluster has not applied it.
    let refused = ClusterShare { applied: 0, ..world.namespaces["n1"].on["b"] };
    world.namespaces.get_mut("n1").unwrap().on.insert("b".into(), ClusterShare { current: 1, ..refused });
    world.look();
    assert!(world.waits().contains("n1: 1 of 1 deployment(s) are not applied on b"), "{}", world.waits());
    shared(&mut world, "n1", &[("a", 1), ("b", 1)]);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
    world.arrive("n1", "b", true);
    world.look();
    assert!(world.transfers().is_empty() && world.waits().contains("n2: none of 1"), "{:?}", world.decision);
    shared(&mut world, "n2", &[("a", 1), ("b", 1)]);
    world.look();
    world.arrive("n2", "b", true);
    let events = world.look();
    assert!(world.decision.drains.is_empty() && events.contains("DrainEnded"), "{events}");
}

#[test]
fn unshared_namespace_moves_before_shared_ones_are_proved() {
    let mut world = World::new(&["n1", "n2"]);
    shared(&mut world, "n1", &[("a", 1), ("b", 0)]);
    world.look();
    assert_eq!(world.transfers(), ["n2>b"]);
    world.arrive("n2", "b", true);
    world.look();
    assert!(world.transfers().is_empty() && world.waits().contains("n1: none of 1"), "{:?}", world.decision);
}

#[test]
fn shared_namespace_that_never_ran_needs_no_proof() {
    let mut world = World::new(&["n1"]);
    shared(&mut world, "n1", &[("a", 0), ("b", 0)]);
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
}

#[test]
fn shared_namespace_on_a_third_cluster_waits() {
    let mut world = World::new(&["n1"]);
    world.clusters.insert("c".into(), ClusterFacts::labelled("dfw"));
    shared(&mut world, "n1", &[("a", 1), ("b", 1), ("c", 1)]);
    world.look();
    assert!(world.transfers().is_empty() && world.waits().contains("also run on c"), "{:?}", world.decision);
    world.cluster("c").draining = true;
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
}

#[test]
fn shared_namespace_that_stops_running_alone_returns() {
    let mut world = World::new(&["n1"]);
    shared(&mut world, "n1", &[("a", 1), ("b", 1)]);
    world.look();
    world.arrive("n1", "b", false);
    world.wait(10);
    let events = world.look();
    assert!(events.contains("DrainFailed") && world.transfers() == ["n1>a"], "{events}");
}

#[test]
fn shared_namespace_of_a_recalled_or_refused_drain_stays_on_both() {
    for called_off in [true, false] {
        let mut world = World::new(&["n1"]);
        shared(&mut world, "n1", &[("a", 1), ("b", 1)]);
        world.look();
        assert_eq!(world.transfers(), ["n1>b"]);
        world.cluster("a").draining = !called_off;
        world.cluster("b").obstacle = (!called_off).then(|| "has the taint k:NoSchedule".into());
        world.look();
        assert!(world.transfers().is_empty(), "{:?}", world.decision);
    }
}

/// While the scheduler is away, the time to arrive does not count.
#[test]
fn shared_namespace_that_is_not_scheduled_yields() {
    let mut world = World::new(&["n1", "n2"]);
    for name in ["n1", "n2"] {
        shared(&mut world, name, &[("a", 1), ("b", 1)]);
    }
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
    let asked = world.transfer("n1").clone();
    for _ in 0..10 {
        world.wait(1);
        world.look();
    }
    assert_eq!(world.transfers(), ["n2>b"], "{:?}", world.decision);
    world.still_asks("n1", &asked);
    world.arrive("n1", "b", false);
    world.wait(9);
    world.look();
    assert!(world.transfers().contains(&"n1>b".to_owned()), "its time begins now: {:?}", world.decision);
}

#[test]
fn transfer_requested_by_an_earlier_manager_is_followed() {
    let mut world = World::new(&["n1"]);
    shared(&mut world, "n1", &[("a", 1), ("b", 1)]);
    world.look();
    world.restart();
    world.look();
    assert_eq!(world.transfers(), ["n1>b"]);
}
