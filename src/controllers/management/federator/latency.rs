//! How long federation takes, measured by all workers at once.

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

/// What is under way of every deployment. A process that does not work remembers nothing: nobody would look at it.
#[derive(Default)]
pub(crate) struct Latency {
    under_way: Mutex<Latencies<ProjectKey>>,
    working: AtomicBool,
}

impl Latency {
    /// Deployments are looked at from now on.
    pub(crate) fn begin(&self) {
        self.working.store(true, Ordering::Relaxed);
    }

    /// A project's deployment was seen to ask for something new.
    pub(crate) fn changed(&self, key: &ProjectKey, uid: &str, now: Instant) {
        if self.working.load(Ordering::Relaxed) {
            self.lock().changed(key, uid, now);
        }
    }

    /// A copy was seen with another report of its cell.
    pub(crate) fn reported(&self, key: &ProjectKey, now: Instant) {
        if self.working.load(Ordering::Relaxed) {
            self.lock().reported(key, now);
        }
    }

    /// What was decided in a look that began at `began` has just been carried out. When that is, is read off the clock: nothing
    /// is decided on it.
    pub(crate) fn looked(&self, key: &ProjectKey, look: &Look, began: Instant, metrics: &Metrics) {
        let ended = self.lock().looked(key, look, began, Now::read().instant);
        for (leg, took) in ended {
            metrics.federated(leg.label(), took);
        }
    }

    /// A deployment is gone, or going.
    pub(crate) fn forget(&self, key: &ProjectKey) {
        self.lock().forget(key);
    }

    /// A project is let go.
    pub(crate) fn forget_project(&self, project: &ProjectName) {
        self.lock().forget_where(|key| key.project == *project);
    }

    /// How many deployments something is under way of.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Latencies<ProjectKey>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
