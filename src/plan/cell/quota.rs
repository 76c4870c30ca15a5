//! An Instance's quota: a ResourceClaim in its project's control plane, and what came of it.
//!
//! The claim is held by a finalizer on the Instance, so that none is left behind when the Instance goes.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use crate::{
    api::{
        compute::{Condition, ConditionStatus, Instance},
        meta::{condition, finalizer, label, manager},
        names::{self, ProjectName},
        neighbours::ResourceClaim,
        reason::Reason,
    },
    plan::{
        Cell, Next, Object, Plan, Project, Step, Write,
        cell::{
            amounts::{amounts, sorted},
            claim::{Holder, Identity},
        },
        condition::{Verdict, find},
        event::{self, Note, Severity},
    },
};

/// How long a claim may stay unlooked at before nobody can be expected to look: then there is no budget at all.
const NO_BUDGET_AFTER: Duration = Duration::from_secs(15);
/// How long a deleted Instance waits for its claim's release before it lets go of it: longer than an outage of an hour.
const CLAIM_RELEASE_TIMEOUT: Duration = Duration::from_hours(2);
/// How long a project must have been unknown, or unnamed, before its claims count as gone with it.
const PROJECT_GONE_TIMEOUT: Duration = Duration::from_mins(2);

/// Where an Instance's claim lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The project whose quota is used.
    pub project: ProjectName,
    /// The project's namespace of the Instance.
    pub namespace: String,
}

impl Address {
    /// From the labels of the cell's namespace. `Err` says which one is missing.
    pub fn from_labels(labels: &std::collections::BTreeMap<String, String>) -> Result<Self, String> {
        let project = labels.get(label::UPSTREAM_CLUSTER).and_then(|value| ProjectName::from_label_value(value));
        let namespace = labels.get(label::UPSTREAM_NAMESPACE).filter(|namespace| !namespace.is_empty());
        match (project, namespace) {
            (Some(project), Some(namespace)) => Ok(Self { project, namespace: namespace.clone() }),
            (None, _) => {
                Err(format!("the cell's namespace has no label {} that names a project", label::UPSTREAM_CLUSTER))
            }
            (_, None) => Err(format!("the cell's namespace has no label {}", label::UPSTREAM_NAMESPACE)),
        }
    }
}

/// Why quota gives no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Which.
    pub cause: Cause,
    /// In the words of whoever gave none.
    pub message: String,
}

/// The kinds of [`Trouble`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No answer, or none that makes sense; it may pass by itself.
    Unavailable,
    /// The project is unknown.
    NoProject,
    /// The project has no such namespace.
    NoNamespace,
    /// Rights or definitions are missing, or a claim is refused.
    Misconfigured,
    /// The cell's namespace does not say which project it belongs to.
    Unresolvable,
}

impl Cause {
    /// The condition's reason.
    pub fn reason(self) -> Reason {
        match self {
            Self::Unavailable => Reason::QuotaBackendUnavailable,
            Self::NoProject => Reason::QuotaProjectNotFound,
            Self::NoNamespace => Reason::QuotaNamespaceNotFound,
            Self::Misconfigured => Reason::QuotaMisconfigured,
            Self::Unresolvable => Reason::QuotaProjectIDUnresolvable,
        }
    }

    /// The metric's label.
    fn label(self) -> &'static str {
        match self {
            Self::Unavailable => "backend_unavailable",
            Self::NoProject => "project_not_found",
            Self::NoNamespace => "namespace_not_found",
            Self::Misconfigured => "misconfigured",
            Self::Unresolvable => "project_id_unresolvable",
        }
    }
}

/// What is known of an Instance's claim.
pub enum Claim {
    /// It is there.
    Present(Arc<ResourceClaim>),
    /// It is not.
    Absent,
    /// Nobody knows, for this reason.
    Unknown(Trouble),
}

/// Everything that is known about one Instance's quota.
pub struct Observed<'a> {
    /// The Instance.
    pub instance: &'a Instance,
    /// Where its claim is to be; absent when the namespace does not say.
    pub address: Option<&'a Address>,
    /// Its claim.
    pub claim: Claim,
    /// Whether a watch brings the claim's next change; without it, the claim is looked at again.
    pub watched: bool,
    /// This cell, as its claims name it.
    pub cell: Identity<'a>,
}

/// What a plan comes to beside its writes.
#[derive(Debug)]
pub struct Decision {
    /// The writes.
    pub plan: Plan<Step<Cell, Project>>,
    /// Whether a claim is being left behind, to be counted.
    pub orphans: bool,
    /// Why quota gave no answer, as a label to be counted under.
    pub failure: Option<&'static str>,
}

impl From<Plan<Step<Cell, Project>>> for Decision {
    fn from(plan: Plan<Step<Cell, Project>>) -> Self {
        Self { plan, orphans: false, failure: None }
    }
}

/// Decides the writes for one Instance's quota.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Decision {
    if observed.instance.metadata.deletion_timestamp.is_some() {
        release(observed, now)
    } else {
        ensure_claim(observed, now)
    }
}

fn ensure_claim(observed: &Observed<'_>, now: Timestamp) -> Decision {
    let Observed { instance, address, claim, watched, cell } = observed;
    let namespace = instance.namespace().unwrap_or_default();
    let reported = |verdict: Verdict| report(instance, verdict, now).into_iter().map(Step::Local).collect::<Vec<_>>();
    let pending = |message: String| unknown(Reason::PendingEvaluation, message);
    // Ordinary progress of a moment: whoever waits already reads that it is being looked at.
    let under_way = |message: String| if is_pending(instance) { Vec::new() } else { reported(pending(message)) };
    let amounts = match amounts(&instance.spec) {
        Ok(amounts) => amounts,
        Err(why) => return Plan::writes(reported(Verdict::no(Reason::ValidationFailed, why))).into(),
    };
    let name = names::resource_claim_name(&instance.name_any());
    // The finalizer first: as long as there is a claim, somebody answers for it.
    let mut steps: Vec<Step<Cell, Project>> = match claim {
        Claim::Unknown(_) => Vec::new(),
        _ => ensure_finalizer(instance).into_iter().map(Step::Local).collect(),
    };
    let mut next = Next::Await;
    let mut failure = None;
    let mut granted = false;
    match claim {
        Claim::Unknown(trouble) => {
            failure = Some(trouble.cause.label());
            next = Next::After(poll(instance, now));
            steps.extend(reported(Verdict::no(trouble.cause.reason(), trouble.message.clone())));
        }
        Claim::Absent => {
            let Some(address) = address else { return Plan::nothing().into() };
            steps.push(Step::Remote(cell.create(address, &name, &namespace, &amounts)));
            steps.extend(under_way(format!("ResourceClaim {name} is being made")));
        }
        Claim::Present(claim) if cell.holder(claim, &namespace) == Holder::Other => {
            let by = cell.describe_other(claim);
            next = Next::After(poll(instance, now));
            steps.extend(reported(pending(format!("ResourceClaim {name} is still held by {by}"))));
        }
        Claim::Present(claim) if claim.metadata.deletion_timestamp.is_some() => {
            steps.extend(reported(pending(format!("ResourceClaim {name} is being replaced"))));
        }
        Claim::Present(claim) if sorted(&claim.spec.requests) != sorted(&amounts) => {
            // Claimed for another size than this generation has: what was granted says nothing of it.
            steps.extend(reported(pending(format!("ResourceClaim {name} is being replaced: the amounts changed"))));
            steps.extend(Write::delete(claim.as_ref()).map(Step::Remote));
        }
        Claim::Present(claim) => {
            let verdict;
            (verdict, next) = judge(claim, now);
            failure = (verdict.reason == Reason::QuotaNoBudget).then_some("no_budget");
            let ordinary = verdict.reason == Reason::PendingEvaluation;
            granted = verdict.status == ConditionStatus::True;
            steps.extend(if ordinary { under_way(verdict.message) } else { reported(verdict) });
        }
    }
    if !watched && !granted && next == Next::Await {
        next = Next::After(poll(instance, now));
    }
    Decision { plan: Plan::until(steps, next), orphans: false, failure }
}

fn ensure_finalizer(instance: &Instance) -> Option<Write<Cell>> {
    let fields = json!({ "metadata": { "finalizers": [finalizer::QUOTA] } });
    Write::ensure_fields(manager::QUOTA, fields, instance)
}

/// Whether the Instance says already that quota is being evaluated.
fn is_pending(instance: &Instance) -> bool {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find(conditions, condition::QUOTA_GRANTED).is_some_and(|c| c.reason == Reason::PendingEvaluation)
}

fn unknown(reason: Reason, message: String) -> Verdict {
    Verdict { status: ConditionStatus::Unknown, reason, message }
}

/// What the claim's `Granted` says, in our terms.
fn judge(claim: &ResourceClaim, now: Timestamp) -> (Verdict, Next) {
    let conditions: &[Condition] = claim.status.as_ref().map_or(&[], |status| &status.conditions);
    // An answer to an older version of the claim is none.
    let granted = find(conditions, "Granted")
        .filter(|c| c.observed_generation.is_none_or(|at| Some(at) >= claim.metadata.generation));
    let said = |c: &Condition, or: &str| if c.message.is_empty() { or.to_owned() } else { c.message.clone() };
    match granted {
        Some(c) if c.status == ConditionStatus::True => {
            (Verdict::yes(Reason::QuotaAvailable, said(c, "quota is granted")), Next::Await)
        }
        Some(c) if c.reason == Reason::QuotaExceeded || c.reason == Reason::ValidationFailed => {
            (Verdict::no(c.reason(), said(c, "quota is not granted")), Next::Await)
        }
        other => {
            let since = claim.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
            let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
            let detail =
                other.map(|c| said(c, "")).filter(|m| !m.is_empty()).map_or(String::new(), |m| format!(": {m}"));
            match NO_BUDGET_AFTER.checked_sub(age).filter(|left| !left.is_zero()) {
                Some(left) => {
                    (unknown(Reason::PendingEvaluation, format!("quota is being evaluated{detail}")), Next::After(left))
                }
                None => (
                    unknown(
                        Reason::QuotaNoBudget,
                        format!(
                            "quota has not been evaluated for {} s: the project may have no budget for these resources{detail}",
                            NO_BUDGET_AFTER.as_secs()
                        ),
                    ),
                    Next::Await,
                ),
            }
        }
    }
}

/// The Instance goes: its claim first, then our finalizer.
fn release(observed: &Observed<'_>, now: Timestamp) -> Decision {
    let Observed { instance, address, claim, watched, cell } = observed;
    let done = |plan: Plan<Step<Cell, Project>>| Decision::from(plan);
    let Some(release) = Write::<Cell>::release(manager::QUOTA, finalizer::QUOTA, *instance) else {
        return done(Plan::nothing());
    };
    let since = instance.metadata.deletion_timestamp.as_ref().map_or(now, |t| t.0);
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let name = names::resource_claim_name(&instance.name_any());
    match claim {
        Claim::Present(claim) if cell.holder(claim, &instance.namespace().unwrap_or_default()) == Holder::Other => {
            done(Plan::writes(vec![Step::Local(release)]))
        }
        Claim::Present(claim) => {
            // On its way out already when there is no write: its event brings us back, or the next look.
            let steps = Write::delete(claim.as_ref()).map(Step::Remote).into_iter().collect();
            let next = if *watched { Next::Await } else { Next::After(poll(instance, now)) };
            done(Plan::until(steps, next))
        }
        Claim::Absent => {
            let Some(address) = address else { return done(Plan::nothing()) };
            let confirm = Write::confirm_absent(Object::named::<ResourceClaim>(&address.namespace, &name));
            done(Plan::writes(vec![Step::Remote(confirm), Step::Local(release)]))
        }
        // With the namespace, everything in it is gone.
        Claim::Unknown(trouble) if trouble.cause == Cause::NoNamespace => {
            done(Plan::writes(vec![Step::Local(release)]))
        }
        Claim::Unknown(trouble) => {
            let patience = match trouble.cause {
                Cause::NoProject | Cause::Unresolvable => PROJECT_GONE_TIMEOUT,
                _ => CLAIM_RELEASE_TIMEOUT,
            };
            match patience.checked_sub(waited).filter(|left| !left.is_zero()) {
                None => orphan(instance, release, &name, &trouble.message, now),
                Some(left) => {
                    let message = format!("waiting to release ResourceClaim {name}: {}", trouble.message);
                    let reported = report(instance, Verdict::no(trouble.cause.reason(), message), now);
                    let steps = reported.into_iter().map(Step::Local).collect();
                    let next = Next::After(left.min(poll(instance, now)));
                    Decision { failure: Some(trouble.cause.label()), ..Plan::until(steps, next).into() }
                }
            }
        }
    }
}

/// A claim of this cell whose Instance is gone: released once a live read has shown that it is. One that does not carry
/// this cell's uid may be another's whose Instance lives there, under the same name.
pub fn reclaim(
    claim: &ResourceClaim,
    cell: Identity<'_>,
    namespace: &str,
    instance: &str,
) -> Plan<Step<Cell, Project>> {
    if cell.holder(claim, namespace) != Holder::ThisCell {
        return Plan::nothing();
    }
    let Some(delete) = Write::delete(claim) else { return Plan::nothing() };
    let confirm = Write::confirm_absent(Object::named::<Instance>(namespace, instance));
    Plan::writes(vec![Step::Local(confirm), Step::Remote(delete)])
}

/// Lets an Instance go whose claim nobody can release any more, and says so.
fn orphan(instance: &Instance, release: Write<Cell>, name: &str, why: &str, now: Timestamp) -> Decision {
    let text = format!("ResourceClaim {name} is left behind: {why}");
    let note =
        Note { severity: Severity::Warning, reason: Reason::QuotaClaimOrphaned, action: "ReleasingQuota", text: &text };
    let event = event::on(instance, "instance-controller", &note, now);
    let plan = Plan::writes(vec![Step::Local(event), Step::Local(release)]);
    Decision { orphans: true, ..plan.into() }
}

/// The write that says `verdict`, when it does not stand already.
fn report(instance: &Instance, verdict: Verdict, now: Timestamp) -> Option<Write<Cell>> {
    let old = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let condition = verdict.into_condition(old, condition::QUOTA_GRANTED, instance.metadata.generation, now);
    Write::status(manager::QUOTA, &json!({ "conditions": [condition] }), instance)
}

/// How soon to look again without a watch: often while people wait, seldom later.
pub fn poll(instance: &Instance, now: Timestamp) -> Duration {
    let since = instance.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
    let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let seconds = match age.as_secs() {
        0..60 => 1,
        60..300 => 15,
        300..600 => 60,
        _ => 300,
    };
    Duration::from_secs(seconds)
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
