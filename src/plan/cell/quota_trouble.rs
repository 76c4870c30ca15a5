//! Reasons why quota gives no answer, and the Instances that wait for one.

use serde::{Deserialize, Serialize};

use crate::{
    api::{
        compute::Instance,
        meta::{condition, gate},
        reason::Reason,
    },
    plan::condition::find,
};

/// A failure to get an answer from quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The kind of failure.
    pub cause: Cause,
    /// The message of the backend, or of the failed request.
    pub message: String,
}

/// The kinds of [`Trouble`], and of a missing evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// No answer, or an invalid one. It may be temporary.
    Unavailable,
    /// The project does not exist.
    NoProject,
    /// The project has no such namespace.
    NoNamespace,
    /// Permissions or CRDs are missing, or a claim is refused.
    Misconfigured,
    /// The cell's namespace does not name its project.
    Unresolvable,
    /// The claim exists, and no controller evaluates it.
    NoBudget,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 6] = [
        Self::Unavailable,
        Self::NoProject,
        Self::NoNamespace,
        Self::Misconfigured,
        Self::Unresolvable,
        Self::NoBudget,
    ];

    /// Returns the reason of the condition.
    pub fn reason(self) -> Reason {
        match self {
            Self::Unavailable => Reason::QuotaBackendUnavailable,
            Self::NoProject => Reason::QuotaProjectNotFound,
            Self::NoNamespace => Reason::QuotaNamespaceNotFound,
            Self::Misconfigured => Reason::QuotaMisconfigured,
            Self::Unresolvable => Reason::QuotaProjectIDUnresolvable,
            Self::NoBudget => Reason::QuotaNoBudget,
        }
    }

    /// Returns the label value for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unavailable => "backend_unavailable",
            Self::NoProject => "project_not_found",
            Self::NoNamespace => "namespace_not_found",
            Self::Misconfigured => "misconfigured",
            Self::Unresolvable => "project_id_unresolvable",
            Self::NoBudget => "no_budget",
        }
    }
}

/// True if an Instance still has the gate that a grant opens. An Instance without that gate runs on the grant that it has.
pub fn is_gated(instance: &Instance) -> bool {
    instance.spec.controller.iter().flat_map(|c| &c.scheduling_gates).any(|g| g.name == gate::QUOTA)
}

/// Returns why an Instance waits for an answer from quota, as its condition reports it: before it starts, or before it is
/// deleted. A running Instance does not wait.
pub fn unanswered(instance: &Instance) -> Option<Cause> {
    if !is_gated(instance) && instance.metadata.deletion_timestamp.is_none() {
        return None;
    }
    let reported = find(&instance.status.as_ref()?.conditions, condition::QUOTA_GRANTED)?;
    Cause::ALL.into_iter().find(|cause| reported.reason == cause.reason())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn instance(gated: bool, deleted: bool, reason: &str) -> Instance {
        let waits = if gated { json!([{ "name": gate::QUOTA }]) } else { json!([]) };
        let condition = json!({
            "type": condition::QUOTA_GRANTED, "status": "Unknown", "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(json!({
            "metadata": { "name": "web-0", "deletionTimestamp": deleted.then_some("2026-01-01T00:00:00Z") },
            "spec": {
                "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [],
                "controller": { "templateHash": "h", "schedulingGates": waits },
            },
            "status": { "conditions": [condition] },
        }))
        .unwrap()
    }

    #[test]
    fn unanswered_instance_that_waits_is_counted_by_cause() {
        for cause in Cause::ALL {
            let reason = cause.reason();
            for (gated, deleted, counts) in
                [(true, false, true), (true, true, true), (false, true, true), (false, false, false)]
            {
                let expected = counts.then_some(cause);
                assert_eq!(
                    unanswered(&instance(gated, deleted, reason.as_str())),
                    expected,
                    "{reason} {gated} {deleted}"
                );
            }
        }
        for reason in [Reason::PendingEvaluation, Reason::QuotaAvailable, Reason::QuotaExceeded, Reason::QuotaClaimHeld]
        {
            assert_eq!(unanswered(&instance(true, false, reason.as_str())), None, "{reason}");
        }
        assert_eq!(unanswered(&Instance { status: None, ..instance(true, false, "QuotaNoBudget") }), None);
    }

    #[test]
    fn cause_each_has_a_row_in_its_runbook() {
        let page = include_str!("../../../docs/runbooks/quota-backend.md");
        for cause in Cause::ALL {
            let row = format!("| `{}` | `{}` | ", cause.label(), cause.reason());
            assert!(page.contains(&row), "docs/runbooks/quota-backend.md has no row that begins with {row:?}");
        }
    }
}
