//! Events of the collector on hub namespaces. Each exists once at a time ([`event::once`]), so that a sweep remembers none.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;

use super::{
    table::{Grace, Observed, Read, Rule},
    works::Left,
};
use crate::{
    api::reason::Reason,
    plan::{
        Hub, Object, ObjectVersion, Write,
        event::{self, Note, Severity},
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
    warn(&observed.namespace, &observed.namespace_uid, (reason, &text), "", now)
}

fn copy_waits(copy: &Object, owner: &str, grace: Option<Duration>) -> String {
    format!(
        "{copy} has lost its original, and perhaps others here have: {owner} does not exist in the project, and did not wait for its \
         copy. Somebody removed a finalizer, or the project was restored from a backup. What runs keeps running for {} s, and is \
         deleted then. Restore the originals to keep it, or delete the copies to end it now.",
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
        Some(grace) => format!("What this hub namespace holds of it is deleted in {} s.", grace.as_secs()),
        None => "What this hub namespace holds of it is kept.".to_owned(),
    };
    format!("{owner} does not exist{place}. {then}")
}

/// Reports that the hub refuses to delete an object without its owner.
pub fn refused(observed: &Observed, why: &str, now: Timestamp) -> Write<Hub> {
    let what = observed.items.first().map(|item| item.object.to_string()).unwrap_or_default();
    let text = format!(
        "{what} has lost its owner, and the hub does not let this operator delete it. It may keep running in cells. The next sweep \
         tries again: {why}"
    );
    warn(&observed.namespace, &observed.namespace_uid, (Reason::RemovalRefused, &text), "", now)
}

/// Reports that Works of deleted objects are left on a cluster.
pub fn left_on_cluster(namespace: &str, uid: &str, cluster: &str, left: &Left, now: Timestamp) -> Write<Hub> {
    let text = format!(
        "Karmada still keeps {} Work(s) for Cluster {cluster} of what is deleted here, of {} among them. It keeps running there \
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
