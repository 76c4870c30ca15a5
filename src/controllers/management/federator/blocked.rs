//! Deployments with a blocked delivery, shared by all workers.

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

/// Updates the metric of blocked deployments for each reason with a changed number. A label names the party that can resolve the
/// reason.
pub(crate) fn tell(metrics: &Metrics, counts: &[(String, usize)]) {
    for (reason, count) in counts {
        metrics.blocked(reason, Reason::from(&**reason).waits_for().label(), *count);
    }
}

/// Registry of the deployments that are not delivered.
pub(crate) struct BlockedDeployments(Mutex<Backlog<ProjectKey>>);

impl BlockedDeployments {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Mutex::new(Backlog::new(limits)))
    }

    /// Returns every deployment that is not delivered.
    pub(crate) fn keys(&self) -> Vec<ProjectKey> {
        self.lock().keys()
    }

    /// Returns the blocker of a deployment. `None` if it is delivered.
    pub(crate) fn of(&self, key: &ProjectKey, now: Instant) -> Option<federate::Blocked> {
        self.lock().of(key, now)
    }

    /// Returns the budget of the hub for this deployment.
    pub(crate) fn capacity(&self, key: &ProjectKey, timing: &Timing, now: Instant) -> Capacity {
        self.lock().capacity(key, timing, now)
    }

    /// Takes a repair of this deployment from the budget. False if other deployments have used it up.
    pub(crate) fn take(&self, key: &ProjectKey, absence: Absence, timing: &Timing, now: Instant) -> bool {
        self.lock().take(key, absence, timing, now)
    }

    /// Records the signals of a deployment's plan. Returns the number of deployments for each reason with a changed number.
    pub(crate) fn note(&self, key: &ProjectKey, signals: &[Signal], now: Instant) -> Vec<(String, usize)> {
        self.lock().note(key, signals, now)
    }

    /// Forgets a project that is disengaged. Returns the number of deployments for each reason with a changed number.
    pub(crate) fn forget_project(&self, project: &ProjectName, now: Instant) -> Vec<(String, usize)> {
        self.lock().forget_where(|key| key.project == *project, now)
    }

    fn lock(&self) -> MutexGuard<'_, Backlog<ProjectKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
