use super::*;
use crate::plan::{management::drain::placement_status::ClusterShare, recorded::recorded};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn city(code: &str) -> CityCode {
    CityCode::parse(code).unwrap()
}

/// Clusters with the cities of their labels, and the cities that they hold.
fn world(clusters: &[(&str, &str)], holders: &[(&str, &[&str])]) -> Observed {
    let labelled = clusters.iter().map(|(name, label)| ((*name).to_owned(), ClusterFacts::labelled(label)));
    let on = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Observed {
        clusters: labelled.collect(),
        holders: holders.iter().map(|(code, names)| (city(code), on(names))).collect(),
        guard: true,
        ..Observed::default()
    }
}

/// Decides once. Returns the Events.
fn look(observed: &mut Observed) -> Vec<String> {
    let mut plan = plan(observed, NOW);
    assert_eq!(format!("{plan:?}"), format!("{:?}", super::plan(&recorded(observed), NOW)), "decided from its record");
    observed.before = plan.signals.pop().unwrap();
    plan.steps.iter().map(|event| format!("{event:?}")).collect()
}

#[test]
fn cluster_without_the_label_of_a_city_that_it_holds_is_reported_once() {
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, &'a [&'a str])], &'a [(&'a str, &'a str)]);
    let cases: [Case<'_>; 6] = [
        ("nothing is anywhere", &[("a", "")], &[], &[]),
        ("the label is there", &[("a", "dfw")], &[("dfw", &["a"])], &[]),
        ("the label is gone", &[("a", "")], &[("dfw", &["a"])], &[("a", "dfw")]),
        ("the label names another city", &[("a", "ord")], &[("dfw", &["a"])], &[("a", "dfw")]),
        ("an unknown cluster", &[], &[("dfw", &["a"])], &[]),
        ("two cities, one is right", &[("a", "ord")], &[("dfw", &["a"]), ("ord", &["a"])], &[("a", "dfw")]),
    ];
    for (what, clusters, holders, expected) in cases {
        let mut observed = world(clusters, holders);
        let found: Vec<(&str, &str)> =
            mislabelled(&observed).map(|(cluster, city)| (cluster.as_str(), city.as_str())).collect();
        assert_eq!(found, expected, "{what}");
        let events = look(&mut observed);
        assert_eq!(events.len(), expected.len(), "{what}: {events:?}");
        let says = |event: &String| {
            event.contains("CityLabelLost") && event.contains("is not dfw, and deployments of dfw stay")
        };
        assert!(events.iter().all(says), "{what}: {events:?}");
        assert!(look(&mut observed).is_empty(), "{what}: once");
    }
    let mut observed = world(&[("a", "")], &[("dfw", &["a"])]);
    look(&mut observed);
    *observed.clusters.get_mut("a").unwrap() = ClusterFacts::labelled("dfw");
    look(&mut observed);
    *observed.clusters.get_mut("a").unwrap() = ClusterFacts::labelled("");
    assert_eq!(look(&mut observed).len(), 1, "it is lost again");
}

/// A recalled drain left a city in two places, and nothing reported it.
#[test]
fn city_in_two_places_that_does_not_move_is_reported_once_on_each_cluster() {
    let share = |shared| ClusterShare { bindings: 1, applied: 1, current: 1, shared, ..ClusterShare::default() };
    let on = |shares: &[(&str, usize)]| PlacementStatus {
        on: shares.iter().map(|(name, shared)| ((*name).to_owned(), share(*shared))).collect(),
        ..PlacementStatus::default()
    };
    let of = |namespaces: [PlacementStatus; 2]| {
        let mut observed = world(&[("a", "dfw"), ("b", "dfw")], &[("dfw", &["a", "b"])]);
        let [one, two] = namespaces;
        observed.cities.insert(city("dfw"), [("n1".to_owned(), one), ("n2".to_owned(), two)].into());
        observed
    };
    let mut split = of([on(&[("a", 0)]), on(&[("b", 0)])]);
    let events = look(&mut split);
    assert!(events.len() == 2 && events.iter().all(|event| event.contains("dfw runs on Clusters a, b")), "{events:?}");
    assert!(look(&mut split).is_empty(), "once");
    let both = || on(&[("a", 1), ("b", 1)]);
    assert!(look(&mut of([both(), both()])).is_empty(), "each deployment is on both: the policy reports that");
    split.before = Decision::default();
    split.clusters.get_mut("a").unwrap().draining = true;
    let events = look(&mut split);
    assert!(!events.iter().any(|event| event.contains("SeveralClusters")), "its drain reports it: {events:?}");
}

#[test]
fn drain_without_the_guard_is_reported_once_per_request() {
    let mut observed =
        Observed { guard: false, ..world(&[("a", "dfw"), ("b", "dfw")], &[("dfw", &["a"]), ("ord", &["b"])]) };
    let mut drain = |on: &[&str]| {
        for (name, facts) in &mut observed.clusters {
            facts.draining = on.contains(&name.as_str());
        }
        let events = look(&mut observed);
        let of_drains: Vec<&String> = events.iter().filter(|event| event.contains("cityGuard is false")).collect();
        assert!(of_drains.iter().all(|event| event.contains("DrainWaiting")));
        (of_drains.len(), unguarded(&observed).count())
    };
    assert_eq!(drain(&[]), (0, 0));
    assert_eq!(drain(&["a"]), (1, 1));
    assert_eq!(drain(&["a", "b"]), (1, 2));
    assert_eq!(drain(&["a"]), (0, 1));
    assert_eq!(drain(&["a", "b"]), (1, 2));
}

#[test]
fn unready_clusters_are_named_with_the_cities_that_they_hold_or_are_for() {
    let mut observed = world(
        &[("a", "dfw"), ("b", "ord"), ("c", ""), ("d", ""), ("e", "lhr")],
        &[("dfw", &["a", "c"]), ("fra", &["a"]), ("ord", &["b"]), ("gone", &["z"])],
    );
    assert!(unready(&observed).is_empty());
    for name in ["a", "c", "d", "e"] {
        observed.clusters.get_mut(name).unwrap().ready = Err("ClusterNotReachable".to_owned());
    }
    let found: Vec<(&str, &str)> =
        unready(&observed).into_iter().map(|(cluster, city)| (cluster.as_str(), city.as_str())).collect();
    assert_eq!(found, [("a", "dfw"), ("a", "fra"), ("c", "dfw"), ("e", "lhr")]);
}
