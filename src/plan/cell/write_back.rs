//! Instances of this cell -> their copies on the hub, where the management controllers and people far away see them.
//!
//! Each copy carries the uid of the cell that wrote it, so that a cell watches and removes its own alone, and needs no
//! finalizer to find what it left behind.

use std::collections::BTreeMap;

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

/// What a hub namespace says of the project that it mirrors a namespace of.
const PROJECT: [&str; 2] = [label::UPSTREAM_CLUSTER, label::UPSTREAM_NAMESPACE];

/// Everything that is known about one Instance and its copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// Which Instance, whether it is there or not.
    pub object: Object,
    /// The Instance; absent when it is gone.
    pub instance: Option<Shared<Instance>>,
    /// The deployment on this cell that controls it.
    pub deployment: Option<Shared<WorkloadDeployment>>,
    /// Labels of the cell's namespace.
    pub namespace_labels: BTreeMap<String, String>,
    /// Uid of this cell.
    pub cell: String,
    /// The copy, when this cell wrote it.
    pub copy: Option<Shared<Instance>>,
    /// What a live read of the hub has found of its project and its owner, where the cell does not say.
    #[serde(default)]
    pub hub: OnHub,
    /// Whether another copy is where a new one is to be.
    pub rival: Rival,
    /// How long to wait for what.
    pub timing: Timing,
}

/// Who an Instance is for the hub, by the hub's own word.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub enum OnHub {
    /// Nobody has looked.
    #[default]
    Unread,
    /// A live read has just found this.
    Read {
        /// Labels of the hub namespace; absent when there is none.
        labels: Option<BTreeMap<String, String>>,
        /// Uid of the deployment that the Instance names; absent when there is none.
        deployment: Option<String>,
    },
}

/// Another copy in the place of one that is to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Rival {
    /// Nobody has looked: the writes fail when there is one.
    Unread,
    /// A live read has just found none.
    Absent,
    /// A live read has just found this one.
    Present(Shared<Instance>),
}

/// What the controller is to know beside the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The writes make a new copy. When they find another in its place, that is to be read, and judged by one more look.
    Creates,
    /// The cell does not say whose the Instance is: its namespace and its deployment on the hub are to be read.
    Asks,
}

/// Decides the writes for one Instance's copy.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Step<Cell, Hub>, Signal> {
    let object = &observed.object;
    let copy = observed.copy.as_deref();
    let Some(instance) = observed.instance.as_deref() else {
        // Only an Instance that is gone takes its copy along; one that cannot be judged keeps what it has.
        let Some(copy) = copy else { return Plan::nothing() };
        let proof = Proof::read(Write::confirm_absent(object.clone()), Step::Local);
        return proof.delete(copy, Step::Remote).into_iter().collect();
    };
    let desired = match desired(observed, instance) {
        Ok(desired) => desired,
        Err(lack) => return waits(observed, instance, lack, now),
    };
    let plan = write(observed, &desired);
    // Last: only then nothing is in its way any more.
    let quiet = is_said(instance).then(|| Write::status(manager::WRITE_BACK, &json!({ "conditions": [] }), instance));
    let steps = plan.steps.into_iter().chain(quiet.flatten().map(Step::Local)).collect();
    Plan { steps, ..plan }
}

/// The writes for a copy of which all is known that it is to say.
fn write(observed: &Observed, desired: &Desired<'_>) -> Plan<Step<Cell, Hub>, Signal> {
    let (object, copy) = (&observed.object, observed.copy.as_deref());
    let Some(write) = instance_copy::ensure(&desired.copy, copy) else { return Plan::nothing() };
    if copy.is_some() {
        return Plan::writes(vec![Step::Remote(write)]);
    }
    let (recreate, contested) = (observed.timing.write_back_recreate, observed.timing.write_back_contested);
    match &observed.rival {
        Rival::Unread => {}
        Rival::Absent => return Plan::until(Vec::new(), Next::After(recreate)),
        Rival::Present(other) => {
            return match contest(observed, desired, other) {
                Some(write) => Plan::until(vec![Step::Remote(write)], Next::After(recreate)),
                // What is handed over to us is brought by the watch of our own.
                None => Plan::until(Vec::new(), Next::After(contested)),
            };
        }
    }
    // A copy whose owner is gone would be collected and made anew, for ever; and one that is there already is not of
    // our making.
    let owner = Object::named::<WorkloadDeployment>(&object.namespace, &desired.deployment);
    let proof = Proof::read(Write::confirm_present(owner, &desired.hub_uid), Step::Remote)
        .and(Write::confirm_absent(object.clone()), Step::Remote)
        .then([Step::Remote(write)]);
    Plan::writes(proof.into_steps()).with([Signal::Creates])
}

/// What to do about a copy that this cell has not written: it is taken over when nobody's name is on it (the Go
/// operator wrote it), and asked for when it is older than our Instance (the city moved here, or this cell was built anew):
/// no cell writes what another holds, management hands it over. Else it stays: a younger one is another cell's, which got
/// the deployment after us.
fn contest(observed: &Observed, desired: &Desired<'_>, other: &Instance) -> Option<Write<Hub>> {
    match ownership::holder(other, &observed.cell) {
        Holder::Unmarked => instance_copy::ensure(&desired.copy, Some(other)),
        Holder::Other if other.creation_timestamp() < observed.instance.as_ref()?.creation_timestamp() => {
            let is_asked_for = ownership::asking_cell(other) == Some(&observed.cell);
            let ask = json!({ "metadata": { "annotations": { annotation::CLAIMED_BY_CELL: observed.cell } } });
            (!is_asked_for).then(|| Write::amend(manager::WRITE_BACK, ask, other))
        }
        // This cell's is brought by the watch; a younger one of another cell stays.
        Holder::ThisCell | Holder::Other => None,
    }
}

struct Desired<'a> {
    copy: Copy<'a>,
    deployment: String,
    hub_uid: String,
}

/// What keeps an Instance from being written back.
enum Lack {
    /// Nothing that anybody needs to be told.
    Nothing,
    /// The cell does not say it, and the hub has not been asked.
    Unread,
    /// This, in words.
    Said(String),
}

/// Whether the Instance says that it is not written back.
fn is_said(instance: &Instance) -> bool {
    let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    find(conditions, condition::WRITTEN_BACK).is_some()
}

/// Says on the Instance why it is not on the hub, and looks again before long: nothing of the hub's is watched here.
fn waits(observed: &Observed, instance: &Instance, lack: Lack, now: Timestamp) -> Plan<Step<Cell, Hub>, Signal> {
    match lack {
        Lack::Nothing => Plan::nothing(),
        Lack::Unread => Plan::nothing().with([Signal::Asks]),
        Lack::Said(why) => {
            let next = Next::After(observed.timing.write_back_contested);
            Plan::until(not_written_back(instance, why, now).map(Step::Local).into_iter().collect(), next)
        }
    }
}

/// Says on the Instance why it is not on the hub as it is.
fn not_written_back(instance: &Instance, why: String, now: Timestamp) -> Option<Write<Cell>> {
    let old = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let stands = find(old, condition::WRITTEN_BACK).filter(|old| differs_in_their_marks_alone(&old.message, &why));
    let verdict = Verdict::no(Reason::NotWrittenBack, stands.map_or(why, |old| old.message.clone()));
    let said = verdict.into_condition(old, condition::WRITTEN_BACK, instance.metadata.generation, now);
    Write::status(manager::WRITE_BACK, &json!({ "conditions": [said] }), instance)
}

/// What an Instance reports of a write-back that fails; `None` while that may pass.
pub fn failed(observed: &Observed, failure: &Failure, now: Timestamp) -> Option<Write<Cell>> {
    let instance = observed.instance.as_deref().filter(|_| failure.is_due(&observed.timing))?;
    let text = format!(
        "the hub does not take what this Instance reports. Its project sees it as it was, and what runs is not affected: {}",
        failure.words
    );
    not_written_back(instance, text, now)
}

/// The copy to have; else what it lacks. Whose it is, and which deployment owns it, the hub decides. Karmada brings both to
/// the cell, as labels of the namespace and as an annotation of the deployment; where it has not, the hub is asked.
fn desired<'a>(observed: &'a Observed, instance: &'a Instance) -> Result<Desired<'a>, Lack> {
    let namespace = &observed.object.namespace;
    let deployment = observed.deployment.as_deref();
    // A copy or a projection, where a cell is also a hub or a project. What a deployment of this cell controls is none,
    // whatever label its template has brought along.
    if HubNamespace::parse(namespace).is_none() || (ownership::is_copy(instance) && deployment.is_none()) {
        return Err(Lack::Nothing);
    }
    let is_leaving = instance.metadata.deletion_timestamp.is_some();
    let is_orphan = deployment.is_none() && ownership::controller_of(instance).is_some();
    let lack = |why: String| if is_leaving || observed.copy.is_some() { Lack::Nothing } else { Lack::Said(why) };
    if let Some(key) =
        ownership::OF_AN_INSTANCE.iter().find(|key| instance.labels().get(**key).is_none_or(String::is_empty))
    {
        // The deployment's controller puts them back, and their event enqueues the Instance again.
        let own = "the Instance has no label";
        return Err(if deployment.is_some() { Lack::Nothing } else { lack(format!("{own} {key}")) });
    }
    let name = &instance.labels()[label::WORKLOAD_DEPLOYMENT_NAME];
    let brought = deployment.and_then(|deployment| deployment.annotations().get(annotation::TEMPLATE_UID));
    let copied = observed.copy.as_deref();
    let once = copied.and_then(ownership::controller_of).filter(|owner| owner.name == *name).map(|owner| &owner.uid);
    let given = |labels: &BTreeMap<String, String>, key| labels.get(key).filter(|value| !value.is_empty()).cloned();
    let on_cell = |key| given(&observed.namespace_labels, key).or_else(|| given(copied?.labels(), key));
    let (mut identity, mut hub_uid) = (PROJECT.map(on_cell), brought.or(once).cloned());
    if identity.contains(&None) || hub_uid.is_none() {
        match &observed.hub {
            // One whose deployment has gone follows it, and nobody has to be asked whose it was.
            OnHub::Unread if is_leaving || copied.is_some() || is_orphan => return Err(Lack::Nothing),
            OnHub::Unread => return Err(Lack::Unread),
            OnHub::Read { labels: None, .. } => return Err(lack(format!("the hub has no namespace {namespace}"))),
            OnHub::Read { labels: Some(labels), deployment } => {
                if let Some(key) = PROJECT.into_iter().find(|key| given(labels, key).is_none()) {
                    return Err(lack(format!("the hub namespace {namespace} has no label {key}")));
                }
                identity = PROJECT.map(|key| given(labels, key));
                hub_uid = hub_uid.or_else(|| deployment.clone());
            }
        }
    }
    let absent = || lack(format!("the hub has no WorkloadDeployment {namespace}/{name}, which is to own it"));
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
