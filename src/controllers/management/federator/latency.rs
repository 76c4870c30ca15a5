//! Latency of federation, shared by all workers.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use crate::controllers::management::wiring::queues::ProjectKey;
use crate::{
    api::names::ProjectName,
    io::clock::Now,
    metrics::Metrics,
    plan::management::federator::latency::{Latencies, Look},
};

/// Open measurements of every deployment. A process without a running controller records nothing, because nothing would end a
/// measurement.
#[derive(Default)]
pub(crate) struct Latency {
    under_way: Mutex<Latencies<ProjectKey>>,
    working: AtomicBool,
}

impl Latency {
    /// Starts recording: the controller runs from now on.
    pub(crate) fn begin(&self) {
        self.working.store(true, Ordering::Relaxed);
    }

    /// Records a changed spec of a project's deployment.
    pub(crate) fn changed(&self, key: &ProjectKey, uid: &str, now: Instant) {
        if self.working.load(Ordering::Relaxed) {
            self.lock().changed(key, uid, now);
        }
    }

    /// Records a changed report of the cell on a copy.
    pub(crate) fn reported(&self, key: &ProjectKey, now: Instant) {
        if self.working.load(Ordering::Relaxed) {
            self.lock().reported(key, now);
        }
    }

    /// Records the end of a reconcile that began at `began`. The end is read off the clock here, because no decision depends on
    /// it.
    pub(crate) fn looked(&self, key: &ProjectKey, look: &Look, began: Instant, metrics: &Metrics) {
        let ended = self.lock().looked(key, look, began, Now::read().instant);
        for (leg, took) in ended {
            metrics.federated(leg.label(), took);
        }
    }

    /// Forgets a deployment that is gone or terminating.
    pub(crate) fn forget(&self, key: &ProjectKey) {
        self.lock().forget(key);
    }

    /// Forgets a project that is disengaged.
    pub(crate) fn forget_project(&self, project: &ProjectName) {
        self.lock().forget_where(|key| key.project == *project);
    }

    /// Number of deployments with an open measurement.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Latencies<ProjectKey>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
