//! Writes that a project's API server refused: which others may still be sent, and what is said of them.

use std::time::Duration;

use super::placement::PlacementOutcome;
use crate::{
    api::reason::Reason,
    plan::{Kind, Object, Op, Project, Write},
    timing::Timing,
};

/// Why a write did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The operator may not make it.
    Forbidden,
    /// A quota, a webhook or a policy of the project does not let it be made.
    Denied,
    /// The API server does not take what it says.
    Invalid,
    /// It may succeed when it is tried again: another client was faster, or the server is in trouble.
    Passing {
        /// How long work on the Workload has failed.
        lasted: Duration,
    },
}

/// A write that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of which object.
    pub object: Object,
    /// Whether the object was to be deleted.
    pub deletion: bool,
    /// Why.
    pub cause: Cause,
    /// In the words of the API server.
    pub message: String,
}

impl Refusal {
    /// That `write` failed for this cause.
    pub fn of(write: &Write<Project>, cause: Cause, message: String) -> Self {
        Self { object: write.object.clone(), deletion: matches!(write.op, Op::Delete { .. }), cause, message }
    }

    /// True if a condition reports it: only a person can end it, or it has outlasted the grace.
    pub(super) fn is_due(&self, timing: &Timing) -> bool {
        match self.cause {
            Cause::Passing { lasted } => timing.outlasts_grace(lasted),
            Cause::Forbidden | Cause::Denied | Cause::Invalid => true,
        }
    }

    /// The reason of the condition that reports it.
    pub(super) fn reason(&self) -> Reason {
        match self.cause {
            Cause::Forbidden => Reason::DeploymentForbidden,
            Cause::Denied => Reason::DeploymentDenied,
            Cause::Invalid => Reason::InvalidPlacement,
            Cause::Passing { .. } => Reason::ProjectRefused,
        }
    }

    /// The same in words.
    pub(super) fn text(&self) -> String {
        match self.cause {
            Cause::Forbidden => format!("the operator may not do what is needed: {}", self.message),
            Cause::Denied => format!("a quota, a webhook or a policy of the project does not let it: {}", self.message),
            Cause::Invalid => format!("a deployment was refused: {}", self.message),
            Cause::Passing { .. } => format!(
                "the project's API server does not take {}: {}. What runs is not affected. Mend what the API server names; \
                 the operator tries again",
                self.object, self.message
            ),
        }
    }

    /// Whether it is about a deployment that this placement is to have.
    pub(super) fn is_of(&self, outcome: &PlacementOutcome) -> bool {
        self.object.kind == Kind::WorkloadDeployment
            && !self.deletion
            && outcome.desired.contains_key(&self.object.name)
    }
}

/// Whether `write` may be sent although these were refused before it. One city does not wait for another. But nothing is
/// made before the Workload's own finalizer stands, the writes on one object are made in their order or not at all (a spec
/// that has not been taken over would show half of a change), and nothing is taken away while what is to replace it is
/// refused.
pub fn may_follow(write: &Write<Project>, refused: &[Refusal]) -> bool {
    let removes = matches!(write.op, Op::Delete { .. });
    refused.iter().all(|before| {
        before.object.kind != Kind::Workload && before.object != write.object && (before.deletion || !removes)
    })
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
