//! Statuses that the federator is writing. Neither the answer to such a write nor its event asks for another look.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::{api::compute::WorkloadDeploymentStatus, controllers::management::wiring::queues::ProjectKey};

/// The statuses, by deployment.
#[derive(Default)]
pub(crate) struct Reports(Mutex<HashMap<ProjectKey, WorkloadDeploymentStatus>>);

impl Reports {
    /// Records the write of a status until the result is dropped.
    pub(crate) fn write(&self, deployment: &ProjectKey, status: WorkloadDeploymentStatus) -> Report<'_> {
        self.lock().insert(deployment.clone(), status);
        Report { all: self, deployment: deployment.clone() }
    }

    /// True if this status of a deployment is being written.
    pub(crate) fn has(&self, deployment: &ProjectKey, status: Option<&WorkloadDeploymentStatus>) -> bool {
        self.lock().get(deployment).is_some_and(|written| Some(written) == status)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ProjectKey, WorkloadDeploymentStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A status that is being written.
pub(crate) struct Report<'a> {
    all: &'a Reports,
    deployment: ProjectKey,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.deployment);
    }
}

#[cfg(test)]
#[path = "reports_tests.rs"]
mod tests;
