use std::sync::Arc;

use super::*;
use crate::plan::{
    Op,
    management::facts::{BindingFacts, ClusterFacts},
};
use crate::timing::some_moment;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn observed<'a>(city: &'a CityCode, policy: Option<&'a PropagationPolicy>) -> Observed<'a> {
    Observed {
        namespace: "ns-1",
        city,
        copies: 0,
        wanted: false,
        complete: true,
        namespace_lives: true,
        policy,
        clusters: None,
        guard: false,
        delivered_by_dependency: false,
        claimed: 0,
        unneeded_for: Duration::ZERO,
        wait_is_reported: false,
        propagation: Propagation::Dependencies,
        probe: Probe::Passed,
        rollback_impact: None,
        timing: Timing::default(),
    }
}

fn dfw() -> CityCode {
    CityCode::parse("dfw").unwrap()
}

/// The policy as it stands after this write.
fn after(live: Option<&PropagationPolicy>, write: &Write<Hub>) -> PropagationPolicy {
    let (Op::Apply { body, .. } | Op::Merge { body, .. }) = &write.op else { panic!("{write:?}") };
    let mut policy = live.map_or_else(|| json!({}), |live| json!(live));
    overlay(&mut policy, body);
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
    after(None, &decision.plan.steps[0])
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
        assert_eq!(plan(&observed, NOW).plan.steps.len(), writes, "{name}");
    }
    let gone = plan(&observed(&dfw, Some(&policy)), NOW).plan;
    assert_eq!(gone.steps[0].op, Op::Delete { uid: "u".into(), resource_version: "7".into() });
}

#[test]
fn a_namesake_of_somebody_else_is_left_alone() {
    let dfw = dfw();
    let mut policy = held(&dfw);
    policy.metadata.labels = None;
    assert!(plan(&observed(&dfw, Some(&policy)), NOW).plan.steps.is_empty());
}

#[test]
fn it_waits_for_companions_that_it_claims_and_not_for_ever() {
    let dfw = dfw();
    let policy = held(&dfw);
    let claimed = Observed { claimed: 2, ..observed(&dfw, Some(&policy)) };
    let waits = plan(&claimed, NOW);
    assert!(
        waits.plan.steps.is_empty()
            && waits.plan.next == Next::After(Timing::default().policy_poll)
            && waits.news.is_none()
    );
    let reported = plan(&Observed { unneeded_for: Timing::default().policy_poll, ..claimed }, NOW);
    assert!(
        reported.news == Some(News::Waits)
            && format!("{:?}", reported.plan.steps).contains("2 companion(s) are still claimed"),
        "{reported:?}"
    );
    let claimed = Observed { claimed: 2, wait_is_reported: true, ..observed(&dfw, Some(&policy)) };
    let quiet = plan(&Observed { unneeded_for: Timing::default().policy_poll, ..claimed }, NOW);
    assert!(
        quiet.plan.steps.is_empty() && quiet.plan.next == Next::After(Timing::default().policy_poll),
        "once is enough"
    );
    let claimed = Observed { claimed: 2, wait_is_reported: true, ..observed(&dfw, Some(&policy)) };
    let late = plan(&Observed { unneeded_for: Timing::default().policy_claim_release, ..claimed }, NOW);
    assert!(late.news == Some(News::GaveUp) && late.plan.steps.len() == 2, "reported, and gone: {late:?}");
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
        plan(&Observed { wanted: true, delivered_by_dependency, ..observed(&dfw, Some(policy)) }, NOW).plan.steps
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
        let steps = plan(&unneeded(), NOW).plan.steps;
        let dropped = after(Some(policy), &steps[0]);
        assert_eq!((Phase::of(&dropped.spec), dropped.spec.resource_selectors.len()), (Phase::Dependencies, 1));
        assert_eq!(dropped.spec.placement, policy.spec.placement, "where its deployments were is not touched");
        assert!(format!("{steps:?}").contains("to dependencies"), "{steps:?}");
        let waits = Observed { claimed: 1, ..observed(&dfw, Some(&dropped)) };
        assert!(plan(&waits, NOW).plan.steps.is_empty());
        let released = plan(&observed(&dfw, Some(&dropped)), NOW).plan.steps;
        assert!(matches!(released[..], [Write { op: Op::Delete { .. }, .. }]), "{released:?}");
        // Back to claims, they pass to another policy when it goes.
        let back = Observed { propagation: Propagation::Selectors, ..unneeded() };
        assert!(matches!(plan(&back, NOW).news, Some(News::GaveUp)));
    }
}

#[test]
fn one_policy_asks_whether_dependencies_are_brought_and_the_others_wait() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy, probe: Probe| {
        plan(&Observed { wanted: true, delivered_by_dependency: true, probe, ..observed(&dfw, Some(policy)) }, NOW)
    };
    let asking = |seconds, reported| Probe::Here { unanswered_for: Duration::from_secs(seconds), reported };
    let old = of_go();
    let waiting = look(&old, Probe::Elsewhere).plan;
    let adopted = after(Some(&old), &waiting.steps[0]);
    assert_eq!(
        (Phase::of(&adopted.spec), waiting.next),
        (Phase::Claims, Next::After(Timing::default().policy_poll)),
        "taken over, not moved"
    );
    assert!(look(&adopted, Probe::Elsewhere).plan.steps.is_empty());
    let both = after(Some(&old), &look(&old, asking(0, false)).plan.steps[0]);
    assert_eq!(Phase::of(&both.spec), Phase::Both);
    // Served by need as it may seem, nothing is dropped without an answer.
    let cases = [(0, false, 0), (29, false, 0), (30, false, 1), (31, true, 0)];
    for (seconds, reported, steps) in cases {
        let decision = look(&both, asking(seconds, reported));
        let news = (steps == 1).then_some(News::Refused);
        assert_eq!((decision.plan.steps.len(), decision.news), (steps, news), "{seconds} {reported}");
        assert_eq!(decision.plan.next, Next::After(Timing::default().policy_poll));
    }
    assert!(format!("{:?}", look(&both, asking(30, false)).plan.steps).contains("MigrationRefused"));
    assert_eq!(Phase::of(&after(Some(&both), &look(&both, Probe::Passed).plan.steps[0]).spec), Phase::Dependencies);
}

#[test]
fn a_plain_policy_gets_its_guard_in_place_and_gives_it_back() {
    let dfw = dfw();
    let policy = held(&dfw);
    let on = [Arc::new(BindingFacts { clusters: vec!["cell-dfw".into()], ..BindingFacts::default() })];
    let cluster = |_: &str| {
        Some(Arc::new(ClusterFacts { city: Some(CityCode::parse("dfw").unwrap()), ready: Ok(()), draining: false }))
    };
    let clusters_of = |_: &CityCode| vec!["cell-dfw".to_owned()];
    let clusters = || Clusters { bindings: &on, cluster: &cluster, clusters_of: &clusters_of };
    let look = |policy: &PropagationPolicy, clusters: Option<Clusters<'_>>, guard: bool| {
        plan(&Observed { wanted: true, clusters, guard, ..observed(&dfw, Some(policy)) }, NOW).plan.steps
    };
    let steps = look(&policy, Some(clusters()), true);
    let guarded = after(Some(&policy), &steps[0]);
    let placement = &guarded.spec.placement;
    assert!(steps.len() == 1 && placement.cluster_affinity.is_none(), "one form excludes the other: {steps:?}");
    assert_eq!(placement.cluster_affinities.as_ref().unwrap()[1].group.cluster_names, ["cell-dfw"]);
    assert!(look(&guarded, Some(clusters()), true).is_empty());
    assert!(look(&guarded, None, true).is_empty(), "while nothing is known, the guard stands");
    let plain = after(Some(&guarded), &look(&guarded, None, false)[0]);
    assert_eq!(plain.spec.placement, policy.spec.placement, "switched off");
}

#[test]
fn the_way_back_to_claims_names_what_will_be_lost_before_it_is() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy, rollback_impact: Option<(Vec<String>, Option<Duration>)>| {
        let propagation = Propagation::Selectors;
        plan(&Observed { wanted: true, propagation, rollback_impact, ..observed(&dfw, Some(policy)) }, NOW)
    };
    let policy = held(&dfw);
    let first = look(&policy, None).plan.steps;
    let both = after(Some(&policy), &first[0]);
    assert_eq!((Phase::of(&both.spec), both.spec.resource_selectors.len()), (Phase::Both, 3));
    assert!(look(&both, None).plan.steps.is_empty(), "what would be lost is not known yet");
    let rollback_impact = vec!["ord loses Secret/db".to_owned()];
    let warning = look(&both, Some((rollback_impact.clone(), None)));
    assert!(warning.news == Some(News::Warned) && format!("{:?}", warning.plan.steps).contains("ord loses Secret/db"));
    assert!(look(&both, Some((rollback_impact.clone(), Some(Duration::from_secs(1))))).plan.steps.is_empty());
    let done = after(
        Some(&both),
        &look(&both, Some((rollback_impact, Some(Timing::default().rollback_warning)))).plan.steps[0],
    );
    assert_eq!(Phase::of(&done.spec), Phase::Claims);
    assert_eq!(Phase::of(&after(Some(&both), &look(&both, Some((vec![], None))).plan.steps[0]).spec), Phase::Claims);
    // And forth again.
    let again = plan(&Observed { wanted: true, ..observed(&dfw, Some(&done)) }, NOW).plan.steps;
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
