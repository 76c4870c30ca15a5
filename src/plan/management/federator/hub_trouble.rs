//! Problems by which the hub does not accept, show or delete a deployment. The deployment itself reports them.
//!
//! [`diagnosis`](super::diagnosis) reports the problems that are found on a copy. This module reports those without a reliable
//! copy. The hub does not answer or rejects a write, the hub namespace is terminating, or the deletion of the copy is blocked.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::{
    federation_status::{self as status, CellReport},
    last_delivery, repair,
    snapshot::{Decided, Observed, Outage, Signal},
};
use crate::plan::management::{
    observed::facts::holders,
    referenced_data::resolve::{self, Data},
};
use crate::{
    api::{
        compute::{Condition, ConditionStatus, LastDelivery, WorkloadDeployment},
        meta::{condition, label},
        reason::Reason,
    },
    plan::{
        Hub, Next, Plan, Project, Step,
        condition::{Verdict, denier, differs_in_their_marks_alone, differs_in_their_numbers_alone, find},
    },
    timing::Timing,
};

/// Maximum number of characters that are repeated of another component's message.
const MAX_WORDS: usize = 512;

/// Cause of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The hub does not answer, or does not show its objects.
    Unavailable,
    /// The hub rejects a write.
    Refused,
    /// The hub namespace is terminating.
    NamespaceTerminating,
    /// The deletion of the copy is blocked.
    CopyHeld,
    /// The deployment exceeds a limit, and is not brought to the hub.
    LimitExceeded,
    /// Other large deployments of its namespace are written to the hub first.
    RateLimited,
    /// The project's API server, or a webhook that it calls, fails writes to the deployment. The platform acts.
    ProjectRefused,
    /// A rule of the project denies writes to the deployment. The tenant acts, as [`refusal::Cause`] explains.
    ///
    /// [`refusal::Cause`]: crate::plan::management::workload::refusal::Cause
    ProjectDenied,
    /// The operator lacks a permission in the project.
    ProjectForbidden,
}

impl Cause {
    /// Returns the reason of the condition.
    pub fn reason(self) -> Reason {
        match self {
            Self::Unavailable => Reason::HubUnavailable,
            Self::Refused => Reason::HubRefused,
            Self::NamespaceTerminating => Reason::HubNamespaceTerminating,
            Self::CopyHeld => Reason::HubCopyHeld,
            Self::LimitExceeded => Reason::LimitExceeded,
            Self::RateLimited => Reason::RateLimited,
            Self::ProjectRefused => Reason::ProjectRefused,
            Self::ProjectDenied => Reason::DeploymentDenied,
            Self::ProjectForbidden => Reason::DeploymentForbidden,
        }
    }
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The cause.
    pub cause: Cause,
    /// Message of the component that knows the details.
    pub words: String,
    /// Time for which it has lasted.
    pub lasted: Duration,
}

/// Converts an outage to the problem of a deployment.
pub(super) fn of_outage(outage: &Outage) -> Trouble {
    Trouble { cause: Cause::Unavailable, words: outage.words.clone(), lasted: outage.lasted }
}

/// Decides the report on one deployment, and its time. The status that its cell has reported is shown while it can be seen.
/// `data`: a source that cannot be copied is reported too.
fn report(
    deployment: &WorkloadDeployment,
    (copy, of_cell): (Option<&WorkloadDeployment>, CellReport<'_>),
    (trouble, data): (&Trouble, Option<&Data>),
    timing: &Timing,
    now: Timestamp,
) -> Decided {
    let last_delivery = copy.and_then(|copy| last_delivery::of(deployment, copy));
    let signal = Signal::Blocked { reason: trouble.cause.reason().to_string(), silence: None };
    let patience = patience(deployment, trouble.cause, timing);
    let waited = waited(deployment, trouble, now);
    let empty = Vec::new();
    let conditions = deployment.status.as_ref().map_or(&empty, |status| &status.conditions);
    let before = find(conditions, condition::FEDERATED);
    let stands = before.is_some_and(|before| before.reason == trouble.cause.reason());
    if waited < patience && !stands {
        let deleting = deployment.metadata.deletion_timestamp.is_some();
        let first =
            if deleting { Plan::nothing() } else { status::first(deployment, of_cell, timing.error_grace, now) };
        let steps = first.steps.into_iter().map(Step::Local).collect();
        let next = first.next.or_sooner(Next::After(patience.saturating_sub(waited)));
        return Plan { steps, next, signals: vec![signal] };
    }
    let verdict = verdict(deployment, before, trouble, last_delivery.as_ref());
    let told = status::say(deployment, of_cell, (verdict, data), last_delivery, timing.error_grace, now);
    let steps = told.steps.into_iter().map(Step::Local).collect();
    let spread = repair::spread(&deployment.uid().unwrap_or_default());
    let next = match trouble.cause {
        // The message of its API server changes without an event.
        Cause::NamespaceTerminating => Next::After(repair::look_again(trouble.lasted, timing, spread)),
        _ => Next::Await,
    };
    Plan { steps, next: next.or_sooner(told.next), signals: vec![signal] }
}

/// Reports a problem on a deployment, for example a write that the hub has just rejected.
pub fn told(observed: &Observed, trouble: &Trouble, now: Timestamp) -> Decided {
    let (deployment, timing) = (&*observed.deployment, &observed.timing);
    let deleting = deployment.metadata.deletion_timestamp.is_some();
    let copy = observed.copy.as_deref();
    let data = (!deleting).then(|| resolve::data(deployment, copy, &observed.data, timing.deletion_patience, now));
    let of_cell = CellReport::of(copy, observed.karmada.as_ref());
    report(deployment, (copy, of_cell), (trouble, data.as_ref()), timing, now)
}

/// Reports that the project has rejected the operator's writes to a deployment for the time `lasted`. `None` within the grace:
/// then the report of the plan that failed is sent.
pub fn project_refused(
    observed: &Observed,
    (cause, words): (Cause, String),
    lasted: Duration,
    now: Timestamp,
) -> Option<Decided> {
    let trouble = Trouble { cause, words, lasted };
    observed.timing.outlasts_grace(lasted).then(|| told(observed, &trouble, now))
}

/// Returns a problem with the time for which it is remembered.
pub fn lasting(observed: &Observed, cause: Cause, words: String) -> Trouble {
    let before = observed.blocked.as_ref().filter(|blocked| blocked.reason == cause.reason());
    Trouble { cause, words, lasted: before.map_or(Duration::ZERO, |blocked| blocked.elapsed) }
}

/// The namespace is recreated once it is gone; its event enqueues the deployment.
pub(super) fn namespace_goes(observed: &Observed, namespace: &str, now: Timestamp) -> Decided {
    let words = observed.namespace_words.clone().unwrap_or_else(|| format!("Namespace {namespace}"));
    told(observed, &lasting(observed, Cause::NamespaceTerminating, words), now)
}

/// True if the hub namespace has been terminating for so long that the deployment reports it: its API server says why.
pub fn is_namespace_overdue(observed: &Observed) -> bool {
    let terminates = observed.hub_namespace.as_deref().is_some_and(|facts| facts.terminating);
    let lasted = lasting(observed, Cause::NamespaceTerminating, String::new()).lasted;
    terminates && lasted >= patience(&observed.deployment, Cause::NamespaceTerminating, &observed.timing)
}

/// Returns a plan that begins with these steps.
pub(super) fn after(mut steps: Vec<Step<Project, Hub>>, mut then: Decided) -> Decided {
    steps.append(&mut then.steps);
    Plan { steps, ..then }
}

/// Returns how long a problem lasts before it is reported. An outage of the hub concerns all deployments. Each reports it at its
/// own moment, so that no project gets all writes together. A deletion may take its time.
fn patience(deployment: &WorkloadDeployment, cause: Cause, timing: &Timing) -> Duration {
    let grace = timing.delivery_grace;
    match cause {
        Cause::Unavailable => {
            let share = repair::spread(&deployment.uid().unwrap_or_default()).mul_add(2.0, -1.0);
            grace + (grace * 2).mul_f64(share.clamp(0.0, 1.0))
        }
        Cause::CopyHeld if deployment.metadata.deletion_timestamp.is_some() => timing.deletion_patience,
        // It depends only on the deployment, and lasts until that is changed.
        Cause::LimitExceeded => Duration::ZERO,
        Cause::ProjectRefused | Cause::ProjectDenied | Cause::ProjectForbidden | Cause::RateLimited => {
            timing.error_grace
        }
        Cause::Refused | Cause::NamespaceTerminating | Cause::CopyHeld => grace,
    }
}

/// Returns how long the problem has lasted. If it blocks a deletion, it began with the deletion, also after a restart.
fn waited(deployment: &WorkloadDeployment, trouble: &Trouble, now: Timestamp) -> Duration {
    let deleted = deployment.metadata.deletion_timestamp.as_ref().filter(|_| trouble.cause == Cause::CopyHeld);
    let since = deleted.and_then(|at| Duration::try_from(now.duration_since(at.0)).ok());
    since.map_or(trouble.lasted, |since| since.max(trouble.lasted))
}

/// Returns the verdict for `Federated`. The present message is kept while only the words of an outage change, or the numbers in a
/// rejection. Each attempt has others, and none is worth a write.
fn verdict(
    deployment: &WorkloadDeployment,
    before: Option<&Condition>,
    trouble: &Trouble,
    last_delivery: Option<&LastDelivery>,
) -> Verdict {
    let Trouble { cause, words, .. } = trouble;
    let deleting = deployment.metadata.deletion_timestamp.is_some();
    let words = bounded(words);
    let recorded = deployment.status.as_ref().and_then(|status| status.last_delivery.as_ref());
    let last = last_known(last_delivery.or(recorded));
    let text = match cause {
        Cause::Unavailable if deleting => format!("deletion waits for the hub, which does not answer: {words}"),
        Cause::Unavailable => format!("status is unknown because the hub does not answer: {words}{last}"),
        Cause::Refused if deleting => {
            format!("its copy remains because the hub refuses its removal: {words}")
        }
        Cause::Refused => format!("the hub refuses this deployment: {words}{last}"),
        Cause::NamespaceTerminating => {
            format!("its namespace on the hub is being deleted, and then recreated: {words}")
        }
        Cause::CopyHeld if deleting => format!("deletion waits until its copy on the hub is deleted: {words}"),
        Cause::CopyHeld => format!("its copy on the hub is being deleted, and then recreated: {words}"),
        Cause::LimitExceeded => {
            format!("{words}. Its copy on the hub is neither created nor changed; running instances are not affected")
        }
        Cause::RateLimited => {
            "large deployments of a namespace are written to the hub one after another, and others of \
             this namespace come first. Running instances are not affected. The wait ends by itself; to avoid it, move \
             variables to a ConfigMap or Secret"
                .to_owned()
        }
        Cause::ProjectRefused | Cause::ProjectDenied | Cause::ProjectForbidden => {
            of_project(*cause, deleting, words, &last)
        }
    };
    let same = |before: &&Condition| {
        let goes_on = *cause == Cause::Unavailable;
        let same_words = match cause {
            Cause::Refused | Cause::ProjectRefused | Cause::ProjectDenied => {
                differs_in_their_marks_alone(&before.message, &text)
            }
            _ => differs_in_their_numbers_alone(&before.message, &text),
        };
        before.reason == cause.reason() && (goes_on || same_words)
    };
    let message = before.filter(same).map_or(text, |before| before.message.clone());
    let status = if *cause == Cause::Unavailable { ConditionStatus::Unknown } else { ConditionStatus::False };
    Verdict { status, reason: cause.reason(), message }
}

/// Returns the message about a write that the project's API server did not carry out.
fn of_project(cause: Cause, deleting: bool, words: &str, last: &str) -> String {
    let (who, rejects, do_this) = match cause {
        Cause::ProjectDenied => {
            let who = denier(words).map(|who| format!("{who} of the project"));
            let who = who.unwrap_or_else(|| "the project's API server".to_owned());
            (who, "rejects", "Change what it rejects, or ask its owner")
        }
        Cause::ProjectForbidden => ("the project".to_owned(), "forbids", "Give the operator the permission"),
        _ => ("the project's API server, or a webhook that it calls,".to_owned(), "fails", "The operator retries"),
    };
    if deleting {
        return format!("{who} {rejects} the removal of this operator's finalizer, which blocks deletion: {words}");
    }
    format!(
        "{who} {rejects} what this operator writes on this deployment. Its changes do not reach the hub. Running instances are \
         not affected. {do_this}: {words}{last}"
    )
}

/// Names the clusters of the last delivery, if there was one.
fn last_known(delivery: Option<&LastDelivery>) -> String {
    let clusters = delivery.map(|delivery| delivery.clusters.join(", ")).filter(|clusters| !clusters.is_empty());
    clusters.map_or_else(String::new, |clusters| format!("; it was last delivered to {clusters}"))
}

/// Returns the condition of a deployment with a problem of this module.
pub(crate) fn standing(deployment: &WorkloadDeployment) -> Option<&Condition> {
    let causes = [
        Cause::Unavailable,
        Cause::Refused,
        Cause::NamespaceTerminating,
        Cause::CopyHeld,
        Cause::LimitExceeded,
        Cause::RateLimited,
        Cause::ProjectRefused,
        Cause::ProjectDenied,
        Cause::ProjectForbidden,
    ];
    let federated = find(&deployment.status.as_ref()?.conditions, condition::FEDERATED)?;
    let is_one = causes.iter().any(|cause| federated.reason == cause.reason());
    (federated.status != ConditionStatus::True && is_one).then_some(federated)
}

/// Returns the note on a Workload with available deployments about those with such a problem. An outage is the same for all, and
/// is reported once.
pub(crate) fn notes<'a>(deployments: impl Iterator<Item = &'a WorkloadDeployment>) -> Option<String> {
    let all: Vec<(String, &Condition)> = deployments.filter_map(|wd| Some((wd.name_any(), standing(wd)?))).collect();
    let away = all.iter().any(|(_, c)| c.reason() == Reason::HubUnavailable);
    let other = all.iter().filter(|(_, c)| c.reason() != Reason::HubUnavailable).min_by_key(|(name, _)| name.clone());
    let other = other.map(|(name, c)| format!("; {name}: {}", c.message));
    let away = away.then(|| "; the hub does not answer, and this is the last known status".to_owned());
    let notes: String = away.into_iter().chain(other).collect();
    (!notes.is_empty()).then_some(notes)
}

fn bounded(words: &str) -> &str {
    words.char_indices().nth(MAX_WORDS).map_or(words, |(end, _)| &words[..end])
}

/// Describes the finalizers that block the deletion of a copy.
pub fn copy_words(copy: &WorkloadDeployment) -> String {
    let (namespace, name) = (copy.namespace().unwrap_or_default(), copy.name_any());
    format!("WorkloadDeployment {namespace}/{name} has {}", holders(copy.finalizers()))
}

/// Describes a copy that no watch shows.
pub fn hidden_words(namespace: &str, name: &str) -> String {
    format!(
        "WorkloadDeployment {namespace}/{name} exists without the label {}, so its project is unknown: restore the label, \
         or delete it",
        label::UPSTREAM_NAMESPACE
    )
}

/// Describes a copy that cannot be read.
pub fn unreadable_words(namespace: &str, name: &str) -> String {
    format!(
        "WorkloadDeployment {namespace}/{name} exists and this operator cannot read it: fix it, or delete it if its \
         instances are not needed"
    )
}

/// Describes why a namespace is not deleted, in the words of its API server. `None` if the server says nothing.
pub fn namespace_words(namespace: &Namespace) -> Option<String> {
    let conditions = namespace.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let reported =
        conditions.filter(|reported| reported.status == "True").filter_map(|reported| reported.message.clone());
    let reported: Vec<String> = reported.filter(|message| !message.is_empty()).collect();
    (!reported.is_empty()).then(|| format!("Namespace {}: {}", namespace.name_any(), reported.join("; ")))
}

#[cfg(test)]
#[path = "hub_trouble_tests.rs"]
mod tests;
