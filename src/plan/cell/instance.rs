//! One Instance: which of its gates open, and whether it is ready.

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

/// Everything that is known about one Instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The Instance.
    pub instance: Shared<Instance>,
    /// The deployment that controls it; one that goes may have lost it already.
    pub deployment: Option<Shared<WorkloadDeployment>>,
    /// What this cell gates on.
    pub features: Features,
    /// Its networks; only with the network feature.
    pub networks: Option<networks::Observed>,
    /// The companions on the cell that it refers to and that stay; only with the data feature.
    pub companions: Option<BTreeSet<DataRef>>,
    /// How long to wait for what.
    #[serde(default)]
    pub timing: Timing,
}

/// What is to be counted beside the writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// How long the Instance has waited for its data, whose gate opens now.
    WaitedForData(Duration),
    /// `ReferencedDataReady` changes its reason.
    DataTurned {
        /// The reason before; empty when there was none.
        from: String,
        /// The reason from now on.
        to: String,
    },
}

/// An Instance with what its networks and its data come to.
struct Judged<'a> {
    instance: &'a Instance,
    features: Features,
    /// Only with the network feature.
    networks: Option<Verdict>,
    /// Where its networks are, when that is known.
    location: Option<LocationReference>,
    /// Nothing when it refers to no data, or without that feature.
    data: Option<Verdict>,
    /// The companions that the verdict rests on.
    needed: Vec<DataRef>,
    /// Whether its deployment is to stand still.
    suspended: bool,
}

/// Decides the write for one Instance. A gate opens only on a verdict that is recorded for the generation it opens in,
/// so that no verdict of an older template opens one; taking it away makes a new generation, of which the status then speaks.
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

/// What an Instance reports of a write on it, its status aside, that the cell does not take; `None` while that may pass.
pub fn refused(observed: &Observed, write: &Write<Cell>, failure: &Failure, now: Timestamp) -> Option<Write<Cell>> {
    let Observed { instance, timing, features, .. } = observed;
    if write.reports() || !failure.is_due(timing) {
        return None;
    }
    let old = instance.status.as_ref().map_or(&[][..], |s| &s.conditions);
    let text =
        format!("the cell's API server does not take the change that lets this Instance go on: {}", failure.words);
    let stands = find(old, condition::READY).filter(|old| differs_in_their_marks_alone(&old.message, &text));
    let verdict = Verdict::no(Reason::InstanceRefused, stands.map_or(text, |old| old.message.clone()));
    let ready = verdict.into_condition(old, condition::READY, instance.metadata.generation, now);
    // What else this manager has said stays: an apply takes back what it does not repeat.
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
        // The Go operator held a finalizer for its write-back; here the write-back's own controller sees to it.
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
    // Readiness is judged on what is about to stand.
    let known: Vec<Condition> =
        conditions.iter().chain(old.iter().filter(|c| find(&conditions, &c.type_).is_none())).cloned().collect();
    conditions.push(ready(judged, &known).into_condition(old, condition::READY, generation, now));
    let mut status = json!({ "conditions": conditions });
    // Once it has been said it is taken back aloud, whoever said it: the provider keeps stopped what says so.
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

/// What becomes of an Instance that goes and has a ResourceClaim, on a cell that has no way to quota: nothing here can give
/// the claim up. It is kept and says why, until somebody says that claims may be left behind.
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
        "it is held until its ResourceClaim {claim} is given up, and this cell has no way to quota: set \
         discovery.quotaKubeconfigPath, or discovery.abandonClaims to leave claims behind"
    );
    let held = |type_| {
        let verdict = Verdict::no(Reason::QuotaMisconfigured, text.clone());
        verdict.into_condition(old, type_, instance.metadata.generation, now)
    };
    // What else we have said of it stays: an apply takes back what it does not repeat.
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

/// How long an Instance has waited behind the gate for its data.
fn waited(instance: &Instance, now: Timestamp) -> Option<Duration> {
    gates(instance).iter().find(|gate| gate.name == gate::REFERENCED_DATA)?;
    let start: Timestamp = instance.annotations().get(annotation::REFERENCED_DATA_GATE_START)?.parse().ok()?;
    Duration::try_from(now.duration_since(start)).ok()
}

/// The live look at the data that an Instance starts with. The copy in the cache may be that of an earlier deployment of the
/// name, and have gone with it. A gate opens for good, so the cell is asked once.
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

/// Takes every gate away that we judge, in one patch of exactly this version, once all of them may open: each opening
/// makes a new generation, for which everything is judged, written and written back anew.
fn open_gates(judged: &Judged<'_>, conditions: &[Condition]) -> Option<Write<Cell>> {
    let ours = |g: &&SchedulingGate| [gate::NETWORK, gate::QUOTA, gate::REFERENCED_DATA].contains(&g.name.as_str());
    let (opening, left): (Vec<&SchedulingGate>, Vec<_>) = gates(judged.instance).iter().partition(ours);
    if opening.is_empty() || opening.iter().any(|g| shut(judged, conditions, &g.name).is_some()) {
        return None;
    }
    let mut spec = json!({ "controller": { "schedulingGates": left } });
    // One that was made before its cell knew where it is learns it before it starts.
    let is_unplaced = judged.instance.spec.location.is_none() && opening.iter().any(|g| g.name == gate::NETWORK);
    if let Some(location) = judged.location.as_ref().filter(|_| is_unplaced) {
        spec["location"] = json!(location);
    }
    Some(Write::amend(manager::INSTANCE, json!({ "spec": spec }), judged.instance))
}

/// Why a gate stays shut; nothing when it may open, for exactly this generation of the Instance.
fn shut(judged: &Judged<'_>, conditions: &[Condition], name: &str) -> Option<Verdict> {
    match name {
        gate::NETWORK if !judged.features.networks => None,
        gate::NETWORK => match &judged.networks {
            Some(verdict) if verdict.status == ConditionStatus::True => None,
            Some(verdict) => Some(verdict.clone()),
            None => Some(Verdict::no(Reason::NetworkProvisioning, "nothing is known of its networks")),
        },
        gate::QUOTA => match find(conditions, condition::QUOTA_GRANTED) {
            // Another manager's word, or our own from before there was a way to quota: nobody has claimed anything yet.
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
        // What we cannot judge stays shut.
        other => Some(Verdict::no(Reason::SchedulingGatesPresent, format!("waiting for {other}"))),
    }
}

fn gates(instance: &Instance) -> &[SchedulingGate] {
    instance.spec.controller.as_ref().map_or(&[], |c| &c.scheduling_gates)
}

/// Ready: no gate left, programmed, available. Of what keeps it from that, the worst is reported, and the first of several.
fn ready(judged: &Judged<'_>, conditions: &[Condition]) -> Verdict {
    if judged.suspended {
        return Verdict::no(Reason::Suspended, SUSPENDED);
    }
    let gates = gates(judged.instance);
    if !gates.is_empty() {
        let names = gates.iter().map(|g| g.name.as_str()).collect::<Vec<_>>().join(", ");
        let present = Verdict::no(Reason::SchedulingGatesPresent, format!("Scheduling gates present: {names}"));
        // What the gates wait for, the worst of it; when all of them may open, that they are there is all there is to say.
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

/// The worst that any condition of an Instance says, beyond ordinary progress: a provider that cannot have the image goes
/// on programming, and says why it does not get anywhere in another condition. It has no gates left, so that of quota only
/// a denial counts: for an answer it does not wait any more.
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
