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
        meta::{GROUP, VERSION, annotation, label, manager},
    },
    plan::{
        Cell, Hub, Next, Object, Plan, Shared, Step, Write,
        instance_copy::{self, Copy},
        ownership::{self, Holder},
    },
    timing::Timing,
};

/// What every Instance must say of itself before it is copied.
pub(in crate::plan) const DEMANDED: [&str; 7] = [
    label::WORKLOAD_UID,
    label::WORKLOAD_DEPLOYMENT_UID,
    label::WORKLOAD_DEPLOYMENT_NAME,
    label::INSTANCE_INDEX,
    label::CITY_CODE,
    label::WORKLOAD_NAME,
    label::PLACEMENT_NAME,
];

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
    /// Whether another copy is where a new one is to be.
    pub rival: Rival,
    /// How long to wait for what.
    pub timing: Timing,
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
}

/// Decides the writes for one Instance's copy; nothing of it depends on the time.
pub fn plan(observed: &Observed, _: Timestamp) -> Plan<Step<Cell, Hub>, Signal> {
    let object = &observed.object;
    let copy = observed.copy.as_deref();
    let Some(desired) = desired(observed) else {
        // Only an Instance that is gone takes its copy along; one that cannot be judged keeps what it has.
        let leftover = copy.filter(|_| observed.instance.is_none());
        let Some(delete) = leftover.and_then(Write::delete) else {
            return Plan::nothing();
        };
        let confirm = Write::confirm_absent(Object::named::<Instance>(&object.namespace, &object.name));
        return Plan::writes(vec![Step::Local(confirm), Step::Remote(delete)]);
    };
    let Some(write) = instance_copy::ensure(&desired.copy, copy) else { return Plan::nothing() };
    if copy.is_some() {
        return Plan::writes(vec![Step::Remote(write)]);
    }
    let (recreate, contested) = (observed.timing.write_back_recreate, observed.timing.write_back_contested);
    match &observed.rival {
        Rival::Unread => {}
        Rival::Absent => return Plan::until(Vec::new(), Next::After(recreate)),
        Rival::Present(other) => {
            return match contest(observed, &desired, other) {
                Some(write) => Plan::until(vec![Step::Remote(write)], Next::After(recreate)),
                // What is handed over to us is brought by the watch of our own.
                None => Plan::until(Vec::new(), Next::After(contested)),
            };
        }
    }
    // A copy whose owner is gone would be collected and made anew, for ever; and one that is there already is not of
    // our making.
    Plan::writes(vec![
        Step::Remote(Write::confirm_present(
            Object::named::<WorkloadDeployment>(&object.namespace, &desired.deployment),
            &desired.hub_uid,
        )),
        Step::Remote(Write::confirm_absent(Object::named::<Instance>(&object.namespace, &object.name))),
        Step::Remote(write),
    ])
    .with([Signal::Creates])
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

/// The copy to have; `None` while something it must say is not known, or nobody on the hub would own it.
fn desired(observed: &Observed) -> Option<Desired<'_>> {
    let (instance, deployment) = (observed.instance.as_deref()?, observed.deployment.as_deref()?);
    if DEMANDED.iter().any(|key| instance.labels().get(*key).is_none_or(String::is_empty)) {
        return None; // the deployment's controller puts them back, and their event enqueues the Instance again
    }
    let upstream = |key: &'static str| {
        observed.namespace_labels.get(key).filter(|value| !value.is_empty()).map(|value| (key, value.clone()))
    };
    let hub_uid = deployment.annotations().get(annotation::TEMPLATE_UID)?.clone();
    let labels = BTreeMap::from([
        upstream(label::UPSTREAM_CLUSTER)?,
        upstream(label::UPSTREAM_NAMESPACE)?,
        (label::CELL_UID, observed.cell.clone()),
    ]);
    let owner = json!([{
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "WorkloadDeployment",
        "name": deployment.name_any(), "uid": hub_uid, "controller": true, "blockOwnerDeletion": true,
    }]);
    debug_assert!(ownership::is_controlled_by(instance, deployment));
    let copy =
        Copy { source: instance, namespace: &observed.object.namespace, labels, owner, manager: manager::WRITE_BACK };
    Some(Desired { copy, deployment: deployment.name_any(), hub_uid })
}

#[cfg(test)]
#[path = "write_back_tests.rs"]
mod tests;
