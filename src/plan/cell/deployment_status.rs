//! Counters and conditions of a deployment, from its Instances.

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::instances::{Observed, is_outdated, is_ready};
use crate::{
    api::{
        compute::{Condition, Instance, WorkloadDeploymentStatus},
        meta::{annotation, condition, label, manager, reason},
    },
    plan::{
        Cell, Kind, Write,
        condition::{Verdict, find, is_true},
    },
};

/// The status to write, or nothing when it stands already.
pub(super) fn plan(observed: &Observed<'_>, hash: &str, now: Timestamp) -> Option<Write<Cell>> {
    let deployment = observed.deployment;
    let empty = WorkloadDeploymentStatus::default();
    let old = deployment.status.as_ref().unwrap_or(&empty);
    let generation = deployment.metadata.generation;
    let count = |what: &dyn Fn(&Instance) -> bool| {
        i32::try_from(observed.instances.iter().filter(|i| what(i)).count()).unwrap_or(i32::MAX)
    };
    let programmed = |i: &Instance| is_true(conditions(i), condition::PROGRAMMED);
    let ready = count(&is_ready);
    let desired = i32::try_from(deployment.spec.desired_replicas()).unwrap_or(i32::MAX);
    let status = WorkloadDeploymentStatus {
        conditions: vec![
            available(observed, ready, desired).over(&old.conditions, condition::AVAILABLE, generation, now),
            replicas_ready(observed, ready, desired).over(&old.conditions, condition::REPLICAS_READY, generation, now),
        ],
        location: old.location.clone(),
        replicas: count(&|_| true),
        current_replicas: count(&|i| !is_outdated(i, hash) && programmed(i)),
        desired_replicas: desired,
        ready_replicas: ready,
        updated_replicas: count(&|i| !is_outdated(i, hash)),
        selector: Some(format!("{}={}", label::WORKLOAD_DEPLOYMENT_UID, deployment.uid().unwrap_or_default())),
        observed_generation: generation,
        observed_source_generation: deployment
            .annotations()
            .get(annotation::SOURCE_GENERATION)
            .and_then(|generation| generation.parse().ok()),
    };
    Write::apply_status(Kind::WorkloadDeployment, manager::DEPLOYMENT, &json!(status), deployment)
}

fn conditions(instance: &Instance) -> &[Condition] {
    instance.status.as_ref().map_or(&[], |s| &s.conditions)
}

fn available(observed: &Observed<'_>, ready: i32, desired: i32) -> Verdict {
    if ready > 0 || desired == 0 {
        let total = observed.instances.len();
        return Verdict::yes(reason::STABLE_INSTANCE_FOUND, format!("{ready}/{total} instances are ready"));
    }
    worst(observed).unwrap_or_else(|| Verdict::no(reason::INSTANCES_PROVISIONING, "instances are being provisioned"))
}

fn replicas_ready(observed: &Observed<'_>, ready: i32, desired: i32) -> Verdict {
    let text = format!("{ready}/{desired} replicas available");
    if ready >= desired {
        return Verdict::yes(reason::REPLICAS_AVAILABLE, text);
    }
    let why = worst(observed).map_or_else(
        || (reason::INSTANCES_PROVISIONING.to_owned(), String::new()),
        |verdict| (verdict.reason, format!(": {}", verdict.message)),
    );
    Verdict::no(&why.0, text + &why.1)
}

/// The worst thing that keeps an Instance from serving, beyond ordinary progress.
fn worst(observed: &Observed<'_>) -> Option<Verdict> {
    observed
        .instances
        .iter()
        .filter(|i| !is_ready(i))
        .filter_map(|i| Some((i.name_any(), find(conditions(i), condition::READY)?)))
        .filter(|(_, ready)| reason::severity(&ready.reason) > 1)
        .max_by_key(|(name, ready)| (reason::severity(&ready.reason), std::cmp::Reverse(name.clone())))
        .map(|(name, ready)| Verdict::no(&ready.reason, format!("{name}: {}", ready.message)))
}
