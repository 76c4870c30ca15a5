//! Workload -> one WorkloadDeployment per placement and city.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::identity,
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    leaving,
    placement::{self, City, PlacementOutcome},
    refusal::Refusal,
    workload_status::{self, workload_status},
};
use crate::plan::management::{federator::federate, observed::replicas};
use crate::{
    api::{
        compute::{InstanceTemplateSpec, Placement, Workload, WorkloadDeployment, WorkloadDeploymentSpec, WorkloadRef},
        meta::{finalizer, label, manager},
        names::{self, CityCode},
        reason::Reason,
    },
    plan::{Next, Plan, Project, Proof, Shared, Write, condition::Verdict, diff, ownership, whole_spec},
    timing::Timing,
};

/// Snapshot of one Workload. It is complete: the stores behind it are filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The Workload.
    pub workload: Shared<Workload>,
    /// Deployments that name its uid. Some may only pretend to be part of it.
    pub deployments: Vec<Shared<WorkloadDeployment>>,
    /// Existing deployments of its namespace under the names that its placements make ([`placement::names`]), of any owner.
    pub named: BTreeMap<String, Shared<WorkloadDeployment>>,
    /// Its cities that the project's LocationBindings open. If one of its cities is closed, all cities that they open.
    pub bound: BTreeSet<CityCode>,
    /// Uid of the Workload's namespace. `None` until the namespace has been seen.
    pub namespace_uid: Option<String>,
    /// Networks of its template that exist in its namespace. `None` without the network feature.
    pub networks: Option<BTreeSet<String>>,
    /// Why LocationBindings cannot be read at present. Then `bound` is the last known state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locations_fail: Option<String>,
    /// Names of unreadable deployments in its namespace, which may be its own. Only of a Workload that is being deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// True if all due writes to the deployments wait, because the API server does not keep them, or another client reverts them.
    /// The deployments are as close to the wanted state as they can be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contested: bool,
    /// Waiting periods.
    pub timing: Timing,
}

/// Decides the writes for one Workload.
///
/// The status is written only once the deployments are as they should be, or as close to it as they can be. So
/// `observedGeneration` never runs ahead.
///
/// Existing deployments may have been made for a later spec. They are changed and deleted only after a live read finds the
/// Workload as it was judged. That read is made once, after all creates.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Write<Project>> {
    let workload = &*observed.workload;
    let ours = ours(observed);
    if workload.metadata.deletion_timestamp.is_some() {
        return delete(observed, &ours, now);
    }
    let mut writes: Vec<Write<Project>> = Vec::new();
    writes.extend(ensure_finalizer(workload));
    let missing = missing_networks(observed);
    if !missing.is_empty() {
        // No deployment is created for missing networks, and existing ones are not changed.
        let text = format!("Unable to find networks: {}", missing.into_iter().collect::<Vec<_>>().join(", "));
        let verdict = Verdict::no(Reason::NetworkNotFound, text);
        let blocked = workload_status::blocked(workload, verdict, observed.timing.error_grace, now);
        writes.extend(blocked.steps);
        return Plan::until(writes, blocked.next);
    }
    let outcomes = outcomes(observed);
    let mut next = Next::Await;
    let template = Template::of(workload);
    let mut changes = Proof::read(Write::confirm_unchanged(workload), identity);
    for (placement, outcome) in workload.spec.placements.iter().zip(&outcomes) {
        for (name, city) in &outcome.desired {
            let (ensured, again) = ensure_deployment(observed, (placement, &template), name, city, now);
            if observed.named.contains_key(name) {
                changes = changes.then(ensured);
            } else {
                writes.extend(ensured);
            }
            next = next.or_sooner(again);
        }
    }
    let surplus = surplus(workload, &ours, &outcomes);
    writes.extend(surplus.fold(changes, |changes, deployment| changes.delete(deployment, identity)));
    if writes.is_empty() || observed.contested {
        let pause = observed.timing.takeover_pause;
        let taking = whole_spec::take_over_status(manager::WORKLOAD, workload, pause, now);
        next = next.or_sooner(taking.next);
        writes.extend(taking.write);
        let status = workload_status(workload, &ours, &outcomes, &[], observed.timing.error_grace, now);
        next = next.or_sooner(status.next);
        writes.extend(status.steps);
    }
    Plan::until(writes, next)
}

/// Judges each placement. A closed city may have been opened since LocationBindings were last read.
fn outcomes(observed: &Observed) -> Vec<PlacementOutcome> {
    let mut outcomes = placement::outcomes(&observed.workload, &observed.named, &observed.bound);
    if let Some(why) = &observed.locations_fail {
        for outcome in outcomes.iter_mut().filter(|outcome| !outcome.unavailable.is_empty()) {
            outcome.unavailable.push(format!("this is as of the last successful read of the LocationBindings: {why}"));
            outcome.is_stale = true;
        }
    }
    outcomes
}

/// Returns the status of a Workload that cannot be decided, because a watch of the project's API server fails. `lasted`: how long
/// the watch has failed.
pub fn unread(
    workload: &Workload,
    why: &str,
    lasted: Duration,
    timing: &Timing,
    now: Timestamp,
) -> Option<Write<Project>> {
    let text = format!(
        "this operator cannot read what it needs for the Workload from the project's API server. Running instances are not \
         affected. The platform must fix what the API server lacks or forbids: {why}"
    );
    let due = timing.outlasts_grace(lasted);
    let verdict = Verdict::unknown(Reason::ProjectRefused, text);
    due.then(|| workload_status::blocked(workload, verdict, timing.error_grace, now).steps.pop()).flatten()
}

/// Returns the status that reports rejected writes. `None` if it is up to date. `observedGeneration` stays behind
/// until the tenant has to act.
pub fn refused(observed: &Observed, refused: &[Refusal], now: Timestamp) -> Option<Write<Project>> {
    let workload = &*observed.workload;
    let outcomes = if workload.metadata.deletion_timestamp.is_some() {
        // A terminating Workload needs no cities any more.
        workload.spec.placements.iter().map(|_| PlacementOutcome::default()).collect()
    } else {
        outcomes(observed)
    };
    let refused: Vec<&Refusal> = refused.iter().filter(|refusal| refusal.is_due(&observed.timing)).collect();
    if refused.is_empty() {
        return None;
    }
    workload_status(workload, &ours(observed), &outcomes, &refused, observed.timing.error_grace, now).steps.pop()
}

/// Deployments that the Workload controls. Any client can write the Workload's uid into a spec.
fn ours(observed: &Observed) -> Vec<&WorkloadDeployment> {
    let deployments = observed.deployments.iter().map(|deployment| &**deployment);
    deployments.filter(|deployment| ownership::is_controlled_by(*deployment, &*observed.workload)).collect()
}

/// Deletes the deployments, and releases the Workload's finalizer when none is left. Events of the deployments enqueue the
/// Workload again. An unreadable deployment may be the Workload's, so the finalizer is kept.
///
/// If the deletion orphans the deployments, they are kept. Garbage collection removes their owner references first, and its own
/// finalizer after that. A later reconcile with an older state of the deployments deletes none, because their versions have
/// changed.
fn delete(observed: &Observed, ours: &[&WorkloadDeployment], now: Timestamp) -> Plan<Write<Project>> {
    let (workload, unreadable) = (&*observed.workload, &observed.unreadable[..]);
    if workload.finalizers().iter().any(|held| held == finalizer::ORPHAN) {
        return Write::release(manager::WORKLOAD, finalizer::WORKLOAD, workload).into_iter().collect();
    }
    if ours.is_empty() && unreadable.is_empty() {
        return Write::release(manager::WORKLOAD, finalizer::WORKLOAD, workload).into_iter().collect();
    }
    let proof = Proof::read(Write::confirm_unchanged(workload), identity);
    let deletes = ours.iter().fold(proof, |proof, deployment| proof.delete(*deployment, identity));
    if deletes.is_empty() || !unreadable.is_empty() {
        return leaving::plan(workload, ours, unreadable, &observed.timing, now);
    }
    deletes.into_iter().collect()
}

/// Networks that a Workload's template names. The namespace in a reference is ignored.
pub fn networks(workload: &Workload) -> impl Iterator<Item = &String> {
    workload.spec.template.spec.network_interfaces.iter().map(|interface| &interface.network.name)
}

/// Networks that the template names, and that do not exist in the Workload's namespace.
fn missing_networks(observed: &Observed) -> BTreeSet<&str> {
    let Some(known) = &observed.networks else { return BTreeSet::new() };
    networks(&observed.workload).filter(|name| !known.contains(*name)).map(String::as_str).collect()
}

fn ensure_finalizer(workload: &Workload) -> Option<Write<Project>> {
    let fields = json!({ "metadata": { "finalizers": [finalizer::WORKLOAD] } });
    Write::ensure_fields(manager::WORKLOAD, fields, workload)
}

/// Deployments of this Workload that no valid placement wants. Those of an invalid placement are kept.
fn surplus<'a>(
    workload: &Workload,
    ours: &[&'a WorkloadDeployment],
    outcomes: &[PlacementOutcome],
) -> impl Iterator<Item = &'a WorkloadDeployment> {
    let placements = &workload.spec.placements;
    let invalid: BTreeSet<&String> = placements
        .iter()
        .zip(outcomes)
        .filter(|(_, outcome)| !outcome.invalid.is_empty() || outcome.exceeded.is_some())
        .map(|(p, _)| &p.name)
        .collect();
    let desired: BTreeSet<&String> = outcomes.iter().flat_map(|outcome| outcome.desired.keys()).collect();
    ours.iter()
        .copied()
        .filter(move |wd| !invalid.contains(&wd.spec.placement_name))
        .filter(move |wd| !desired.contains(&wd.name_any()))
}

/// Template of all deployments of a Workload, held once for all writes of a plan.
struct Template {
    typed: Shared<InstanceTemplateSpec>,
    json: Shared<Value>,
}

impl Template {
    fn of(workload: &Workload) -> Self {
        let mut typed = workload.spec.template.clone();
        if typed.spec.controller.is_some() {
            typed.spec.controller = None; // written by the cell, never by the tenant
        }
        Self { json: json!(typed).into(), typed }
    }
}

/// Returns the writes that give a city its deployment. Its spec is made only from the Workload. Fields that others wrote are
/// taken over first, so that the apply makes the whole change. The same apply adopts a deployment without a controller.
fn ensure_deployment(
    observed: &Observed,
    (placement, template): (&Placement, &Template),
    name: &str,
    city: &City,
    now: Timestamp,
) -> (Vec<Write<Project>>, Next) {
    let workload = &*observed.workload;
    let live = observed.named.get(name).map(|deployment| &**deployment);
    if live.is_some_and(|wd| wd.metadata.deletion_timestamp.is_some()) {
        return (Vec::new(), Next::Await); // recreated after its deletion; that event enqueues the Workload
    }
    let spec = WorkloadDeploymentSpec {
        workload_ref: WorkloadRef { name: workload.name_any(), uid: workload.uid().unwrap_or_default() },
        placement_name: placement.name.clone(),
        city_code: city.written.clone(),
        template: template.typed.clone(),
        replicas: replicas::wanted(&placement.scale_settings, live),
        scale_settings: placement.scale_settings.clone(),
    };
    let mut fields = json!({
        "metadata": {
            "labels": { label::WORKLOAD_UID: workload.uid() },
            "ownerReferences": ownership::controller_reference(workload),
        },
        "spec": match live {
            Some(live) => diff::in_standing_form(&json!(live.spec), &json!(spec)),
            None => json!(spec),
        },
    });
    if let Some(uid) = &observed.namespace_uid {
        // Otherwise the federator would add this with another write.
        for (key, value) in federate::bond(&names::hub_namespace(uid)) {
            fields["metadata"][key] = value;
        }
    }
    let namespace = workload.namespace().unwrap_or_default();
    let write = Write::ensure(manager::WORKLOAD, &namespace, name, fields, live);
    let write = write.map(|write| write.sharing(&template.json));
    // A deployment created since the snapshot belongs to another owner, or to a later Workload. The next reconcile finds and
    // reports it.
    let write = if live.is_none() { write.map(|write| write.yielding().creating()) } else { write };
    let Some(live) = live else { return (write.into_iter().collect(), Next::Await) };
    let taking = whole_spec::take_over(manager::WORKLOAD, "workload", live, observed.timing.takeover_pause, now);
    (taking.write.into_iter().chain(write).collect(), taking.next)
}

#[cfg(test)]
#[path = "fan_out_tests.rs"]
mod tests;
