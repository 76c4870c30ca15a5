//! Events on a cell about its Instances. Each goes with the one write that it tells of, so that it is stored once.

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use crate::{
    api::{
        compute::{Condition, Instance, WorkloadDeployment},
        meta::{GROUP, VERSION, gate, label},
        reason::Reason,
    },
    plan::{
        Cell, Write,
        condition::Verdict,
        event::{self, Note, Severity},
    },
};

/// Who reports what keeps an Instance waiting.
const INSTANCE: &str = "instance-controller";
/// Who reports how many Instances there are to be.
const DEPLOYMENT: &str = "workload-deployment";

/// Reasons of an Instance's data and quota that somebody has to see to.
const WARNED_OF: [Reason; 10] = [
    Reason::AwaitingPropagation,
    Reason::QuotaExceeded,
    Reason::ValidationFailed,
    Reason::QuotaBackendUnavailable,
    Reason::QuotaProjectNotFound,
    Reason::QuotaNamespaceNotFound,
    Reason::QuotaMisconfigured,
    Reason::QuotaProjectIDUnresolvable,
    Reason::QuotaNoBudget,
    Reason::QuotaClaimHeld,
];

/// Attaches to the write of a condition the Warning that its reason deserves: once it is another than `before`, and while the
/// Instance waits behind a gate. What runs goes on, and an outage of quota is no Event for each of many.
pub(super) fn warn(
    write: Write<Cell>,
    instance: &Instance,
    before: Option<&Condition>,
    verdict: &Verdict,
    now: Timestamp,
) -> Write<Cell> {
    let gates = instance.spec.controller.as_ref().map_or(&[][..], |controller| &controller.scheduling_gates);
    let is_same = before.is_some_and(|before| before.reason == verdict.reason);
    if is_same || gates.is_empty() || !WARNED_OF.contains(&verdict.reason) {
        return write;
    }
    let reason = verdict.reason.clone();
    let note = Note { severity: Severity::Warning, reason, action: "Scheduling", text: &verdict.message };
    write.telling(event::on(instance, INSTANCE, &note, now))
}

/// Attaches to the write that opens gates the Event that says so, if the one for data is among them.
pub(super) fn opens(write: Write<Cell>, instance: &Instance, now: Timestamp) -> Write<Cell> {
    let gates = instance.spec.controller.as_ref().map_or(&[][..], |controller| &controller.scheduling_gates);
    if !gates.iter().any(|gate| gate.name == gate::REFERENCED_DATA) {
        return write;
    }
    let text = "Referenced data is in place, and the Instance may start.";
    let note = Note { severity: Severity::Normal, reason: Reason::GateOpened, action: "Scheduling", text };
    write.telling(event::on(instance, INSTANCE, &note, now))
}

/// Attaches to the deletion of an Instance the Event that says why it goes: there are to be `desired`, or it is outdated.
pub(super) fn terminates(
    write: Write<Cell>,
    deployment: &WorkloadDeployment,
    instance: &Instance,
    is_surplus: bool,
    now: Timestamp,
) -> Write<Cell> {
    let text = if is_surplus {
        format!("Scaling down to {} replicas", deployment.spec.desired_replicas())
    } else {
        "Replacing it with the deployment's current template".to_owned()
    };
    let note = Note { severity: Severity::Normal, reason: Reason::Terminating, action: "Deleting", text: &text };
    write.telling(of_workload(event::on(instance, DEPLOYMENT, &note, now), deployment))
}

/// Attaches to the status of a deployment the Event that another number of Instances is wanted than it said before.
pub(super) fn scales(write: Write<Cell>, deployment: &WorkloadDeployment, now: Timestamp) -> Write<Cell> {
    let Some(before) = deployment.status.as_ref().filter(|status| status.observed_generation.is_some()) else {
        return write;
    };
    let desired = deployment.spec.desired_replicas();
    if u32::try_from(before.desired_replicas).is_ok_and(|before| before == desired) {
        return write;
    }
    let text = format!("Scaled from {} to {desired} replicas", before.desired_replicas);
    let note = Note { severity: Severity::Normal, reason: Reason::Scaled, action: "Scaling", text: &text };
    write.telling(of_workload(event::on(deployment, DEPLOYMENT, &note, now), deployment))
}

/// The Event with the project's Workload beside the object that it is about.
fn of_workload(event: Write<Cell>, deployment: &WorkloadDeployment) -> Write<Cell> {
    let workload = &deployment.spec.workload_ref;
    let namespace = deployment.labels().get(label::UPSTREAM_NAMESPACE);
    event::related(
        event,
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Workload",
            "namespace": namespace, "name": workload.name, "uid": workload.uid,
        }),
    )
}

#[cfg(test)]
#[path = "instance_events_tests.rs"]
mod tests;
