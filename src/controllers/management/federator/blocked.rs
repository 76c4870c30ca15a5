//! What keeps deployments from being delivered, for all workers at once.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::controllers::management::wiring::queues::ProjectKey;
use crate::{
    api::{names::ProjectName, reason::Reason},
    metrics::Metrics,
    plan::management::federator::{
        backlog::{self, Backlog},
        federate::{self, Signal},
        repair::{Limits, Repairs},
    },
};

/// What came of a note.
pub(crate) type Noted = backlog::Noted<ProjectKey>;

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

    /// What is known of repairs, for one deployment among so many, with the wait that follows a repair.
    pub(crate) fn repairs(&self, key: &ProjectKey, deployments: usize, base: Duration, now: Instant) -> Repairs {
        self.lock().repairs(key, deployments, base, now)
    }

    /// A deployment is to be repaired: takes its share of the budget.
    ///
    /// # Errors
    /// What is known now, when others were quicker.
    pub(crate) fn take(
        &self,
        key: &ProjectKey,
        deployments: usize,
        base: Duration,
        now: Instant,
    ) -> Result<(), Repairs> {
        self.lock().take(key, deployments, base, now)
    }

    /// Notes what a plan has signalled of a deployment.
    pub(crate) fn note(&self, key: &ProjectKey, signals: &[Signal], now: Instant) -> Noted {
        self.lock().note(key, signals, now)
    }

    /// A project is let go. Says how many are blocked now, for each reason that has changed.
    pub(crate) fn forget_project(&self, project: &ProjectName, now: Instant) -> Vec<(String, usize)> {
        self.lock().forget_where(|key| key.project == *project, now)
    }

    /// Karmada has written to a binding.
    pub(crate) fn karmada_wrote(&self, now: Instant) {
        self.lock().karmada_wrote(now);
    }

    fn lock(&self) -> MutexGuard<'_, Backlog<ProjectKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
