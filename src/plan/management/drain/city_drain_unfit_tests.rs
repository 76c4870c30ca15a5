//! Clusters that become unfit for the city while it moves there.

use super::*;

/// Change of a Cluster, with its description.
type Change = (&'static str, fn(&mut ClusterFacts));

const UNFIT: [Change; 4] = [
    ("it has lost the label", |b| (b.city, b.label) = (None, None)),
    ("it has got another one", |b| *b = ClusterFacts::labelled("ord")),
    ("it is to be drained itself", |b| b.draining = true),
    ("it is being deleted", |b| b.deleting = true),
];

/// A transfer to a cluster that had lost the label, or was drained as well, went on by the cluster's name.
#[test]
fn transfer_to_a_cluster_without_the_label_does_not_begin() {
    for (what, edit) in UNFIT {
        let mut world = World::new(&["n1", "n2"]);
        world.look();
        assert_eq!(world.transfers(), ["n1>b"]);
        edit(world.cluster("b"));
        let events = world.look();
        assert!(world.transfers().is_empty() && world.drain().to.is_none(), "{what}: {:?}", world.decision);
        assert!(events.contains("no other Cluster has the label of dfw"), "{what}: {events}");
        world.wait(60);
        world.look();
        assert!(world.transfers().is_empty(), "{what}: {:?}", world.decision);
        world.clusters.insert("c".into(), ClusterFacts::labelled("dfw"));
        world.look();
        assert_eq!(world.transfers(), ["n1>c"], "{what}");
        *world.cluster("b") = ClusterFacts::labelled("dfw");
        world.look();
        assert_eq!(world.transfers(), ["n1>c"], "{what}: it is not turned about for one that comes back");
    }
}

/// A namespace is not left on two clusters: its transfer goes on, and it arrives or returns as usual.
#[test]
fn transfer_that_has_begun_is_finished() {
    for (what, edit) in UNFIT {
        let mut world = World::new(&["n1", "n2"]);
        world.look();
        world.namespaces.get_mut("n1").unwrap().on = [("a".to_owned(), share(1)), ("b".to_owned(), share(1))].into();
        edit(world.cluster("b"));
        world.look();
        assert_eq!(world.transfers(), ["n1>b"], "{what}");
        // The scheduler has returned it, because the label is gone.
        world.arrive("n1", "a", true);
        world.look();
        assert!(world.transfers().is_empty(), "{what}: {:?}", world.decision);
    }
}

#[test]
fn returning_namespace_needs_no_label() {
    let mut world = World::new(&["n1"]);
    world.look();
    world.arrive("n1", "b", false);
    world.wait(10);
    world.look();
    assert_eq!(world.transfers(), ["n1>a"]);
    (world.cluster("a").city, world.cluster("a").label) = (None, None);
    world.look();
    assert_eq!(world.transfers(), ["n1>a"]);
}
