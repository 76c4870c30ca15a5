//! One Instance: which of its gates open, and whether it is ready.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::Features;
use crate::{
    api::{
        compute::{Condition, ConditionStatus, Instance, SchedulingGate},
        meta::{annotation, condition, finalizer, gate, manager},
        reason::Reason,
    },
    plan::{
        Cell, Plan, Write,
        condition::{Verdict, find},
    },
};

/// Everything that is known about one Instance.
pub struct Observed<'a> {
    /// The Instance.
    pub instance: &'a Instance,
    /// What this cell gates on.
    pub features: Features,
    /// What its own networks come to; only with the network feature.
    pub networks: Option<Verdict>,
    /// What the data that it refers to comes to; nothing when it refers to none, or without that feature.
    pub data: Option<Verdict>,
}

/// What is to be done for one Instance, and what is to be counted of it.
#[derive(Debug)]
pub struct Decision {
    /// The writes.
    pub plan: Plan<Write<Cell>>,
    /// How long it has waited for its data, when its gate opens now.
    pub waited: Option<Duration>,
    /// Reasons of `ReferencedDataReady` before and after, when it changes.
    pub turned: Option<(String, String)>,
}

impl From<Plan<Write<Cell>>> for Decision {
    fn from(plan: Plan<Write<Cell>>) -> Self {
        Self { plan, waited: None, turned: None }
    }
}

/// Decides the write for one Instance. A gate opens only on a verdict that is recorded for the generation it opens in
/// (invariant E); taking it away makes a new generation, of which the status then speaks.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Decision {
    let Observed { instance, features, .. } = observed;
    if instance.metadata.deletion_timestamp.is_some() {
        // The Go operator held a finalizer for its write-back; here the write-back's own controller sees to it.
        let mut writes: Vec<_> =
            Write::release(manager::INSTANCE, finalizer::INSTANCE, *instance).into_iter().collect();
        if !features.quota && writes.is_empty() {
            // Quota was configured once; nothing here can reach its backend now, and nobody else would let go.
            writes.extend(Write::release(manager::INSTANCE, finalizer::QUOTA, *instance));
        }
        return Plan::writes(writes).into();
    }
    let old = instance.status.as_ref().map_or(&[][..], |s| &s.conditions);
    if let Some(open) = open_gates(observed, old) {
        return Decision { waited: waited(instance, now), ..Plan::writes(vec![open]).into() };
    }
    let generation = instance.metadata.generation;
    let mut conditions = Vec::new();
    if !features.quota {
        let verdict = Verdict::yes(Reason::QuotaDisabled, "quota is not configured on this cell");
        conditions.push(verdict.into_condition(old, condition::QUOTA_GRANTED, generation, now));
    }
    let mut turned = None;
    if let Some(verdict) = &observed.data {
        let before = find(old, condition::REFERENCED_DATA_READY).map_or("", |c| &c.reason);
        turned = (verdict.reason != before).then(|| (before.to_owned(), verdict.reason.to_string()));
        conditions.push(verdict.clone().into_condition(old, condition::REFERENCED_DATA_READY, generation, now));
    }
    // Readiness is judged on what is about to stand.
    let known: Vec<Condition> =
        conditions.iter().chain(old.iter().filter(|c| find(&conditions, &c.type_).is_none())).cloned().collect();
    conditions.push(ready(observed, &known).into_condition(old, condition::READY, generation, now));
    let status = Write::status(manager::INSTANCE, &json!({ "conditions": conditions }), *instance);
    Decision { turned: turned.filter(|_| status.is_some()), ..status.into_iter().collect::<Plan<_>>().into() }
}

/// How long an Instance has waited behind the gate for its data.
fn waited(instance: &Instance, now: Timestamp) -> Option<Duration> {
    gates(instance).iter().find(|gate| gate.name == gate::REFERENCED_DATA)?;
    let start: Timestamp = instance.annotations().get(annotation::REFERENCED_DATA_GATE_START)?.parse().ok()?;
    Duration::try_from(now.duration_since(start)).ok()
}

/// Takes every gate away that we judge, in one patch of exactly this version, once all of them may open: each opening
/// makes a new generation, for which everything is judged, written and written back anew.
fn open_gates(observed: &Observed<'_>, conditions: &[Condition]) -> Option<Write<Cell>> {
    let ours = |g: &&SchedulingGate| [gate::NETWORK, gate::QUOTA, gate::REFERENCED_DATA].contains(&g.name.as_str());
    let (judged, left): (Vec<&SchedulingGate>, Vec<_>) = gates(observed.instance).iter().partition(ours);
    if judged.is_empty() || judged.iter().any(|g| shut(observed, conditions, &g.name).is_some()) {
        return None;
    }
    Some(Write::amend(
        manager::INSTANCE,
        json!({ "spec": { "controller": { "schedulingGates": left } } }),
        observed.instance,
    ))
}

/// Why a gate stays shut; nothing when it may open, for exactly this generation of the Instance.
fn shut(observed: &Observed<'_>, conditions: &[Condition], name: &str) -> Option<Verdict> {
    match name {
        gate::NETWORK if !observed.features.networks => None,
        gate::NETWORK => match &observed.networks {
            Some(verdict) if verdict.status == ConditionStatus::True => None,
            Some(verdict) => Some(verdict.clone()),
            None => Some(Verdict::no(Reason::NetworkProvisioning, "nothing is known of its networks")),
        },
        gate::QUOTA => match find(conditions, condition::QUOTA_GRANTED) {
            Some(c) if c.status == ConditionStatus::True => (c.observed_generation
                != observed.instance.metadata.generation)
                .then(|| Verdict::no(Reason::PendingQuota, "quota was granted to an older generation")),
            Some(c) if c.reason != Reason::PendingEvaluation => Some(Verdict::no(c.reason(), c.message.clone())),
            Some(c) => Some(Verdict::no(Reason::PendingQuota, c.message.clone())),
            None => Some(Verdict::no(Reason::PendingQuota, "waiting for quota evaluation")),
        },
        gate::REFERENCED_DATA => observed.data.clone().filter(|verdict| verdict.status != ConditionStatus::True),
        // What we cannot judge stays shut.
        other => Some(Verdict::no(Reason::SchedulingGatesPresent, format!("waiting for {other}"))),
    }
}

fn gates(instance: &Instance) -> &[SchedulingGate] {
    instance.spec.controller.as_ref().map_or(&[], |c| &c.scheduling_gates)
}

/// Ready: no gate left, programmed, available. Of what keeps it from that, the first and worst is reported.
fn ready(observed: &Observed<'_>, conditions: &[Condition]) -> Verdict {
    let gates = gates(observed.instance);
    if !gates.is_empty() {
        let names = gates.iter().map(|g| g.name.as_str()).collect::<Vec<_>>().join(", ");
        let present = Verdict::no(Reason::SchedulingGatesPresent, format!("Scheduling gates present: {names}"));
        // What the gates wait for, the worst of it; when all of them may open, that they are there is all there is to say.
        let waits = gates.iter().filter_map(|g| shut(observed, conditions, &g.name));
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
        Ok(()) => Verdict::yes(Reason::Available, format!("{} is ready", observed.instance.name_any())),
        Err(verdict) => verdict,
    }
}

#[cfg(test)]
#[path = "instance_tests.rs"]
mod tests;
