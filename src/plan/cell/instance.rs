//! Scheduling gates and readiness of one Instance.

use std::{collections::BTreeSet, convert::identity, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Features, data, deployment_status::SUSPENDED, instance_events, networks};
use crate::{
    api::{
        compute::{Condition, ConditionStatus, Instance, LocationReference, SchedulingGate, WorkloadDeployment},
        meta::{annotation, condition, finalizer, gate, label, manager},
        names,
        reason::Reason,
        referenced::DataRef,
    },
    plan::{
        Cell, Failure, Next, Object, Plan, Proof, Shared, Write,
        condition::{Verdict, differs_in_their_marks_alone, find},
        event::{self, Note, Severity},
    },
    timing::Timing,
};

/// All facts about one Instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The Instance.
    pub instance: Shared<Instance>,
    /// The deployment that controls the Instance. A terminating Instance may have none.
    pub deployment: Option<Shared<WorkloadDeployment>>,
    /// Features that hold Instances at a gate on this cell.
    pub features: Features,
    /// Networks of the Instance. Set only with the network feature.
    pub networks: Option<networks::Observed>,
    /// Companions on the cell that the Instance references, without terminating ones. Set only with the data feature.
    pub companions: Option<BTreeSet<DataRef>>,
    /// Intervals and limits of the operator.
    #[serde(default)]
    pub timing: Timing,
}

/// Outcomes that the controller counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// How long the Instance has waited for its data. Its gate opens now.
    WaitedForData(Duration),
    /// The reason of `ReferencedDataReady` changes.
    DataTurned {
        /// The old reason. Empty if there was no condition.
        from: String,
        /// The new reason.
        to: String,
    },
}

/// An Instance with the verdicts on its networks and its data.
struct Judged<'a> {
    instance: &'a Instance,
    features: Features,
    /// Set only with the network feature.
    networks: Option<Verdict>,
    /// The location of its networks, if known.
    location: Option<LocationReference>,
    /// `None` if the Instance references no data, or without the data feature.
    data: Option<Verdict>,
    /// The companions that the data verdict depends on.
    needed: Vec<DataRef>,
    /// True if the deployment is suspended.
    suspended: bool,
}

/// Decides the write for one Instance. A gate opens only on a verdict for the Instance's current generation, so that no verdict
/// on an older template opens one. Opening a gate makes a new generation, and the next status reports on that.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Write<Cell>, Signal> {
    let Observed { instance, deployment, features, networks, companions, timing } = observed;
    let deployment = deployment.as_deref();
    let networks = networks.as_ref().zip(deployment);
    let data = companions.as_ref().zip(deployment);
    let since = instance.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
    let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let silent = data.is_some_and(|(_, owner)| data::is_silence_of_go(owner, instance));
    let left = timing.optional_data.checked_sub(age).filter(|left| silent && !left.is_zero());
    let networks = networks.map(|(seen, owner)| networks::judge(seen, owner, &instance.spec.network_interfaces));
    let (networks, location) = networks.map(|networks| (networks.verdict, networks.location)).unzip();
    let judged = Judged {
        instance,
        features: *features,
        networks,
        location: location.flatten(),
        data: data.and_then(|(present, owner)| data::judge(owner, instance, present, left.is_none())),
        needed: data.map(|(_, owner)| data::needed(owner, instance)).unwrap_or_default(),
        suspended: deployment.is_some_and(WorkloadDeployment::is_suspended),
    };
    let plan = decide(&judged, now);
    Plan { next: plan.next.or_sooner(left.map_or(Next::Await, Next::After)), ..plan }
}

/// Returns the status that reports a refused write, other than a status write. `None` while the failure may be temporary.
pub fn refused(observed: &Observed, write: &Write<Cell>, failure: &Failure, now: Timestamp) -> Option<Write<Cell>> {
    let Observed { instance, timing, features, .. } = observed;
    if write.reports() || !failure.is_due(timing) {
        return None;
    }
    let old = instance.status.as_ref().map_or(&[][..], |s| &s.conditions);
    let text = format!("the cell's API server rejects the change that lets this Instance proceed: {}", failure.words);
    let stands = find(old, condition::READY).filter(|old| differs_in_their_marks_alone(&old.message, &text));
    let verdict = Verdict::no(Reason::InstanceRefused, stands.map_or(text, |old| old.message.clone()));
    let ready = verdict.into_condition(old, condition::READY, instance.metadata.generation, now);
    // Other conditions of this manager are kept: an apply removes what it does not repeat.
    let of_quota = find(old, condition::QUOTA_GRANTED).filter(|_| !features.quota);
    let kept = find(old, condition::REFERENCED_DATA_READY).into_iter().chain(of_quota).cloned();
    let conditions: Vec<Condition> = [ready].into_iter().chain(kept).collect();
    let mut status = json!({ "conditions": conditions });
    if let Some(suspended) = instance.status.as_ref().and_then(|status| status.suspended) {
        status["suspended"] = json!(suspended);
    }
    Write::status(manager::INSTANCE, &status, &**instance)
}

fn decide(judged: &Judged<'_>, now: Timestamp) -> Plan<Write<Cell>, Signal> {
    let Judged { instance, features, .. } = judged;
    if instance.metadata.deletion_timestamp.is_some() {
        // The Go operator held a finalizer for its write-back. Here the write-back controller deletes the copy.
        let mut writes: Vec<_> =
            Write::release(manager::INSTANCE, finalizer::INSTANCE, *instance).into_iter().collect();
        if !features.quota && writes.is_empty() {
            writes.extend(held_for_its_claim(judged, now));
        }
        return Plan::writes(writes);
    }
    let old = instance.status.as_ref().map_or(&[][..], |s| &s.conditions);
    if let Some(open) = open_gates(judged, old).filter(|_| !judged.suspended) {
        let open = instance_events::opens(open, instance, now);
        let waited = waited(instance, now).map(Signal::WaitedForData);
        return Plan::writes(present(judged).then([open]).into_steps()).with(waited);
    }
    let generation = instance.metadata.generation;
    let mut conditions = Vec::new();
    if !features.quota {
        let verdict = Verdict::yes(Reason::QuotaDisabled, "quota is not configured on this cell");
        conditions.push(verdict.into_condition(old, condition::QUOTA_GRANTED, generation, now));
    }
    let mut turned = None;
    if let Some(verdict) = &judged.data {
        let before = find(old, condition::REFERENCED_DATA_READY).map_or("", |c| &c.reason);
        turned = (verdict.reason != before)
            .then(|| Signal::DataTurned { from: before.to_owned(), to: verdict.reason.to_string() });
        conditions.push(verdict.clone().into_condition(old, condition::REFERENCED_DATA_READY, generation, now));
    }
    // Readiness is judged on the conditions that are about to be written.
    let known: Vec<Condition> =
        conditions.iter().chain(old.iter().filter(|c| find(&conditions, &c.type_).is_none())).cloned().collect();
    conditions.push(ready(judged, &known).into_condition(old, condition::READY, generation, now));
    let mut status = json!({ "conditions": conditions });
    // The provider keeps an Instance stopped while `suspended` is true. Once set by any client, it is reset explicitly.
    if judged.suspended || instance.status.as_ref().is_some_and(|status| status.suspended.is_some()) {
        status["suspended"] = json!(judged.suspended);
    }
    let status = Write::status(manager::INSTANCE, &status, *instance);
    let before = find(old, condition::REFERENCED_DATA_READY);
    let status = match &judged.data {
        Some(verdict) => status.map(|write| instance_events::warn(write, instance, before, verdict, now)),
        None => status,
    };
    let turned = turned.filter(|_| status.is_some());
    Plan::writes(status.into_iter().collect()).with(turned)
}

/// Handles a terminating Instance with a ResourceClaim on a cell without access to quota. The cell cannot release the claim. It
/// keeps the Instance and reports why, until the configuration allows it to leave claims behind.
fn held_for_its_claim(judged: &Judged<'_>, now: Timestamp) -> Vec<Write<Cell>> {
    let instance = judged.instance;
    let Some(release) = Write::release(manager::INSTANCE, finalizer::QUOTA, instance) else { return Vec::new() };
    let claim = names::resource_claim_name(&instance.name_any());
    if judged.features.abandon_claims {
        let text = format!("ResourceClaim {claim} is left behind: quota is not configured on this cell");
        let note = Note {
            severity: Severity::Warning,
            reason: Reason::QuotaClaimOrphaned,
            action: "ReleasingQuota",
            text: &text,
        };
        return vec![event::on(instance, "instance-controller", &note, now), release];
    }
    let old = instance.status.as_ref().map_or(&[][..], |s| &s.conditions);
    let text = format!(
        "deletion is blocked: ResourceClaim {claim} must be released first, and this cell has no quota credentials. Set \
         discovery.quotaKubeconfigPath, or discovery.abandonClaims to leave claims behind"
    );
    let held = |type_| {
        let verdict = Verdict::no(Reason::QuotaMisconfigured, text.clone());
        verdict.into_condition(old, type_, instance.metadata.generation, now)
    };
    // Other conditions of this manager are kept: an apply removes what it does not repeat.
    let kept = find(old, condition::REFERENCED_DATA_READY).cloned();
    let conditions: Vec<Condition> =
        [held(condition::READY), held(condition::QUOTA_GRANTED)].into_iter().chain(kept).collect();
    let mut status = json!({ "conditions": conditions });
    let suspended = instance.status.as_ref().and_then(|status| status.suspended);
    if let Some(suspended) = suspended {
        status["suspended"] = json!(suspended);
    }
    Write::status(manager::INSTANCE, &status, instance).into_iter().collect()
}

/// Returns how long an Instance has waited behind its data gate.
fn waited(instance: &Instance, now: Timestamp) -> Option<Duration> {
    gates(instance).iter().find(|gate| gate.name == gate::REFERENCED_DATA)?;
    let start: Timestamp = instance.annotations().get(annotation::REFERENCED_DATA_GATE_START)?.parse().ok()?;
    Duration::try_from(now.duration_since(start)).ok()
}

/// Returns a live check of the data that an Instance starts with. The cache may hold the copy of an earlier deployment of the
/// same name, which was deleted with it. A gate never closes again, so the cell is read once.
fn present(judged: &Judged<'_>) -> Proof<Write<Cell>> {
    let instance = judged.instance;
    let object = |data_ref: &DataRef| Object {
        kind: data_ref.kind.into(),
        namespace: instance.namespace().unwrap_or_default(),
        name: data_ref.name.clone(),
    };
    let opens = gates(instance).iter().any(|gate| gate.name == gate::REFERENCED_DATA);
    let needed = judged.needed.iter().filter(|_| opens);
    let listed = needed.map(|data_ref| Write::confirm_listed(object(data_ref), label::REFERENCED_DATA));
    listed.fold(Proof::of_target(), |proof, cause| proof.and(cause, identity))
}

/// Removes all gates of this operator in one patch of exactly this version, once all of them may open. Each removal makes a new
/// generation, for which everything is judged, written and written back again.
fn open_gates(judged: &Judged<'_>, conditions: &[Condition]) -> Option<Write<Cell>> {
    let ours = |g: &&SchedulingGate| gate::ALL.contains(&g.name.as_str());
    let (opening, left): (Vec<&SchedulingGate>, Vec<_>) = gates(judged.instance).iter().partition(ours);
    if opening.is_empty() || opening.iter().any(|g| shut(judged, conditions, &g.name).is_some()) {
        return None;
    }
    let mut spec = json!({ "controller": { "schedulingGates": left } });
    // An Instance that was made before the cell knew its location gets it before it starts.
    let is_unplaced = judged.instance.spec.location.is_none() && opening.iter().any(|g| g.name == gate::NETWORK);
    if let Some(location) = judged.location.as_ref().filter(|_| is_unplaced) {
        spec["location"] = json!(location);
    }
    Some(Write::amend(manager::INSTANCE, json!({ "spec": spec }), judged.instance))
}

/// Returns why a gate stays closed. `None` if it may open for this generation of the Instance.
fn shut(judged: &Judged<'_>, conditions: &[Condition], name: &str) -> Option<Verdict> {
    match name {
        gate::NETWORK if !judged.features.networks => None,
        gate::NETWORK => match &judged.networks {
            Some(verdict) if verdict.status == ConditionStatus::True => None,
            Some(verdict) => Some(verdict.clone()),
            None => Some(Verdict::no(Reason::NetworkProvisioning, "the state of its networks is unknown")),
        },
        gate::QUOTA => match find(conditions, condition::QUOTA_GRANTED) {
            // The condition comes from another manager, or from a time without quota. There is no claim yet.
            Some(c) if c.reason == Reason::QuotaDisabled && judged.features.quota => {
                Some(Verdict::no(Reason::PendingQuota, "waiting for quota evaluation"))
            }
            Some(c) if c.status == ConditionStatus::True => (c.observed_generation
                != judged.instance.metadata.generation)
                .then(|| Verdict::no(Reason::PendingQuota, "quota was granted to an older generation")),
            Some(c) if c.reason != Reason::PendingEvaluation => Some(Verdict::no(c.reason(), c.message.clone())),
            Some(c) => Some(Verdict::no(Reason::PendingQuota, c.message.clone())),
            None => Some(Verdict::no(Reason::PendingQuota, "waiting for quota evaluation")),
        },
        gate::REFERENCED_DATA => judged.data.clone().filter(|verdict| verdict.status != ConditionStatus::True),
        // A gate of another controller stays closed.
        other => Some(Verdict::no(Reason::SchedulingGatesPresent, format!("waiting for {other}"))),
    }
}

fn gates(instance: &Instance) -> &[SchedulingGate] {
    instance.spec.controller.as_ref().map_or(&[], |c| &c.scheduling_gates)
}

/// Returns the `Ready` verdict: no gates, programmed, available. Otherwise reports the worst problem, and the first of several
/// equal ones.
fn ready(judged: &Judged<'_>, conditions: &[Condition]) -> Verdict {
    if judged.suspended {
        return Verdict::no(Reason::Suspended, SUSPENDED);
    }
    let gates = gates(judged.instance);
    if !gates.is_empty() {
        let names = gates.iter().map(|g| g.name.as_str()).collect::<Vec<_>>().join(", ");
        let present = Verdict::no(Reason::SchedulingGatesPresent, format!("Scheduling gates present: {names}"));
        // The worst problem of the gates. If all of them may open, only their presence is reported.
        let waits = gates.iter().filter_map(|g| shut(judged, conditions, &g.name));
        return waits.max_by_key(|v| v.reason.rank()).filter(|v| v.reason.rank() > 0).unwrap_or(present);
    }
    let passed = |type_: &str, or: Reason| -> Result<(), Verdict> {
        match find(conditions, type_) {
            Some(c) if c.status == ConditionStatus::True => Ok(()),
            Some(c) if c.reason != Reason::Pending => Err(Verdict::no(c.reason(), c.message.clone())),
            _ => Err(Verdict::no(or, format!("waiting for the provider to report {type_}"))),
        }
    };
    let programmed = passed(condition::PROGRAMMED, Reason::PendingProgramming);
    match programmed.and_then(|()| passed(condition::AVAILABLE, Reason::Provisioning)) {
        Ok(()) => Verdict::yes(Reason::Available, format!("{} is ready", judged.instance.name_any())),
        Err(verdict) => {
            worst(conditions).filter(|worst| worst.reason.rank() > verdict.reason.rank()).unwrap_or(verdict)
        }
    }
}

/// Returns the worst problem in any condition of an Instance, beyond ordinary progress. A provider that cannot pull the image
/// stays in programming, and reports the reason in another condition. The Instance has no gates left, so only a denial of quota
/// counts. It no longer waits for an answer.
fn worst(conditions: &[Condition]) -> Option<Verdict> {
    let denials = [Reason::QuotaExceeded, Reason::ValidationFailed, Reason::PendingQuota, Reason::QuotaNotGranted];
    let counts = |c: &&Condition| {
        c.type_ != condition::READY
            && c.status != ConditionStatus::True
            && (c.type_ != condition::QUOTA_GRANTED || denials.contains(&c.reason()))
    };
    let bad = conditions.iter().filter(counts);
    let worst = bad.max_by_key(|c| (c.reason().rank(), std::cmp::Reverse(&c.type_)))?;
    (worst.reason().rank() > 1).then(|| Verdict::no(worst.reason(), worst.message.clone()))
}

#[cfg(test)]
#[path = "instance_tests.rs"]
mod tests;
