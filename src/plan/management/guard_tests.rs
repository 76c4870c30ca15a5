use std::collections::BTreeMap;

use super::*;

/// Clusters by name: city label, whether drained, whether ready.
type World = BTreeMap<&'static str, (&'static str, bool, bool)>;

fn decide(world: &World, live: Option<&PolicyPlacement>, on: &[&[&str]]) -> (Vec<String>, Vec<String>) {
    let facts = |(city, draining, ready): &(&str, bool, bool)| {
        let ready = if *ready { Ok(()) } else { Err("away".to_owned()) };
        Arc::new(ClusterFacts { city: CityCode::parse(city).ok(), ready, draining: *draining })
    };
    let bindings: Vec<Arc<BindingFacts>> = on
        .iter()
        .map(|clusters| {
            let clusters = clusters.iter().map(|name| (*name).to_owned()).collect();
            Arc::new(BindingFacts { clusters, ..BindingFacts::default() })
        })
        .collect();
    let placement = placement(
        &CityCode::parse("dfw").unwrap(),
        live,
        &Clusters {
            bindings: &bindings,
            cluster: &|name| world.get(name).map(facts),
            clusters_of: &|city| {
                let of = world.iter().filter(|(_, (label, _, _))| *label == city.as_str());
                of.map(|(name, _)| (*name).to_owned()).collect()
            },
        },
    );
    match (placement.cluster_affinity, placement.cluster_affinities) {
        (Some(plain), None) => (plain.exclude, Vec::new()),
        (None, Some(terms)) => {
            assert!(terms.len() == 2 && terms[0].group.label_selector.is_some(), "the label comes first");
            assert!(terms[1].group.label_selector.is_none() && !terms[1].group.cluster_names.is_empty());
            let held = &terms[1].group.cluster_names;
            assert_eq!(&terms[0].group.cluster_names, held, "the label alone sends nothing elsewhere");
            (terms[0].group.exclude.clone(), terms[1].group.cluster_names.clone())
        }
        other => panic!("Karmada takes one or the other: {other:?}"),
    }
}

fn guarding(names: &[&str]) -> PolicyPlacement {
    let group = ClusterAffinity {
        cluster_names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..ClusterAffinity::default()
    };
    let terms = vec![ClusterAffinityTerm { affinity_name: HOLDING.into(), group }];
    PolicyPlacement { cluster_affinity: None, cluster_affinities: Some(terms) }
}

#[test]
fn the_guard_names_who_holds_the_city_and_never_guesses() {
    let a = [("a", ("dfw", false, true))];
    let both: World = a.into_iter().chain([("b", ("ord", false, true))]).collect();
    let only: World = a.into();
    let none: [&[&str]; 0] = [];
    let nobody: (Vec<String>, Vec<String>) = (vec![], vec![]);
    let holds = |names: &[&str]| (Vec::<String>::new(), names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
    assert_eq!(decide(&only, None, &none), nobody, "nothing is there yet");
    assert_eq!(decide(&only, None, &[&["a"], &["a"]]), holds(&["a"]));
    assert_eq!(
        decide(&both, None, &[&["a"], &["b"]]),
        nobody,
        "spread over two: either name would move or double some"
    );
    assert_eq!(decide(&both, None, &[&["a"], &[]]), holds(&["a"]), "one that is not scheduled says nothing");
    // Once it stands it is not widened, and goes with its clusters only.
    assert_eq!(decide(&both, Some(&guarding(&["a"])), &[&["b"]]), holds(&["a"]));
    let relabelled: World = [("a", ("", false, true)), ("b", ("dfw", false, true))].into();
    assert_eq!(decide(&relabelled, Some(&guarding(&["a"])), &[&["a"]]), holds(&["a"]), "a moved label moves nothing");
    assert_eq!(decide(&only, Some(&guarding(&["gone"])), &[&["a"]]), holds(&["a"]));
}

#[test]
fn a_drain_moves_the_city_when_somebody_takes_over() {
    let drained = |others: &[(&'static str, (&'static str, bool, bool))]| -> World {
        [("a", ("dfw", true, true))].into_iter().chain(others.iter().copied()).collect()
    };
    let guard = guarding(&["a"]);
    let stays = (vec![], vec!["a".to_owned()]);
    assert_eq!(decide(&drained(&[]), Some(&guard), &[&["a"]]), stays, "nobody else is there");
    assert_eq!(decide(&drained(&[("b", ("dfw", false, false))]), Some(&guard), &[&["a"]]), stays, "nor ready");
    let moved = decide(&drained(&[("b", ("dfw", false, true))]), Some(&guard), &[&["a"]]);
    assert_eq!(moved, (vec!["a".to_owned()], vec![]));
    let after = decide(&drained(&[("b", ("dfw", false, true))]), None, &[&["b"]]);
    assert_eq!(after, (vec!["a".to_owned()], vec!["b".to_owned()]), "guarded where it is now");
}
