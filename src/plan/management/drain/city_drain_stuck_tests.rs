//! Namespaces that do not begin to move.

use super::*;

/// A namespace with a refused policy kept its turn forever, and blocked all others.
#[test]
fn namespace_that_does_not_begin_is_tried_again_after_the_others() {
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
    assert_eq!(world.transfers(), ["n1>b"], "no other namespace waits");
    world.arrive("n1", "b", true);
    let events = world.look();
    assert!(world.decision.drains.is_empty() && events.contains("DrainEnded"), "{events}");
}

/// The time to arrive ran while the scheduler was away, and the namespace returned as soon as it had moved.
#[test]
fn arrival_time_starts_when_something_moves() {
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

/// The problem was only reported by the decision that asked the scheduler again. After all others the gauge showed `moving`.
#[test]
fn unmoved_namespace_is_reported_once_while_it_lasts() {
    let mut world = World::new(&["n1"]);
    world.look();
    world.wait(1);
    assert!(world.look().contains("Karmada has not moved the deployments"));
    for _ in 0..3 {
        assert_eq!((world.look().as_str(), world.drain().state()), ("[]", "waiting"));
        world.wait(1);
    }
}

/// The Cluster blamed Karmada, which had never been asked.
#[test]
fn blocked_namespace_reports_its_own_cause() {
    let hidden = "this operator cannot read ResourceBinding n1/web";
    for (trouble, words) in [
        (PolicyTrouble::Unreadable, "this operator cannot read its PropagationPolicy"),
        (PolicyTrouble::Leaving, "its PropagationPolicy is terminating"),
        (PolicyTrouble::Unknown(hidden.into()), hidden),
        (PolicyTrouble::Refused("webhook says no".into()), "the hub rejects its PropagationPolicy: webhook says no"),
    ] {
        let mut world = World::new(&["n1"]);
        world.namespaces.get_mut("n1").unwrap().policy_trouble = Some(trouble);
        world.look();
        for minutes in [1, 9] {
            world.wait(minutes);
            let events = world.look();
            assert!(events.contains(words) && !events.contains("Karmada has not moved"), "{events}");
            assert_eq!(world.look(), "[]", "once");
        }
        world.wait(60);
        assert_eq!(world.look(), "[]", "as long as nothing changes");
        assert_eq!(world.transfers(), ["n1>b"]);
    }
}

#[test]
fn namespace_that_moves_after_it_yielded_is_followed() {
    for called_off in [false, true] {
        let mut world = World::new(&["n1", "n2"]);
        world.look();
        let asked = world.transfer("n1").clone();
        world.wait(10);
        world.look();
        assert_eq!(world.transfers(), ["n2>b"]);
        world.still_asks("n1", &asked);
        let half = [("a".to_owned(), share(1)), ("b".to_owned(), share(1))];
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
fn yielded_namespace_continues_once_the_cluster_is_able() {
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

/// A namespace that cannot return may stay where it is forever. It is reported, and does not block other namespaces.
#[test]
fn namespace_that_cannot_return_does_not_block_others() {
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

/// A namespace on both clusters without a transfer got a new time to begin at every look. It blocked the drain without a report.
#[test]
fn split_namespace_with_a_refused_policy_yields_in_time() {
    let mut world = World::new(&["n1"]);
    let split = world.namespaces.get_mut("n1").unwrap();
    split.on.insert("b".to_owned(), share(1));
    split.policy_trouble = Some(PolicyTrouble::Refused("no".into()));
    world.look();
    let since = world.drain().go["n1"].since;
    world.now += jiff::SignedDuration::from_mins(5);
    world.look();
    assert_eq!(world.drain().go["n1"].since, since, "the time to begin does not start again");
    world.now += jiff::SignedDuration::from_mins(5);
    world.look();
    assert!(world.waits().contains("n1"), "{}", world.waits());
}
