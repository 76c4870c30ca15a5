//! What keeps deployments from being delivered, for all workers at once.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::controllers::management::wiring::queues::ProjectKey;
use crate::{
    api::{names::ProjectName, reason::Reason},
    metrics::Metrics,
    plan::management::federator::{
        backlog::Backlog,
        federate::{self, Signal},
        repair::{Absence, Capacity, Limits},
    },
    timing::Timing,
};

/// Tells how many are blocked now, for each reason that has changed; each with who can mend it.
pub(crate) fn tell(metrics: &Metrics, counts: &[(String, usize)]) {
    for (reason, count) in counts {
        metrics.blocked(reason, Reason::from(&**reason).waits_for().label(), *count);
    }
}

/// Every deployment that is not delivered.
pub(crate) struct BlockedDeployments(Mutex<Backlog<ProjectKey>>);

impl BlockedDeployments {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Mutex::new(Backlog::new(limits)))
    }

    /// Every deployment that is not delivered.
    pub(crate) fn keys(&self) -> Vec<ProjectKey> {
        self.lock().keys()
    }

    /// What keeps a deployment from being delivered.
    pub(crate) fn of(&self, key: &ProjectKey, now: Instant) -> Option<federate::Blocked> {
        self.lock().of(key, now)
    }

    /// How much the hub can take, for this deployment.
    pub(crate) fn capacity(&self, key: &ProjectKey, timing: &Timing, now: Instant) -> Capacity {
        self.lock().capacity(key, timing, now)
    }

    /// Takes a repair of this deployment from the budget. False if others were faster.
    pub(crate) fn take(&self, key: &ProjectKey, absence: Absence, timing: &Timing, now: Instant) -> bool {
        self.lock().take(key, absence, timing, now)
    }

    /// Records what a plan has signalled of a deployment. Returns the number of deployments for each reason whose number has
    /// changed.
    pub(crate) fn note(&self, key: &ProjectKey, signals: &[Signal], now: Instant) -> Vec<(String, usize)> {
        self.lock().note(key, signals, now)
    }

    /// A project is let go. Says how many are blocked now, for each reason that has changed.
    pub(crate) fn forget_project(&self, project: &ProjectName, now: Instant) -> Vec<(String, usize)> {
        self.lock().forget_where(|key| key.project == *project, now)
    }

    fn lock(&self) -> MutexGuard<'_, Backlog<ProjectKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
