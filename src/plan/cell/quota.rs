//! The quota of an Instance: a ResourceClaim in its project's control plane, and the result of that claim.
//!
//! A finalizer on the Instance holds the claim, so that no claim remains when the Instance is deleted.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, core::ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::{
        compute::{Condition, ConditionStatus, Instance},
        meta::{condition, finalizer, manager},
        names,
        neighbours::ResourceClaim,
        reason::Reason,
    },
    plan::{
        Cell, Failure, Next, Object, Plan, Project, Proof, Shared, Step, Write,
        cell::{
            amounts::{amounts, sorted},
            claim::{Address, Identity},
            instance_events,
            quota_trouble::is_gated,
        },
        condition::{Verdict, differs_in_their_numbers_alone, find},
        event::{self, Note, Severity},
        ownership::Holder,
    },
    timing::Timing,
};

pub use super::quota_trouble::{Cause, Trouble};

/// The claim of an Instance, as far as it is known.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Claim {
    /// The claim exists.
    Present(Shared<ResourceClaim>),
    /// The claim does not exist.
    Absent,
    /// It is unknown whether the claim exists, for this reason.
    Unknown(Trouble),
}

/// All facts about one Instance's quota.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The Instance.
    pub instance: Shared<Instance>,
    /// Where the claim belongs. `None` if the namespace does not name a project.
    pub address: Option<Address>,
    /// The Instance's claim.
    pub claim: Claim,
    /// True if a watch reports the next change of the claim. Otherwise the claim is read again after an interval.
    pub watched: bool,
    /// The identity of this cell on its claims.
    pub cell: Identity,
    /// Time limits for the evaluation and the release of a claim.
    pub timing: Timing,
}

/// Outcomes that the controller counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A claim was left behind.
    Orphaned,
    /// Quota gave no answer, for this reason.
    Failed(Cause),
}

/// Decides the writes for one Instance's quota.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Step<Cell, Project>, Signal> {
    if observed.instance.metadata.deletion_timestamp.is_some() {
        release(observed, now)
    } else {
        ensure_claim(observed, now)
    }
}

fn ensure_claim(observed: &Observed, now: Timestamp) -> Plan<Step<Cell, Project>, Signal> {
    let Observed { instance, address, claim, watched, cell, timing } = observed;
    let namespace = instance.namespace().unwrap_or_default();
    let reported = |verdict: Verdict| report(instance, verdict, now).into_iter().map(Step::Local).collect::<Vec<_>>();
    // An Instance that runs on a grant waits for nothing but a denial. The watch reports a claim that is still unknown.
    let runs = runs_on_a_grant(instance);
    if runs && matches!(claim, Claim::Unknown(_)) {
        return Plan::nothing();
    }
    let pending = |message: String| reported(unknown(Reason::PendingEvaluation, message));
    let awaited = |message: String| if runs { Vec::new() } else { pending(message) };
    // Brief progress is not written: the Instance already reports that quota is being evaluated.
    let under_way = |message: String| if is_pending(instance) { Vec::new() } else { awaited(message) };
    let amounts = match amounts(&instance.spec) {
        Ok(amounts) => amounts,
        Err(why) => return Plan::writes(reported(Verdict::no(Reason::ValidationFailed, why))),
    };
    let name = names::resource_claim_name(&instance.name_any());
    let mut steps: Vec<Step<Cell, Project>> = match claim {
        Claim::Unknown(_) => Vec::new(),
        _ => ensure_finalizer(instance).into_iter().map(Step::Local).collect(),
    };
    let (mut next, mut failure, mut granted) = (Next::Await, None, false);
    match claim {
        Claim::Unknown(trouble) => {
            failure = Some(trouble.cause);
            next = Next::After(poll(instance, now));
            steps.extend(reported(Verdict::no(trouble.cause.reason(), trouble.message.clone())));
        }
        Claim::Absent => {
            let Some(address) = address else { return Plan::nothing() };
            // The finalizer must be stored before the claim is created, so that every claim is released later. The event of the
            // finalizer enqueues the Instance again.
            if steps.is_empty() {
                steps.push(Step::Remote(cell.create(address, &name, &namespace, &amounts)));
                steps.extend(under_way(format!("ResourceClaim {name} is being created")));
            } else {
                let finalizer = finalizer::QUOTA;
                let text =
                    format!("ResourceClaim {name} is created once the finalizer {finalizer} is on this Instance");
                steps.extend(awaited(text));
            }
        }
        Claim::Present(claim) if is_anothers(cell, claim, instance) => {
            let by = cell.describe_other(claim);
            next = Next::After(poll(instance, now));
            let held = format!("ResourceClaim {name} is still held by {by}");
            steps.extend(reported(unknown(Reason::QuotaClaimHeld, held)));
        }
        Claim::Present(claim) if claim.metadata.deletion_timestamp.is_some() => {
            steps.extend(awaited(format!("ResourceClaim {name} is being replaced")));
        }
        Claim::Present(claim) if is_gated(instance) && sorted(&claim.spec.requests) != sorted(&amounts) => {
            // A grant for other amounts, or to an earlier Instance of the name, does not count. An Instance that already runs
            // keeps its grant.
            steps.extend(pending(format!(
                "ResourceClaim {name} is being replaced: its amounts differ from those of this Instance"
            )));
            steps.extend(removal(instance, claim));
        }
        Claim::Present(claim) => {
            let verdict;
            (verdict, next) = judge(claim, timing.error_grace, now);
            failure = (verdict.reason == Reason::QuotaNoBudget).then_some(Cause::NoBudget);
            granted = verdict.status == ConditionStatus::True;
            let is_ordinary = verdict.reason == Reason::PendingEvaluation;
            let report = if is_ordinary { under_way(verdict.message) } else { reported(verdict) };
            // A gate never closes again. The cache may still hold the claim of an earlier Instance of the name, so the claim is
            // read live once.
            if granted && is_gated(instance) && !report.is_empty() {
                let cause = Write::confirm_present(Object::of(&**claim), &claim.uid().unwrap_or_default());
                steps.extend(Proof::read(cause, Step::Remote).then(report));
            } else {
                steps.extend(report);
            }
        }
    }
    let polls = !watched && !granted && next == Next::Await;
    Plan::until(steps, if polls { Next::After(poll(instance, now)) } else { next }).with(failure.map(Signal::Failed))
}

/// Deletes a claim that the Instance does not need, or not for these amounts. A later Instance of the name may run on that claim,
/// so this Instance is confirmed first.
fn removal(instance: &Instance, claim: &ResourceClaim) -> Proof<Step<Cell, Project>> {
    Proof::read(Write::confirm_unchanged(instance), Step::Local).delete(claim, Step::Remote)
}

/// Assumed limit for the clock skew between two API servers.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(10);

/// True if a claim belongs to another Instance. The Go operator created a claim after its Instance, and marked it only with a
/// cluster name that cells may share. A claim that is older than the Instance belongs to the city's former cell, where an
/// Instance still runs on it. An Instance that has passed the gate keeps the claim: the times do not matter then.
fn is_anothers(cell: &Identity, claim: &ResourceClaim, instance: &Instance) -> bool {
    let made = |meta: &ObjectMeta| meta.creation_timestamp.as_ref().map(|time| time.0);
    let was_first = match (made(&claim.metadata), made(&instance.metadata)) {
        (Some(claim), Some(instance)) => instance.duration_since(claim) > CLOCK_SKEW,
        _ => false,
    };
    match cell.holder(claim, &instance.namespace().unwrap_or_default()) {
        Holder::Unmarked => was_first && is_gated(instance),
        holder => holder == Holder::Other,
    }
}

fn ensure_finalizer(instance: &Instance) -> Option<Write<Cell>> {
    let fields = json!({ "metadata": { "finalizers": [finalizer::QUOTA] } });
    Write::ensure_fields(manager::QUOTA, fields, instance)
}

/// True if an Instance has passed its gate on a grant that it still reports. Such an Instance needs no answer from quota.
pub fn runs_on_a_grant(instance: &Instance) -> bool {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let granted = find(conditions, condition::QUOTA_GRANTED).is_some_and(|c| c.status == ConditionStatus::True);
    granted && !is_gated(instance) && instance.metadata.deletion_timestamp.is_none()
}

/// Returns the status that reports a write on the Instance that the cell refuses. `None` while the failure may be temporary, or
/// if the Instance waits for nothing.
pub fn refused(observed: &Observed, failure: &Failure, now: Timestamp) -> Option<Write<Cell>> {
    let instance = &*observed.instance;
    if !failure.is_due(&observed.timing) || runs_on_a_grant(instance) {
        return None;
    }
    let text = format!(
        "the cell's API server rejects the write that must precede the quota claim, so this Instance waits: {}",
        failure.words
    );
    report(instance, unknown(Reason::InstanceRefused, text), now)
}

/// True if the Instance already reports that quota is being evaluated.
fn is_pending(instance: &Instance) -> bool {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find(conditions, condition::QUOTA_GRANTED).is_some_and(|c| c.reason == Reason::PendingEvaluation)
}

/// True if the Instance reports that another Instance or cell holds its claim.
pub fn is_held_elsewhere(instance: &Instance) -> bool {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find(conditions, condition::QUOTA_GRANTED).is_some_and(|c| c.reason == Reason::QuotaClaimHeld)
}

fn unknown(reason: Reason, message: String) -> Verdict {
    Verdict { status: ConditionStatus::Unknown, reason, message }
}

/// Translates the claim's `Granted` condition. A claim that was not evaluated within `no_budget_after` has no budget.
fn judge(claim: &ResourceClaim, no_budget_after: Duration, now: Timestamp) -> (Verdict, Next) {
    let conditions: &[Condition] = claim.status.as_ref().map_or(&[], |status| &status.conditions);
    // A result for an older generation of the claim does not count.
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
            match no_budget_after.checked_sub(age).filter(|left| !left.is_zero()) {
                Some(left) => {
                    (unknown(Reason::PendingEvaluation, format!("quota is being evaluated{detail}")), Next::After(left))
                }
                None => (
                    unknown(
                        Reason::QuotaNoBudget,
                        format!(
                            "quota has not been evaluated for {} s: the project may have no budget for these resources{detail}",
                            no_budget_after.as_secs()
                        ),
                    ),
                    Next::Await,
                ),
            }
        }
    }
}

/// Releases a terminating Instance: deletes its claim, then removes our finalizer.
fn release(observed: &Observed, now: Timestamp) -> Plan<Step<Cell, Project>, Signal> {
    let Observed { instance, address, claim, watched, cell, timing } = observed;
    let Some(release) = Write::<Cell>::release(manager::QUOTA, finalizer::QUOTA, &**instance) else {
        return Plan::nothing();
    };
    let name = names::resource_claim_name(&instance.name_any());
    match claim {
        Claim::Present(claim) if is_anothers(cell, claim, instance) => Plan::writes(vec![Step::Local(release)]),
        Claim::Present(claim) => {
            // If there is no write, the claim is already terminating. Its event or the next poll enqueues the Instance again.
            let removal = removal(instance, claim);
            if *watched || removal.is_empty() {
                let next = if *watched { Next::Await } else { Next::After(poll(instance, now)) };
                return Plan::until(removal.into_steps(), next);
            }
            // No event reports the end of an unwatched claim. The answer to the delete does, unless a finalizer holds the claim.
            let gone = Write::confirm_gone(Object::of(&**claim), &claim.uid().unwrap_or_default());
            let steps = removal.then([Step::Remote(gone.into()), Step::Local(release)]).into_steps();
            Plan::until(steps, Next::After(poll(instance, now)))
        }
        Claim::Absent => {
            let Some(address) = address else { return Plan::nothing() };
            let claim = Object::named::<ResourceClaim>(&address.namespace, &name);
            Proof::read(Write::confirm_absent(claim), Step::Remote).then([Step::Local(release)]).into_iter().collect()
        }
        // Without the namespace, its claims do not exist either.
        Claim::Unknown(trouble) if trouble.cause == Cause::NoNamespace => Plan::writes(vec![Step::Local(release)]),
        Claim::Unknown(trouble) => await_backend(instance, trouble, release, timing, now),
    }
}

/// Waits for a backend that does not answer. After the time limit, the claim is left behind.
fn await_backend(
    instance: &Instance,
    trouble: &Trouble,
    release: Write<Cell>,
    timing: &Timing,
    now: Timestamp,
) -> Plan<Step<Cell, Project>, Signal> {
    let name = names::resource_claim_name(&instance.name_any());
    let since = instance.metadata.deletion_timestamp.as_ref().map_or(now, |t| t.0);
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let timeout = match trouble.cause {
        Cause::NoProject | Cause::Unresolvable => timing.deletion_patience,
        _ => timing.quota_claim_release,
    };
    match timeout.checked_sub(waited).filter(|left| !left.is_zero()) {
        None => orphan(instance, release, &name, &trouble.message, now),
        Some(left) => {
            let message = format!("waiting to release ResourceClaim {name}: {}", trouble.message);
            let reported = report(instance, Verdict::no(trouble.cause.reason(), message), now);
            let next = Next::After(left.min(poll(instance, now)));
            Plan::until(reported.into_iter().map(Step::Local).collect(), next).with([Signal::Failed(trouble.cause)])
        }
    }
}

/// Releases an Instance although its claim cannot be released, and reports the claim in an Event.
fn orphan(
    instance: &Instance,
    release: Write<Cell>,
    name: &str,
    why: &str,
    now: Timestamp,
) -> Plan<Step<Cell, Project>, Signal> {
    let text = format!("ResourceClaim {name} is left behind: {why}");
    let note =
        Note { severity: Severity::Warning, reason: Reason::QuotaClaimOrphaned, action: "ReleasingQuota", text: &text };
    let event = event::on(instance, "instance-controller", &note, now);
    Plan::writes(vec![Step::Local(event), Step::Local(release)]).with([Signal::Orphaned])
}

/// Returns the write that reports `verdict`. `None` if the Instance already reports it. Messages about a silent backend may
/// differ only in numbers (a port, an id): such a difference is not written.
fn report(instance: &Instance, verdict: Verdict, now: Timestamp) -> Option<Write<Cell>> {
    let old = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let is_same = |old: &&Condition| {
        (old.status, &old.reason[..]) == (verdict.status, verdict.reason.as_str())
            && [Reason::QuotaBackendUnavailable, Reason::InstanceRefused].contains(&verdict.reason)
            && differs_in_their_numbers_alone(&old.message, &verdict.message)
    };
    let before = find(old, condition::QUOTA_GRANTED);
    let message = before.filter(is_same).map(|old| old.message.clone());
    let verdict = Verdict { message: message.unwrap_or_else(|| verdict.message.clone()), ..verdict };
    let condition = verdict.clone().into_condition(old, condition::QUOTA_GRANTED, instance.metadata.generation, now);
    let write = Write::status(manager::QUOTA, &json!({ "conditions": [condition] }), instance);
    write.map(|write| instance_events::warn(write, instance, before, &verdict, now))
}

/// Returns the interval between reads without a watch: short while a user waits for the start or the end of the Instance, longer
/// later.
pub fn poll(instance: &Instance, now: Timestamp) -> Duration {
    let ObjectMeta { deletion_timestamp, creation_timestamp, .. } = &instance.metadata;
    let since = deletion_timestamp.as_ref().or(creation_timestamp.as_ref()).map_or(now, |t| t.0);
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
