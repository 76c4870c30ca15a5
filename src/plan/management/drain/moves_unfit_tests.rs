//! Clusters that are not to have the city any more, while it is on its way there.

use super::*;

/// What becomes of a Cluster, and the words for it.
type Change = (&'static str, fn(&mut ClusterFacts));

const UNFIT: [Change; 4] = [
    ("it has lost the label", |b| (b.city, b.label) = (None, None)),
    ("it has got another one", |b| *b = ClusterFacts::labelled("ord")),
    ("it is to be drained itself", |b| b.draining = true),
    ("it is being deleted", |b| b.deleting = true),
];

/// Found by reading: a cluster that lost the label, or was to be drained as well, was asked for all the same, and by its
/// name alone it took what was on its way.
#[test]
fn nothing_begins_to_move_to_a_cluster_that_is_not_to_have_the_city_any_more() {
    for (what, edit) in UNFIT {
        let mut world = World::new(&["n1", "n2"]);
        world.look();
        assert_eq!(world.transfers(), ["n1>b"]);
        edit(world.cluster("b"));
        let events = world.look();
        assert!(world.transfers().is_empty() && world.moves[&dfw()].to.is_none(), "{what}: {:?}", world.moves);
        assert!(events.contains("no other Cluster carries the label of dfw"), "{what}: {events}");
        world.wait(60);
        world.look();
        assert!(world.transfers().is_empty(), "{what}: {:?}", world.moves);
        world.clusters.insert("c".into(), ClusterFacts::labelled("dfw"));
        world.look();
        assert_eq!(world.transfers(), ["n1>c"], "{what}");
        *world.cluster("b") = ClusterFacts::labelled("dfw");
        world.look();
        assert_eq!(world.transfers(), ["n1>c"], "{what}: it is not turned about for one that comes back");
    }
}

/// A namespace is not left on two clusters: it goes on, and is proved, or comes back, as ever.
#[test]
fn what_has_begun_is_followed_to_its_end() {
    for (what, edit) in UNFIT {
        let mut world = World::new(&["n1", "n2"]);
        world.look();
        world.namespaces.get_mut("n1").unwrap().on =
            [("a".to_owned(), presence(1)), ("b".to_owned(), presence(1))].into();
        edit(world.cluster("b"));
        world.look();
        assert_eq!(world.transfers(), ["n1>b"], "{what}");
        // The scheduler has taken it back, as it does where the label is gone.
        world.arrive("n1", "a", true);
        world.look();
        assert!(world.transfers().is_empty(), "{what}: {:?}", world.moves);
    }
}

#[test]
fn what_is_on_its_way_back_needs_no_label() {
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
