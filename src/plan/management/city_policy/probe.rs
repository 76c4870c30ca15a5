//! Whether Karmada on this hub brings dependencies at all: one policy asks, and the others wait for the answer.
//!
//! What counts is what Karmada does, not its version. It can answer through a deployment only that its city's policy has
//! brought to a cluster, and whose companions are on the hub. One that needs several companions of a kind shows more than
//! one that needs a single one. So those that show most are asked, and no answer that shows less counts as long as there
//! are any; nor does any as long as a deployment shows that Karmada does not hear of what comes later ([`Later`]). One
//! that gets no answer, or cannot even ask, makes way for the next; a few ask in the end, not all, since what Karmada does
//! to those that ask is what is not known yet.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::later::Later;
use crate::plan::management::{
    observed::facts::{BindingFacts, Phase},
    referenced_data::residue,
};
use crate::{
    api::{names::CityCode, referenced::DataRef},
    plan::{Hub, Plan, Write},
};

/// Policies that ask on one hub, at most: enough to get around one that is stuck for reasons of its own.
const ASKERS: usize = 3;

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
        /// Whether it is known that Karmada does not hear of companions that come later.
        misses_later: bool,
    },
    /// Nobody knows yet, and another policy asks, or says that nobody can.
    Elsewhere,
    /// Nobody knows yet, no policy has a deployment through which Karmada can answer, and this policy is the one to say so.
    Nobody {
        /// For how long.
        waited_for: Duration,
        /// Whether it has been reported.
        reported: bool,
    },
}

/// How much Karmada's answer about one deployment shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Strength {
    /// It needs nothing: that Karmada has asked the interpreter, and no more.
    Nothing,
    /// It needs companions, one of each kind at most.
    Single,
    /// It needs several companions of one kind.
    Several,
}

impl Strength {
    /// That of a deployment that expects these companions.
    fn of(expected: &[DataRef]) -> Self {
        let another =
            |(n, data_ref): (usize, &DataRef)| expected[..n].iter().any(|before| before.kind == data_ref.kind);
        match expected {
            [] => Self::Nothing,
            _ if expected.iter().enumerate().any(another) => Self::Several,
            _ => Self::Single,
        }
    }
}

/// One deployment through which Karmada can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// How much the answer shows.
    pub strength: Strength,
    /// Whether its binding asks for dependencies.
    pub asks: bool,
    /// Whether Karmada brings all of them to where the deployment is.
    pub answered: bool,
}

/// What a deployment shows, whose binding is `parent`; nothing when no answer can come through it. `attached` is what is
/// known of a companion that is on the hub: its binding, as far as it has one. `None` when the companion is not there.
pub fn evidence(
    policy: &str,
    parent: &str,
    binding: &BindingFacts,
    expected: &[DataRef],
    attached: impl Fn(&DataRef) -> Option<Option<Arc<BindingFacts>>>,
) -> Option<Evidence> {
    let scheduled = binding.scheduled.as_ref().is_some_and(|said| said.succeeded) && !binding.clusters.is_empty();
    if binding.terminating || !scheduled || !binding.is_claimed_by(policy) {
        return None;
    }
    let attached: Vec<Option<Arc<BindingFacts>>> = expected.iter().map(attached).collect::<Option<_>>()?;
    let listed = |data_ref: &DataRef| binding.dependencies.as_ref().is_some_and(|known| known.contains(data_ref));
    let brought = |of: &Option<Arc<BindingFacts>>| {
        of.as_ref().is_some_and(|of| !residue::is_needed(of, parent, Some(&binding.clusters)))
    };
    Some(Evidence {
        strength: Strength::of(expected),
        asks: binding.propagates,
        answered: binding.shows_dependencies() && expected.iter().all(listed) && attached.iter().all(brought),
    })
}

/// The policy of a city in a hub namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asker {
    /// The hub namespace.
    pub namespace: String,
    /// The city.
    pub city: CityCode,
}

/// A policy, and what its deployments show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Which.
    pub policy: Asker,
    /// How far it is on its way.
    pub phase: Phase,
    /// How much an answer can show; nothing when none can come.
    pub can_show: Option<Strength>,
    /// Whether a binding of it asks.
    pub asks: bool,
    /// How much has been answered; nothing when nothing has.
    pub answered: Option<Strength>,
    /// What its deployments show of companions that came later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later: Option<Later>,
}

impl Candidate {
    /// From what each of its deployments shows.
    pub fn of(policy: Asker, phase: Phase, deployments: impl IntoIterator<Item = Evidence>) -> Self {
        let mut candidate = Self { policy, phase, can_show: None, asks: false, answered: None, later: None };
        for evidence in deployments {
            candidate.can_show = candidate.can_show.max(Some(evidence.strength));
            candidate.asks |= evidence.asks;
            candidate.answered = candidate.answered.max(evidence.answered.then_some(evidence.strength));
        }
        candidate
    }

    /// With what its deployments show of companions that came later.
    #[must_use]
    pub fn with_later(self, seen: impl IntoIterator<Item = Later>) -> Self {
        Self { later: seen.into_iter().max(), ..self }
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Elected {
    asker: Asker,
    /// For how long.
    elected_for: Duration,
    /// How long a binding of it has asked without an answer.
    unanswered_for: Option<Duration>,
}

impl Elected {
    /// Whether it has had its time: it has asked and been reported, or did not even come to ask.
    fn is_spent(&self, reported: bool, timeout: Duration) -> bool {
        match self.unanswered_for {
            Some(asked) => reported && asked > timeout,
            None => self.elected_for > timeout * 2,
        }
    }
}

/// What is remembered from one look to the next. Times are given as how long ago something was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Karmada has answered.
    passed: bool,
    /// How long ago it was looked at who may ask.
    looked: Option<Duration>,
    /// How much an answer has to show.
    required: Option<Strength>,
    /// What is seen of companions that came later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    later: Option<Later>,
    /// Who asks.
    elected: Option<Elected>,
    /// Who has asked in vain, or could not ask.
    #[serde(default)]
    in_vain: Vec<InVain>,
    /// It has been reported that there is no answer.
    reported: bool,
    /// That nobody can be asked.
    nobody: Option<NobodyToAsk>,
}

/// A policy that has had its turn and got no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct InVain {
    policy: Asker,
    /// How often.
    turns: u32,
}

/// That nobody can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NobodyToAsk {
    /// Who says so: the first of those that wait.
    reporter: Asker,
    /// For how long.
    waited_for: Duration,
    /// Whether it has been reported.
    reported: bool,
}

/// What is seen at one look, for the policy of one city.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// What is remembered.
    pub state: State,
    /// The policy, and what its deployments show.
    pub own: Candidate,
    /// Every policy of the hub. Only gathered when [`State::is_election_due`].
    pub candidates: Option<Vec<Candidate>>,
    /// How long Karmada may take to answer one policy.
    pub timeout: Duration,
}

/// What the controller is to go by beside the writes, of which there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// What is known, for the policy of this city.
    Known(Probe),
    /// What is to be remembered until the next look.
    Remember(State),
}

impl State {
    /// Whether Karmada has answered.
    pub fn has_passed(&self) -> bool {
        self.passed
    }

    /// What was seen of companions that came later.
    pub fn later(&self) -> Option<Later> {
        self.later
    }

    /// Whether it is to be chosen anew who asks. Every policy that waits comes by, and choosing goes over them all, so a
    /// choice stands for `ttl`.
    pub fn is_election_due(&self, ttl: Duration) -> bool {
        !self.passed && self.looked.is_none_or(|ago| ago > ttl)
    }

    /// The same, when so much time has passed.
    #[must_use]
    pub fn after(mut self, passed: Duration) -> Self {
        let elected = self.elected.as_mut();
        let times = elected.map(|elected| (Some(&mut elected.elected_for), elected.unanswered_for.as_mut()));
        let (elected_for, unanswered_for) = times.unwrap_or_default();
        let waited_for = self.nobody.as_mut().map(|nobody| &mut nobody.waited_for);
        for time in [self.looked.as_mut(), elected_for, unanswered_for, waited_for].into_iter().flatten() {
            *time += passed;
        }
        self
    }

    /// It has been reported that Karmada does not answer.
    #[must_use]
    pub fn refused(self) -> Self {
        Self { reported: true, ..self }
    }

    /// What this policy is to be was not taken by the hub: if it is the one to ask and has not asked yet, it makes way.
    #[must_use]
    pub fn could_not_ask(mut self, policy: &Asker) -> Self {
        let is_it = |elected: &mut Elected| elected.asker == *policy && elected.unanswered_for.is_none();
        if let Some(elected) = self.elected.take_if(is_it) {
            self.has_its_turn_behind_it(elected);
        }
        self
    }

    /// Whoever had its turn comes after those that have had fewer.
    fn has_its_turn_behind_it(&mut self, elected: Elected) {
        match self.in_vain.iter_mut().find(|known| known.policy == elected.asker) {
            Some(known) => known.turns += 1,
            None => self.in_vain.push(InVain { policy: elected.asker, turns: 1 }),
        }
    }

    /// It has been reported that nobody can be asked.
    #[must_use]
    pub fn nobody_reported(self) -> Self {
        Self { nobody: self.nobody.map(|nobody| NobodyToAsk { reported: true, ..nobody }), ..self }
    }

    /// Looks at every policy: whether one of them shows enough, and who asks from now on.
    fn elect(&mut self, candidates: &[Candidate], timeout: Duration) {
        self.looked = Some(Duration::ZERO);
        let waits = |candidate: &&Candidate| candidate.phase != Phase::Dependencies;
        self.required = candidates.iter().filter(waits).filter_map(|candidate| candidate.can_show).max();
        // Where nobody can be asked, those that have no question may answer it; not by needing nothing.
        let enough = Some(self.required.unwrap_or(Strength::Single));
        self.later = candidates.iter().filter_map(|candidate| candidate.later).max();
        self.passed = Later::is_well(self.later) && candidates.iter().any(|candidate| candidate.answered >= enough);
        let mut eligible: Vec<&Candidate> = candidates
            .iter()
            .filter(waits)
            .filter(|candidate| candidate.can_show.is_some() && candidate.can_show == self.required)
            .collect();
        let spent = self.elected.take_if(|elected| {
            let still = eligible.iter().any(|candidate| candidate.policy == elected.asker);
            !still || elected.is_spent(self.reported, timeout)
        });
        if let Some(spent) = spent {
            self.has_its_turn_behind_it(spent);
        }
        self.in_vain.retain(|known| candidates.iter().any(|candidate| candidate.policy == known.policy));
        if self.elected.is_none() {
            let known = |candidate: &Candidate| self.in_vain.iter().find(|known| known.policy == candidate.policy);
            // Whoever has been written so that it asks does, whether or not Karmada has taken it up.
            let has_asked = |candidate: &&Candidate| candidate.phase == Phase::Both && known(candidate).is_some();
            if candidates.iter().filter(has_asked).count() >= ASKERS && eligible.iter().copied().any(|c| has_asked(&c))
            {
                eligible.retain(has_asked);
            }
            let tried = |candidate: &Candidate| known(candidate).map_or(0, |known| known.turns);
            let first = eligible.iter().min_by_key(|c| (tried(c), c.phase == Phase::Claims, &c.policy));
            self.elected = first.map(|first| {
                let asker = first.policy.clone();
                Elected { asker, elected_for: Duration::ZERO, unanswered_for: None }
            });
        }
        let first = candidates.iter().filter(waits).map(|candidate| &candidate.policy).min();
        self.nobody = first.filter(|_| self.elected.is_none()).map(|reporter| {
            let before = self.nobody.as_ref();
            NobodyToAsk {
                reporter: reporter.clone(),
                waited_for: before.map_or(Duration::ZERO, |nobody| nobody.waited_for),
                reported: before.is_some_and(|nobody| nobody.reported),
            }
        });
    }
}

/// Decides what the policy of one city is to make of it, and what is to be remembered; nothing of it depends on the time
/// of day.
pub fn plan(observed: &Observed, _: Timestamp) -> Plan<Write<Hub>, Signal> {
    let mut state = observed.state.clone();
    let probe = look(&mut state, observed);
    Plan::nothing().with([Signal::Known(probe), Signal::Remember(state)])
}

fn look(state: &mut State, observed: &Observed) -> Probe {
    if state.passed {
        return Probe::Passed;
    }
    if let Some(candidates) = &observed.candidates {
        state.elect(candidates, observed.timeout);
    }
    state.later = state.later.max(observed.own.later);
    let misses_later = state.later == Some(Later::Missed);
    state.passed |= Later::is_well(state.later) && state.required.is_some() && observed.own.answered >= state.required;
    if state.passed {
        return Probe::Passed;
    }
    let reported = state.reported;
    match (&mut state.elected, &state.nobody) {
        (Some(elected), _) if elected.asker == observed.own.policy => {
            elected.unanswered_for = observed.own.asks.then(|| elected.unanswered_for.unwrap_or_default());
            // Where only what has come a moment ago is awaited, an answer may be there: it shows soon, one way or the other.
            let awaited = state.later == Some(Later::Awaited) && observed.own.answered >= state.required;
            let unanswered_for = elected.unanswered_for.filter(|_| !awaited).unwrap_or_default();
            Probe::Here { unanswered_for, reported, misses_later }
        }
        (None, Some(nobody)) if nobody.reporter == observed.own.policy => {
            Probe::Nobody { waited_for: nobody.waited_for, reported: nobody.reported }
        }
        _ => Probe::Elsewhere,
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
