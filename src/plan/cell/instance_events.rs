//! Events on a cell about its Instances. Each Event belongs to one write, so that it is stored once.

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

/// Event source for problems that keep an Instance waiting.
const INSTANCE: &str = "instance-controller";
/// Event source for changes in the number of Instances.
const DEPLOYMENT: &str = "workload-deployment";

/// Reasons of the data and quota conditions that need an action by the user or the operator of the platform.
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

/// Adds a Warning to the write of a condition. The reason must be new, and the Instance must still have a gate. Running Instances
/// are not affected, so an outage of quota makes no Event for them.
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

/// Adds an Event to the write that opens gates, if the data gate is among them.
pub(super) fn opens(write: Write<Cell>, instance: &Instance, now: Timestamp) -> Write<Cell> {
    let gates = instance.spec.controller.as_ref().map_or(&[][..], |controller| &controller.scheduling_gates);
    if !gates.iter().any(|gate| gate.name == gate::REFERENCED_DATA) {
        return write;
    }
    let text = "Referenced data is in place, and the Instance may start.";
    let note = Note { severity: Severity::Normal, reason: Reason::GateOpened, action: "Scheduling", text };
    write.telling(event::on(instance, INSTANCE, &note, now))
}

/// Adds an Event to the deletion of an Instance. It gives the cause: a scale-down, or an outdated template.
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

/// Adds an Event to the status of a deployment if its number of desired Instances has changed.
pub(super) fn scales(write: Write<Cell>, deployment: &WorkloadDeployment, now: Timestamp) -> Write<Cell> {
    let Some(before) = deployment.report().filter(|status| status.observed_generation.is_some()) else {
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

/// Adds the project's Workload to an Event as the related object.
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
