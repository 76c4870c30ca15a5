//! Whether Karmada on this hub brings dependencies at all: one policy asks, and the others wait for the answer.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::facts::Phase;
use crate::api::names::CityCode;

/// What is known of it, for the policy of one city: shown by what Karmada does with the first policy that asks for
/// dependencies, not by its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    /// It does.
    Passed,
    /// Nobody knows yet, and this policy is the one to ask.
    Here {
        /// How long a binding of it has asked without an answer.
        unanswered_for: Duration,
        /// Whether it has been reported that there is none.
        reported: bool,
    },
    /// Nobody knows yet, and another policy asks.
    Elsewhere,
}

/// The policy of a city in a hub namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Asker {
    /// The hub namespace.
    pub namespace: String,
    /// The city.
    pub city: CityCode,
}

/// A policy that may be the one to ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Which.
    pub policy: Asker,
    /// How far it is on its way.
    pub phase: Phase,
    /// Whether the hub holds a deployment of its city.
    pub in_use: bool,
    /// Whether such a deployment expects companions.
    pub needs_data: bool,
}

/// The policy that asks: one whose deployments need data before others, and then one that asks already.
pub fn elect(candidates: &[Candidate]) -> Option<Asker> {
    let eligible = candidates.iter().filter(|c| c.phase != Phase::Dependencies && c.in_use);
    let first = eligible.min_by_key(|c| (!c.needs_data, c.phase == Phase::Claims, &c.policy));
    first.map(|candidate| candidate.policy.clone())
}

/// What is remembered from one look to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Karmada has answered.
    passed: bool,
    /// Who asks, and when that was chosen.
    elected: Option<(Asker, Instant)>,
    /// Since when a binding of it asks without an answer.
    unanswered: Option<Instant>,
    /// It has been reported that there is none.
    reported: bool,
}

/// What is seen at one look, for the policy of one city.
#[derive(Clone, Debug, Serialize)]
pub struct Observed {
    /// The policy.
    pub policy: Asker,
    /// Every policy that may ask. Only gathered when [`State::is_election_due`].
    pub candidates: Option<Vec<Candidate>>,
    /// Whether a binding of the city's deployments asks Karmada for dependencies, and stays.
    pub asks: bool,
}

impl State {
    /// Whether Karmada has answered.
    pub fn has_passed(&self) -> bool {
        self.passed
    }

    /// Whether it is to be chosen anew who asks. Every policy that waits comes by, and choosing goes over them all, so a
    /// choice stands for `ttl`.
    pub fn is_election_due(&self, now: Instant, ttl: Duration) -> bool {
        !self.passed && self.elected.as_ref().is_none_or(|(_, at)| now.saturating_duration_since(*at) > ttl)
    }

    /// A binding shows that Karmada brings dependencies.
    #[must_use]
    pub fn answered(self) -> Self {
        Self { passed: true, ..self }
    }

    /// It has been reported that Karmada does not answer.
    #[must_use]
    pub fn refused(self) -> Self {
        Self { reported: true, ..self }
    }
}

/// What the policy of one city is to make of it, and what is to be remembered.
pub fn look(state: State, observed: &Observed, now: Instant) -> (State, Probe) {
    if state.passed {
        return (state, Probe::Passed);
    }
    let mut state = state;
    if let Some(candidates) = &observed.candidates {
        state.elected = elect(candidates).map(|asker| (asker, now));
    }
    if state.elected.as_ref().is_none_or(|(asker, _)| *asker != observed.policy) {
        return (state, Probe::Elsewhere);
    }
    state.unanswered = if observed.asks { state.unanswered.or(Some(now)) } else { None };
    let unanswered_for = state.unanswered.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    let reported = state.reported;
    (state, Probe::Here { unanswered_for, reported })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::some_moment;

    fn asker(namespace: &str, city: &str) -> Asker {
        Asker { namespace: namespace.into(), city: CityCode::parse(city).unwrap() }
    }

    fn candidate(namespace: &str, phase: Phase, in_use: bool, needs_data: bool) -> Candidate {
        Candidate { policy: asker(namespace, "dfw"), phase, in_use, needs_data }
    }

    #[test]
    fn who_needs_data_asks_first_and_then_who_asks_already() {
        use Phase::{Both, Claims, Dependencies};
        let cases: [(&str, &[Candidate], Option<&str>); 7] = [
            ("nobody is there", &[], None),
            ("one that is done has no question", &[candidate("ns-1", Dependencies, true, true)], None),
            ("one without deployments gets no answer", &[candidate("ns-1", Claims, false, false)], None),
            (
                "data before none",
                &[candidate("ns-1", Both, true, false), candidate("ns-2", Claims, true, true)],
                Some("ns-2"),
            ),
            (
                "one that asks already before one that does not",
                &[candidate("ns-1", Claims, true, true), candidate("ns-2", Both, true, true)],
                Some("ns-2"),
            ),
            (
                "by name among equals, in whatever order they come",
                &[candidate("ns-2", Claims, true, true), candidate("ns-1", Claims, true, true)],
                Some("ns-1"),
            ),
            (
                "what is done, or not in use, does not stand in the way",
                &[
                    candidate("ns-1", Dependencies, true, true),
                    candidate("ns-2", Both, false, true),
                    candidate("ns-3", Claims, true, false),
                ],
                Some("ns-3"),
            ),
        ];
        for (what, candidates, expected) in cases {
            assert_eq!(elect(candidates), expected.map(|namespace| asker(namespace, "dfw")), "{what}");
        }
    }

    #[test]
    fn the_one_who_asks_counts_from_when_its_binding_asks() {
        let start = some_moment();
        let at = |seconds| start + Duration::from_secs(seconds);
        let ttl = Duration::from_secs(1);
        let see = |asks, candidates: Option<&[Candidate]>| Observed {
            policy: asker("ns-1", "dfw"),
            candidates: candidates.map(<[Candidate]>::to_vec),
            asks,
        };
        let here = |seconds, reported| Probe::Here { unanswered_for: Duration::from_secs(seconds), reported };
        let me = [candidate("ns-1", Phase::Both, true, true)];
        let state = State::default();
        assert!(state.is_election_due(start, ttl), "nobody is chosen yet");
        let (state, probe) = look(state, &see(false, Some(&me)), at(0));
        assert_eq!(probe, here(0, false), "chosen, but no binding of it asks yet");
        assert!(!state.is_election_due(at(1), ttl) && state.is_election_due(at(2), ttl));
        let (state, _) = look(state, &see(true, None), at(1));
        let (state, probe) = look(state, &see(true, Some(&me)), at(9));
        assert_eq!(probe, here(8, false), "choosing the same again starts nothing anew");
        let (state, probe) = look(state.refused(), &see(true, None), at(10));
        assert_eq!(probe, here(9, true), "reported once");
        let (state, probe) = look(state, &see(false, None), at(11));
        assert_eq!(probe, here(0, true), "the binding is gone, and with it the question");
        let (state, _) = look(state, &see(true, None), at(12));
        let other = [candidate("ns-0", Phase::Both, true, true)];
        let (state, probe) = look(state, &see(true, Some(&other)), at(14));
        assert_eq!(probe, Probe::Elsewhere);
        let state = state.answered();
        assert!(state.has_passed() && !state.is_election_due(at(99), ttl));
        assert_eq!(look(state, &see(true, None), at(15)).1, Probe::Passed);
    }
}
