//! Events of the collector on hub namespaces. Each exists once at a time ([`event::once`]).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;

use super::{
    table::{Grace, Observed, Read, Rule},
    works::Left,
};
use crate::{
    api::{compute::WorkloadDeployment, meta::annotation, reason::Reason},
    plan::{
        Hub, Object, ObjectVersion, Write,
        event::{self, Note, Severity},
        management::observed::facts::{Going, holders},
    },
};

/// Reports that an owner is gone, and that its objects wait for their grace. `on`: the object that records the start of the
/// grace.
pub(super) fn waits(observed: &Observed, on: &Object, now: Timestamp) -> Write<Hub> {
    let grace = match observed.grace {
        Grace::Noted(Some(grace)) => Some(grace),
        Grace::Noted(None) | Grace::Nothing | Grace::OneSweep => None,
    };
    let owner = match &observed.owner {
        Read::NoNamespace { name, uid } => format!("Namespace {name} with the uid {uid}"),
        Read::NotOnHub(owner) | Read::NotInProject(owner) | Read::NoProject(owner) => owner.to_string(),
    };
    let (reason, text) = match observed.rule {
        Rule::Copy => (Reason::DeletionsPaused, copy_waits(on, &owner, grace)),
        _ => (Reason::Stranded, namespace_waits(observed, &owner, grace)),
    };
    warn(&observed.namespace, &observed.hub_namespace.uid, (reason, &text), "", now)
}

fn copy_waits(copy: &Object, owner: &str, grace: Option<Duration>) -> String {
    format!(
        "{copy} has lost its original: {owner} does not exist in the project. Other copies in this namespace may have lost \
         their originals too. Their Instances run for {} s, and are then deleted. To keep the Instances, recreate the originals. \
         To delete them now, delete the copies.",
        grace.unwrap_or_default().as_secs()
    )
}

fn namespace_waits(observed: &Observed, owner: &str, grace: Option<Duration>) -> String {
    let project = observed.project.as_ref().map(ToString::to_string).unwrap_or_default();
    let place = match observed.rule {
        Rule::ControlPlane => format!(" in project {project}, which has another control plane"),
        _ => String::new(),
    };
    let then = match grace {
        Some(grace) => format!("Its objects in this hub namespace are deleted in {} s.", grace.as_secs()),
        None => "Its objects in this hub namespace are kept.".to_owned(),
    };
    format!("{owner} does not exist{place}. {then}")
}

/// Reports that the hub refuses to delete an object without its owner.
pub fn refused(observed: &Observed, why: &str, now: Timestamp) -> Write<Hub> {
    let what = observed.items.first().map(|item| item.object.to_string()).unwrap_or_default();
    let text = format!(
        "{what} has lost its owner, and the hub refuses to delete it. It may still run in cells. The next sweep tries \
         again: {why}"
    );
    warn(&observed.namespace, &observed.hub_namespace.uid, (Reason::RemovalRefused, &text), "", now)
}

/// Reports that the hub refuses the annotation that starts the grace of an object without its owner.
pub fn note_refused(observed: &Observed, why: &str, now: Timestamp) -> Write<Hub> {
    let what = observed.noted.as_ref().map(|noted| noted.on.object.to_string()).unwrap_or_default();
    let text = format!(
        "{what} has lost its owner, and the hub refuses its annotation {}. The object is kept, because its grace period \
         cannot start. The next sweep tries again: {why}",
        annotation::STRANDED_SINCE
    );
    warn(&observed.namespace, &observed.hub_namespace.uid, (Reason::RemovalRefused, &text), "note", now)
}

/// Reports a copy whose namespace is gone, and that finalizers keep from being deleted. The ConfigMaps and Secrets in its hub
/// namespace are kept as long. `None` until that has lasted for `patience`.
pub fn copy_held(copy: &WorkloadDeployment, patience: Duration, now: Timestamp) -> Option<Write<Hub>> {
    let held = Going::of(&copy.metadata).filter(|held| held.lasted(now) >= patience)?;
    let text = format!(
        "This copy is terminating: it has {}. The ConfigMaps and Secrets in its namespace are kept until it is deleted.",
        holders(&held.finalizers)
    );
    let note = Note { severity: Severity::Warning, reason: Reason::HubCopyHeld, action: "Sweeping", text: &text };
    Some(event::once(&Object::of(copy), &ObjectVersion::of(&copy.metadata), "sweep", (&note, ""), now))
}

/// Reports that Works of deleted objects are left on a cluster.
pub fn left_on_cluster(namespace: &str, uid: &str, cluster: &str, left: &Left, now: Timestamp) -> Write<Hub> {
    let text = format!(
        "Karmada still keeps {} Work(s) for Cluster {cluster} of objects that are deleted here, such as {}. These run there \
         as long as the cluster does not answer.",
        left.count, left.example
    );
    warn(namespace, uid, (Reason::LeftOnCluster, &text), cluster, now)
}

fn warn(namespace: &str, uid: &str, (reason, text): (Reason, &str), subject: &str, now: Timestamp) -> Write<Hub> {
    let note = Note { severity: Severity::Warning, reason, action: "Sweeping", text };
    let object = Object::named::<Namespace>("", namespace);
    event::once(&object, &ObjectVersion::new(uid, ""), "sweep", (&note, subject), now)
}
