//! The drains of the last decision. The controllers of policies and deployments use them until the next one.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;

use crate::{
    api::names::CityCode,
    plan::management::drain::{cities::Decision, transfer::Instruction},
};

/// A cache of the last decision. The first decision of a new process reads everything off the hub again.
#[derive(Default)]
pub(crate) struct Drains(Mutex<State>);

#[derive(Default)]
struct State {
    /// `None` before the first decision: transfers are not known yet.
    decision: Option<Decision>,
    /// When the drain of a Cluster was last recalled.
    recalled: BTreeMap<String, Timestamp>,
}

impl Drains {
    /// True after the first decision.
    pub(crate) fn are_known(&self) -> bool {
        self.lock().decision.is_some()
    }

    /// The last decision, and the recalls since the process began.
    pub(crate) fn last(&self) -> (Decision, BTreeMap<String, Timestamp>) {
        let state = self.lock();
        (state.decision.clone().unwrap_or_default(), state.recalled.clone())
    }

    /// Notes that the drain of a cluster was recalled. If it is requested again, failed transfers are tried again.
    pub(crate) fn recalled(&self, cluster: &str, now: Timestamp) {
        self.lock().recalled.insert(cluster.to_owned(), now);
    }

    /// The instruction of the drain of a city to one hub namespace.
    pub(crate) fn instruction(&self, city: &CityCode, namespace: &str) -> Instruction {
        let state = self.lock();
        let drain = state.decision.as_ref().and_then(|decision| decision.drains.get(city));
        drain.map(|drain| drain.instruction(namespace)).unwrap_or_default()
    }

    /// The message for a deployment of the city on these clusters.
    pub(crate) fn note(&self, city: &CityCode, on: &[String]) -> Option<String> {
        let state = self.lock();
        let drain = state.decision.as_ref()?.drains.get(city)?;
        let is_concerned = on.iter().any(|cluster| drain.concerned().contains(cluster.as_str()));
        drain.note(city).filter(|_| is_concerned)
    }

    /// Keeps a decision. Returns true if it is the first.
    pub(crate) fn keep(&self, decision: Decision) -> bool {
        self.lock().decision.replace(decision).is_none()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
