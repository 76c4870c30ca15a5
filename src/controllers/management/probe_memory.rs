//! What has come of asking Karmada for dependencies: the memory behind its plan.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::plan::management::probe::State;

/// What has come of asking.
#[derive(Default)]
pub(super) struct ProbeMemory(Mutex<State>);

impl ProbeMemory {
    /// What is remembered, for one look.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
