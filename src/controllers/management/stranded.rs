//! Hub namespaces of projects that do not exist: reported, and removed after a grace.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use serde_json::json;
use tokio::time::Instant;

use super::state::Management;
use crate::{
    api::{
        meta::{label, manager},
        names::ProjectName,
        reason::Reason,
    },
    controllers::send,
    io::Error,
    plan::{
        NamespaceFacts, Object, ObjectVersion, Write,
        event::{self, Note, Severity},
    },
};

/// Since when each hub namespace has been stranded, and whether it has been reported.
pub(super) type Stranded = BTreeMap<String, (Instant, bool)>;

/// Looks at them all. One whose project is merely not known yet (discovery not read) is none.
pub(super) async fn look(all: &Arc<Management>, stranded: &mut Stranded) -> Result<(), Error> {
    let mut present = BTreeSet::new();
    for key in all.hub.namespaces.keys() {
        let Some(facts) = all.hub.namespaces.get(&key) else { continue };
        let Some((project, _)) = facts.upstream() else { continue };
        if facts.terminating || !all.is_gone(&project) {
            continue;
        }
        present.insert(key.name.to_string());
        let (since, reported) = *stranded.entry(key.name.to_string()).or_insert((Instant::now(), false));
        if !reported {
            report(all, &key.name, &facts, &project).await?;
            stranded.insert(key.name.to_string(), (since, true));
            continue; // never on one look
        }
        let due = all.options.sweep.stranded_grace.is_some_and(|grace| since.elapsed() >= grace);
        if due && !facts.paused && !all.options.sweep.paused {
            remove(all, &key.name, &facts).await?;
        }
    }
    stranded.retain(|name, _| present.contains(name));
    all.metrics.stranded(present.len());
    Ok(())
}

async fn report(all: &Arc<Management>, name: &str, facts: &NamespaceFacts, project: &ProjectName) -> Result<(), Error> {
    let what = match all.options.sweep.stranded_grace {
        Some(grace) => format!("it is removed in {} s, with all that it holds", grace.as_secs()),
        None => "it is left as it is".to_owned(),
    };
    let text = format!("project {project}, whose objects this namespace holds, does not exist: {what}");
    tracing::warn!(namespace = name, %project, "hub namespace is stranded");
    let mut namespace = v1::Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    namespace.metadata.uid = Some(facts.uid.clone());
    let note = Note { severity: Severity::Warning, reason: Reason::Stranded, action: "Sweeping", text: &text };
    let event = event::on(&namespace, "sweep", &note, Timestamp::now());
    send(&all.hub.plane, &event, &all.metrics).await?;
    Ok(())
}

/// Removes a hub namespace; its protection is lifted for that alone (fact 53).
async fn remove(all: &Arc<Management>, name: &str, facts: &NamespaceFacts) -> Result<(), Error> {
    let object = Object::named::<v1::Namespace>("", name);
    let Some(live) = all.hub.plane.read_metadata(&object).await? else { return Ok(()) };
    let version = ObjectVersion::new(&facts.uid, &live.resource_version.unwrap_or_default());
    let patch = json!({ "metadata": { "labels": { label::DELETION_PROTECTED: null } } });
    let lift = Write::amend_version(manager::FEDERATOR, object.clone(), patch, &version);
    let Some(lifted) = send(&all.hub.plane, &lift, &all.metrics).await? else { return Ok(()) };
    send(&all.hub.plane, &Write::delete_version(object, lifted), &all.metrics).await?;
    tracing::warn!(namespace = name, "stranded hub namespace is removed");
    Ok(())
}
