//! One Instance: which of its gates open, and whether it is ready.

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::Features;
use crate::{
    api::{
        compute::{Condition, ConditionStatus, Instance, SchedulingGate},
        meta::{condition, gate, manager, reason},
    },
    plan::{
        Cell, Kind, Plan, Write,
        condition::{Verdict, find},
    },
};

/// Decides the writes for one Instance. Status first: a gate opens only on a verdict that is recorded for the
/// generation it opens in (invariant E), and taking a gate away makes a new generation.
pub fn plan(instance: &Instance, features: Features, now: Timestamp) -> Plan<Write<Cell>> {
    if instance.metadata.deletion_timestamp.is_some() {
        return Plan::nothing();
    }
    let old = instance.status.as_ref().map_or(&[][..], |s| &s.conditions);
    let generation = instance.metadata.generation;
    let mut verdicts = Vec::new();
    if !features.quota {
        verdicts.push((
            condition::QUOTA_GRANTED,
            Verdict::yes(reason::QUOTA_DISABLED, "quota is not configured on this cell"),
        ));
    }
    verdicts.push((condition::READY, ready(instance, old)));
    let conditions: Vec<Condition> =
        verdicts.into_iter().map(|(type_, verdict)| verdict.over(old, type_, generation, now)).collect();
    let status = Write::apply_status(Kind::Instance, manager::INSTANCE, &json!({ "conditions": conditions }), instance);
    if let Some(status) = status {
        return Plan::writes(vec![status]);
    }
    open_gates(instance, features, old).into_iter().collect()
}

/// Takes away, in one patch of exactly this version, every gate that may open.
fn open_gates(instance: &Instance, features: Features, conditions: &[Condition]) -> Option<Write<Cell>> {
    let gates = gates(instance);
    let left: Vec<&SchedulingGate> =
        gates.iter().filter(|g| !may_open(instance, features, conditions, &g.name)).collect();
    if left.len() == gates.len() {
        return None;
    }
    Some(Write::merge(
        Kind::Instance,
        manager::INSTANCE,
        json!({ "spec": { "controller": { "schedulingGates": left } } }),
        instance,
    ))
}

fn may_open(instance: &Instance, features: Features, conditions: &[Condition], name: &str) -> bool {
    match name {
        gate::NETWORK => !features.networks,
        gate::QUOTA => find(conditions, condition::QUOTA_GRANTED).is_some_and(|granted| {
            granted.status == ConditionStatus::True && granted.observed_generation == instance.metadata.generation
        }),
        // What we cannot judge stays shut.
        _ => false,
    }
}

fn gates(instance: &Instance) -> &[SchedulingGate] {
    instance.spec.controller.as_ref().map_or(&[], |c| &c.scheduling_gates)
}

/// Ready: no gate left, programmed, available. Of what keeps it from that, the first and worst is told.
fn ready(instance: &Instance, conditions: &[Condition]) -> Verdict {
    let gates = gates(instance);
    if !gates.is_empty() {
        let names = gates.iter().map(|g| g.name.as_str()).collect::<Vec<_>>().join(", ");
        return Verdict::no(reason::SCHEDULING_GATES_PRESENT, format!("Scheduling gates present: {names}"));
    }
    let passed = |type_: &str, or: &str| -> Result<(), Verdict> {
        match find(conditions, type_) {
            Some(c) if c.status == ConditionStatus::True => Ok(()),
            Some(c) if c.reason != reason::PENDING => Err(Verdict::no(&c.reason, c.message.clone())),
            _ => Err(Verdict::no(or, format!("waiting for the provider to report {type_}"))),
        }
    };
    let programmed = passed(condition::PROGRAMMED, reason::PENDING_PROGRAMMING);
    match programmed.and_then(|()| passed(condition::AVAILABLE, reason::PROVISIONING)) {
        Ok(()) => Verdict::yes(reason::AVAILABLE, format!("{} is ready", instance.name_any())),
        Err(verdict) => verdict,
    }
}

#[cfg(test)]
#[path = "instance_tests.rs"]
mod tests;
