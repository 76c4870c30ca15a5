use super::{
    Phase::{Both, Claims, Dependencies},
    Strength::{Nothing, Several, Single},
    *,
};
use crate::{
    api::karmada::{BindingSnapshot, TargetCluster},
    plan::{management::observed::facts::Scheduled, recorded::recorded},
};

/// What is done to a binding.
type Change = fn(&mut BindingFacts);

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const TIMEOUT: Duration = Duration::from_secs(30);

fn asker(namespace: &str) -> Asker {
    Asker { namespace: namespace.into(), city: CityCode::parse("dfw").unwrap() }
}

fn candidate(namespace: &str, phase: Phase, can_show: Option<Strength>) -> Candidate {
    Candidate { policy: asker(namespace), phase, can_show, asks: phase == Both, answered: None, later: None }
}

fn answered(candidate: Candidate) -> Candidate {
    Candidate { asks: true, answered: candidate.can_show, ..candidate }
}

/// One look of `own`, which sees `candidates`.
fn look(state: State, own: Candidate, candidates: Option<Vec<Candidate>>) -> (State, Probe) {
    let observed = Observed { state, own, candidates, timeout: TIMEOUT };
    let (decided, again) = (plan(&observed, NOW), plan(&recorded(&observed), NOW));
    assert_eq!(format!("{decided:?}"), format!("{again:?}"), "decided again from its record");
    assert!(decided.steps.is_empty());
    let [Signal::Known(probe), Signal::Remember(state)] = &decided.signals[..] else { panic!("{decided:?}") };
    (state.clone(), *probe)
}

/// One look of the first of `all`, which sees them all.
fn see(state: State, all: &[Candidate]) -> (State, Probe) {
    look(state, all[0].clone(), Some(all.to_vec()))
}

/// The same, when so many seconds have passed.
fn later(state: State, seconds: u64) -> State {
    state.after(Duration::from_secs(seconds))
}

/// Who asks, of these.
fn elected(state: &State) -> Option<&str> {
    state.elected.as_ref().map(|elected| elected.asker.namespace.as_str())
}

#[test]
fn whoever_shows_most_asks_first_and_then_who_asks_already() {
    let of = candidate;
    let cases: [(&str, Vec<Candidate>, Option<&str>); 7] = [
        ("one that is done has no question", vec![of("ns-1", Dependencies, Some(Single))], None),
        ("one through which no answer can come", vec![of("ns-1", Claims, None)], None),
        ("data before none", vec![of("ns-1", Both, Some(Nothing)), of("ns-2", Claims, Some(Single))], Some("ns-2")),
        (
            "several of a kind before one of each",
            vec![of("ns-1", Both, Some(Single)), of("ns-2", Claims, Some(Several))],
            Some("ns-2"),
        ),
        (
            "one that asks already before one that does not",
            vec![of("ns-1", Claims, Some(Single)), of("ns-2", Both, Some(Single))],
            Some("ns-2"),
        ),
        (
            "by name among equals, in whatever order they come",
            vec![of("ns-2", Claims, Some(Single)), of("ns-1", Claims, Some(Single))],
            Some("ns-1"),
        ),
        (
            "what is done, or cannot be answered, does not stand in the way",
            vec![of("ns-1", Dependencies, Some(Several)), of("ns-2", Both, None), of("ns-3", Claims, Some(Nothing))],
            Some("ns-3"),
        ),
    ];
    for (what, candidates, expected) in cases {
        let (state, probe) = see(State::default(), &candidates);
        assert_eq!(elected(&state), expected, "{what}");
        let nobody = expected.is_none() && candidates[0].phase != Dependencies;
        assert_eq!(matches!(probe, Probe::Nobody { .. }), nobody, "{what}");
    }
}

#[test]
fn only_an_answer_that_shows_as_much_as_can_be_asked_counts() {
    let of = candidate;
    for (what, candidates, expected) in [
        ("one companion each", vec![answered(of("ns-1", Both, Some(Single)))], true),
        ("several of a kind", vec![answered(of("ns-1", Both, Some(Several))), of("ns-2", Claims, Some(Single))], true),
        (
            "one, where several can be asked: it may be all that Karmada brings",
            vec![answered(of("ns-1", Both, Some(Single))), of("ns-2", Claims, Some(Several))],
            false,
        ),
        ("nothing is needed on the whole hub", vec![answered(of("ns-1", Both, Some(Nothing)))], true),
        (
            "nothing, where something is needed",
            vec![answered(of("ns-1", Both, Some(Nothing))), of("ns-2", Claims, Some(Single))],
            false,
        ),
        (
            "one that is done answers for others",
            vec![of("ns-1", Claims, Some(Single)), answered(of("ns-2", Dependencies, Some(Several)))],
            true,
        ),
        (
            "nobody can be asked, and one that is done needs nothing",
            vec![of("ns-1", Claims, None), answered(of("ns-2", Dependencies, Some(Nothing)))],
            false,
        ),
        (
            "nobody can be asked, and one that is done has its data",
            vec![of("ns-1", Claims, None), answered(of("ns-2", Dependencies, Some(Single)))],
            true,
        ),
    ] {
        let (state, probe) = see(State::default(), &candidates);
        assert_eq!((state.has_passed(), probe == Probe::Passed), (expected, expected), "{what}");
    }
    // The one that asks sees its own answer without looking at all the others.
    let (state, _) = see(State::default(), &[candidate("ns-1", Both, Some(Single))]);
    let own = answered(candidate("ns-1", Both, Some(Single)));
    let (state, probe) = look(state, own, None);
    assert!(state.has_passed() && probe == Probe::Passed);
}

#[test]
fn no_answer_counts_while_karmada_misses_what_comes_later() {
    let ready = answered(candidate("ns-1", Both, Some(Several)));
    let with = |namespace: &str, later| Candidate { later, ..candidate(namespace, Both, Some(Single)) };
    for (what, later, passes) in [
        ("nothing came later", None, true),
        ("it is brought", Some(Later::Brought), true),
        ("it is not brought yet", Some(Later::Awaited), false),
        ("it is not brought at all", Some(Later::Missed), false),
    ] {
        let (state, probe) = see(State::default(), &[ready.clone(), with("ns-2", later)]);
        assert_eq!((state.has_passed(), state.later()), (passes, later), "{what}");
        let misses = matches!(probe, Probe::Here { misses_later: true, .. });
        assert_eq!(misses, later == Some(Later::Missed), "{what}: {probe:?}");
        // Whoever asks sees its own answer at once, which counts as little.
        let (state, _) = look(state, ready.clone(), None);
        assert_eq!(state.has_passed(), passes, "{what}");
    }
    // While it is awaited, nobody is told that Karmada brings nothing at all.
    let asks = Candidate { asks: true, ..ready.clone() };
    for (awaited, counts) in [(Later::Awaited, false), (Later::Missed, true)] {
        let candidates = [asks.clone(), with("ns-2", Some(awaited))];
        let (state, _) = see(State::default(), &candidates);
        let (_, probe) = look(later(state, 40), asks.clone(), None);
        let Probe::Here { unanswered_for, .. } = probe else { panic!("{probe:?}") };
        assert_eq!(unanswered_for > Duration::ZERO, counts, "{awaited:?}");
    }
    // Upgraded, or brought by hand: it goes on by itself.
    let (state, _) = see(State::default(), &[ready.clone(), with("ns-2", Some(Later::Missed))]);
    let (state, probe) = see(later(state, 2), &[ready, with("ns-2", Some(Later::Brought))]);
    assert!(state.has_passed() && probe == Probe::Passed);
}

#[test]
fn the_one_who_asks_counts_from_when_its_binding_asks() {
    let ttl = Duration::from_secs(1);
    let here =
        |seconds, reported| Probe::Here { unanswered_for: Duration::from_secs(seconds), reported, misses_later: false };
    let (claims, both) = (candidate("ns-1", Claims, Some(Single)), candidate("ns-1", Both, Some(Single)));
    let state = State::default();
    assert!(state.is_election_due(ttl), "nobody is chosen yet");
    let (state, probe) = see(state, std::slice::from_ref(&claims));
    assert_eq!(probe, here(0, false), "chosen, but no binding of it asks yet");
    assert!(!later(state.clone(), 1).is_election_due(ttl) && later(state.clone(), 2).is_election_due(ttl));
    let (state, _) = look(later(state, 1), both.clone(), None);
    let (state, probe) = see(later(state, 8), std::slice::from_ref(&both));
    assert_eq!(probe, here(8, false), "choosing the same again starts nothing anew");
    let (state, probe) = look(later(state.refused(), 1), both, None);
    assert_eq!(probe, here(9, true), "reported once");
    let (_, probe) = look(later(state, 1), claims, None);
    assert_eq!(probe, here(0, true), "the binding asks no more, and with it goes the question");
}

#[test]
fn whoever_gets_no_answer_makes_way_and_a_few_ask_at_most() {
    let mut all: Vec<Candidate> = (1..=5).map(|n| candidate(&format!("ns-{n}"), Claims, Some(Single))).collect();
    let mut state = State::default();
    let mut order = Vec::new();
    for _ in 0..7 {
        (state, _) = see(state, &all);
        let asks = elected(&state).unwrap().to_owned();
        let turn = all.iter_mut().find(|c| c.policy.namespace == asks).unwrap();
        (turn.phase, turn.asks) = (Both, true);
        (state, _) = look(state, turn.clone(), None);
        state = state.after(TIMEOUT + Duration::from_secs(1));
        let unreported = see(state.clone(), &all).0;
        assert!(state.reported || elected(&unreported) == Some(&*asks), "not before it was reported once");
        state = state.refused();
        order.push(asks);
    }
    assert_eq!(order, ["ns-1", "ns-2", "ns-3", "ns-1", "ns-2", "ns-3", "ns-1"]);
    // One whose binding never comes to ask makes way as well.
    let stuck = [candidate("ns-1", Both, Some(Single)), candidate("ns-2", Claims, Some(Single))];
    let stuck = stuck.map(|candidate| Candidate { asks: false, ..candidate });
    let (state, _) = see(State::default(), &stuck);
    assert_eq!(elected(&state), Some("ns-1"));
    let (state, _) = see(state.after(TIMEOUT * 3), &stuck);
    assert_eq!(elected(&state), Some("ns-2"));
    // And so does one through which no answer can come any more.
    let gone = [candidate("ns-2", Claims, None), candidate("ns-3", Claims, Some(Single))];
    assert_eq!(elected(&see(state, &gone).0), Some("ns-3"));
}

/// Found under load, by a test in which the hub took no writes in some namespaces: whoever was to ask there kept all others
/// waiting for a minute each, and three of them for ever.
#[test]
fn whoever_cannot_ask_makes_way_at_once_and_is_none_of_the_few() {
    let all: Vec<Candidate> = (1..=5).map(|n| candidate(&format!("ns-{n}"), Claims, Some(Single))).collect();
    let mut state = State::default();
    let mut order = Vec::new();
    for _ in 0..6 {
        (state, _) = see(state, &all);
        let asks = elected(&state).unwrap().to_owned();
        assert_eq!(state.clone().could_not_ask(&asker("ns-other")), state, "another's failure is not its own");
        state = state.could_not_ask(&asker(&asks));
        assert!(elected(&state).is_none() && !state.is_election_due(Duration::from_secs(1)), "one try for each look");
        state = later(state, 2);
        order.push(asks);
    }
    assert_eq!(order, ["ns-1", "ns-2", "ns-3", "ns-4", "ns-5", "ns-1"]);
    // Written, and not taken up by a Karmada that is away: a few of those are enough.
    let mut all = all;
    let mut state = State::default();
    for _ in 0..5 {
        (state, _) = see(state.after(TIMEOUT * 3), &all);
        let asks = elected(&state).unwrap().to_owned();
        all.iter_mut().find(|c| c.policy.namespace == asks).unwrap().phase = Both;
    }
    assert_eq!(all.iter().filter(|candidate| candidate.phase == Both).count(), ASKERS);
    // One that waits for its answer keeps its turn, whatever else of it is not taken.
    let both = candidate("ns-1", Both, Some(Single));
    let (state, _) = see(State::default(), std::slice::from_ref(&both));
    assert_eq!(elected(&state.could_not_ask(&asker("ns-1"))), Some("ns-1"));
}

#[test]
fn that_nobody_can_be_asked_counts_until_somebody_can() {
    let nobody = |seconds, reported| Probe::Nobody { waited_for: Duration::from_secs(seconds), reported };
    let (deaf, able) = (candidate("ns-1", Claims, None), candidate("ns-1", Claims, Some(Single)));
    let (state, probe) = see(State::default(), std::slice::from_ref(&deaf));
    assert_eq!(probe, nobody(0, false));
    let (state, probe) = see(later(state, 7), std::slice::from_ref(&deaf));
    assert_eq!(probe, nobody(7, false));
    let (state, probe) = see(later(state.nobody_reported(), 1), std::slice::from_ref(&deaf));
    assert_eq!(probe, nobody(8, true), "once");
    let (state, probe) = see(later(state, 1), std::slice::from_ref(&able));
    assert!(matches!(probe, Probe::Here { .. }));
    let (_, probe) = see(later(state, 1), std::slice::from_ref(&deaf));
    assert_eq!(probe, nobody(0, false), "it begins anew");
    let two = [candidate("ns-2", Claims, None), deaf];
    assert_eq!(see(State::default(), &two).1, Probe::Elsewhere, "one of them says so");
}

#[test]
fn a_deployment_shows_something_only_where_an_answer_can_come() {
    let on = |names: &[&str]| names.iter().map(|name| TargetCluster { name: (*name).into() }).collect::<Vec<_>>();
    let (one, two) = (DataRef::config_map("one"), DataRef::config_map("two"));
    let binding = BindingFacts {
        policy: Some("city-dfw".into()),
        clusters: vec!["cell-dfw".into()].into(),
        scheduled: Some(Scheduled { succeeded: true, ..Scheduled::default() }).into(),
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
    assert_eq!(seen, Evidence { strength: Several, asks: true, answered: true });
    for (what, second) in [
        ("the second is not attached", Some(None)),
        ("the second is brought to nobody", attached(&[])),
        ("the second is brought elsewhere", attached(&["cell-ord"])),
    ] {
        let seen = show(&binding, second).unwrap();
        assert_eq!(seen, Evidence { answered: false, ..show(&binding, attached(&["cell-dfw"])).unwrap() }, "{what}");
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
        assert!(!show(&binding, attached(&["cell-dfw"])).unwrap().answered, "{what}");
    }
    assert_eq!(Strength::of(&[DataRef::secret("one"), one]), Single);
}
