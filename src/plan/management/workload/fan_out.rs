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

/// Everything that is known about one Workload. All of it is known: the stores behind it are filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The Workload.
    pub workload: Shared<Workload>,
    /// Deployments that name its uid, also those that only pretend to be part of it.
    pub deployments: Vec<Shared<WorkloadDeployment>>,
    /// What there is in its namespace under the names that its placements make ([`placement::names`]), whoever owns it.
    pub named: BTreeMap<String, Shared<WorkloadDeployment>>,
    /// Those of its cities that the project's LocationBindings open to it.
    pub bound: BTreeSet<CityCode>,
    /// Uid of the Workload's namespace, when the namespace has been seen.
    pub namespace_uid: Option<String>,
    /// Those of its template's Networks that are in its namespace; only with the network feature.
    pub networks: Option<BTreeSet<String>>,
    /// Why LocationBindings cannot be read at present: `bound` is as it was read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locations_fail: Option<String>,
    /// Names of deployments of its namespace that cannot be read, and may be its own; only of one that is being deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Whether all that is to be written to the deployments waits, since the API server does not keep it or somebody takes it
    /// back: they are as near to what is wanted as they can be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contested: bool,
    /// How long to wait for what.
    pub timing: Timing,
}

/// Decides the writes for one Workload.
///
/// The status is written only once the deployments are as they should be, or as they can be, so that `observedGeneration` never
/// runs ahead.
/// Deployments that exist are changed and deleted only for a Workload that a live read finds as it was judged: they may have
/// been made for a later spec. That read comes once, after what is created.
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
        // Nothing is made for networks that are not there, and what runs is left alone.
        let text = format!("Unable to find networks: {}", missing.into_iter().collect::<Vec<_>>().join(", "));
        writes.extend(workload_status::blocked(workload, Verdict::no(Reason::NetworkNotFound, text), now));
        return Plan::writes(writes);
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
        writes.extend(workload_status(workload, &ours, &outcomes, &[], now));
    }
    Plan::until(writes, next)
}

/// What becomes of each placement. A city that is not open may have been opened since LocationBindings were read last.
fn outcomes(observed: &Observed) -> Vec<PlacementOutcome> {
    let mut outcomes = placement::outcomes(&observed.workload, &observed.named, &observed.bound);
    if let Some(why) = &observed.locations_fail {
        for text in outcomes.iter_mut().flat_map(|outcome| &mut outcome.unavailable) {
            *text = format!("{text}, as this operator has read them last: {why}");
        }
    }
    outcomes
}

/// The status of a Workload of which nothing can be decided, as the project's API server does not show what that takes: a watch
/// fails, for so long.
pub fn unread(
    workload: &Workload,
    why: &str,
    lasted: Duration,
    timing: &Timing,
    now: Timestamp,
) -> Option<Write<Project>> {
    let text = format!(
        "the project's API server does not show what this operator needs to decide on the Workload. What runs is not affected. \
         Mend what the API server lacks or forbids: {why}"
    );
    let due = timing.outlasts_grace(lasted);
    due.then(|| workload_status::blocked(workload, Verdict::unknown(Reason::ProjectRefused, text), now)).flatten()
}

/// The status that reports what was refused, or nothing when it stands already. `observedGeneration` stays behind.
pub fn refused(observed: &Observed, refused: &[Refusal], now: Timestamp) -> Option<Write<Project>> {
    let workload = &*observed.workload;
    let outcomes = if workload.metadata.deletion_timestamp.is_some() {
        // It is on its way out: where it could run is of no interest any more.
        workload.spec.placements.iter().map(|_| PlacementOutcome::default()).collect()
    } else {
        outcomes(observed)
    };
    let refused: Vec<&Refusal> = refused.iter().filter(|refusal| refusal.is_due(&observed.timing)).collect();
    if refused.is_empty() {
        return None;
    }
    workload_status(workload, &ours(observed), &outcomes, &refused, now)
}

/// The deployments that the Workload controls; anybody can write its uid into a spec.
fn ours(observed: &Observed) -> Vec<&WorkloadDeployment> {
    let deployments = observed.deployments.iter().map(|deployment| &**deployment);
    deployments.filter(|deployment| ownership::is_controlled_by(*deployment, &*observed.workload)).collect()
}

/// Deployments first, the Workload's own finalizer when none is left. Their events enqueue it again. While one cannot be read
/// nobody knows whether it is the Workload's.
///
/// Where the deletion is to orphan them they stay: garbage collection takes their owner references off, and only then its own
/// finalizer. A look after that, at deployments of before, deletes none either: their versions are others by then.
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
        return leaving::plan(workload, ours, unreadable, observed.timing.deletion_patience, now);
    }
    deletes.into_iter().collect()
}

/// The Networks that a Workload's template names. A reference's own namespace does not count.
pub fn networks(workload: &Workload) -> impl Iterator<Item = &String> {
    workload.spec.template.spec.network_interfaces.iter().map(|interface| &interface.network.name)
}

/// Networks that the template names and the Workload's namespace has not.
fn missing_networks(observed: &Observed) -> BTreeSet<&str> {
    let Some(known) = &observed.networks else { return BTreeSet::new() };
    networks(&observed.workload).filter(|name| !known.contains(*name)).map(String::as_str).collect()
}

fn ensure_finalizer(workload: &Workload) -> Option<Write<Project>> {
    let fields = json!({ "metadata": { "finalizers": [finalizer::WORKLOAD] } });
    Write::ensure_fields(manager::WORKLOAD, fields, workload)
}

/// Deployments of this Workload that no valid placement wants. Those of an invalid placement are left alone.
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

/// What all deployments of a Workload are to run, held once for all writes of a plan.
struct Template {
    typed: Shared<InstanceTemplateSpec>,
    json: Shared<Value>,
}

impl Template {
    fn of(workload: &Workload) -> Self {
        let mut typed = workload.spec.template.clone();
        if typed.spec.controller.is_some() {
            typed.spec.controller = None; // the cell's to write, never the tenant's
        }
        Self { json: json!(typed).into(), typed }
    }
}

/// The writes that give a city its deployment. Its spec is made from the Workload alone: what others wrote into it is taken
/// over first, so that the apply is all there is to a change. One that nobody controls becomes the Workload's by the same apply.
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
        return (Vec::new(), Next::Await); // it is made anew when it is gone; its event enqueues the Workload
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
        // What the federator would otherwise add in a write of its own.
        for (key, value) in federate::bond(&names::hub_namespace(uid)) {
            fields["metadata"][key] = value;
        }
    }
    let namespace = workload.namespace().unwrap_or_default();
    let write = Write::ensure(manager::WORKLOAD, &namespace, name, fields, live);
    let write = write.map(|write| write.sharing(&template.json));
    // One that somebody has made since we looked is theirs, or of a later Workload: the next look finds it, and says so.
    let write = if live.is_none() { write.map(|write| write.yielding().creating()) } else { write };
    let Some(live) = live else { return (write.into_iter().collect(), Next::Await) };
    let taking = whole_spec::take_over(manager::WORKLOAD, "workload", live, observed.timing.takeover_pause, now);
    (taking.write.into_iter().chain(write).collect(), taking.next)
}

#[cfg(test)]
#[path = "fan_out_tests.rs"]
mod tests;
