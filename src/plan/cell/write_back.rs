//! Copies of this cell's Instances on the hub, where the management controllers and users see them.
//!
//! Each copy carries the uid of the cell that wrote it. The cell watches and deletes only copies with its own uid. It needs no
//! finalizer to find copies that lost their Instance.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::{GROUP, VERSION, annotation, condition, label, manager},
        names::HubNamespace,
        reason::Reason,
    },
    plan::{
        Cell, Failure, Hub, Next, Object, Plan, Proof, Shared, Step, Write,
        condition::{Verdict, differs_in_their_marks_alone, find},
        instance_copy::{self, Copy},
        ownership::{self, Holder},
    },
    timing::Timing,
};

/// Wait before a copy is created under a name that has just become free, or been taken over.
const RECREATE_WAIT: Duration = Duration::from_millis(200);
/// Factor of the interval of checks on the hub, because each of them costs requests, and the cause is rare.
const POLLS_PER_READ: u32 = 6;

/// Labels of a hub namespace that name its project and the project's namespace.
const PROJECT: [&str; 2] = [label::UPSTREAM_CLUSTER, label::UPSTREAM_NAMESPACE];

/// All facts about one Instance and its copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The Instance's kind, namespace and name. Set also if the Instance does not exist.
    pub object: Object,
    /// The Instance. `None` if it does not exist.
    pub instance: Option<Shared<Instance>>,
    /// The deployment on this cell that controls the Instance.
    pub deployment: Option<Shared<WorkloadDeployment>>,
    /// Labels of the cell's namespace.
    pub namespace_labels: BTreeMap<String, String>,
    /// The uid of this cell.
    pub cell: String,
    /// The copy, if this cell wrote it.
    pub copy: Option<Shared<Instance>>,
    /// The project and the owner that a live read of the hub found. Read only if the cell does not have them.
    #[serde(default)]
    pub hub: OnHub,
    /// Another copy of the same name.
    pub rival: Rival,
    /// Intervals and limits of the operator.
    pub timing: Timing,
}

/// The project and the owner of an Instance, as the hub reports them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub enum OnHub {
    /// The hub was not read.
    #[default]
    Unread,
    /// The result of a live read.
    Read {
        /// Labels of the hub namespace. `None` if the namespace does not exist.
        labels: Option<BTreeMap<String, String>>,
        /// Uid of the deployment that the Instance names. `None` if the deployment does not exist.
        deployment: Option<String>,
    },
}

/// A copy that already has the name of the copy to create.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Rival {
    /// The hub was not read. The writes fail if there is such a copy.
    Unread,
    /// A live read found no copy.
    Absent,
    /// A live read found this copy.
    Present(Shared<Instance>),
}

/// Requests to the controller, in addition to the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The writes create a copy. If they find another copy of that name, the controller reads it and decides again.
    Creates,
    /// The cell does not know the Instance's project or owner. The controller reads the namespace and the deployment on the hub.
    Asks,
}

/// Decides the writes for one Instance's copy.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Step<Cell, Hub>, Signal> {
    let object = &observed.object;
    let copy = observed.copy.as_deref();
    let Some(instance) = observed.instance.as_deref() else {
        // A copy is deleted only if its Instance does not exist. If the Instance cannot be judged, its copy is kept.
        let Some(copy) = copy else { return Plan::nothing() };
        let proof = Proof::read(Write::confirm_absent(object.clone()), Step::Local);
        return proof.delete(copy, Step::Remote).into_iter().collect();
    };
    let desired = match desired(observed, instance) {
        Ok(desired) => desired,
        Err(lack) => return report_lack(observed, instance, lack, now),
    };
    let plan = write(observed, &desired);
    // Clearing the condition comes last, after the writes that end the problem.
    let quiet =
        is_reported(instance).then(|| Write::status(manager::WRITE_BACK, &json!({ "conditions": [] }), instance));
    let steps = plan.steps.into_iter().chain(quiet.flatten().map(Step::Local)).collect();
    Plan { steps, ..plan }
}

/// Returns the writes for a copy with known content.
fn write(observed: &Observed, desired: &Desired<'_>) -> Plan<Step<Cell, Hub>, Signal> {
    let (object, copy) = (&observed.object, observed.copy.as_deref());
    let Some(write) = instance_copy::ensure(&desired.copy, copy) else { return Plan::nothing() };
    if copy.is_some() {
        return Plan::writes(vec![Step::Remote(write)]);
    }
    match &observed.rival {
        Rival::Unread => {}
        Rival::Absent => return Plan::until(Vec::new(), Next::After(RECREATE_WAIT)),
        Rival::Present(other) => {
            return match contest(observed, desired, other) {
                Some(write) => Plan::until(vec![Step::Remote(write)], Next::After(RECREATE_WAIT)),
                // If management hands the copy over, the watch of this cell's copies reports it.
                None => Plan::until(Vec::new(), Next::After(observed.timing.poll * POLLS_PER_READ)),
            };
        }
    }
    // Garbage collection would delete a copy without its owner, and the cell would recreate it without end. A copy that already
    // exists was written by another cell or by the Go operator.
    let owner = Object::named::<WorkloadDeployment>(&object.namespace, &desired.deployment);
    let proof = Proof::read(Write::confirm_present(owner, &desired.hub_uid), Step::Remote)
        .and(Write::confirm_absent(object.clone()), Step::Remote)
        .then([Step::Remote(write)]);
    Plan::writes(proof.into_steps()).with([Signal::Creates])
}

/// Handles a copy that this cell did not write. A copy without a cell's uid was written by the Go operator: it is taken over. A
/// copy that is older than the Instance is requested: the city moved here, or this cell was rebuilt. No cell writes another
/// cell's copy: management hands it over. A younger copy is kept: its cell got the deployment later.
fn contest(observed: &Observed, desired: &Desired<'_>, other: &Instance) -> Option<Write<Hub>> {
    match ownership::holder(other, &observed.cell) {
        Holder::Unmarked => instance_copy::ensure(&desired.copy, Some(other)),
        Holder::Other if other.creation_timestamp() < observed.instance.as_ref()?.creation_timestamp() => {
            let is_asked_for = ownership::asking_cell(other) == Some(&observed.cell);
            let ask = json!({ "metadata": { "annotations": { annotation::CLAIMED_BY_CELL: observed.cell } } });
            (!is_asked_for).then(|| Write::amend(manager::WRITE_BACK, ask, other))
        }
        // The watch reports a copy of this cell. A younger copy of another cell is kept.
        Holder::ThisCell | Holder::Other => None,
    }
}

struct Desired<'a> {
    copy: Copy<'a>,
    deployment: String,
    hub_uid: String,
}

/// Reasons why an Instance is not written back.
enum Lack {
    /// A reason that needs no report.
    Nothing,
    /// The cell does not know the project or the owner, and the hub was not read.
    Unread,
    /// A reason to report on the Instance.
    Reported(String),
}

/// True if the Instance reports that it is not written back.
fn is_reported(instance: &Instance) -> bool {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find(conditions, condition::WRITTEN_BACK).is_some()
}

/// Reports on the Instance why it has no copy on the hub. Schedules a retry, because no watch on the hub would start one.
fn report_lack(observed: &Observed, instance: &Instance, lack: Lack, now: Timestamp) -> Plan<Step<Cell, Hub>, Signal> {
    match lack {
        Lack::Nothing => Plan::nothing(),
        Lack::Unread => Plan::nothing().with([Signal::Asks]),
        Lack::Reported(why) => {
            let next = Next::After(observed.timing.poll * POLLS_PER_READ);
            Plan::until(not_written_back(instance, why, now).map(Step::Local).into_iter().collect(), next)
        }
    }
}

/// Reports on the Instance why its copy is absent or stale.
fn not_written_back(instance: &Instance, why: String, now: Timestamp) -> Option<Write<Cell>> {
    let old = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let stands = find(old, condition::WRITTEN_BACK).filter(|old| differs_in_their_marks_alone(&old.message, &why));
    let verdict = Verdict::no(Reason::NotWrittenBack, stands.map_or(why, |old| old.message.clone()));
    let condition = verdict.into_condition(old, condition::WRITTEN_BACK, instance.metadata.generation, now);
    Write::status(manager::WRITE_BACK, &json!({ "conditions": [condition] }), instance)
}

/// Returns the status that reports a failed write-back. `None` while the failure may be temporary.
pub fn failed(observed: &Observed, failure: &Failure, now: Timestamp) -> Option<Write<Cell>> {
    let instance = observed.instance.as_deref().filter(|_| failure.is_due(&observed.timing))?;
    let text = format!(
        "the hub rejects the status of this Instance. Its project sees the earlier status. The Instance is not affected: \
         {}",
        failure.words
    );
    not_written_back(instance, text, now)
}

/// Returns the copy to write, or the reason why there is none. The hub decides which project and which deployment own the copy.
/// Karmada brings both to the cell, as labels of the namespace and as an annotation of the deployment. If they are absent on the
/// cell, the hub is read.
fn desired<'a>(observed: &'a Observed, instance: &'a Instance) -> Result<Desired<'a>, Lack> {
    let namespace = &observed.object.namespace;
    let deployment = observed.deployment.as_deref();
    // If a cell is also a hub or a project, its Instances may be copies or projections, which are not written back. An Instance
    // that a deployment of this cell controls is none of these, even if the template has such labels.
    if HubNamespace::parse(namespace).is_none() || (ownership::is_copy(instance) && deployment.is_none()) {
        return Err(Lack::Nothing);
    }
    let is_leaving = instance.metadata.deletion_timestamp.is_some();
    let is_orphan = deployment.is_none() && ownership::controller_of(instance).is_some();
    let lack = |why: String| if is_leaving || observed.copy.is_some() { Lack::Nothing } else { Lack::Reported(why) };
    if let Some(key) =
        ownership::OF_AN_INSTANCE.iter().find(|key| instance.labels().get(**key).is_none_or(String::is_empty))
    {
        // The deployment's controller restores the labels. That event enqueues the Instance again.
        let own = "the Instance has no label";
        return Err(if deployment.is_some() { Lack::Nothing } else { lack(format!("{own} {key}")) });
    }
    let name = &instance.labels()[label::WORKLOAD_DEPLOYMENT_NAME];
    let from_karmada = deployment.and_then(|deployment| deployment.annotations().get(annotation::TEMPLATE_UID));
    let copied = observed.copy.as_deref();
    let from_copy =
        copied.and_then(ownership::controller_of).filter(|owner| owner.name == *name).map(|owner| &owner.uid);
    let non_empty = |labels: &BTreeMap<String, String>, key| labels.get(key).filter(|value| !value.is_empty()).cloned();
    let on_cell = |key| non_empty(&observed.namespace_labels, key).or_else(|| non_empty(copied?.labels(), key));
    let (mut identity, mut hub_uid) = (PROJECT.map(on_cell), from_karmada.or(from_copy).cloned());
    if identity.contains(&None) || hub_uid.is_none() {
        match &observed.hub {
            // The owner of these Instances needs no read of the hub. An Instance without its deployment is deleted soon.
            OnHub::Unread if is_leaving || copied.is_some() || is_orphan => return Err(Lack::Nothing),
            OnHub::Unread => return Err(Lack::Unread),
            OnHub::Read { labels: None, .. } => return Err(lack(format!("the hub has no namespace {namespace}"))),
            OnHub::Read { labels: Some(labels), deployment } => {
                if let Some(key) = PROJECT.into_iter().find(|key| non_empty(labels, key).is_none()) {
                    return Err(lack(format!("the hub namespace {namespace} has no label {key}")));
                }
                identity = PROJECT.map(|key| non_empty(labels, key));
                hub_uid = hub_uid.or_else(|| deployment.clone());
            }
        }
    }
    let absent = || lack(format!("the hub has no WorkloadDeployment {namespace}/{name}, which must own it"));
    let hub_uid = hub_uid.ok_or_else(absent)?;
    let mut labels: BTreeMap<&'static str, String> = BTreeMap::from([(label::CELL_UID, observed.cell.clone())]);
    labels.extend(PROJECT.into_iter().zip(identity).filter_map(|(key, value)| Some((key, value?))));
    let owner = json!([{
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "WorkloadDeployment",
        "name": name, "uid": hub_uid, "controller": true, "blockOwnerDeletion": true,
    }]);
    let copy = Copy { source: instance, namespace, labels, owner, manager: manager::WRITE_BACK };
    Ok(Desired { copy, deployment: name.clone(), hub_uid })
}

#[cfg(test)]
#[path = "write_back_tests.rs"]
mod tests;
