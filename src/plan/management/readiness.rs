//! Conditions that tools read on Workload and WorkloadDeployment: `Ready`, `Reconciling` and `Stalled`, as kstatus defines them.
//!
//! `Ready` is always present. `Reconciling` is present while the platform works on the object or has to act. `Stalled` is present
//! while the tenant has to act, and has had a grace for it. Never both: kstatus reads the first one that it finds. A suspended
//! object has neither of them, because nobody works on it and no change of its spec helps. kstatus then reads `Ready`.
//!
//! All three are derived from the conditions and counters beside them. The time since which the tenant has to act is the
//! transition time of `Reconciling`, so it outlives the manager. Each generation gets its own grace. The same holds for a cell that
//! does not report.

use std::{cmp::Reverse, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;

use crate::{
    api::{
        compute::{Condition, ConditionStatus, WorkloadDeployment, WorkloadDeploymentStatus},
        meta::condition,
        reason::{Class, Reason, WaitsFor},
    },
    plan::{
        Next,
        condition::{Verdict, find, whole_seconds},
    },
};

/// Types of the conditions of this module. Reports of cells may contain them, and do not decide them.
pub(super) const TYPES: [&str; 3] = [condition::READY, condition::RECONCILING, condition::STALLED];

/// Conditions of a deployment that explain why it is not ready. Of equal ranks the last one is reported.
const CAUSES: [&str; 4] =
    [condition::FEDERATED, condition::REFERENCED_DATA_READY, condition::REPLICAS_READY, condition::AVAILABLE];

/// Party that ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actor {
    /// Nothing has to be done, or nobody does it while the object is suspended.
    Nobody,
    /// The platform, or work in progress.
    Platform,
    /// The manager of the cell: it has to report what was delivered at this time.
    Cell(Timestamp),
    /// The tenant, once the grace is over.
    Tenant,
    /// The tenant. The grace is over.
    OverdueTenant,
}

/// Readiness of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Readiness {
    status: ConditionStatus,
    reason: Reason,
    /// What is missing. Empty if nothing is.
    missing: String,
    actor: Actor,
}

impl Readiness {
    /// Every wanted Instance is ready and up to date.
    pub(super) fn complete() -> Self {
        Self {
            status: ConditionStatus::True,
            reason: Reason::ReplicasAvailable,
            missing: String::new(),
            actor: Actor::Nobody,
        }
    }

    /// Something is missing, for this cause.
    pub(super) fn incomplete(cause: Verdict) -> Self {
        let Verdict { status, reason, message } = cause;
        let unknown =
            status == ConditionStatus::Unknown || matches!(reason, Reason::HubUnavailable | Reason::ClusterNotReady);
        let status = if unknown { ConditionStatus::Unknown } else { ConditionStatus::False };
        let actor = match reason {
            Reason::Suspended => Actor::Nobody,
            _ if !unknown && is_of_tenant(&reason) => Actor::Tenant,
            _ => Actor::Platform,
        };
        Self { status, reason, missing: message, actor }
    }

    /// Work in progress.
    pub(super) fn pending(reason: Reason, message: impl Into<String>) -> Self {
        Self { actor: Actor::Platform, ..Self::incomplete(Verdict::no(reason, message)) }
    }

    /// The cell has to report. `federated`: since when the deployment is delivered. `None` if it is not.
    fn unreported(federated: Option<&Condition>, message: impl Into<String>) -> Self {
        let actor = federated.map_or(Actor::Platform, |delivered| Actor::Cell(delivered.last_transition_time.0));
        Self { actor, ..Self::pending(Reason::Pending, message) }
    }

    /// Returns the readiness of an object that is being deleted. Its end is not up to its spec.
    #[must_use]
    pub(super) fn of_deletion(self) -> Self {
        Self { actor: Actor::Platform, ..self }
    }

    /// Returns the worst of several, each with the name of its object. It is complete if all are.
    pub(super) fn worst(all: impl IntoIterator<Item = (String, Self)>) -> Self {
        let incomplete = all.into_iter().filter(|(_, one)| one.status != ConditionStatus::True);
        let worst = incomplete.max_by_key(|(name, one)| (one.reason.rank(), Reverse(name.clone())));
        worst.map_or_else(Self::complete, |(name, one)| Self { missing: format!("{name}: {}", one.missing), ..one })
    }

    /// Returns the readiness that a deployment has reported for its present generation.
    pub(super) fn reported_by(deployment: &WorkloadDeployment) -> Self {
        let conditions = deployment.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let generation = deployment.metadata.generation;
        let present = |type_: &str| find(conditions, type_).filter(|c| c.observed_generation == generation);
        let Some(ready) = present(condition::READY) else {
            return Self::pending(Reason::Pending, "it has not reported on its latest change yet");
        };
        if ready.status == ConditionStatus::True {
            return Self::complete();
        }
        let stalled = present(condition::STALLED);
        let missing = stalled.or_else(|| present(condition::RECONCILING)).unwrap_or(ready);
        let verdict = Verdict { status: ready.status, reason: ready.reason(), message: missing.message.clone() };
        let readiness = Self::incomplete(verdict);
        // The deployment itself measures the grace.
        let actor = match readiness.actor {
            Actor::Nobody => Actor::Nobody,
            _ if stalled.is_some() => Actor::OverdueTenant,
            _ => Actor::Platform,
        };
        Self { actor, ..readiness }
    }
}

/// True if a tenant has to act on this reason.
fn is_of_tenant(reason: &Reason) -> bool {
    reason.waits_for() == WaitsFor::Tenant && !matches!(reason.class(), Class::Success | Class::Progress)
}

/// Numbers of Instances for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instances {
    /// Instances that are ready.
    pub ready: i64,
    /// Instances that are wanted.
    pub wanted: i64,
}

impl Instances {
    /// Counts the Instances of a deployment with this status. Until a cell reports on the present generation, the spec says how
    /// many are wanted.
    pub(super) fn of(deployment: &WorkloadDeployment, status: &WorkloadDeploymentStatus) -> Self {
        let wanted = if has_observed(deployment, status) {
            status.desired_replicas.into()
        } else {
            deployment.spec.desired_replicas().into()
        };
        Self { ready: status.ready_replicas.into(), wanted }
    }
}

/// A cell's report on a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// No cell reports, or the report cannot be seen now.
    Missing,
    /// The cell reports the generation that it has observed. It may be an earlier one.
    Dated,
    /// The cell reports no generation, as early cells of the Go operator do. It is not known which change the report is about.
    Undated,
}

impl Report {
    /// Returns the kind of a report. A definition's default is generation -1.
    pub(super) fn of(report: Option<&WorkloadDeploymentStatus>) -> Self {
        let Some(report) = report else { return Self::Missing };
        let has_own = report.observed_generation.is_some_and(|observed| observed >= 0);
        let is_dated = report.observed_source_generation.is_some() || has_own;
        if is_dated { Self::Dated } else { Self::Undated }
    }
}

/// True if the status contains a cell's report on the present generation.
fn has_observed(deployment: &WorkloadDeployment, status: &WorkloadDeploymentStatus) -> bool {
    let reported = find(&status.conditions, condition::AVAILABLE).is_some();
    reported && status.observed_generation.is_some() && status.observed_generation == deployment.metadata.generation
}

/// Judges a deployment by its status. `report`: the report of the cell, as the copy shows it now.
pub(super) fn of_deployment(
    deployment: &WorkloadDeployment,
    status: &WorkloadDeploymentStatus,
    report: Report,
) -> Readiness {
    let causes = CAUSES.iter().filter_map(|type_| find(&status.conditions, type_));
    let causes = causes.filter(|c| c.status != ConditionStatus::True);
    let (present, earlier): (Vec<_>, Vec<_>) = causes.partition(|cause| is_present(cause, deployment));
    let worst = |causes: Vec<&Condition>| causes.into_iter().max_by_key(|c| c.reason().rank()).cloned();
    let readiness = worst(present).map(|cause| {
        let (reason, message) = (cause.reason(), cause.message);
        Readiness::incomplete(Verdict { status: cause.status, reason, message })
    });
    if deployment.metadata.deletion_timestamp.is_some() {
        let terminating = || Readiness::pending(Reason::Terminating, "it is being deleted");
        return readiness.unwrap_or_else(terminating).of_deletion();
    }
    readiness.unwrap_or_else(|| of_report(deployment, status, report, worst(earlier).as_ref()))
}

/// True if a condition is about the present generation of the spec. The cell's cause of an earlier generation may be gone with the
/// latest change. A suspension lasts until the deployment is resumed.
fn is_present(cause: &Condition, deployment: &WorkloadDeployment) -> bool {
    let is_reported = [condition::AVAILABLE, condition::REPLICAS_READY].contains(&&*cause.type_);
    let is_suspended = cause.reason() == Reason::Suspended && deployment.is_suspended();
    !is_reported || is_suspended || cause.observed_generation == deployment.metadata.generation
}

/// Judges a deployment that nothing is known to block. `earlier`: the cause that its cell reported before the latest change.
fn of_report(
    deployment: &WorkloadDeployment,
    status: &WorkloadDeploymentStatus,
    report: Report,
    earlier: Option<&Condition>,
) -> Readiness {
    let federated = find(&status.conditions, condition::FEDERATED).filter(|c| c.status == ConditionStatus::True);
    if report == Report::Missing || find(&status.conditions, condition::AVAILABLE).is_none() {
        return Readiness::unreported(federated, "its city has not reported yet");
    }
    // The counters may be those of an earlier template. Unknown is not ready, and the reader learns that waiting does not help.
    if report == Report::Undated {
        let reported = earlier.map_or_else(String::new, |earlier| format!(". It reports: {}", earlier.message));
        let text = format!(
            "its city reports no generation, so it is not known whether the latest change has arrived. Running instances are \
             not affected. The cell has an early version of the Go operator: update it{reported}"
        );
        return Readiness::incomplete(Verdict::unknown(Reason::CellNotReporting, text));
    }
    if earlier.is_some() || !has_observed(deployment, status) {
        let before = earlier.map_or_else(String::new, |earlier| format!("; before the change: {}", earlier.message));
        return Readiness::unreported(federated, format!("its city has not reported on its latest change yet{before}"));
    }
    of_counters(deployment, status)
}

/// Judges the counters that a cell has reported for the present generation.
fn of_counters(deployment: &WorkloadDeployment, status: &WorkloadDeploymentStatus) -> Readiness {
    let WorkloadDeploymentStatus { replicas, desired_replicas, ready_replicas, updated_replicas, .. } = *status;
    let progress = |text: String| Readiness::pending(Reason::InstancesProvisioning, text);
    let wanted = deployment.spec.desired_replicas();
    // An autoscaler in the cell may want another number.
    if !deployment.spec.scale_settings.asks_for_autoscaling() && u32::try_from(desired_replicas) != Ok(wanted) {
        return progress(format!("its city wants {desired_replicas} Instances, and its spec {wanted}"));
    }
    if updated_replicas != desired_replicas {
        return progress(format!("{updated_replicas} of {desired_replicas} Instances have the latest template"));
    }
    if replicas != desired_replicas {
        return progress(format!("{replicas} Instances exist, and {desired_replicas} are wanted"));
    }
    if ready_replicas != desired_replicas {
        return progress("instances are being provisioned".into());
    }
    Readiness::complete()
}

/// Returns the conditions of an object, and the end of the grace of the tenant or of the cell. `old`: its present conditions.
pub(super) fn conditions(
    readiness: &Readiness,
    instances: Instances,
    old: &[Condition],
    generation: Option<i64>,
    grace: Duration,
    now: Timestamp,
) -> (Vec<Condition>, Next) {
    let Readiness { status, reason, missing, actor } = readiness;
    let began = began(*actor, old, generation);
    let left = grace.saturating_sub(began.map_or(Duration::ZERO, |began| began.waited(*actor, now)));
    let type_ = match actor {
        Actor::Nobody => None,
        Actor::OverdueTenant => Some(condition::STALLED),
        Actor::Tenant if left.is_zero() => Some(condition::STALLED),
        Actor::Platform | Actor::Cell(_) | Actor::Tenant => Some(condition::RECONCILING),
    };
    let has_grace = matches!(actor, Actor::Cell(_) | Actor::Tenant) && !left.is_zero();
    let next = if has_grace { Next::After(left) } else { Next::Await };
    let is_silent = matches!(actor, Actor::Cell(_)) && left.is_zero();
    let reason = if is_silent { &Reason::CellNotReporting } else { reason };
    let mut message = format!("{} of {} Instances are ready", instances.ready, instances.wanted);
    if !missing.is_empty() {
        message = format!("{message}; {missing}");
    }
    let ready = Verdict { status: *status, reason: reason.clone(), message };
    let mut conditions = vec![ready.into_condition(old, condition::READY, generation, now)];
    let cause = Verdict::yes(reason.clone(), missing.clone());
    conditions.extend(type_.map(|type_| {
        let mut second = cause.into_condition(old, type_, generation, now);
        if type_ == condition::RECONCILING && matches!(actor, Actor::Tenant | Actor::Cell(_)) {
            // Another wait begins: it is the platform's no more.
            second.last_transition_time = began.map_or_else(|| whole_seconds(now), |began| whole_seconds(began.at));
        }
        second
    }));
    (conditions, next)
}

/// The beginning of a wait, as the conditions of an object record it.
#[derive(Clone, Copy, Debug)]
struct Began {
    at: Timestamp,
    /// True if the grace was over already.
    stalled: bool,
}

impl Began {
    /// Returns how long this party has had. A cell has had nothing to report before the delivery.
    fn waited(self, actor: Actor, now: Timestamp) -> Duration {
        let from = match actor {
            _ if self.stalled => return Duration::MAX,
            Actor::Cell(delivered) => self.at.max(delivered),
            _ => self.at,
        };
        Duration::try_from(now.duration_since(from)).unwrap_or_default()
    }
}

/// Returns the beginning of the wait for this party in this generation. `None` if the conditions record another wait.
fn began(actor: Actor, old: &[Condition], generation: Option<i64>) -> Option<Began> {
    let present = |type_: &str| find(old, type_).filter(|c| c.observed_generation == generation);
    let reconciling = present(condition::RECONCILING);
    let recorded = |c: &Condition, stalled| Began { at: c.last_transition_time.0, stalled };
    if matches!(actor, Actor::Cell(_)) {
        let same = |c: &&Condition| matches!(c.reason(), Reason::Pending | Reason::CellNotReporting);
        return reconciling.filter(same).map(|c| recorded(c, false));
    }
    let is_known = present(condition::READY).is_some_and(|ready| ready.status == ConditionStatus::False);
    let stalled = present(condition::STALLED).map(|c| recorded(c, true));
    let waiting = reconciling.filter(|c| is_known && is_of_tenant(&c.reason()));
    stalled.or_else(|| waiting.map(|c| recorded(c, false)))
}

/// True if these conditions say that the tenant has to act.
pub(super) fn is_stalled(conditions: &[Condition]) -> bool {
    find(conditions, condition::STALLED).is_some_and(|stalled| stalled.status == ConditionStatus::True)
}

/// Returns the readiness of a deployment that a Workload does not want any more, with its cause if the deletion is blocked.
pub(super) fn of_leaving(deployment: &WorkloadDeployment, blocked: Option<&Condition>) -> (String, Readiness) {
    let terminating = || Readiness::pending(Reason::Terminating, "it is being deleted");
    let readiness = blocked.map_or_else(terminating, |cause| {
        let verdict = Verdict { status: cause.status, reason: cause.reason(), message: cause.message.clone() };
        Readiness::incomplete(verdict).of_deletion()
    });
    (deployment.name_any(), readiness)
}

#[cfg(test)]
#[path = "readiness_tests.rs"]
mod tests;
