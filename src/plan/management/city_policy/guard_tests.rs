use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::plan::{
    management::{
        drain::placement_status::{Before, Record, Route},
        observed::placement::made_for,
    },
    recorded::recorded,
};

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

/// A placement in short: of each group its name, `label` if it has a selector, and its clusters.
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
    look_at(live, observed, None)
}

fn look_at(live: Option<&PolicyPlacement>, observed: &Observed, transfer: Option<&Transfer>) -> String {
    let decided = decide(&dfw(), &set(&["dfw"]), live, observed, transfer);
    assert_eq!(decide(&dfw(), &set(&["dfw"]), live, &recorded(observed), transfer), decided);
    brief(&decided.placement)
}

const ON_A: &str = "city[label a] holding[a]";

#[test]
fn guard_names_the_cluster_of_the_bindings_that_the_policy_claimed() {
    let one = || world(&[("a", "dfw"), ("b", "ord")]);
    let cases: [(&str, Observed, &str); 8] = [
        ("no cluster has it: those with the label", one(), "[label a]"),
        ("no cluster carries the label", world(&[("b", "ord")]), "[label no-cluster.yet]"),
        ("everything is on one", on(one(), &[&["a"], &["a"]]), ON_A),
        ("the label has gone to another", on(world(&[("a", ""), ("b", "dfw")]), &[&["a"]]), ON_A),
        ("the cluster is gone for good", on(world(&[("b", "dfw")]), &[&["a"]]), "[label b]"),
        ("not ready is no reason to leave", edit(on(one(), &[&["a"]]), "a", |a| a.ready = Err("away".into())), ON_A),
        ("drained, and not begun", draining(on(one(), &[&["a"]]), "a"), ON_A),
        ("every deployment is on both", on(world(&[("a", "dfw"), ("b", "dfw")]), &[&["a", "b"]]), "[label ]"),
    ];
    for (what, observed, expected) in cases {
        assert_eq!(look(None, &observed), expected, "{what}");
    }
    // The policy's present placement is no evidence of the place of the city.
    let elsewhere = held(selector(&dfw(), &set(&["dfw"]), &BTreeMap::new()), "b");
    assert_eq!(look(Some(&elsewhere), &on(one(), &[&["a"]])), ON_A);
    assert_eq!(look(Some(&elsewhere), &one()), "[label a]", "neither label nor binding");
}

#[test]
fn new_namespace_starts_on_the_cluster_of_the_city() {
    let both = || world(&[("a", "dfw"), ("b", "dfw"), ("c", "")]);
    let held = |counts: &[(&str, usize)], mut world: Observed| {
        world.elsewhere = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        world
    };
    let cases = [
        ("no cluster has it: the first by name", both(), "[label a]"),
        ("the first that is able", edit(both(), "a", |a| a.obstacle = Some("has a taint".into())), "[label b]"),
        ("the first that stays", draining(both(), "a"), "[label b]"),
        ("others have it", held(&[("b", 2)], both()), "city[label b] holding[b]"),
        ("most others have it", held(&[("a", 1), ("b", 2)], both()), "city[label b] holding[b]"),
        ("others have it on one without the label", held(&[("c", 1)], both()), "city[label c] holding[c]"),
        ("others have it where it is to leave", draining(held(&[("b", 1)], both()), "b"), "city[label b] holding[b]"),
        ("others had it on one that goes", edit(held(&[("b", 1)], both()), "b", |b| b.deleting = true), "[label a]"),
        (
            "while it moves",
            Observed {
                instruction: Instruction { home: Some("b".into()), ..Instruction::default() },
                ..held(&[("a", 9)], both())
            },
            "city[label b] holding[b]",
        ),
    ];
    for (what, observed, expected) in cases {
        assert_eq!(look(None, &observed), expected, "{what}");
    }
    let note = decide(&dfw(), &set(&[]), None, &both(), None).note.unwrap();
    assert!(note.contains("Clusters a, b have the label of dfw") && note.contains("selects a,"), "{note}");
}

fn transfer(from: &str, to: &str, attempt: &str) -> Transfer {
    let route = Route { from: from.into(), to: to.into() };
    let at = Timestamp::UNIX_EPOCH;
    let record = Record { requested: at, asked: at, since: at, before: Before::FULL };
    Transfer { route, attempt: attempt.into(), record }
}

#[test]
fn policy_of_a_transfer_names_the_old_cluster_behind_the_new_one() {
    let at = |bindings: &[&[&str]]| draining(on(world(&[("a", "dfw"), ("b", "dfw")]), bindings), "a");
    let there = transfer("a", "b", "7");
    let begun = "moving-7[label b] holding-7[a]";
    let decided = decide(&dfw(), &set(&["dfw"]), None, &at(&[&["a"], &["a"]]), Some(&there)).placement;
    assert_eq!(brief(&decided), begun);
    let live = Some(&decided);
    assert_eq!(look_at(live, &at(&[&["a"], &["b"]]), Some(&there)), begun, "half-way");
    assert_eq!(look_at(live, &at(&[&["b"], &["b"]]), Some(&there)), begun, "not known to run there");
    assert_eq!(look(live, &at(&[&["b"], &["b"]])), "city[label b] holding[b]", "it has arrived");
    assert_eq!(look(live, &at(&[&["a"], &["a"]])), ON_A, "recalled before anything moved");
    // A city returns even to a cluster that has lost the label.
    let back = transfer("b", "a", "back-7");
    assert_eq!(look_at(live, &at(&[&["b"], &["a"]]), Some(&back)), "moving-back-7[label a] holding-back-7[b]");
    let unlabelled = edit(at(&[&["b"]]), "a", |a| a.label = None);
    assert_eq!(look_at(live, &unlabelled, Some(&back)), "moving-back-7[a] holding-back-7[b]");
    // A city does not move on to a cluster that has lost the label.
    let unlabelled = edit(at(&[&["a"]]), "b", |b| (b.city, b.label) = (None, None));
    assert_eq!(look_at(None, &unlabelled, Some(&there)), begun);
}

/// A drain removed a shared city from the cluster that ran it, in every namespace at once, even if the other cluster ran nothing.
#[test]
fn city_that_several_clusters_share_stays_on_all_without_a_transfer() {
    let shared = || on(world(&[("a", "dfw"), ("b", "dfw")]), &[&["a", "b"], &["a", "b"]]);
    let dead = |observed| edit(observed, "b", |b| b.ready = Err("away".into()));
    for (what, observed) in [
        ("nothing is to be left", shared()),
        ("not the turn of this namespace", draining(shared(), "a")),
        ("the only one that is alive is not left", dead(draining(shared(), "a"))),
        ("both are to be left", draining(draining(shared(), "a"), "b")),
    ] {
        assert_eq!(look(None, &observed), "[label ]", "{what}");
    }
    let there = transfer("a", "b", "1");
    assert_eq!(look_at(None, &draining(shared(), "a"), Some(&there)), "moving-1[label b] holding-1[a]");
    assert!(decide(&dfw(), &set(&[]), None, &shared(), None).note.unwrap().contains("runs on Clusters a, b"));
}

/// Two clusters that got the label one after the other both kept the city, if Karmada reacted before the operator.
#[test]
fn waiting_city_selects_no_cluster_before_one_is_chosen() {
    let waiting = world(&[("a", ""), ("b", "ord")]);
    let placement = decide(&dfw(), &set(&["dfw"]), None, &waiting, None).placement;
    let group = placement.cluster_affinity.as_ref().unwrap();
    assert!(group.cluster_names[0].contains('.'), "Karmada takes no Cluster of such a name: {group:?}");
    let selector = group.label_selector.as_ref().unwrap();
    assert_eq!(selector.values_of(label::TOPOLOGY_CITY), ["dfw"], "it reads as every policy of the city does");
    assert_eq!(made_for(&placement), Some(dfw()));
    // The result is the same without a policy, with this one, and with a plain one of the Go operator or of an earlier version.
    let plain = by_label(selector.clone(), None);
    for live in [None, Some(&placement), Some(&plain)] {
        assert_eq!(look(live, &waiting), "[label no-cluster.yet]");
        assert_eq!(look(live, &world(&[("a", "dfw"), ("b", "DFW")])), "[label a]", "one of two, when they have it");
    }
}

/// The plain policy listed eight spellings although there was one.
#[test]
fn unguarded_placement_with_one_spelling_is_that_of_the_contract() {
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
fn placement_city_is_parsed_from_each_form() {
    let made = |placement: &PolicyPlacement| made_for(placement).map(|city| city.to_string());
    let select = |values: &[&str]| LabelSelector::one_of(label::TOPOLOGY_CITY, &set(values));
    assert_eq!(made(&by_label(select(&["DFW", "dfw"]), Some("a"))).as_deref(), Some("dfw"));
    assert_eq!(made(&held(select(&["dfw"]), "a")).as_deref(), Some("dfw"));
    let world = world(&[("a", "dfw"), ("b", "dfw")]);
    assert_eq!(made(&moving(select(&["dfw"]), &transfer("a", "b", "1"), &world)).as_deref(), Some("dfw"));
    assert_eq!(made(&by_label(select(&["dfw", "ord"]), None)), None, "of two cities");
    let theirs = PolicyPlacement { cluster_affinity: Some(by_name("a")), ..PolicyPlacement::default() };
    assert_eq!((made(&theirs), made(&PolicyPlacement::default())), (None, None));
    let mut other = held(select(&["dfw"]), "a");
    other.cluster_affinities.as_mut().unwrap()[0].affinity_name = "primary".into();
    assert_eq!(made(&other), None);
}

#[test]
fn attempt_names_fit_the_limit_of_karmada() {
    // An affinity's name has at most 32 characters.
    let placement = moving(LabelSelector::default(), &transfer("a", "b", "back-9999999999999"), &Observed::default());
    assert!(placement.cluster_affinities.unwrap().iter().all(|term| term.affinity_name.len() <= 32));
}
