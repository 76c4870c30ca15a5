//! Instances of a deployment on its cell: creates, replaces and deletes them in order, one at a time.

use std::{collections::BTreeMap, convert::identity};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

pub use super::replicas::{Observed, place_of};
use super::{
    deployment_status, instance_events, networks,
    replicas::{is_outdated, is_ready},
};
use crate::{
    api::{
        compute::{
            Instance, InstanceController, InstanceSpec, InstanceTemplateSpec, LocationReference, SchedulingGate,
            WorkloadDeployment,
        },
        meta::{annotation, finalizer, gate, label, manager},
        names,
        reason::Reason,
    },
    plan::{
        Cell, Failure, Kind, Object, Plan, Proof, Write,
        condition::Verdict,
        diff,
        event::{self, Note, Severity},
        hash::{hash_before_later_fields, is_own_hash, template_hash},
        ownership,
        references::references,
        whole_spec,
    },
};

/// Decides the writes for one deployment: its networks, its status, and at most one step of the roll-out.
///
/// The writes are independent: a refused write does not stop the others, in particular not the status that reports the reason.
/// Only the deletes, which come last, require an unchanged deployment. Otherwise they could delete Instances that a later spec
/// needs.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Write<Cell>> {
    let deployment = &*observed.deployment;
    if deployment.metadata.deletion_timestamp.is_some() {
        // Garbage collection deletes the Instances. The Go operator held a finalizer for that, which no other controller removes.
        return Write::release(manager::DEPLOYMENT, finalizer::WORKLOAD, deployment).into_iter().collect();
    }
    let hash = template_hash(&deployment.spec.template);
    let interfaces = &deployment.spec.template.spec.network_interfaces;
    let networks = observed.networks.as_ref().map(|seen| networks::judge(seen, deployment, interfaces));
    let location = networks.as_ref().and_then(|networks| networks.location.clone());
    let action = next_action(observed, &hash);
    // A refusal is kept until an attempt succeeds. If each attempt cleared it, it would come and go.
    let stands = matches!(action, Action::Create(_)) || observed.failing;
    let refusal = stands.then(|| deployment_status::standing_refusal(deployment)).flatten();
    let mut removals = Proof::read(Write::confirm_unchanged(deployment), identity);
    let mut step = None;
    match action {
        Action::Create(ordinal) => step = Some(create(observed, ordinal, &hash, location.as_ref(), now)),
        Action::Delete(instance) => {
            let ordinal = names::instance_ordinal(&instance.name_any());
            let is_surplus = ordinal.is_some_and(|ordinal| ordinal >= deployment.spec.desired_replicas());
            removals = removals
                .delete(instance, |write| instance_events::terminates(write, deployment, instance, is_surplus, now));
        }
        Action::Remove(stray) => removals = remove(removals, deployment, stray, now),
        Action::Stamp(instance) => step = Some(stamp(instance, &hash)),
        Action::Wait | Action::Nothing => {}
    }
    let backfill = observed.instances.iter().filter_map(|instance| backfill(deployment, instance));
    let taking = whole_spec::take_over_status(manager::DEPLOYMENT, deployment, observed.timing.takeover_pause, now);
    let status = deployment_status::plan(observed, networks.as_ref(), refusal, &hash, now);
    let mut writes: Vec<Write<Cell>> = backfill.chain(taking.write).chain(status).collect();
    if let (Some(seen), Some(networks)) = (&observed.networks, networks) {
        writes.extend(networks.writes);
        if observed.unreadable.is_empty() {
            let surplus = networks::surplus(seen, deployment, &observed.instances);
            removals = surplus.into_iter().fold(removals, |removals, binding| removals.delete(binding, identity));
        }
    }
    writes.extend(step.into_iter().chain(removals));
    Plan::until(writes, taking.next.or_sooner(deployment_status::stuck(observed, now).1))
}

/// Returns the status that reports refused writes. A refused Instance comes first. `None` while all failures may be temporary.
pub fn failed(observed: &Observed, failures: &[(Object, Failure)], now: Timestamp) -> Option<Write<Cell>> {
    let due = || failures.iter().filter(|(_, failure)| failure.is_due(&observed.timing));
    let is_instance = |(object, _): &&(Object, Failure)| object.kind == Kind::Instance;
    let (object, failure) = due().find(is_instance).or_else(|| due().next())?;
    let what = if object.kind == Kind::Instance { object.name.clone() } else { object.to_string() };
    refused(observed, &what, &failure.words, now)
}

/// Returns the status that reports a refused write, in the API server's words. `None` if the status already reports it. Details
/// that vary between attempts are ignored: the first message is kept until the cause or the deployment changes.
fn refused(observed: &Observed, what: &str, words: &str, now: Timestamp) -> Option<Write<Cell>> {
    let deployment = &*observed.deployment;
    let reported = deployment_status::standing_refusal(deployment);
    let is_seen = deployment.report().is_some_and(|s| s.observed_generation == deployment.metadata.generation);
    let is_same =
        |message: &str| message.strip_prefix(&format!("{what}: ")).is_some_and(|text| gist(text) == gist(words));
    if is_seen && reported.is_some_and(|verdict| is_same(&verdict.message)) {
        return None;
    }
    let interfaces = &deployment.spec.template.spec.network_interfaces;
    let networks = observed.networks.as_ref().map(|seen| networks::judge(seen, deployment, interfaces));
    let refusal = Verdict::no(Reason::InstanceRefused, format!("{what}: {words}"));
    let hash = template_hash(&deployment.spec.template);
    deployment_status::plan(observed, networks.as_ref(), Some(refusal), &hash, now)
}

/// Removes the parts of a message that vary for the same cause. These are words with a digit: times, counts and ids.
fn gist(words: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric();
    let mut gist = String::new();
    for piece in words.split_inclusive(|c| !is_part(c)) {
        let word = piece.trim_end_matches(|c| !is_part(c));
        gist.push_str(if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word });
        gist.push_str(&piece[word.len()..]);
    }
    gist
}

/// The next step of the roll-out.
#[derive(Debug)]
enum Action<'a> {
    /// Create the Instance with this ordinal.
    Create(u32),
    /// Delete this Instance: it is surplus, or is recreated from the new template.
    Delete(&'a Instance),
    /// Delete this Instance first: its name or ordinal is none of those that the deployment wants.
    Remove(&'a Instance),
    /// Write our hash on this Instance. It matches the template, but was made by an operator with another hash function. It keeps
    /// running.
    Stamp(&'a Instance),
    /// A change is in progress. Its event enqueues the deployment again.
    Wait,
    /// No action is necessary.
    Nothing,
}

/// Decides in the way of `OrderedReady`: creates and awaits in ascending order, then replaces and deletes in descending order.
/// Only the first action counts, so an Instance that is not ready blocks all later work. Exception: an Instance that is not ready
/// *and* outdated is replaced at once. Otherwise a broken template could never be repaired.
fn next_action<'a>(observed: &'a Observed, hash: &str) -> Action<'a> {
    let by_ordinal = by_ordinal(observed);
    if let Some(stray) = stray(observed, &by_ordinal) {
        return Action::Remove(stray);
    }
    let template = &observed.deployment.spec.template;
    let once = hash_before_later_fields(template);
    let says_nothing = |recorded: &str| !is_own_hash(recorded) || recorded == once;
    let foreign = by_ordinal.values().find(|i| {
        i.metadata.deletion_timestamp.is_none()
            && i.spec.controller.as_ref().is_some_and(|c| c.template_hash != hash && says_nothing(&c.template_hash))
            && is_made_from(i, template)
    });
    if let Some(instance) = foreign {
        return Action::Stamp(instance);
    }
    let (name, desired) = (observed.deployment.name_any(), observed.deployment.spec.desired_replicas());
    if observed.deployment.is_suspended() {
        // A suspended deployment creates and replaces no Instance. Surplus Instances are deleted, because they would never start.
        let surplus = by_ordinal.range(desired..).rev().map(|(_, instance)| *instance);
        let staying = surplus.filter(|instance| instance.metadata.deletion_timestamp.is_none());
        return staying.map(Action::Delete).next().unwrap_or(Action::Nothing);
    }
    for ordinal in 0..desired {
        match by_ordinal.get(&ordinal) {
            None if observed.unreadable.contains(&names::instance_name(&name, ordinal)) => return Action::Wait,
            None if observed.in_the_way_of(&names::instance_name(&name, ordinal)).is_some() => return Action::Wait,
            None => return Action::Create(ordinal),
            Some(i) if i.metadata.deletion_timestamp.is_some() => return Action::Wait,
            Some(i) if is_ready(i) => {}
            Some(i) if is_outdated(i, hash) => return Action::Delete(i),
            Some(_) => return Action::Wait,
        }
    }
    for (ordinal, instance) in by_ordinal.iter().rev() {
        if *ordinal >= desired || is_outdated(instance, hash) {
            return match instance.metadata.deletion_timestamp {
                Some(_) => Action::Wait,
                None => Action::Delete(instance),
            };
        }
    }
    Action::Nothing
}

/// Returns the Instance of each ordinal. Of several, the one with the expected name wins.
fn by_ordinal(observed: &Observed) -> BTreeMap<u32, &Instance> {
    let name = observed.deployment.name_any();
    let mut found: BTreeMap<u32, &Instance> = BTreeMap::new();
    for instance in observed.instances.iter().map(|instance| &**instance) {
        let Some(ordinal) = names::instance_ordinal(&instance.name_any()) else { continue };
        let is_named = |instance: &Instance| instance.name_any() == names::instance_name(&name, ordinal);
        if found.get(&ordinal).is_none_or(|other| !is_named(other) && is_named(instance)) {
            found.insert(ordinal, instance);
        }
    }
    found
}

/// Returns an Instance that the deployment controls, and that has no ordinal or duplicates one.
fn stray<'a>(observed: &'a Observed, by_ordinal: &BTreeMap<u32, &Instance>) -> Option<&'a Instance> {
    let has_a_place = |instance: &Instance| by_ordinal.values().any(|other| std::ptr::eq(*other, instance));
    let instances = observed.instances.iter().map(|instance| &**instance);
    instances.filter(|instance| instance.metadata.deletion_timestamp.is_none()).find(|instance| !has_a_place(instance))
}

/// Deletes a stray Instance. Reports it on the deployment after the delete succeeded.
fn remove(
    removals: Proof<Write<Cell>>,
    deployment: &WorkloadDeployment,
    stray: &Instance,
    now: Timestamp,
) -> Proof<Write<Cell>> {
    let text = format!(
        "Instance {} was deleted: its name has no valid number, or another Instance has the same number",
        stray.name_any()
    );
    let note = Note { severity: Severity::Warning, reason: Reason::StrayInstance, action: "Deleting", text: &text };
    let event = event::on(deployment, "workload-deployment", &note, now);
    removals.delete(stray, |delete| delete.telling(event))
}

/// True if an Instance matches the template, even with another hash. Empty fields count as absent, and quantities compare by
/// value: the Go operator dropped empty fields and normalized quantities.
fn is_made_from(instance: &Instance, template: &InstanceTemplateSpec) -> bool {
    let bare = |spec: &InstanceSpec| json!(InstanceSpec { controller: None, location: None, ..spec.clone() });
    let live = bare(&instance.spec);
    let metadata = template.metadata.clone().unwrap_or_default();
    let has = |live: &BTreeMap<String, String>, wanted: Option<BTreeMap<String, String>>| {
        wanted.unwrap_or_default().iter().all(|(key, value)| live.get(key) == Some(value))
    };
    diff::in_standing_form(&live, &bare(&template.spec)) == live
        && has(instance.labels(), Some(own_labels(template)))
        && has(instance.annotations(), metadata.annotations)
}

/// Returns the template's labels that its author may set. With a reserved label, an Instance could look like a copy, or like
/// another owner's. Admission refuses reserved labels, if it is installed.
fn own_labels(template: &InstanceTemplateSpec) -> BTreeMap<String, String> {
    let labels = template.metadata.clone().unwrap_or_default().labels.unwrap_or_default();
    labels.into_iter().filter(|(key, _)| !ownership::is_reserved_on_instances(key)).collect()
}

/// Restores missing identity labels of an Instance that a live read found under the name of a new one. `None` if another owner
/// controls it, or if it has the labels.
pub fn found(deployment: &WorkloadDeployment, instance: &Instance) -> Option<Write<Cell>> {
    ownership::is_controlled_by(instance, deployment).then(|| backfill(deployment, instance)).flatten()
}

fn stamp(instance: &Instance, hash: &str) -> Write<Cell> {
    let patch = json!({ "spec": { "controller": { "templateHash": hash } } });
    Write::amend(manager::DEPLOYMENT, patch, instance)
}

/// Restores the identity labels. The template and its hash do not change.
fn backfill(deployment: &WorkloadDeployment, instance: &Instance) -> Option<Write<Cell>> {
    let ordinal = names::instance_ordinal(&instance.name_any())?;
    let labels: BTreeMap<_, _> = identity_labels(deployment, ordinal).into();
    if instance.metadata.deletion_timestamp.is_some() || labels.iter().all(|(k, v)| instance.labels().get(k) == Some(v))
    {
        return None;
    }
    let fields = json!({ "metadata": { "labels": labels } });
    Write::ensure_fields(manager::DEPLOYMENT, fields, instance)
}

fn create(
    observed: &Observed,
    ordinal: u32,
    hash: &str,
    location: Option<&LocationReference>,
    now: Timestamp,
) -> Write<Cell> {
    let deployment = &*observed.deployment;
    let template = &deployment.spec.template;
    let metadata = template.metadata.clone().unwrap_or_default();
    let name = names::instance_name(&deployment.name_any(), ordinal);
    let mut labels = own_labels(template);
    labels.extend(identity_labels(deployment, ordinal));
    let mut spec = template.spec.clone();
    spec.location = location.cloned();
    let mut gates = vec![gate::NETWORK, gate::QUOTA];
    let mut annotations = metadata.annotations.unwrap_or_default();
    if observed.features.data && !references(&spec).is_empty() {
        gates.push(gate::REFERENCED_DATA);
        annotations.insert(annotation::REFERENCED_DATA_GATE_START.into(), format!("{now:.0}"));
    }
    spec.controller = Some(InstanceController {
        template_hash: hash.to_owned(),
        scheduling_gates: gates.into_iter().map(|name| SchedulingGate { name: name.into() }).collect(),
    });
    // Set at creation, so that the quota controller need not add it.
    let finalizers: &[&str] = if observed.features.quota { &[finalizer::QUOTA] } else { &[] };
    let body = json!({
        "metadata": {
            "labels": labels,
            "annotations": annotations,
            "finalizers": finalizers,
            "ownerReferences": ownership::controller_reference(deployment),
        },
        "spec": spec,
    });
    let object = Object::named::<Instance>(&deployment.namespace().unwrap_or_default(), &name);
    Write::create(manager::DEPLOYMENT, object, body)
}

/// Returns the labels that identify an Instance. The write-back requires all of them.
fn identity_labels(deployment: &WorkloadDeployment, ordinal: u32) -> [(String, String); 7] {
    let spec = &deployment.spec;
    [
        (label::WORKLOAD_UID, spec.workload_ref.uid.clone()),
        (label::WORKLOAD_DEPLOYMENT_UID, deployment.uid().unwrap_or_default()),
        (label::WORKLOAD_DEPLOYMENT_NAME, deployment.name_any()),
        (label::INSTANCE_INDEX, ordinal.to_string()),
        // The city code as written. Blanks are invalid in labels, so they become hyphens.
        (label::CITY_CODE, spec.city_code.trim().replace(' ', "-")),
        (label::WORKLOAD_NAME, spec.workload_ref.name.clone()),
        (label::PLACEMENT_NAME, spec.placement_name.clone()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
}

#[cfg(test)]
#[path = "instances_tests.rs"]
mod tests;
