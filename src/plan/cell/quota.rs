//! An Instance's quota: a ResourceClaim in its project's control plane, and what came of it.
//!
//! The claim is held by a finalizer on the Instance, so that none is left behind when the Instance goes.

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

/// What is known of an Instance's claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Claim {
    /// It is there.
    Present(Shared<ResourceClaim>),
    /// It is not.
    Absent,
    /// Nobody knows, for this reason.
    Unknown(Trouble),
}

/// Everything that is known about one Instance's quota.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The Instance.
    pub instance: Shared<Instance>,
    /// Where its claim is to be; absent when the namespace does not say.
    pub address: Option<Address>,
    /// Its claim.
    pub claim: Claim,
    /// Whether a watch brings the claim's next change; without it, the claim is looked at again.
    pub watched: bool,
    /// This cell, as its claims name it.
    pub cell: Identity,
    /// How long to wait for an evaluation, and for the release of a claim.
    pub timing: Timing,
}

/// What is to be counted beside the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A claim is left behind.
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
    // What runs on a grant waits for no answer: only a denial is news to it. A claim that is not known is known with the watch.
    let runs = runs_on_a_grant(instance);
    if runs && matches!(claim, Claim::Unknown(_)) {
        return Plan::nothing();
    }
    let pending = |message: String| reported(unknown(Reason::PendingEvaluation, message));
    let awaited = |message: String| if runs { Vec::new() } else { pending(message) };
    // Ordinary progress of a moment: whoever waits already reads that it is being looked at.
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
            // The finalizer first, and seen to stand: as long as there is a claim, somebody answers for it. Its event enqueues
            // the Instance again.
            if steps.is_empty() {
                steps.push(Step::Remote(cell.create(address, &name, &namespace, &amounts)));
                steps.extend(under_way(format!("ResourceClaim {name} is being made")));
            } else {
                let finalizer = finalizer::QUOTA;
                let text =
                    format!("ResourceClaim {name} is made once the finalizer {finalizer} stands on this Instance");
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
            // A grant to another size, or to an earlier Instance of the name, is none. What an Instance runs on stays.
            steps.extend(pending(format!(
                "ResourceClaim {name} is being replaced: it is for other amounts than this Instance has"
            )));
            steps.extend(removal(instance, claim));
        }
        Claim::Present(claim) => {
            let verdict;
            (verdict, next) = judge(claim, timing.quota_no_budget, now);
            failure = (verdict.reason == Reason::QuotaNoBudget).then_some(Cause::NoBudget);
            granted = verdict.status == ConditionStatus::True;
            let is_ordinary = verdict.reason == Reason::PendingEvaluation;
            let report = if is_ordinary { under_way(verdict.message) } else { reported(verdict) };
            // A grant opens a gate for good. What the cache has may be the claim of an earlier Instance of the name, which is
            // gone with it: the claim itself is looked at, once.
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

/// Deletes the claim of an Instance that does not need it, or not in this size. The claim of a name may be that of a later
/// Instance, which runs on it: this Instance is confirmed first.
fn removal(instance: &Instance, claim: &ResourceClaim) -> Proof<Step<Cell, Project>> {
    Proof::read(Write::confirm_unchanged(instance), Step::Local).delete(claim, Step::Remote)
}

/// How far the clocks of two API servers may be apart.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(10);

/// Whether a claim is not this Instance's. The Go operator made a claim after its Instance, and said no more of whose it is
/// than a name that cells may share: where the claim was there first, it is that of the city's former cell, whose Instance
/// still runs on it. What has passed the gate counts it as its own, whatever the times say.
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

/// True if an Instance has passed its gate on a grant that it still reports. It needs no answer from quota to go on.
pub fn runs_on_a_grant(instance: &Instance) -> bool {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let granted = find(conditions, condition::QUOTA_GRANTED).is_some_and(|c| c.status == ConditionStatus::True);
    granted && !is_gated(instance) && instance.metadata.deletion_timestamp.is_none()
}

/// What an Instance reports of a write on it that the cell does not take; `None` while that may pass, or where it waits for
/// nothing.
pub fn refused(observed: &Observed, failure: &Failure, now: Timestamp) -> Option<Write<Cell>> {
    let instance = &*observed.instance;
    if !failure.is_due(&observed.timing) || runs_on_a_grant(instance) {
        return None;
    }
    let text = format!(
        "the cell's API server does not take what is written on this Instance before its quota is claimed, so it waits: {}",
        failure.words
    );
    report(instance, unknown(Reason::InstanceRefused, text), now)
}

/// Whether the Instance says already that quota is being evaluated.
fn is_pending(instance: &Instance) -> bool {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find(conditions, condition::QUOTA_GRANTED).is_some_and(|c| c.reason == Reason::PendingEvaluation)
}

/// Whether the Instance says that another has the claim that it is to have.
pub fn is_held_elsewhere(instance: &Instance) -> bool {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find(conditions, condition::QUOTA_GRANTED).is_some_and(|c| c.reason == Reason::QuotaClaimHeld)
}

fn unknown(reason: Reason, message: String) -> Verdict {
    Verdict { status: ConditionStatus::Unknown, reason, message }
}

/// What the claim's `Granted` says, in our terms. A claim that nobody has evaluated for `no_budget_after` has no budget.
fn judge(claim: &ResourceClaim, no_budget_after: Duration, now: Timestamp) -> (Verdict, Next) {
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

/// The Instance goes: its claim first, then our finalizer.
fn release(observed: &Observed, now: Timestamp) -> Plan<Step<Cell, Project>, Signal> {
    let Observed { instance, address, claim, watched, cell, timing } = observed;
    let Some(release) = Write::<Cell>::release(manager::QUOTA, finalizer::QUOTA, &**instance) else {
        return Plan::nothing();
    };
    let name = names::resource_claim_name(&instance.name_any());
    match claim {
        Claim::Present(claim) if is_anothers(cell, claim, instance) => Plan::writes(vec![Step::Local(release)]),
        Claim::Present(claim) => {
            // Terminating already if there is no write: its event enqueues the Instance again, or the next look.
            let removal = removal(instance, claim);
            if *watched || removal.is_empty() {
                let next = if *watched { Next::Await } else { Next::After(poll(instance, now)) };
                return Plan::until(removal.into_steps(), next);
            }
            // No event says that it is gone: the answer does, unless something else holds the claim.
            let gone = Write::confirm_gone(Object::of(&**claim), &claim.uid().unwrap_or_default());
            let steps = removal.then([Step::Remote(gone.into()), Step::Local(release)]).into_steps();
            Plan::until(steps, Next::After(poll(instance, now)))
        }
        Claim::Absent => {
            let Some(address) = address else { return Plan::nothing() };
            let claim = Object::named::<ResourceClaim>(&address.namespace, &name);
            Proof::read(Write::confirm_absent(claim), Step::Remote).then([Step::Local(release)]).into_iter().collect()
        }
        // With the namespace, everything in it is gone.
        Claim::Unknown(trouble) if trouble.cause == Cause::NoNamespace => Plan::writes(vec![Step::Local(release)]),
        Claim::Unknown(trouble) => await_backend(instance, trouble, release, timing, now),
    }
}

/// Waits for a backend that does not answer; when that has taken too long, the claim is left behind.
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
        Cause::NoProject | Cause::Unresolvable => timing.quota_project_gone,
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

/// Lets an Instance go whose claim nobody can release any more, and says so.
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

/// The write that says `verdict`, when it does not stand already. Of a backend that does not answer each attempt may have
/// other numbers, a port or an id, none of which is worth a write.
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

/// How soon to look again without a watch: often while people wait for the Instance, or for its end; seldom later.
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
