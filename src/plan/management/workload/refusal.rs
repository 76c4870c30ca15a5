//! Writes that a project's API server rejected: which other writes may follow, and how the Workload reports them.

use std::time::Duration;

use super::placement::PlacementOutcome;
use crate::{
    api::reason::Reason,
    plan::{Kind, Object, Op, Project, Write, condition::denier},
    timing::Timing,
};

/// Cause of a failed write. The cause decides who acts.
///
/// A denial is a judgement of the object by a rule, and lasts until the object or the rule changes. The operator cannot tell who
/// owns the rule: a webhook or policy of a project may be the tenant's or the platform's. The tenant acts, for three reasons. Only
/// the tenant can change the object. The message names the rule, so the tenant can ask its owner. And no tenant may call the
/// platform's operators by a rule in the tenant's own project.
///
/// A webhook that cannot be called, or answers with a server error, has not judged the object. Nothing that the tenant writes
/// would help, so the platform acts, and nothing stalls: the operator retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The operator lacks the permission.
    Forbidden,
    /// A quota, a webhook or a policy of the project denies it: the tenant acts.
    Denied,
    /// The API server rejects it as invalid.
    Invalid,
    /// It may succeed when it is tried again: another client was faster, or the server or a webhook has a problem.
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
            Cause::Denied => {
                let who = denier(&self.message).unwrap_or_else(|| "a quota, a webhook or a policy".to_owned());
                format!(
                    "{who} of the project rejects {}: {}. Running instances are not affected. Change what it rejects, or ask \
                     its owner",
                    self.object, self.message
                )
            }
            Cause::Invalid => format!("a deployment was refused: {}", self.message),
            Cause::Passing { .. } => format!(
                "the project's API server, or a webhook that it calls, fails the write of {}: {}. Running instances are not \
                 affected. The operator retries",
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
