//! Counters and conditions of a deployment, computed from its Instances.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::{
    instance_events,
    networks::Networks,
    replicas::{Observed, is_current, is_outdated, is_ready, place_of},
};
use crate::{
    api::{
        compute::{Condition, ConditionStatus, Instance, WorkloadDeployment, WorkloadDeploymentStatus},
        meta::{annotation, condition, finalizer, label, manager},
        reason::Reason,
    },
    plan::{
        Cell, Next, Shared, Write,
        condition::{Verdict, find},
    },
};

/// The message of a suspended deployment and its Instances.
pub(super) const SUSPENDED: &str =
    "it is suspended: its instances keep their places and are stopped until the suspension ends";

/// Returns the refused write that the status already reports.
pub(super) fn standing_refusal(deployment: &WorkloadDeployment) -> Option<Verdict> {
    let failure = find(&deployment.status.as_ref()?.conditions, condition::REPLICA_FAILURE)?;
    Some(Verdict::no(Reason::InstanceRefused, &*failure.message))
}

/// Returns the status write. `None` if the status is already stored. `refusal` reports an Instance that could not be created: it
/// comes before other problems.
pub(super) fn plan(
    observed: &Observed,
    networks: Option<&Networks>,
    refusal: Option<Verdict>,
    hash: &str,
    now: Timestamp,
) -> Option<Write<Cell>> {
    let deployment = &*observed.deployment;
    let empty = WorkloadDeploymentStatus::default();
    let old = deployment.status.as_ref().unwrap_or(&empty);
    let generation = deployment.metadata.generation;
    let count = |what: &dyn Fn(&Instance) -> bool| {
        i32::try_from(observed.instances.iter().filter(|i| what(i)).count()).unwrap_or(i32::MAX)
    };
    let ready = count(&is_ready);
    let desired = i32::try_from(deployment.spec.desired_replicas()).unwrap_or(i32::MAX);
    let suspended = deployment.is_suspended();
    let suspension = suspended.then(|| Verdict::no(Reason::Suspended, SUSPENDED));
    let (stuck, _) = stuck(observed, now);
    let beside = refusal.clone().filter(|_| ready >= desired && !suspended);
    let failure = refusal.as_ref().map(|refusal| Verdict::yes(refusal.reason.clone(), &*refusal.message));
    let worst = suspension.clone().or(refusal).or_else(|| worst(observed, networks, stuck.clone()));
    let mut available = suspension.unwrap_or_else(|| available(observed, worst.clone(), ready, desired));
    if let Some(stuck) = stuck.filter(|stuck| !available.message.contains(&**stuck)) {
        available.message = format!("{}; {stuck}", available.message);
    }
    if let Some(note) = networks.and_then(|networks| networks.note.as_ref()) {
        available.message = format!("{}; {note}", available.message);
    }
    if let Some(refusal) = beside {
        available.message =
            format!("{}; the cell's API server rejects a change: {}", available.message, refusal.message);
    }
    let verdicts = [
        (condition::AVAILABLE, Some(available)),
        (condition::REPLICAS_READY, Some(replicas_ready(observed, worst, ready, desired))),
        (condition::REPLICA_FAILURE, failure),
    ];
    let condition = |(type_, verdict): (&str, Option<Verdict>)| {
        Some(verdict?.into_condition(&old.conditions, type_, generation, now))
    };
    let status = WorkloadDeploymentStatus {
        conditions: verdicts.into_iter().filter_map(condition).collect(),
        location: networks.and_then(|networks| networks.location.clone()).or_else(|| old.location.clone()),
        replicas: count(&|_| true),
        current_replicas: count(&|i| is_current(i, hash)),
        desired_replicas: desired,
        ready_replicas: ready,
        updated_replicas: count(&|i| !is_outdated(i, hash)),
        selector: Some(format!("{}={}", label::WORKLOAD_DEPLOYMENT_UID, deployment.uid().unwrap_or_default())),
        observed_generation: generation,
        observed_source_generation: deployment
            .annotations()
            .get(annotation::SOURCE_GENERATION)
            .and_then(|generation| generation.parse().ok()),
        suspended: suspended.then_some(true),
        last_delivery: None,
    };
    let write = Write::status(manager::DEPLOYMENT, &json!(status), deployment);
    write.map(|write| instance_events::scales(write, deployment, now))
}

fn conditions(instance: &Instance) -> &[Condition] {
    instance.status.as_ref().map_or(&[], |s| &s.conditions)
}

fn available(observed: &Observed, worst: Option<Verdict>, ready: i32, desired: i32) -> Verdict {
    if ready > 0 || desired == 0 {
        let total = observed.instances.len();
        return Verdict::yes(Reason::StableInstanceFound, format!("{ready}/{total} instances are ready"));
    }
    worst.unwrap_or_else(|| Verdict::no(Reason::InstancesProvisioning, "instances are being provisioned"))
}

fn replicas_ready(observed: &Observed, worst: Option<Verdict>, ready: i32, desired: i32) -> Verdict {
    let text = format!("{ready}/{desired} replicas available");
    let because = |verdict: &Verdict| format!("{text}: {}", verdict.message);
    if ready >= desired {
        return Verdict::yes(Reason::ReplicasAvailable, text);
    }
    match worst {
        Some(verdict) if verdict.reason == Reason::QuotaExceeded => {
            let pending = |i: &&Shared<Instance>| {
                find(conditions(i), condition::QUOTA_GRANTED).is_some_and(|c| c.status != ConditionStatus::True)
            };
            let pending = observed.instances.iter().filter(pending).count();
            Verdict::no(
                verdict.reason.clone(),
                format!("{pending} of {desired} desired replicas pending quota: {}", verdict.message),
            )
        }
        Some(verdict) => Verdict::no(verdict.reason.clone(), because(&verdict)),
        None => Verdict::no(Reason::InstancesProvisioning, text),
    }
}

/// Returns the worst problem that blocks an Instance, beyond ordinary progress. A network problem comes before an equal one of an
/// Instance.
fn worst(observed: &Observed, networks: Option<&Networks>, stuck: Option<String>) -> Option<Verdict> {
    let of_instances = observed
        .instances
        .iter()
        .filter(|i| !is_ready(i))
        .filter_map(|i| Some((i.name_any(), find(conditions(i), condition::READY)?)))
        .filter(|(_, ready)| ready.reason().rank() > 1)
        .max_by_key(|(name, ready)| (ready.reason().rank(), std::cmp::Reverse(name.clone())))
        .map(|(name, ready)| Verdict::no(ready.reason(), format!("{name}: {}", ready.message)));
    let of_networks = networks.map(|n| n.verdict.clone()).filter(|v| v.status != ConditionStatus::True);
    let placed = |instance: &Shared<Instance>| place_of(&instance.name_any(), &observed.deployment);
    let in_the_way = observed.in_the_way.iter().filter_map(|instance| Some((placed(instance)?, instance)));
    let first = in_the_way.min_by_key(|(place, _)| *place);
    let of_names = first.map(|(_, instance)| Verdict::no(Reason::InstancesProvisioning, describe_blocker(instance)));
    let unreadable = observed.unreadable.first().map(|name| {
        let text = format!("{name}: the Instance of this name cannot be read; its author must fix or delete it");
        Verdict::no(Reason::InstancesProvisioning, text)
    });
    of_names
        .into_iter()
        .chain(stuck.map(|stuck| Verdict::no(Reason::InstancesProvisioning, stuck)))
        .chain(unreadable)
        .chain(of_instances)
        .chain(of_networks)
        .max_by_key(|verdict| verdict.reason.rank())
}

/// Returns a message about own Instances that have been terminating for longer than the patience, with their finalizers, and the
/// time of the next check.
pub(super) fn stuck(observed: &Observed, now: Timestamp) -> (Option<String>, Next) {
    let patience = observed.timing.deletion_patience;
    let (mut stuck, mut next) = (Vec::new(), Next::Await);
    for instance in &observed.instances {
        let Some(since) = &instance.metadata.deletion_timestamp else { continue };
        let waited = Duration::try_from(now.duration_since(since.0)).unwrap_or_default();
        match patience.checked_sub(waited).filter(|left| !left.is_zero()) {
            Some(left) => next = next.or_sooner(Next::After(left)),
            None => stuck.push(instance),
        }
    }
    let first = stuck.iter().min_by_key(|instance| instance.name_any());
    let message = first.map(|instance| {
        let held = match instance.finalizers() {
            [] => "no finalizer: garbage collection has not deleted it".to_owned(),
            held => format!("its finalizer {}", held.join(", ")),
        };
        let quota = find(conditions(instance), condition::QUOTA_GRANTED)
            .filter(|_| instance.finalizers().iter().any(|held| held == finalizer::QUOTA));
        let quota = quota.filter(|condition| condition.status != ConditionStatus::True);
        let quota = quota.map(|condition| format!(" ({})", condition.message)).unwrap_or_default();
        let others = match stuck.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        format!(
            "Instance {} has been terminating for more than {} s{others}: it is held by {held}{quota}",
            instance.name_any(),
            patience.as_secs()
        )
    });
    (message, next)
}

/// Describes an Instance that blocks the creation of another one with its name.
fn describe_blocker(instance: &Instance) -> String {
    let name = instance.name_any();
    if instance.metadata.deletion_timestamp.is_none() {
        return format!("{name}: an Instance of this name has another owner; it must be deleted first");
    }
    match instance.finalizers() {
        [] => format!("{name}: waiting for an earlier Instance of this name to be deleted"),
        held => format!(
            "{name}: an earlier Instance of this name is terminating; it is held by its finalizer {}",
            held.join(", ")
        ),
    }
}
