//! Puts back the label of what has lost it, by which whoever keeps it finds it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;

use super::{Collector, round::Round};
use crate::controllers::management::{Context, hub::hub_cache::HubCache};
use crate::{
    api::{meta::label, names::ProjectName, referenced::SourceKind},
    controllers::send,
    io::{Class, Error, store::ObjectKey},
    metrics::Metrics,
    plan::{
        Keeper, Kind, NamespaceFacts, Object, ObjectVersion,
        management::{
            collector::relabel::{self, LostNamespace},
            projects::unreadable,
        },
    },
};

/// How many namespaces that do not say what they mirror are read in one sweep.
const READS: usize = 100;

/// Puts its label back on a companion or a copy that is there without it, if it is ours: whoever keeps it will see to it.
pub(crate) async fn relabel(hub: &HubCache, object: &Object, metrics: &Metrics) -> Result<(), Error> {
    let Some(found) = hub.plane.read_metadata(object).await? else { return Ok(()) };
    let label = if object.kind == Kind::WorkloadDeployment {
        let namespace = hub.namespaces.get(&ObjectKey::new("", &object.namespace));
        let own = namespace.as_deref().and_then(NamespaceFacts::upstream).map(|(_, own)| own.to_owned());
        own.and_then(|own| relabel::relabel_copy(object, &found, &own))
    } else {
        relabel::relabel(object, &found)
    };
    if let Some(label) = label {
        tracing::warn!(%object, "an object that has lost its label gets it back");
        send(&hub.plane, &label, metrics).await?;
    }
    Ok(())
}

/// Puts their labels back on hub namespaces that hold what is ours without saying what they mirror. Without a project's deployment
/// that would be federated there, nobody else looks at them.
///
/// # Errors
/// What the hub answers; what has changed meanwhile is looked at by the next sweep.
pub(super) async fn relabel_namespaces(of: &Collector, round: &mut Round<'_>) -> Result<(), Error> {
    let Context { hub, projects, metrics, .. } = &*of.ctx;
    let mut lost = lost_namespaces(hub);
    if lost.is_empty() {
        return Ok(());
    }
    let keepers: Vec<(ProjectName, Keeper)> =
        projects.all().iter().map(|project| (project.name.clone(), projects.keeper(project))).collect();
    // Where few are read, none is always the last.
    fastrand::shuffle(&mut lost);
    for (name, own) in lost.into_iter().take(READS) {
        let object = Object::named::<Namespace>("", &name);
        let Some(found) = hub.plane.read_metadata(&object).await? else { continue };
        match relabel::relabel_namespace(&name, &found, &keepers, own.as_deref()) {
            LostNamespace::Left => {}
            LostNamespace::Unknown => {
                let version = ObjectVersion::of(&found);
                tracing::warn!(namespace = name, "nobody can say what a hub namespace mirrors");
                let event = unreadable::mirrored(&object, &version, round.now.time);
                round.events.send(&hub.plane, &event, metrics, round.now).await;
            }
            LostNamespace::Relabelled(write) => {
                tracing::warn!(namespace = name, "a hub namespace that has lost its labels gets them back");
                match send(&hub.plane, &write, metrics).await {
                    Err(error) if error.class() != Class::Conflict => return Err(error),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// The namespaces that hold what is ours and that no list of ours has as a project's, and of each the namespace of the project
/// that the copies in it say they are of, where they agree.
fn lost_namespaces(hub: &HubCache) -> Vec<(String, Option<String>)> {
    let is_lost = |namespace: &str| {
        let facts = hub.namespaces.get(&ObjectKey::new("", namespace));
        facts.is_none_or(|facts| facts.upstream().is_none())
    };
    let mut lost: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for kind in SourceKind::ALL {
        let keys = hub.companions(kind).keys();
        lost.extend(
            keys.iter().filter(|key| is_lost(&key.namespace)).map(|key| (key.namespace.to_string(), [].into())),
        );
    }
    for (key, copy) in hub.copies.entries() {
        if is_lost(&key.namespace) {
            let said = copy.open().labels().get(label::UPSTREAM_NAMESPACE).cloned();
            lost.entry(key.namespace.to_string()).or_default().extend(said);
        }
    }
    let agreed = |said: BTreeSet<String>| if said.len() == 1 { said.into_iter().next() } else { None };
    lost.into_iter().map(|(namespace, said)| (namespace, agreed(said))).collect()
}
