use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::api::names::CityCode;
use crate::plan::{Op, Shared, management::observed::cluster::ClusterFacts, recorded::recorded};
use crate::timing::Timing;

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
        propagation: Propagation::Dependencies,
        probe: Probe::Passed,
        problem: None,
        rollback_impact: None,
        rollback_waits: Vec::new(),
        timing: Timing::default(),
    }
}

fn dfw() -> CityCode {
    CityCode::parse("dfw").unwrap()
}

/// The policy after this write.
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
fn policy_exists_from_the_first_deployment_to_the_last() {
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
fn policy_of_another_owner_with_the_same_name_is_not_changed() {
    let dfw = dfw();
    let mut policy = held(&dfw);
    policy.metadata.labels = None;
    assert!(plan(&observed(&dfw, Some(&policy)), NOW).steps.is_empty());
}

#[test]
fn unneeded_policy_with_claims_waits_until_its_timeout() {
    let dfw = dfw();
    let (policy, timing) = (held(&dfw), Timing::default());
    let look =
        |policy: &PropagationPolicy, claimed, now| plan(&Observed { claimed, ..observed(&dfw, Some(policy)) }, now);
    let (poll, second) = (Next::After(timing.poll), Duration::from_secs(1));
    let begins = look(&policy, 2, NOW);
    assert_eq!((begins.steps.len(), begins.next), (1, poll));
    let told = format!("{:?}", begins.steps[0].told());
    assert!(told.contains("AwaitingCompanions") && told.contains("this policy still claims 2 companion(s)"), "{told}");
    let waiting = after(Some(&policy), &begins.steps[0]);
    let late = NOW + timing.deletion_patience;
    let quiet = look(&waiting, 2, late - second);
    assert!(quiet.steps.is_empty() && quiet.next == poll, "once is enough: {quiet:?}");
    let gives_up = look(&waiting, 2, late);
    assert!(gives_up.signals == [ClaimsGivenUp] && gives_up.steps.len() == 2, "reported, and gone: {gives_up:?}");
    let released = look(&waiting, 0, late - second);
    assert!(matches!(released.steps[..], [Write { op: Op::Delete { .. }, .. }]), "{released:?}");
    let needed = plan(&Observed { wanted: true, ..observed(&dfw, Some(&waiting)) }, NOW).steps;
    let needed = after(Some(&waiting), &needed[0]);
    assert!(!needed.annotations().contains_key(annotation::UNNEEDED_SINCE), "it is needed again");
    assert!(look(&needed, 2, late).signals.is_empty(), "its time begins anew");
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
fn policy_of_the_go_operator_moves_to_dependencies_in_safe_steps() {
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

/// If the last deployment of a city is deleted during the migration, its policy does not finish the migration.
#[test]
fn unneeded_policy_drops_companion_selectors_before_it_waits() {
    let dfw = dfw();
    let held = held(&dfw);
    let mut claims = of_go();
    claims.metadata.labels = held.metadata.labels.clone();
    let mut both = claims.clone();
    both.spec.propagate_deps = true;
    for policy in [&claims, &both] {
        let unneeded = || Observed { claimed: 1, ..observed(&dfw, Some(policy)) };
        let steps = plan(&unneeded(), NOW).steps;
        let dropped = after(Some(policy), &steps[0]);
        assert_eq!((Phase::of(&dropped.spec), dropped.spec.resource_selectors.len()), (Phase::Dependencies, 1));
        assert_eq!(dropped.spec.placement, policy.spec.placement, "where its deployments were is not touched");
        assert!(format!("{steps:?}").contains("to dependencies"), "{steps:?}");
        let waits = Observed { claimed: 1, ..observed(&dfw, Some(&dropped)) };
        assert!(plan(&waits, NOW).steps.is_empty());
        let released = plan(&observed(&dfw, Some(&dropped)), NOW).steps;
        assert!(matches!(released[..], [Write { op: Op::Delete { .. }, .. }]), "{released:?}");
        // On the rollback, the claims pass to another policy when this one is deleted.
        let back = plan(&Observed { propagation: Propagation::Selectors, ..unneeded() }, NOW).steps;
        assert_eq!(after(Some(policy), &back[0]).spec, policy.spec);
    }
}

#[test]
fn policy_keeps_its_claims_until_it_may_ask_and_both_until_the_answer() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy, probe: Probe| {
        plan(&Observed { wanted: true, delivered_by_dependency: true, probe, ..observed(&dfw, Some(policy)) }, NOW)
    };
    let poll = Next::After(Timing::default().poll);
    let old = of_go();
    let waiting = look(&old, Probe::Wait);
    let adopted = after(Some(&old), &waiting.steps[0]);
    assert_eq!((Phase::of(&adopted.spec), waiting.next), (Phase::Claims, poll), "taken over, not changed");
    assert!(look(&adopted, Probe::Wait).steps.is_empty());
    let both = after(Some(&old), &look(&old, Probe::Ask).steps[0]);
    assert_eq!(Phase::of(&both.spec), Phase::Both);
    for probe in [Probe::Ask, Probe::Wait] {
        assert_eq!(
            (look(&both, probe).steps.len(), look(&both, probe).next),
            (0, poll),
            "nothing goes without an answer"
        );
    }
    assert_eq!(Phase::of(&after(Some(&both), &look(&both, Probe::Passed).steps[0]).spec), Phase::Dependencies);
}

#[test]
fn problem_of_the_migration_is_reported_once() {
    let dfw = dfw();
    let mut policy = after(Some(&of_go()), &plan(&migrating(&dfw, &of_go(), None), NOW).steps[0]);
    let cases = [
        (Problem::Unanswered, "MigrationRefused", "Enable the feature gate"),
        (Problem::MissesLater, "MigrationRefused", "Karmada issue 6924"),
        (Problem::NobodyToAsk, "MigrationWaits", "could not test if Karmada"),
    ];
    for (problem, reason, says) in cases {
        let look = |policy: &PropagationPolicy| plan(&migrating(&dfw, policy, Some(problem)), NOW).steps;
        let steps = look(&policy);
        let [record] = &steps[..] else { panic!("{problem:?}: {steps:?}") };
        let told = format!("{:?}", record.told());
        assert!(told.contains(reason) && told.contains(says), "{told}");
        policy = after(Some(&policy), record);
        assert!(look(&policy).is_empty(), "{problem:?} is reported once");
    }
    let passed = Observed { probe: Probe::Passed, delivered_by_dependency: true, ..migrating(&dfw, &policy, None) };
    let both = after(Some(&policy), &plan(&passed, NOW).steps[0]);
    let done = Observed { policy: Some(Shared::from(both.clone())), ..passed };
    let done = after(Some(&both), &plan(&done, NOW).steps[0]);
    assert!(!done.annotations().contains_key(annotation::MIGRATION_REPORTED), "the record goes with the migration");
}

/// A policy with claims that waits for an answer.
fn migrating(city: &CityCode, policy: &PropagationPolicy, problem: Option<Problem>) -> Observed {
    Observed { wanted: true, probe: Probe::Wait, problem, ..observed(city, Some(policy)) }
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
fn plain_policy_gets_and_loses_its_guard_in_place() {
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
fn policy_of_the_go_operator_gets_our_label_with_the_first_write() {
    let dfw = dfw();
    let seen = Observed { wanted: true, place: Some(on(&["cell-dfw"])), guard: true, ..observed(&dfw, Some(&of_go())) };
    let adopted = after(Some(&of_go()), &plan(&seen, NOW).steps[0]);
    // The last deployment is deleted before the next reconcile.
    let steps = plan(&Observed { wanted: false, ..observed(&dfw, Some(&adopted)) }, NOW).steps;
    assert!(matches!(steps[..], [Write { op: Op::Delete { .. }, .. }]), "it is not left behind: {steps:?}");
}

#[test]
fn policy_is_not_changed_while_the_place_of_the_city_is_unknown() {
    let dfw = dfw();
    for (copies, guard) in [(0, true), (1, true), (1, false)] {
        let lost = Observed { wanted: true, copies, guard, place: None, ..observed(&dfw, None) };
        assert!(plan(&lost, NOW).steps.is_empty(), "a policy that was removed comes back with its guard, or not yet");
        assert!(plan(&recorded(&lost), NOW).steps.is_empty());
    }
}

#[test]
fn placement_foreign_fields_are_removed() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy| {
        let place = Some(on(&["cell-dfw"]));
        plan(&Observed { wanted: true, place, guard: true, ..observed(&dfw, Some(policy)) }, NOW).steps
    };
    let guarded = after(Some(&held(&dfw)), &look(&held(&dfw))[0]);
    // A cluster that an earlier drain left out, and a field that a user added.
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

/// With `preserveResourcesOnDeletion` from a user, a deleted Secret stayed on the cell forever.
#[test]
fn policy_foreign_spec_field_is_removed_and_reported() {
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
        // A suspension is intended, and each deployment reports it.
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
fn policy_tolerations_of_other_clients_are_kept() {
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

/// A field that a mutating policy restored each time kept a second spelling from ever being selected.
#[test]
fn policy_field_restored_by_another_client_does_not_block_other_changes() {
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
fn policy_selects_every_spelling_and_reports_several_once() {
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
    assert!(
        mixed.len() == 2 && format!("{mixed:?}").contains("the city dfw has the spellings DFW, Dfw, dfw"),
        "{mixed:?}"
    );
    let made = after(None, &mixed[0]);
    let expression = |values: &[&str]| json!({ "matchExpressions": [{ "key": label::TOPOLOGY_CITY, "operator": "In", "values": values }] });
    assert_eq!(label(&made.spec.resource_selectors[0].label_selector), expression(&["DFW", "dfw"]));
    let city = &made.spec.placement.cluster_affinities.as_ref().unwrap()[0].group.label_selector;
    assert_eq!(label(city), expression(&["DFW", "Dfw", "dfw"]));
    assert!(look(Some(&made), &["DFW", "dfw"], "Dfw").is_empty());
}

#[test]
fn rollback_to_claims_reports_losses_before_they_happen() {
    let dfw = dfw();
    let look_at = |policy: &PropagationPolicy, rollback_impact: Option<Vec<String>>, now| {
        let propagation = Propagation::Selectors;
        plan(&Observed { wanted: true, propagation, rollback_impact, ..observed(&dfw, Some(policy)) }, now)
    };
    let look = |policy: &PropagationPolicy, impact: Option<Vec<String>>| look_at(policy, impact, NOW);
    let policy = held(&dfw);
    let first = look(&policy, None).steps;
    let both = after(Some(&policy), &first[0]);
    assert_eq!((Phase::of(&both.spec), both.spec.resource_selectors.len()), (Phase::Both, 3));
    assert!(look(&both, None).steps.is_empty(), "what would be lost is not known yet");
    let impact = vec!["ord loses Secret/db".to_owned()];
    let warning = look(&both, Some(impact.clone())).steps;
    assert!(format!("{:?}", warning[0].told()).contains("ord loses Secret/db"), "{warning:?}");
    let warned = after(Some(&both), &warning[0]);
    let stands = Timing::default().migration_step;
    assert!(look_at(&warned, Some(impact.clone()), NOW + stands / 2).steps.is_empty());
    // A rollback that was called off warns again.
    let called_off = plan(&Observed { wanted: true, ..observed(&dfw, Some(&warned)) }, NOW + stands / 2).steps;
    let called_off = called_off.iter().fold(warned.clone(), |policy, write| after(Some(&policy), write));
    assert!(!called_off.annotations().contains_key(annotation::MIGRATION_REPORTED));
    let more = vec!["dfw loses Secret/tls".to_owned(), impact[0].clone()];
    assert!(look_at(&warned, Some(more), NOW + stands).steps[0].told().is_some(), "the other loss was not reported");
    let steps = look_at(&warned, Some(impact), NOW + stands).steps;
    let writes = steps.iter().filter(|write| matches!(write.op, Op::Merge { .. } | Op::Apply { .. }));
    let done = writes.fold(warned, |policy, write| after(Some(&policy), write));
    assert_eq!(Phase::of(&done.spec), Phase::Claims);
    assert!(!done.annotations().contains_key(annotation::MIGRATION_REPORTED));
    assert_eq!(Phase::of(&after(Some(&both), &look(&both, Some(vec![])).steps[0]).spec), Phase::Claims);
    // The migration to dependencies begins again.
    let again = plan(&Observed { wanted: true, ..observed(&dfw, Some(&done)) }, NOW).steps;
    assert_eq!(Phase::of(&after(Some(&done), &again[0]).spec), Phase::Both);
}
