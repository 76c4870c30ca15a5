use super::*;
use crate::plan::management::drain::{
    placement_status::{ClusterShare, Failure, Route},
    transfer::Instruction,
};

/// A city on the clusters `on`, where it runs or not. `a` and `b` carry the label. `go` is the leave of a drain.
fn at(on: &[&str], runs: bool, go: Option<(&str, &str)>) -> guard::Observed {
    let share = ClusterShare {
        bindings: 1,
        applied: 1,
        desired: 1,
        current: i64::from(runs),
        shared: usize::from(on.len() > 1),
        ..ClusterShare::default()
    };
    let labelled = |name: &&str| ((*name).to_owned(), ClusterFacts::labelled("dfw"));
    let route = |(from, to): (&str, &str)| Route { from: from.into(), to: to.into() };
    guard::Observed {
        on: vec![on.iter().map(|name| (*name).to_owned()).collect()],
        clusters: ["a", "b"].iter().map(labelled).collect(),
        shares: on.iter().map(|name| ((*name).to_owned(), share)).collect(),
        instruction: Instruction { is_draining: true, go: go.map(route), ..Instruction::default() },
        ..guard::Observed::default()
    }
}

fn look(policy: Option<&PropagationPolicy>, place: guard::Observed, now: Timestamp) -> Vec<Write<Hub>> {
    plan(&Observed { wanted: true, place: Some(place), guard: true, ..observed(&dfw(), policy) }, now).steps
}

/// The policy once these writes are carried out.
fn written(policy: Option<&PropagationPolicy>, steps: &[Write<Hub>]) -> PropagationPolicy {
    assert_eq!(steps.len(), 1, "{steps:?}");
    after(policy, &steps[0])
}

fn names(policy: &PropagationPolicy) -> Vec<(String, String)> {
    let groups = policy.spec.placement.cluster_affinities.clone().unwrap();
    groups.into_iter().map(|term| (term.affinity_name, term.group.cluster_names.join(","))).collect()
}

fn is_held_on(policy: &PropagationPolicy, cluster: &str) -> bool {
    names(policy) == [("city".to_owned(), cluster.to_owned()), ("holding".to_owned(), cluster.to_owned())]
}

/// A policy of the city that is held on `a`.
fn held_on_a() -> PropagationPolicy {
    written(None, &look(None, at(&["a"], true, None), NOW))
}

const A_TO_B: Option<(&str, &str)> = Some(("a", "b"));

/// A drain that was recalled while Karmada's scheduler was away was carried out by the scheduler when it was back.
#[test]
fn policy_unknown_to_the_scheduler_changes_only_if_nothing_moves() {
    let held = held_on_a();
    let moving = written(Some(&held), &look(Some(&held), at(&["a"], true, A_TO_B), NOW));
    let under_way = |place| guard::Observed { under_way: true, ..place };
    for (what, place, is_taken_back) in [
        ("still wanted", at(&["a"], true, A_TO_B), false),
        ("recalled, and all is where it was", at(&["a"], true, None), true),
        ("recalled half-way", at(&["a", "b"], true, None), true),
        ("recalled, and it has moved", at(&["b"], true, None), false),
        ("nothing is anywhere", guard::Observed { on: vec![], shares: BTreeMap::new(), ..at(&[], true, None) }, false),
    ] {
        let steps = look(Some(&moving), under_way(place), NOW);
        assert_eq!(!steps.is_empty(), is_taken_back, "{what}: {steps:?}");
    }
    let back = written(Some(&moving), &look(Some(&moving), under_way(at(&["a"], true, None)), NOW));
    assert!(is_held_on(&back, "a"));
    assert!(look(Some(&back), under_way(at(&["b"], true, None)), NOW).is_empty(), "and that is not crossed");
}

/// A namespace moves, does not run on the target, returns, and records that. Each step is one write.
#[test]
fn transfer_that_does_not_arrive_is_brought_back_and_recorded_in_one_write() {
    let minutes = |n: i64| NOW + jiff::SignedDuration::from_mins(n);
    let annotation = |policy: &PropagationPolicy, key: &str| policy.annotations().get(key).cloned();
    let held = held_on_a();
    let sent = written(Some(&held), &look(Some(&held), at(&["a"], true, A_TO_B), minutes(0)));
    assert_eq!(names(&sent), [("moving-0".to_owned(), "b".to_owned()), ("holding-0".to_owned(), "a".to_owned())]);
    let record = annotation(&sent, annotation::DRAIN_TRANSFER).unwrap();
    assert!(record.contains(r#""ran":true"#) && record.contains(r#""applied":1"#), "{record}");
    assert!(look(Some(&sent), at(&["b"], false, A_TO_B), minutes(9)).is_empty(), "it has time");
    let back = written(Some(&sent), &look(Some(&sent), at(&["b"], false, A_TO_B), minutes(10)));
    assert_eq!(names(&back)[0], ("moving-back-600000".to_owned(), "a".to_owned()));
    let failed: BTreeMap<String, Failure> =
        serde_json::from_str(&annotation(&back, annotation::DRAIN_FAILED).unwrap()).unwrap();
    assert!(failed["b"].why.contains("ns-1 did not arrive on b within 600 s: none of 1 instance(s)"), "{failed:?}");
    let there = written(Some(&back), &look(Some(&back), at(&["a"], true, A_TO_B), minutes(11)));
    assert!(is_held_on(&there, "a") && annotation(&there, annotation::DRAIN_TRANSFER).is_none());
    assert!(look(Some(&there), at(&["a"], true, A_TO_B), minutes(60)).is_empty(), "it is not sent there again");
    let unknown = Observed { wanted: true, place: None, guard: true, ..observed(&dfw(), Some(&there)) };
    assert!(plan(&unknown, NOW).steps.is_empty(), "nothing is known");
    let mut recalled = at(&["a"], true, None);
    recalled.instruction.is_draining = false;
    let mut outdated = recalled.clone();
    outdated.clusters.get_mut("a").unwrap().draining = true;
    assert!(look(Some(&there), outdated, minutes(61)).is_empty(), "the drain does not know yet that it is back");
    let forgotten = written(Some(&there), &look(Some(&there), recalled, minutes(61)));
    assert!(annotation(&forgotten, annotation::DRAIN_FAILED).is_none() && forgotten.spec == there.spec);
}

#[test]
fn transfer_that_arrives_is_proved_before_the_way_back_is_dropped() {
    let held = held_on_a();
    let sent = written(Some(&held), &look(Some(&held), at(&["a"], true, A_TO_B), NOW));
    assert!(look(Some(&sent), at(&["b"], false, A_TO_B), NOW).is_empty());
    let mut outdated = at(&["b"], false, A_TO_B);
    outdated.instruction.is_draining = false;
    outdated.clusters.get_mut("a").unwrap().draining = true;
    assert!(look(Some(&sent), outdated, NOW).is_empty(), "the drain was recalled and requested again a moment ago");
    let there = written(Some(&sent), &look(Some(&sent), at(&["b"], true, A_TO_B), NOW));
    assert!(is_held_on(&there, "b") && there.annotations().keys().all(|key| !key.contains("drain")));
}

/// After an outage of Karmada's scheduler longer than the time to arrive, a good move was reverted as soon as it began.
#[test]
fn time_to_arrive_does_not_count_while_the_scheduler_is_away() {
    let minutes = |n: i64| NOW + jiff::SignedDuration::from_mins(n);
    let away = |n: i64, policy: &PropagationPolicy| {
        look(Some(policy), guard::Observed { under_way: true, ..at(&["a"], true, A_TO_B) }, minutes(n))
    };
    let held = held_on_a();
    let sent = written(Some(&held), &look(Some(&held), at(&["a"], true, A_TO_B), minutes(0)));
    assert!(away(0, &sent).is_empty(), "one write in each pause between two requests");
    let waited = written(Some(&sent), &away(15, &sent));
    assert_eq!(names(&waited), names(&sent), "the scheduler is not asked again");
    assert!(look(Some(&waited), at(&["b"], false, A_TO_B), minutes(24)).is_empty(), "it has time");
    let back = written(Some(&waited), &look(Some(&waited), at(&["b"], false, A_TO_B), minutes(25)));
    assert!(names(&back)[0].0.starts_with("moving-back-"));
}

/// If a policy was deleted during a move, the next one selected the label alone, and everything ran on both clusters.
#[test]
fn deleted_policy_of_a_half_moved_namespace_is_recreated_with_its_transfer() {
    let mut half = at(&["a", "b"], true, None);
    half.on = ["a", "b"].map(|name| [name.to_owned()].into()).into();
    half.shares.values_mut().for_each(|share| share.shared = 0);
    half.clusters.get_mut("a").unwrap().draining = true;
    let again = written(None, &look(None, half, NOW));
    assert_eq!(names(&again), [("moving-0".to_owned(), "b".to_owned()), ("holding-0".to_owned(), "a".to_owned())]);
}

#[test]
fn unguarded_policy_has_one_spelling_until_another_appears() {
    let dfw = CityCode::parse("dfw").unwrap();
    let look = |policy: Option<&PropagationPolicy>, label: &str| {
        let mut place = on(&["cell-dfw"]);
        place.clusters.insert("cell-dfw".into(), ClusterFacts::labelled(label));
        let spellings = ["DFW".to_owned()].into();
        plan(&Observed { wanted: true, place: Some(place), spellings, ..observed(&dfw, policy) }, NOW).steps
    };
    let steps = look(None, "DFW");
    assert_eq!(steps.len(), 1, "one spelling is nothing to speak of: {steps:?}");
    let policy = after(None, &steps[0]);
    let selector =
        |policy: &PropagationPolicy| json!(policy.spec.placement.cluster_affinity.as_ref().unwrap().label_selector);
    assert_eq!(selector(&policy), json!({ "matchLabels": { label::TOPOLOGY_CITY: "DFW" } }));
    let respelt = look(Some(&policy), "dfw");
    assert_eq!(respelt.len(), 2, "the write, and that there are several: {respelt:?}");
    assert!(format!("{respelt:?}").contains("has the spellings DFW, dfw on"), "{respelt:?}");
    let both = after(Some(&policy), &respelt[0]);
    assert!(look(Some(&both), "dfw").is_empty());
    let back = after(Some(&both), &look(Some(&both), "DFW")[0]);
    assert_eq!(selector(&back), selector(&policy));
}
