//! Writes that a project's API server rejected: which other writes may follow, and how the Workload reports them.

use std::time::Duration;

use super::placement::PlacementOutcome;
use crate::{
    api::reason::Reason,
    plan::{Kind, Object, Op, Project, Write},
    timing::Timing,
};

/// Cause of a failed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The operator lacks the permission.
    Forbidden,
    /// A quota, a webhook or a policy of the project denies it.
    Denied,
    /// The API server rejects it as invalid.
    Invalid,
    /// It may succeed when it is tried again: another client was faster, or the server has a problem.
    Passing {
        /// How long work on the Workload has failed.
        lasted: Duration,
    },
}

/// A failed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Object of the write.
    pub object: Object,
    /// True if the object was to be deleted.
    pub deletion: bool,
    /// The cause.
    pub cause: Cause,
    /// Message of the API server.
    pub message: String,
}

impl Refusal {
    /// Returns the failure of `write` with this cause.
    pub fn of(write: &Write<Project>, cause: Cause, message: String) -> Self {
        Self { object: write.object.clone(), deletion: matches!(write.op, Op::Delete { .. }), cause, message }
    }

    /// True if a condition reports it: only a user can end it, or it has outlasted the grace.
    pub(super) fn is_due(&self, timing: &Timing) -> bool {
        match self.cause {
            Cause::Passing { lasted } => timing.outlasts_grace(lasted),
            Cause::Forbidden | Cause::Denied | Cause::Invalid => true,
        }
    }

    /// Returns the reason of the condition that reports it.
    pub(super) fn reason(&self) -> Reason {
        match self.cause {
            Cause::Forbidden => Reason::DeploymentForbidden,
            Cause::Denied => Reason::DeploymentDenied,
            Cause::Invalid => Reason::InvalidPlacement,
            Cause::Passing { .. } => Reason::ProjectRefused,
        }
    }

    /// Returns the message of the condition that reports it.
    pub(super) fn text(&self) -> String {
        match self.cause {
            Cause::Forbidden => format!("the operator lacks a permission: {}", self.message),
            Cause::Denied => format!("a quota, a webhook or a policy of the project rejects it: {}", self.message),
            Cause::Invalid => format!("a deployment was refused: {}", self.message),
            Cause::Passing { .. } => format!(
                "the project's API server rejects {}: {}. Running instances are not affected. Fix what the API server \
                 reports; the operator retries",
                self.object, self.message
            ),
        }
    }

    /// True if it concerns a wanted deployment of this placement.
    pub(super) fn is_of(&self, outcome: &PlacementOutcome) -> bool {
        self.object.kind == Kind::WorkloadDeployment
            && !self.deletion
            && outcome.desired.contains_key(&self.object.name)
    }
}

/// True if `write` may be sent after these failures. One city does not wait for another, with three exceptions. Nothing is
/// created before the Workload has its finalizer. No write is sent to an object after a failed write to it, because a spec that
/// was not taken over would show half of a change. Nothing is deleted while its replacement is rejected.
pub fn may_follow(write: &Write<Project>, refused: &[Refusal]) -> bool {
    let removes = matches!(write.op, Op::Delete { .. });
    refused.iter().all(|before| {
        before.object.kind != Kind::Workload && before.object != write.object && (before.deletion || !removes)
    })
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
