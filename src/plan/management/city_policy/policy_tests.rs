use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::api::names::CityCode;
use crate::plan::{
    Op, Shared,
    management::{city_policy::unneeded::Unneeded, observed::cluster::ClusterFacts},
    recorded::recorded,
};
use crate::timing::{Timing, some_moment};

#[path = "policy_moves_tests.rs"]
mod moves;
#[path = "policy_of_go_tests.rs"]
mod of_go_unneeded;
#[path = "policy_rollback_tests.rs"]
mod rollback_waits;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn observed(city: &CityCode, policy: Option<&PropagationPolicy>) -> Observed {
    Observed {
        namespace: "ns-1".into(),
        city: city.clone(),
        spellings: BTreeSet::new(),
        copies: 0,
        wanted: false,
        complete: true,
        namespace_lives: true,
        policy: policy.cloned().map(Shared::from),
        place: Some(guard::Observed::default()),
        guard: false,
        delivered_by_dependency: false,
        claimed: 0,
        unneeded_for: Duration::ZERO,
        wait_is_reported: false,
        propagation: Propagation::Dependencies,
        probe: Probe::Passed,
        rollback_impact: None,
        rollback_wait: None,
        timing: Timing::default(),
    }
}

fn dfw() -> CityCode {
    CityCode::parse("dfw").unwrap()
}

/// The policy as it stands after this write.
fn after(live: Option<&PropagationPolicy>, write: &Write<Hub>) -> PropagationPolicy {
    let mut policy = live.map_or_else(|| json!({}), |live| json!(live));
    overlay(&mut policy, &write.op.asked().unwrap());
    policy["metadata"]["uid"] = json!("u");
    policy["metadata"]["resourceVersion"] = json!("7");
    serde_json::from_value(policy).unwrap()
}

fn overlay(under: &mut Value, over: &Value) {
    match (under.as_object_mut(), over) {
        (Some(fields), Value::Object(over)) => {
            for (field, value) in over {
                match value {
                    Value::Null => drop(fields.remove(field)),
                    value => overlay(fields.entry(field).or_insert(json!({})), value),
                }
            }
        }
        _ => *under = over.clone(),
    }
}

fn held(city: &CityCode) -> PropagationPolicy {
    let decision = plan(&Observed { wanted: true, ..observed(city, None) }, NOW);
    after(None, &decision.steps[0])
}

#[test]
fn it_comes_with_the_first_and_goes_with_the_last() {
    let dfw = dfw();
    let policy = held(&dfw);
    assert!(policy.spec.propagate_deps && policy.spec.resource_selectors.len() == 1);
    let cases = [
        ("wanted, there", Observed { wanted: true, ..observed(&dfw, Some(&policy)) }, 0),
        ("copies left", Observed { copies: 1, ..observed(&dfw, Some(&policy)) }, 0),
        ("copies left, policy lost", Observed { copies: 1, ..observed(&dfw, None) }, 1),
        ("not all projects seen", Observed { complete: false, ..observed(&dfw, Some(&policy)) }, 0),
        ("last one gone", observed(&dfw, Some(&policy)), 1),
        ("namespace not there yet", Observed { wanted: true, namespace_lives: false, ..observed(&dfw, None) }, 0),
    ];
    for (name, observed, writes) in cases {
        assert_eq!(plan(&observed, NOW).steps.len(), writes, "{name}");
    }
    let gone = plan(&observed(&dfw, Some(&policy)), NOW);
    assert_eq!(gone.steps[0].op, Op::Delete { uid: "u".into(), resource_version: "7".into() });
}

#[test]
fn a_namesake_of_somebody_else_is_left_alone() {
    let dfw = dfw();
    let mut policy = held(&dfw);
    policy.metadata.labels = None;
    assert!(plan(&observed(&dfw, Some(&policy)), NOW).steps.is_empty());
}

#[test]
fn it_waits_for_companions_that_it_claims_and_not_for_ever() {
    let dfw = dfw();
    let policy = held(&dfw);
    let claimed = Observed { claimed: 2, ..observed(&dfw, Some(&policy)) };
    let waits = plan(&claimed, NOW);
    assert!(
        waits.steps.is_empty() && waits.next == Next::After(Timing::default().policy_poll) && waits.signals.is_empty()
    );
    let reported = plan(&Observed { unneeded_for: Timing::default().policy_poll, ..claimed }, NOW);
    assert!(
        reported.signals == [Signal::Waits]
            && format!("{:?}", reported.steps).contains("2 companion(s) are still claimed"),
        "{reported:?}"
    );
    let claimed = Observed { claimed: 2, wait_is_reported: true, ..observed(&dfw, Some(&policy)) };
    let quiet = plan(&Observed { unneeded_for: Timing::default().policy_poll, ..claimed }, NOW);
    assert!(quiet.steps.is_empty() && quiet.next == Next::After(Timing::default().policy_poll), "once is enough");
    let claimed = Observed { claimed: 2, wait_is_reported: true, ..observed(&dfw, Some(&policy)) };
    let late = plan(&Observed { unneeded_for: Timing::default().policy_claim_release, ..claimed }, NOW);
    assert!(late.signals == [Signal::GaveUp] && late.steps.len() == 2, "reported, and gone: {late:?}");
}

/// A policy as the Go operator wrote it.
fn of_go() -> PropagationPolicy {
    let companion = |kind: &str| json!({ "apiVersion": "v1", "kind": kind, "labelSelector": { "matchLabels": { label::REFERENCED_DATA: "true" } } });
    let city = json!({ "matchLabels": { label::TOPOLOGY_CITY: "dfw" } });
    serde_json::from_value(json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "name": "city-dfw", "namespace": "ns-1", "uid": "u", "resourceVersion": "1" },
        "spec": {
            "resourceSelectors": [
                { "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "labelSelector": city },
                companion("ConfigMap"), companion("Secret"),
            ],
            "placement": { "clusterAffinity": { "labelSelector": city } },
        },
    }))
    .unwrap()
}

#[test]
fn a_policy_of_the_go_operator_is_led_to_dependencies_without_taking_anything_away() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy, delivered_by_dependency: bool| {
        plan(&Observed { wanted: true, delivered_by_dependency, ..observed(&dfw, Some(policy)) }, NOW).steps
    };
    let old = of_go();
    assert_eq!(Phase::of(&old.spec), Phase::Claims);
    // Even if every consumer seemed to be served already, the selectors stay in the first step (fact 25).
    let first = look(&old, true);
    let both = after(Some(&old), &first[0]);
    assert_eq!((Phase::of(&both.spec), both.spec.resource_selectors.len()), (Phase::Both, 3));
    assert!(
        matches!(&first[1].op, Op::Create { body, .. } if body["note"] == "companions of dfw: from claims to both")
    );
    assert!(look(&both, false).is_empty(), "waits until all are served by need");
    let second = look(&both, true);
    let done = after(Some(&both), &second[0]);
    assert_eq!((Phase::of(&done.spec), done.spec.resource_selectors.len()), (Phase::Dependencies, 1));
    assert!(look(&done, true).is_empty() && look(&done, false).is_empty());
}

/// When the last deployment of a city leaves in the middle of the way, nobody will lead its policy to the end of it.
#[test]
fn a_policy_that_nobody_needs_selects_companions_no_more_before_it_waits_for_their_release() {
    let dfw = dfw();
    let held = held(&dfw);
    let mut claims = of_go();
    claims.metadata.labels = held.metadata.labels.clone();
    let mut both = claims.clone();
    both.spec.propagate_deps = true;
    for policy in [&claims, &both] {
        let unneeded =
            || Observed { claimed: 1, unneeded_for: Duration::from_hours(1), ..observed(&dfw, Some(policy)) };
        let steps = plan(&unneeded(), NOW).steps;
        let dropped = after(Some(policy), &steps[0]);
        assert_eq!((Phase::of(&dropped.spec), dropped.spec.resource_selectors.len()), (Phase::Dependencies, 1));
        assert_eq!(dropped.spec.placement, policy.spec.placement, "where its deployments were is not touched");
        assert!(format!("{steps:?}").contains("to dependencies"), "{steps:?}");
        let waits = Observed { claimed: 1, ..observed(&dfw, Some(&dropped)) };
        assert!(plan(&waits, NOW).steps.is_empty());
        let released = plan(&observed(&dfw, Some(&dropped)), NOW).steps;
        assert!(matches!(released[..], [Write { op: Op::Delete { .. }, .. }]), "{released:?}");
        // Back to claims, they pass to another policy when it goes.
        let back = Observed { propagation: Propagation::Selectors, ..unneeded() };
        assert_eq!(plan(&back, NOW).signals, [Signal::GaveUp]);
    }
}

#[test]
fn one_policy_asks_whether_dependencies_are_brought_and_the_others_wait() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy, probe: Probe| {
        plan(&Observed { wanted: true, delivered_by_dependency: true, probe, ..observed(&dfw, Some(policy)) }, NOW)
    };
    let of = |seconds, reported, misses_later| Probe::Here {
        unanswered_for: Duration::from_secs(seconds),
        reported,
        misses_later,
    };
    let asking = |seconds, reported| of(seconds, reported, false);
    let old = of_go();
    let waiting = look(&old, Probe::Elsewhere);
    let adopted = after(Some(&old), &waiting.steps[0]);
    assert_eq!(
        (Phase::of(&adopted.spec), waiting.next),
        (Phase::Claims, Next::After(Timing::default().policy_poll)),
        "taken over, not moved"
    );
    assert!(look(&adopted, Probe::Elsewhere).steps.is_empty());
    let both = after(Some(&old), &look(&old, asking(0, false)).steps[0]);
    assert_eq!(Phase::of(&both.spec), Phase::Both);
    // Served by need as it may seem, nothing is dropped without an answer.
    let cases = [(0, false, 0), (29, false, 0), (30, false, 1), (31, true, 0)];
    for (seconds, reported, steps) in cases {
        let decision = look(&both, asking(seconds, reported));
        let signals = if steps == 1 { vec![Signal::Refused] } else { vec![] };
        assert_eq!((decision.steps.len(), decision.signals), (steps, signals), "{seconds} {reported}");
        assert_eq!(decision.next, Next::After(Timing::default().policy_poll));
    }
    for (misses_later, says) in [(false, "enable the feature gate"), (true, "its issue 6924")] {
        let told = format!("{:?}", look(&both, of(30, false, misses_later)).steps);
        assert!(told.contains("MigrationRefused") && told.contains(says), "{told}");
    }
    // Nobody can be asked: it waits where it is, and says so once.
    for (seconds, reported, steps) in [(0, false, 0), (30, false, 1), (31, true, 0)] {
        let probe = Probe::Nobody { waited_for: Duration::from_secs(seconds), reported };
        for standing in [&adopted, &both] {
            let decision = look(standing, probe);
            let signals = if steps == 1 { vec![Signal::NobodyToAsk] } else { vec![] };
            assert_eq!((decision.steps.len(), &decision.signals), (steps, &signals), "{seconds} {reported}");
            assert_eq!(decision.next, Next::After(Timing::default().policy_poll));
        }
    }
    let waits = Probe::Nobody { waited_for: Duration::from_secs(30), reported: false };
    assert!(format!("{:?}", look(&adopted, waits).steps).contains("MigrationWaits"));
    assert_eq!(Phase::of(&after(Some(&both), &look(&both, Probe::Passed).steps[0]).spec), Phase::Dependencies);
}

/// A city that is on these clusters; all carry its label.
fn on(names: &[&str]) -> guard::Observed {
    guard::Observed {
        on: names.iter().map(|name| [(*name).to_owned()].into()).collect(),
        clusters: names.iter().map(|name| ((*name).to_owned(), ClusterFacts::labelled("dfw"))).collect(),
        ..guard::Observed::default()
    }
}

#[test]
fn a_plain_policy_gets_its_guard_in_place_and_gives_it_back() {
    let dfw = dfw();
    let policy = held(&dfw);
    let look = |policy: &PropagationPolicy, place: Option<guard::Observed>, guard: bool| {
        plan(&Observed { wanted: true, place, guard, ..observed(&dfw, Some(policy)) }, NOW).steps
    };
    let steps = look(&policy, Some(on(&["cell-dfw"])), true);
    let guarded = after(Some(&policy), &steps[0]);
    let placement = &guarded.spec.placement;
    assert!(steps.len() == 1 && placement.cluster_affinity.is_none(), "one form excludes the other: {steps:?}");
    assert_eq!(placement.cluster_affinities.as_ref().unwrap()[1].group.cluster_names, ["cell-dfw"]);
    assert!(look(&guarded, Some(on(&["cell-dfw"])), true).is_empty());
    assert!(look(&guarded, None, true).is_empty(), "while nothing is known, the guard stands");
    let plain = after(Some(&guarded), &look(&guarded, Some(on(&["cell-dfw"])), false)[0]);
    assert_eq!(plain.spec.placement, policy.spec.placement, "switched off");
}

#[test]
fn a_policy_of_the_go_operator_is_ours_from_the_first_write_on() {
    let dfw = dfw();
    let seen = Observed { wanted: true, place: Some(on(&["cell-dfw"])), guard: true, ..observed(&dfw, Some(&of_go())) };
    let adopted = after(Some(&of_go()), &plan(&seen, NOW).steps[0]);
    // The last deployment goes before anybody looks again.
    let steps = plan(&Observed { wanted: false, ..observed(&dfw, Some(&adopted)) }, NOW).steps;
    assert!(matches!(steps[..], [Write { op: Op::Delete { .. }, .. }]), "it is not left behind: {steps:?}");
}

#[test]
fn nothing_is_sent_anywhere_while_nobody_knows_where_the_city_is() {
    let dfw = dfw();
    for (copies, guard) in [(0, true), (1, true), (1, false)] {
        let lost = Observed { wanted: true, copies, guard, place: None, ..observed(&dfw, None) };
        assert!(plan(&lost, NOW).steps.is_empty(), "a policy that was removed comes back with its guard, or not yet");
        assert!(plan(&recorded(&lost), NOW).steps.is_empty());
    }
}

#[test]
fn the_placement_is_ours_as_a_whole() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy| {
        let place = Some(on(&["cell-dfw"]));
        plan(&Observed { wanted: true, place, guard: true, ..observed(&dfw, Some(policy)) }, NOW).steps
    };
    let guarded = after(Some(&held(&dfw)), &look(&held(&dfw))[0]);
    // A cluster that an earlier drain left out, and what somebody added by hand.
    let mut edited = json!(guarded);
    edited["spec"]["placement"]["clusterAffinities"][0]["exclude"] = json!(["cell-dfw"]);
    edited["spec"]["placement"]["spreadConstraints"] = json!([{ "spreadByField": "cluster", "maxGroups": 2 }]);
    let edited: PropagationPolicy = serde_json::from_value(edited).unwrap();
    let steps = look(&edited);
    let Op::Merge { body, .. } = &steps[0].op else { panic!("{steps:?}") };
    assert_eq!(body["spec"]["placement"]["spreadConstraints"], Value::Null);
    let mended = after(Some(&edited), &steps[0]);
    assert_eq!(mended.spec, guarded.spec);
    assert!(look(&mended).is_empty());
}

/// Found on real Karmada: with `preserveResourcesOnDeletion`, set by hand, a deleted Secret stayed on the cell for ever.
#[test]
fn a_field_that_decides_over_what_the_policy_claims_is_removed_and_told() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy| {
        let place = Some(on(&["cell-dfw"]));
        plan(&Observed { wanted: true, place, guard: true, ..observed(&dfw, Some(policy)) }, NOW).steps
    };
    let ours = after(Some(&held(&dfw)), &look(&held(&dfw))[0]);
    for (field, value, goes) in [
        ("preserveResourcesOnDeletion", json!(true), true),
        ("preserveResourcesOnDeletion", json!(false), false),
        ("activationPreference", json!("Lazy"), true),
        ("conflictResolution", json!("Overwrite"), true),
        ("conflictResolution", json!("Abort"), false),
        ("preemption", json!("Always"), true),
        ("preemption", json!("Never"), false),
        ("priority", json!(7), true),
        ("priority", json!(0), false),
        ("schedulerName", json!("other"), true),
        ("schedulerName", json!("default-scheduler"), false),
        ("association", json!(false), false),
        ("failover", json!({ "cluster": { "purgeMode": "Directly" } }), true),
        ("dependentOverrides", json!(["o"]), true),
        ("schedulePriority", json!({ "priorityClassSource": "KubePriorityClass" }), true),
        // Asked for on purpose, and reported on each deployment.
        ("suspension", json!({ "dispatching": true }), false),
    ] {
        let mut edited = json!(ours);
        edited["spec"][field] = value.clone();
        let steps = look(&serde_json::from_value(edited).unwrap());
        assert_eq!(steps.len(), usize::from(goes), "{field}: {value}: {steps:?}");
        let Some(write) = steps.first() else { continue };
        let Op::Merge { body, .. } = &write.op else { panic!("{steps:?}") };
        assert_eq!(body["spec"], json!({ field: null }), "{field}");
        let told = format!("{:?}", write.told());
        assert!(told.contains("PolicyFieldsRemoved") && told.contains(&format!("spec.{field}")), "{told}");
    }
}

#[test]
fn tolerations_in_a_policy_are_left_to_whoever_writes_them() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy, holder: &str| {
        plan(&Observed { wanted: true, place: Some(on(&[holder])), guard: true, ..observed(&dfw, Some(policy)) }, NOW)
            .steps
    };
    let ours = after(Some(&held(&dfw)), &look(&held(&dfw), "cell-dfw")[0]);
    let mut tolerant = json!(ours);
    let tolerations = json!([{ "key": "maintenance", "operator": "Exists", "effect": "NoExecute" }]);
    tolerant["spec"]["placement"]["clusterTolerations"] = tolerations.clone();
    let tolerant: PropagationPolicy = serde_json::from_value(tolerant).unwrap();
    assert!(look(&tolerant, "cell-dfw").is_empty());
    let moved = look(&tolerant, "cell-ord");
    assert!(!moved.is_empty() && !format!("{moved:?}").contains("clusterTolerations"), "{moved:?}");
    let moved = after(Some(&tolerant), &moved[0]);
    assert_eq!(moved.spec.placement.others["clusterTolerations"], tolerations);
}

/// Found by reading: what a mutating policy of the hub put back each time kept a second spelling from ever being selected.
#[test]
fn a_field_that_comes_back_each_time_holds_up_no_other_change_of_the_policy() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy, spelt: &[&str]| {
        let spellings = spelt.iter().map(|one| (*one).to_owned()).collect();
        let place = Some(on(&["cell-dfw"]));
        plan(&Observed { wanted: true, place, guard: true, spellings, ..observed(&dfw, Some(policy)) }, NOW).steps
    };
    let ours = after(Some(&held(&dfw)), &look(&held(&dfw), &["dfw"])[0]);
    let mut mutated = json!(ours);
    mutated["spec"]["placement"]["spreadConstraints"] = json!([{ "spreadByField": "cluster", "maxGroups": 2 }]);
    let steps = look(&serde_json::from_value(mutated).unwrap(), &["DFW", "dfw"]);
    let applied = steps.iter().find_map(|step| match &step.op {
        Op::Apply { body, .. } => Some(body["spec"]["resourceSelectors"][0]["labelSelector"].clone()),
        _ => None,
    });
    assert!(applied.is_some_and(|selector| selector.to_string().contains(r#"["DFW","dfw"]"#)), "{steps:?}");
}

#[test]
fn every_spelling_of_a_city_is_selected_and_several_are_told_once() {
    let dfw = dfw();
    let spellings = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<BTreeSet<String>>();
    let look = |policy: Option<&PropagationPolicy>, spelt: &[&str], label: &str| {
        let mut place = on(&["cell-dfw"]);
        place.clusters.insert("cell-dfw".into(), ClusterFacts::labelled(label));
        let place = Some(place);
        plan(&Observed { wanted: true, place, guard: true, spellings: spellings(spelt), ..observed(&dfw, policy) }, NOW)
            .steps
    };
    let upper = look(None, &["DFW"], "DFW");
    let made = after(None, &upper[0]);
    let label = |selector: &Option<LabelSelector>| json!(selector);
    assert_eq!(upper.len(), 1, "one spelling is nothing to speak of");
    assert_eq!(
        label(&made.spec.resource_selectors[0].label_selector),
        json!({ "matchLabels": { label::TOPOLOGY_CITY: "DFW" } })
    );
    let mixed = look(None, &["DFW", "dfw"], "Dfw");
    assert!(mixed.len() == 2 && format!("{mixed:?}").contains("dfw is spelt DFW, Dfw, dfw"), "{mixed:?}");
    let made = after(None, &mixed[0]);
    let expression = |values: &[&str]| json!({ "matchExpressions": [{ "key": label::TOPOLOGY_CITY, "operator": "In", "values": values }] });
    assert_eq!(label(&made.spec.resource_selectors[0].label_selector), expression(&["DFW", "dfw"]));
    let city = &made.spec.placement.cluster_affinities.as_ref().unwrap()[0].group.label_selector;
    assert_eq!(label(city), expression(&["DFW", "Dfw", "dfw"]));
    assert!(look(Some(&made), &["DFW", "dfw"], "Dfw").is_empty());
}

#[test]
fn the_way_back_to_claims_names_what_will_be_lost_before_it_is() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy, rollback_impact: Option<(Vec<String>, Option<Duration>)>| {
        let propagation = Propagation::Selectors;
        plan(&Observed { wanted: true, propagation, rollback_impact, ..observed(&dfw, Some(policy)) }, NOW)
    };
    let policy = held(&dfw);
    let first = look(&policy, None).steps;
    let both = after(Some(&policy), &first[0]);
    assert_eq!((Phase::of(&both.spec), both.spec.resource_selectors.len()), (Phase::Both, 3));
    assert!(look(&both, None).steps.is_empty(), "what would be lost is not known yet");
    let rollback_impact = vec!["ord loses Secret/db".to_owned()];
    let warning = look(&both, Some((rollback_impact.clone(), None)));
    assert!(warning.signals == [Signal::Warned] && format!("{:?}", warning.steps).contains("ord loses Secret/db"));
    assert!(look(&both, Some((rollback_impact.clone(), Some(Duration::from_secs(1))))).steps.is_empty());
    let done =
        after(Some(&both), &look(&both, Some((rollback_impact, Some(Timing::default().rollback_warning)))).steps[0]);
    assert_eq!(Phase::of(&done.spec), Phase::Claims);
    assert_eq!(Phase::of(&after(Some(&both), &look(&both, Some((vec![], None))).steps[0]).spec), Phase::Claims);
    // And forth again.
    let again = plan(&Observed { wanted: true, ..observed(&dfw, Some(&done)) }, NOW).steps;
    assert_eq!(Phase::of(&after(Some(&done), &again[0]).spec), Phase::Both);
}

#[test]
fn the_time_for_which_nobody_needs_it_counts_from_the_first_look() {
    let start = some_moment();
    let at = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(Unneeded::look(None, false, start), None);
    let first = Unneeded::look(None, true, start).unwrap();
    let second = Unneeded::look(Some(first), true, at(7)).unwrap();
    assert_eq!(second.at(at(7)), (Duration::from_secs(7), false));
    let reported = Unneeded::look(Some(second.reported()), true, at(9)).unwrap();
    assert_eq!(reported.at(at(9)), (Duration::from_secs(9), true));
    assert_eq!(Unneeded::look(Some(reported), false, at(10)), None, "somebody needs it again");
    assert_eq!(Unneeded::look(None, true, at(11)).unwrap().at(at(11)), (Duration::ZERO, false), "it begins anew");
}
