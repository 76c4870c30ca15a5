//! Finds out if Karmada on this hub brings dependencies. A few policies ask for them, and the others wait for the answer.
//!
//! The behaviour of Karmada counts, not its version. Everything is read off the hub, so nothing is remembered. Karmada can only
//! answer through a deployment that is on a cluster by its city's policy, with its companions on the hub. A deployment that
//! needs several companions of one kind shows more than one that needs a single one. Only policies with the strongest evidence
//! ask, and only their answers count. No answer counts while Karmada misses companions that come later ([`LateDelivery`]).
//!
//! Policies ask in turns. In each turn one policy may ask, chosen by the time. So a policy with failing writes does not block
//! the others.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::late_companions::LateDelivery;
use crate::plan::management::{
    observed::facts::{BindingFacts, Phase},
    referenced_data::residue,
};
use crate::{
    api::{names::CityCode, referenced::DataRef},
    plan::{Hub, Plan, Write},
    timing::Timing,
};

/// Maximum number of policies that ask on one hub. Several ask, because one may be blocked for another reason.
const MAX_ASKERS: usize = 3;
/// Time in which one policy may ask. A verdict without an answer is valid for as long.
pub const TURN: Duration = Duration::from_secs(1);

/// The state of the probe, for the policy of one city.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    /// Karmada brings dependencies.
    Passed,
    /// There is no answer yet, and this policy may ask.
    Ask,
    /// There is no answer yet, and the turn is another policy's.
    Wait,
}

/// Obstacle of the migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Problem {
    /// Karmada brings no dependencies.
    Unanswered,
    /// Karmada does not bring companions that come later.
    MissesLater,
    /// No deployment exists through which Karmada can answer.
    NobodyToAsk,
}

/// Strength of Karmada's answer about one deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Strength {
    /// The deployment needs nothing. An answer shows that Karmada has asked the interpreter, and no more.
    Nothing,
    /// The deployment needs companions, one of each kind at most.
    Single,
    /// The deployment needs several companions of one kind.
    Several,
}

impl Strength {
    /// The strength of a deployment that expects these companions.
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
    /// Strength of the answer.
    pub strength: Strength,
    /// Time since which its binding asks for dependencies.
    pub asked: Option<Timestamp>,
    /// True if Karmada brings all its companions to its clusters.
    pub is_answered: bool,
}

/// Returns the evidence of the deployment with the binding `parent`. `None` if no answer can come through it. `attached` returns
/// the binding of a companion; the outer `None` if the companion is not on the hub.
pub fn evidence(
    policy: &str,
    parent: &str,
    binding: &BindingFacts,
    expected: &[DataRef],
    attached: impl Fn(&DataRef) -> Option<Option<Arc<BindingFacts>>>,
) -> Option<Evidence> {
    let is_scheduled = binding.scheduled.as_ref().is_some_and(|said| said.succeeded) && !binding.clusters.is_empty();
    if binding.terminating || !is_scheduled || !binding.is_claimed_by(policy) {
        return None;
    }
    let attached: Vec<Option<Arc<BindingFacts>>> = expected.iter().map(attached).collect::<Option<_>>()?;
    let is_listed = |data_ref: &DataRef| binding.dependencies.as_ref().is_some_and(|known| known.contains(data_ref));
    let is_brought = |of: &Option<Arc<BindingFacts>>| {
        of.as_ref().is_some_and(|of| !residue::is_needed(of, parent, Some(&binding.clusters)))
    };
    Some(Evidence {
        strength: Strength::of(expected),
        asked: binding.changed.filter(|_| binding.propagates),
        is_answered: binding.shows_dependencies() && expected.iter().all(is_listed) && attached.iter().all(is_brought),
    })
}

/// The policy of a city in a hub namespace, and the evidence of its deployments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The hub namespace.
    pub namespace: String,
    /// The city.
    pub city: CityCode,
    /// The phase of the policy.
    pub phase: Phase,
    /// Strength that an answer can have. `None` if no answer can come.
    pub can_show: Option<Strength>,
    /// Time since which the policy asks.
    pub asked: Option<Timestamp>,
    /// Strength of the answers so far.
    pub answered: Option<Strength>,
    /// Delivery of companions that came later.
    pub later: Option<LateDelivery>,
}

impl Candidate {
    /// A policy without evidence.
    pub fn new(namespace: &str, city: CityCode, phase: Phase) -> Self {
        let namespace = namespace.to_owned();
        Self { namespace, city, phase, can_show: None, asked: None, answered: None, later: None }
    }

    /// Adds the evidence of its deployments.
    #[must_use]
    pub fn with(
        mut self,
        evidence: impl IntoIterator<Item = Evidence>,
        later: impl IntoIterator<Item = LateDelivery>,
    ) -> Self {
        for evidence in evidence {
            self.can_show = self.can_show.max(Some(evidence.strength));
            self.answered = self.answered.max(evidence.is_answered.then_some(evidence.strength));
            self.asked = self.asked.into_iter().chain(evidence.asked).min();
        }
        self.later = later.into_iter().max();
        self
    }

    fn key(&self) -> (&str, &CityCode) {
        (&self.namespace, &self.city)
    }

    fn waits(&self) -> bool {
        self.phase != Phase::Dependencies
    }
}

/// Every city policy of the hub.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The policies.
    pub candidates: Vec<Candidate>,
    /// Periods.
    pub timing: Timing,
}

/// The state of the probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// True if Karmada brings dependencies.
    pub passed: bool,
    /// The policy that may ask now, by hub namespace and city.
    pub asker: Option<(String, CityCode)>,
    /// The problem, and the policy on which it is reported.
    pub problem: Option<(Problem, String, CityCode)>,
}

impl Verdict {
    /// The state for one policy.
    pub fn probe(&self, namespace: &str, city: &CityCode) -> Probe {
        let is_asker = self.asker.as_ref().is_some_and(|(of, code)| of == namespace && code == city);
        match (self.passed, is_asker) {
            (true, _) => Probe::Passed,
            (false, true) => Probe::Ask,
            (false, false) => Probe::Wait,
        }
    }

    /// The problem to report on one policy.
    pub fn problem(&self, namespace: &str, city: &CityCode) -> Option<Problem> {
        let problem = self.problem.as_ref().filter(|(_, of, code)| of == namespace && code == city);
        problem.map(|(problem, ..)| *problem)
    }
}

/// Decides about the probe. The verdict is the only signal; there are no writes.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Write<Hub>, Verdict> {
    Plan::nothing().with([verdict(observed, now)])
}

fn verdict(Observed { candidates, timing }: &Observed, now: Timestamp) -> Verdict {
    let required = candidates.iter().filter(|of| of.waits()).filter_map(|of| of.can_show).max();
    // If no policy can ask, policies that are done may answer, but only with data.
    let enough = Some(required.unwrap_or(Strength::Single));
    let later = candidates.iter().filter_map(|of| of.later).max();
    let is_answered = candidates.iter().any(|of| of.answered >= enough);
    if is_answered && LateDelivery::is_well(later) {
        return Verdict { passed: true, ..Verdict::default() };
    }
    let mut able: Vec<&Candidate> =
        candidates.iter().filter(|of| of.waits() && of.can_show.is_some() && of.can_show == required).collect();
    able.sort_unstable_by_key(|of| of.key());
    if able.is_empty() {
        let first = candidates.iter().filter(|of| of.waits()).min_by_key(|of| of.key());
        let problem = first.map(|of| (Problem::NobodyToAsk, of.namespace.clone(), of.city.clone()));
        return Verdict { problem, ..Verdict::default() };
    }
    let askers: Vec<&Candidate> = able.iter().copied().filter(|of| of.phase == Phase::Both).collect();
    let has_had_time = |asked: Timestamp| now.duration_since(asked).unsigned_abs() >= timing.migration_step;
    let turn = turn(able.len(), now);
    let may_ask = askers.len() < MAX_ASKERS && askers.iter().all(|of| of.asked.is_none_or(has_had_time));
    let asker = Some(able[turn]).filter(|of| may_ask && of.phase == Phase::Claims);
    // The answer may be there, while a companion that came a moment ago is not delivered yet.
    let is_awaited = is_answered && later == Some(LateDelivery::Awaited);
    let oldest = askers.iter().filter(|of| of.asked.is_some_and(has_had_time)).min_by_key(|of| (of.asked, of.key()));
    let problem = if later == Some(LateDelivery::Missed) { Problem::MissesLater } else { Problem::Unanswered };
    Verdict {
        passed: false,
        asker: asker.map(|of| (of.namespace.clone(), of.city.clone())),
        problem: oldest.filter(|_| !is_awaited).map(|of| (problem, of.namespace.clone(), of.city.clone())),
    }
}

/// Index of the policy that has the turn. Multiples of the golden ratio spread evenly: policies are reconciled at regular
/// times, and must not meet the same turn each time.
fn turn(policies: usize, now: Timestamp) -> usize {
    const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
    let number = now.as_millisecond().unsigned_abs() / u64::try_from(TURN.as_millis()).unwrap_or(u64::MAX);
    let part = u128::from(number.wrapping_mul(GOLDEN_RATIO)) * policies as u128;
    usize::try_from(part >> 64).unwrap_or_default()
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
