use super::*;
use crate::plan::recorded::recorded;

fn dfw() -> CityCode {
    CityCode::parse("dfw").unwrap()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Clusters by name and label.
fn world(clusters: &[(&str, &str)]) -> Observed {
    let of = clusters.iter().map(|(name, label)| ((*name).to_owned(), ClusterFacts::labelled(label)));
    Observed { clusters: of.collect(), ..Observed::default() }
}

fn on(mut world: Observed, bindings: &[&[&str]]) -> Observed {
    world.on = bindings.iter().map(|on| set(on)).collect();
    world
}

fn edit(mut world: Observed, cluster: &str, edit: impl FnOnce(&mut ClusterFacts)) -> Observed {
    edit(world.clusters.get_mut(cluster).unwrap());
    world
}

fn draining(world: Observed, cluster: &str) -> Observed {
    edit(world, cluster, |facts| facts.draining = true)
}

/// A placement in short: of each group its name, `label` where it has a selector, and its clusters.
fn brief(placement: &PolicyPlacement) -> String {
    let group = |name: &str, group: &ClusterAffinity| {
        assert!(group.others.is_empty() && group.cluster_names.len() <= 1 || placement.cluster_affinities.is_none());
        let label = if group.label_selector.is_some() { "label " } else { "" };
        format!("{name}[{label}{}]", group.cluster_names.join(","))
    };
    match (&placement.cluster_affinity, &placement.cluster_affinities) {
        (Some(plain), None) => group("", plain),
        (None, Some(terms)) => {
            terms.iter().map(|term| group(&term.affinity_name, &term.group)).collect::<Vec<_>>().join(" ")
        }
        other => panic!("Karmada takes one or the other: {other:?}"),
    }
}

fn look(live: Option<&PolicyPlacement>, observed: &Observed) -> String {
    let decided = decide(&dfw(), &set(&["dfw"]), live, observed);
    assert_eq!(decide(&dfw(), &set(&["dfw"]), live, &recorded(observed)), decided);
    brief(&decided.placement)
}

const ON_A: &str = "city[label a] holding[a]";

#[test]
fn the_guard_names_who_has_the_city_by_bindings_that_its_policy_claimed() {
    let one = || world(&[("a", "dfw"), ("b", "ord")]);
    let cases: [(&str, Observed, &str); 8] = [
        ("nobody has it: whoever carries the label", one(), "[label a]"),
        ("nobody carries the label", world(&[("b", "ord")]), "[label no-cluster.yet]"),
        ("everything is on one", on(one(), &[&["a"], &["a"]]), ON_A),
        ("the label has gone to another", on(world(&[("a", ""), ("b", "dfw")]), &[&["a"]]), ON_A),
        ("the cluster is gone for good", on(world(&[("b", "dfw")]), &[&["a"]]), "[label b]"),
        ("not ready is no reason to leave", edit(on(one(), &[&["a"]]), "a", |a| a.ready = Err("away".into())), ON_A),
        ("to be drained, but nobody has begun", draining(on(one(), &[&["a"]]), "a"), ON_A),
        ("every deployment is on both", on(world(&[("a", "dfw"), ("b", "dfw")]), &[&["a", "b"]]), "[label ]"),
    ];
    for (what, observed, expected) in cases {
        assert_eq!(look(None, &observed), expected, "{what}");
    }
    // What stands in the policy says nothing of where the city is.
    let elsewhere = held(selector(&dfw(), &set(&["dfw"]), &BTreeMap::new()), "b");
    assert_eq!(look(Some(&elsewhere), &on(one(), &[&["a"]])), ON_A);
    assert_eq!(look(Some(&elsewhere), &one()), "[label a]", "neither label nor binding");
}

#[test]
fn a_new_namespace_begins_where_the_city_is() {
    let both = || world(&[("a", "dfw"), ("b", "dfw"), ("c", "")]);
    let held = |counts: &[(&str, usize)], mut world: Observed| {
        world.elsewhere = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        world
    };
    let cases = [
        ("nobody has it: the first by name", both(), "[label a]"),
        ("the first that is able", edit(both(), "a", |a| a.obstacle = Some("has a taint".into())), "[label b]"),
        ("the first that stays", draining(both(), "a"), "[label b]"),
        ("others have it", held(&[("b", 2)], both()), "city[label b] holding[b]"),
        ("most others have it", held(&[("a", 1), ("b", 2)], both()), "city[label b] holding[b]"),
        ("others have it on one without the label", held(&[("c", 1)], both()), "city[label c] holding[c]"),
        ("others have it where it is to leave", draining(held(&[("b", 1)], both()), "b"), "city[label b] holding[b]"),
        ("others had it on one that goes", edit(held(&[("b", 1)], both()), "b", |b| b.deleting = true), "[label a]"),
        (
            "while it moves",
            Observed { home: Some("b".into()), ..held(&[("a", 9)], both()) },
            "city[label b] holding[b]",
        ),
    ];
    for (what, observed, expected) in cases {
        assert_eq!(look(None, &observed), expected, "{what}");
    }
    let note = decide(&dfw(), &set(&[]), None, &both()).note.unwrap();
    assert!(note.contains("Clusters a, b carry the label of dfw") && note.contains("a is chosen"), "{note}");
}

fn transfer(from: &str, to: &str, attempt: &str) -> Transfer {
    Transfer { from: from.into(), to: to.into(), attempt: attempt.into() }
}

#[test]
fn a_move_has_the_old_cluster_behind_the_new_one_until_it_is_proved() {
    let at = |bindings: &[&[&str]], transfer: Option<&Transfer>| {
        let world = draining(on(world(&[("a", "dfw"), ("b", "dfw")]), bindings), "a");
        Observed { transfer: transfer.cloned(), ..world }
    };
    let there = transfer("a", "b", "7-0");
    let begun = "moving-7-0[label b] holding-7-0[a]";
    let decided = decide(&dfw(), &set(&["dfw"]), None, &at(&[&["a"], &["a"]], Some(&there))).placement;
    assert_eq!(brief(&decided), begun);
    assert_eq!(Transfer::of(&decided), Some(there.clone()), "it is read back");
    let live = Some(&decided);
    assert_eq!(look(live, &at(&[&["a"], &["b"]], Some(&there))), begun, "half-way");
    assert_eq!(look(live, &at(&[&["a"], &["b"]], None)), begun, "called off half-way: it is not left on two");
    assert_eq!(look(live, &at(&[&["b"], &["b"]], Some(&there))), begun, "there, but nobody knows whether it runs");
    assert_eq!(look(live, &at(&[&["b"], &["b"]], None)), "city[label b] holding[b]", "proved");
    assert_eq!(look(live, &at(&[&["a"], &["a"]], None)), ON_A, "called off before anything moved");
    let again = transfer("a", "b", "8-0");
    assert_eq!(look(live, &at(&[&["a"]], Some(&again))), "moving-8-0[label b] holding-8-0[a]", "names not seen before");
    // Brought back, even to a cluster that has lost the label meanwhile.
    let back = transfer("b", "a", "back-7-0");
    assert_eq!(look(live, &at(&[&["b"], &["a"]], Some(&back))), "moving-back-7-0[label a] holding-back-7-0[b]");
    let unlabelled = edit(at(&[&["b"]], Some(&back)), "a", |a| a.label = None);
    assert_eq!(look(live, &unlabelled), "moving-back-7-0[a] holding-back-7-0[b]");
    // But nothing goes forward to one that has lost it.
    let unlabelled = edit(at(&[&["a"]], Some(&there)), "b", |b| (b.city, b.label) = (None, None));
    assert_eq!(look(None, &unlabelled), begun);
}

/// Found by reading: a drain that was called off while Karmada's scheduler was away was carried out by it when it was back.
#[test]
fn only_a_move_that_nobody_wants_and_that_has_not_begun_is_taken_back_while_it_is_under_way() {
    let at = |bindings: &[&[&str]], transfer: Option<Transfer>| Observed {
        transfer,
        under_way: true,
        ..on(world(&[("a", "dfw"), ("b", "dfw")]), bindings)
    };
    let there = transfer("a", "b", "7-0");
    let moving = decide(&dfw(), &set(&["dfw"]), None, &at(&[&["a"]], Some(there.clone()))).placement;
    let holding = decide(&dfw(), &set(&["dfw"]), None, &at(&[&["a"]], None)).placement;
    for (what, live, observed, expected) in [
        ("called off, and all is where it was", &moving, at(&[&["a"], &["a"]], None), true),
        ("called off half-way", &moving, at(&[&["a"], &["b"]], None), false),
        ("called off, and it has moved", &moving, at(&[&["b"]], None), false),
        ("still wanted", &moving, at(&[&["a"]], Some(there)), false),
        ("wanted under another name", &moving, at(&[&["a"]], Some(transfer("a", "b", "8-0"))), false),
        ("nothing is anywhere", &moving, at(&[], None), false),
        ("it does not move", &holding, at(&[&["a"]], None), false),
        ("each is still there, and elsewhere as well", &moving, at(&[&["a", "b"]], None), true),
        ("one is not there any more", &moving, at(&[&["a", "b"], &["b"]], None), false),
    ] {
        assert_eq!(is_revoked(live, &observed), expected, "{what}");
    }
    assert_eq!(look(Some(&moving), &at(&[&["a"]], None)), ON_A);
}

/// Found by reading: a drain took a shared city off the cluster that ran it, in every namespace at once, whether or not the other
/// ran anything, and nothing brought it back.
#[test]
fn a_city_that_several_clusters_share_is_given_up_by_one_only_where_a_move_says_so() {
    let shared = || on(world(&[("a", "dfw"), ("b", "dfw")]), &[&["a", "b"], &["a", "b"]]);
    let with = |observed: Observed, transfer: Option<&Transfer>| Observed { transfer: transfer.cloned(), ..observed };
    let there = transfer("a", "b", "1-0");
    let begun = "moving-1-0[label b] holding-1-0[a]";
    let live = decide(&dfw(), &set(&["dfw"]), None, &with(shared(), Some(&there))).placement;
    let dead = |observed| edit(observed, "b", |b| b.ready = Err("away".into()));
    let some_left = || on(draining(shared(), "a"), &[&["b"], &["a", "b"]]);
    for (what, live, observed, expected) in [
        ("nothing is to be left", None, shared(), "[label ]"),
        ("not the turn of this namespace", None, draining(shared(), "a"), "[label ]"),
        ("the only one that is alive is not left", None, dead(draining(shared(), "a")), "[label ]"),
        ("both are to be left", None, draining(draining(shared(), "a"), "b"), "[label ]"),
        ("the other is seen to run it", None, with(draining(shared(), "a"), Some(&there)), begun),
        ("a part has left", Some(&live), with(some_left(), Some(&there)), begun),
        ("called off, and a part has left", Some(&live), some_left(), begun),
        ("called off before anything has left", Some(&live), shared(), "[label ]"),
        (
            "it does not run there after all",
            Some(&live),
            with(some_left(), Some(&transfer("b", "a", "back-1-0"))),
            "moving-back-1-0[label a] holding-back-1-0[b]",
        ),
    ] {
        assert_eq!(look(live, &observed), expected, "{what}");
    }
    assert!(decide(&dfw(), &set(&[]), None, &shared()).note.unwrap().contains("runs on Clusters a, b"));
}

/// Found by reading: two clusters that got the label one after the other both had the city, for good, where Karmada looked before
/// the operator.
#[test]
fn no_label_brings_a_city_anywhere_before_one_cluster_is_chosen() {
    let waiting = world(&[("a", ""), ("b", "ord")]);
    let placement = decide(&dfw(), &set(&["dfw"]), None, &waiting).placement;
    let group = placement.cluster_affinity.as_ref().unwrap();
    assert!(group.cluster_names[0].contains('.'), "Karmada takes no Cluster of such a name: {group:?}");
    let selector = group.label_selector.as_ref().unwrap();
    assert_eq!(selector.values_of(label::TOPOLOGY_CITY), ["dfw"], "it reads as every policy of the city does");
    assert_eq!(made_for(&placement), Some(dfw()));
    // Whether it stands, or a policy of the Go operator, or of an earlier version, that nobody has gone by yet.
    let plain = by_label(selector.clone(), None);
    for live in [None, Some(&placement), Some(&plain)] {
        assert_eq!(look(live, &waiting), "[label no-cluster.yet]");
        assert_eq!(look(live, &world(&[("a", "dfw"), ("b", "DFW")])), "[label a]", "one of two, when they have it");
    }
}

/// Found by the Go operator's suites: the plain policy listed eight spellings although there was one.
#[test]
fn a_placement_without_a_guard_is_the_contracts_while_all_spell_the_city_alike() {
    let selector = |spellings: &[&str], clusters: &[(&str, &str)]| {
        let placement = plain(&dfw(), &set(spellings), &world(clusters).clusters);
        let group = placement.cluster_affinity.unwrap();
        assert!(group.cluster_names.is_empty());
        json!(group.label_selector.unwrap())
    };
    let one = |spelt: &str| json!({ "matchLabels": { label::TOPOLOGY_CITY: spelt } });
    let several = |spelt: &[&str]| json!({ "matchExpressions": [{ "key": label::TOPOLOGY_CITY, "operator": "In", "values": spelt }] });
    for (spellings, clusters, expected) in [
        (&["dfw"][..], &[("a", "dfw"), ("b", "ord")][..], one("dfw")),
        (&["DFW"], &[("a", "DFW")], one("DFW")),
        (&["DFW"], &[], one("DFW")),
        (&[], &[("a", "DFW")], one("DFW")),
        (&[], &[], one("dfw")),
        (&["DFW"], &[("a", "dfw")], several(&["DFW", "dfw"])),
        (&["DFW", "Dfw"], &[("a", "DFW")], several(&["DFW", "Dfw"])),
    ] {
        assert_eq!(selector(spellings, clusters), expected, "{spellings:?}, {clusters:?}");
    }
}

#[test]
fn the_city_of_a_placement_shows_in_its_form() {
    let made = |placement: &PolicyPlacement| made_for(placement).map(|city| city.to_string());
    let select = |values: &[&str]| LabelSelector::one_of(label::TOPOLOGY_CITY, &set(values));
    assert_eq!(made(&by_label(select(&["DFW", "dfw"]), Some("a"))).as_deref(), Some("dfw"));
    assert_eq!(made(&held(select(&["dfw"]), "a")).as_deref(), Some("dfw"));
    let world = world(&[("a", "dfw"), ("b", "dfw")]);
    assert_eq!(made(&moving(select(&["dfw"]), &transfer("a", "b", "1-0"), &world)).as_deref(), Some("dfw"));
    assert_eq!(made(&by_label(select(&["dfw", "ord"]), None)), None, "of two cities");
    let theirs = PolicyPlacement { cluster_affinity: Some(by_name("a")), ..PolicyPlacement::default() };
    assert_eq!((made(&theirs), made(&PolicyPlacement::default())), (None, None));
    let mut other = held(select(&["dfw"]), "a");
    other.cluster_affinities.as_mut().unwrap()[0].affinity_name = "primary".into();
    assert_eq!(made(&other), None);
}

#[test]
fn names_of_attempts_fit_into_karmadas_limit() {
    // An affinity's name has at most 32 characters.
    let placement = moving(LabelSelector::default(), &transfer("a", "b", "back-9999999-9999"), &Observed::default());
    assert!(placement.cluster_affinities.unwrap().iter().all(|term| term.affinity_name.len() <= 32));
}
