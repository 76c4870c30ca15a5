use std::collections::BTreeSet;

use super::{
    Phase::{Both, Claims, Dependencies},
    Strength::{Nothing, Several, Single},
    *,
};
use crate::{
    api::karmada::{BindingSnapshot, TargetCluster},
    plan::{management::observed::facts::Scheduled, recorded::recorded},
};

/// A change of a binding.
type Change = fn(&mut BindingFacts);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000 + seconds).unwrap()
}

fn dfw() -> CityCode {
    CityCode::parse("dfw").unwrap()
}

fn candidate(namespace: &str, phase: Phase, can_show: Option<Strength>) -> Candidate {
    Candidate { can_show, ..Candidate::new(namespace, dfw(), phase) }
}

/// A policy that asks since this second.
fn asking(namespace: &str, second: i64) -> Candidate {
    Candidate { asked: Some(at(second)), ..candidate(namespace, Both, Some(Single)) }
}

fn answered(candidate: Candidate) -> Candidate {
    Candidate { asked: Some(at(0)), answered: candidate.can_show, ..candidate }
}

fn verdict_of(candidates: &[Candidate], second: i64) -> Verdict {
    let observed = Observed { candidates: candidates.to_vec(), timing: Timing::default() };
    let (mut decided, again) = (plan(&observed, at(second)), plan(&recorded(&observed), at(second)));
    assert_eq!(format!("{decided:?}"), format!("{again:?}"), "decided again from its record");
    assert!(decided.steps.is_empty());
    decided.signals.pop().unwrap()
}

/// Namespaces of the policies that may ask in one of many turns from this second.
fn askers(candidates: &[Candidate], second: i64) -> BTreeSet<String> {
    let turns = (0..200).map(|n| verdict_of(candidates, second + n));
    turns.filter_map(|verdict| Some(verdict.asker?.0)).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn asker_has_the_strongest_evidence() {
    let of = candidate;
    let cases: [(&str, Vec<Candidate>, &[&str]); 6] = [
        ("a migrated policy does not ask", vec![of("ns-1", Dependencies, Some(Single))], &[]),
        ("no answer can come", vec![of("ns-1", Claims, None)], &[]),
        ("data before none", vec![of("ns-1", Claims, Some(Nothing)), of("ns-2", Claims, Some(Single))], &["ns-2"]),
        (
            "several of a kind before one of each",
            vec![of("ns-1", Both, Some(Single)), of("ns-2", Claims, Some(Several))],
            &["ns-2"],
        ),
        (
            "equals take turns",
            vec![of("ns-2", Claims, Some(Single)), of("ns-1", Claims, Some(Single))],
            &["ns-1", "ns-2"],
        ),
        (
            "migrated and unable policies do not count",
            vec![of("ns-1", Dependencies, Some(Several)), of("ns-2", Both, None), of("ns-3", Claims, Some(Nothing))],
            &["ns-3"],
        ),
    ];
    for (what, candidates, expected) in cases {
        assert_eq!(askers(&candidates, 0), set(expected), "{what}");
    }
}

#[test]
fn answer_counts_only_with_the_strongest_evidence() {
    let of = candidate;
    for (what, candidates, expected) in [
        ("one companion each", vec![answered(of("ns-1", Both, Some(Single)))], true),
        ("several of a kind", vec![answered(of("ns-1", Both, Some(Several))), of("ns-2", Claims, Some(Single))], true),
        (
            "one, while several can be asked for: Karmada may bring no more",
            vec![answered(of("ns-1", Both, Some(Single))), of("ns-2", Claims, Some(Several))],
            false,
        ),
        ("nothing is needed on the whole hub", vec![answered(of("ns-1", Both, Some(Nothing)))], true),
        (
            "nothing, while something is needed",
            vec![answered(of("ns-1", Both, Some(Nothing))), of("ns-2", Claims, Some(Single))],
            false,
        ),
        (
            "a migrated policy answers for others",
            vec![of("ns-1", Claims, Some(Single)), answered(of("ns-2", Dependencies, Some(Several)))],
            true,
        ),
        (
            "no policy can ask, and a migrated one needs nothing",
            vec![of("ns-1", Claims, None), answered(of("ns-2", Dependencies, Some(Nothing)))],
            false,
        ),
        (
            "no policy can ask, and a migrated one has its data",
            vec![of("ns-1", Claims, None), answered(of("ns-2", Dependencies, Some(Single)))],
            true,
        ),
    ] {
        let verdict = verdict_of(&candidates, 0);
        let probe = verdict.probe("ns-1", &dfw());
        assert_eq!((verdict.passed, probe == Probe::Passed), (expected, expected), "{what}");
    }
}

#[test]
fn answer_does_not_count_while_karmada_misses_later_companions() {
    let ready = answered(candidate("ns-1", Both, Some(Several)));
    for (later, passed, problem) in [
        (None, true, None),
        (Some(LateDelivery::Brought), true, None),
        (Some(LateDelivery::Awaited), false, None),
        (Some(LateDelivery::Missed), false, Some(Problem::MissesLater)),
    ] {
        let other = Candidate { later, ..candidate("ns-2", Both, Some(Single)) };
        let verdict = verdict_of(&[ready.clone(), other], 40);
        assert_eq!((verdict.passed, verdict.problem("ns-1", &dfw())), (passed, problem), "{later:?}");
    }
}

#[test]
fn second_policy_asks_after_the_timeout_and_three_ask_at_most() {
    let claims: Vec<Candidate> = (2..=6).map(|n| candidate(&format!("ns-{n}"), Claims, Some(Single))).collect();
    let with = |asking: &[Candidate]| [asking, &claims].concat();
    assert_eq!(verdict_of(&with(&[asking("ns-1", 0)]), 29).asker, None, "the first still has time");
    let all: Vec<String> = claims.iter().map(|of| of.namespace.clone()).collect();
    assert_eq!(askers(&with(&[asking("ns-1", 0)]), 30), all.iter().cloned().collect());
    // The hub accepted the write, and Karmada has not processed it: that does not block other policies.
    assert!(!askers(&with(&[candidate("ns-1", Both, Some(Single))]), 0).is_empty());
    let three = [asking("ns-1", 0), asking("ns-7", 0), asking("ns-8", 0)];
    assert_eq!(askers(&with(&three), 500), set(&[]));
}

/// A policy with failing writes blocked all others for a minute. Reconciles every five seconds must not all meet its turn.
#[test]
fn policy_that_cannot_be_written_does_not_block_others() {
    let all: Vec<Candidate> = (1..=5).map(|n| candidate(&format!("ns-{n}"), Claims, Some(Single))).collect();
    let looks = (0..12).map(|n| verdict_of(&all, n * 5).asker.unwrap().0);
    assert_eq!(looks.collect::<BTreeSet<_>>().len(), 5, "in one minute each policy has its turn");
}

#[test]
fn missing_answer_is_reported_on_the_oldest_asker() {
    let all = [asking("ns-1", 5), asking("ns-2", 0), candidate("ns-3", Claims, Some(Single))];
    for (second, expected) in [(29, None), (30, Some("ns-2")), (99, Some("ns-2"))] {
        let reported = verdict_of(&all, second).problem;
        let expected = expected.map(|namespace| (Problem::Unanswered, namespace.to_owned(), dfw()));
        assert_eq!(reported, expected, "{second}");
    }
}

#[test]
fn missing_evidence_is_reported_on_the_first_waiting_policy() {
    let unable = |namespace| candidate(namespace, Claims, None);
    let done = answered(candidate("ns-0", Dependencies, Some(Nothing)));
    let verdict = verdict_of(&[unable("ns-2"), unable("ns-1"), done.clone()], 0);
    assert_eq!(verdict.problem, Some((Problem::NobodyToAsk, "ns-1".into(), dfw())));
    let able = candidate("ns-3", Claims, Some(Nothing));
    assert_eq!(verdict_of(&[unable("ns-1"), able], 0).problem, None);
    assert_eq!(verdict_of(&[done], 0).problem, None, "no policy waits");
}

#[test]
fn evidence_needs_a_scheduled_claimed_deployment_with_its_companions() {
    let on = |names: &[&str]| names.iter().map(|name| TargetCluster { name: (*name).into() }).collect::<Vec<_>>();
    let (one, two) = (DataRef::config_map("one"), DataRef::config_map("two"));
    let binding = BindingFacts {
        policy: Some("city-dfw".into()),
        clusters: vec!["cell-dfw".into()].into(),
        scheduled: Some(Scheduled { succeeded: true, ..Scheduled::default() }).into(),
        changed: Some(at(7)),
        propagates: true,
        distributed: true,
        dependencies: Some(vec![one.clone(), two.clone()]).into(),
        ..BindingFacts::default()
    };
    let attached = |clusters: &[&str]| {
        let required_by = vec![BindingSnapshot { name: "web".into(), clusters: on(clusters) }];
        Some(Some(Arc::new(BindingFacts { required_by, ..BindingFacts::default() })))
    };
    let both = [one.clone(), two.clone()];
    let show = |binding: &BindingFacts, second: Option<Option<Arc<BindingFacts>>>| {
        let of = |data_ref: &DataRef| if *data_ref == one { attached(&["cell-dfw"]) } else { second.clone() };
        evidence("city-dfw", "web", binding, &both, of)
    };
    let seen = show(&binding, attached(&["cell-dfw"])).unwrap();
    assert_eq!(seen, Evidence { strength: Several, asked: Some(at(7)), is_answered: true });
    for (what, second) in [
        ("the second is not attached", Some(None)),
        ("the second is brought to nobody", attached(&[])),
        ("the second is brought elsewhere", attached(&["cell-ord"])),
    ] {
        let seen = show(&binding, second).unwrap();
        assert_eq!(seen, Evidence { is_answered: false, ..show(&binding, attached(&["cell-dfw"])).unwrap() }, "{what}");
    }
    assert_eq!(show(&binding, None), None, "a companion that is not on the hub can be brought by nobody");
    let never: [(&str, Change); 5] = [
        ("claimed by another policy", |b| b.policy = Some("theirs".into())),
        ("claimed by a cluster-wide policy", |b| b.cluster_policy = Some("wide".into())),
        ("on no cluster", |b| b.clusters.clear()),
        ("not scheduled", |b| b.scheduled = None.into()),
        ("on its way out", |b| b.terminating = true),
    ];
    for (what, change) in never {
        let mut binding = binding.clone();
        change(&mut binding);
        assert_eq!(show(&binding, attached(&["cell-dfw"])), None, "{what}");
    }
    let unanswered: [(&str, Change); 3] = [
        ("one is not listed", |b| b.dependencies.as_mut().unwrap().truncate(1)),
        ("the feature is off (37)", |b| b.distributed = false),
        ("there is no script (38)", |b| b.dependencies = None.into()),
    ];
    for (what, change) in unanswered {
        let mut binding = binding.clone();
        change(&mut binding);
        assert!(!show(&binding, attached(&["cell-dfw"])).unwrap().is_answered, "{what}");
    }
    assert_eq!(Strength::of(&[DataRef::secret("one"), one]), Single);
}
