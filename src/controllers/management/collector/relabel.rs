//! Restores lost labels, so that the controllers find the objects again.

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

/// Maximum number of namespaces without our labels that one sweep reads.
const READS: usize = 100;

/// Restores the lost label of a companion or a copy of ours. Then its controller reconciles it.
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
        tracing::warn!(%object, "restoring the lost label of an object");
        send(&hub.plane, &label, metrics).await?;
    }
    Ok(())
}

/// Restores the labels of hub namespaces that hold objects of ours. If the project has no deployment to federate there, no other
/// controller reconciles them.
///
/// # Errors
/// The error of the hub. A conflict is no error: the next sweep decides again.
pub(super) async fn relabel_namespaces(of: &Collector, round: &mut Round<'_>) -> Result<(), Error> {
    let Context { hub, projects, metrics, .. } = &*of.ctx;
    let mut lost = lost_namespaces(hub);
    if lost.is_empty() {
        return Ok(());
    }
    let keepers: Vec<(ProjectName, Keeper)> =
        projects.all().iter().map(|project| (project.name.clone(), projects.keeper(project))).collect();
    // The order changes in each sweep, so that the limit does not always skip the same namespaces.
    fastrand::shuffle(&mut lost);
    for (name, own) in lost.into_iter().take(READS) {
        let object = Object::named::<Namespace>("", &name);
        let Some(found) = hub.plane.read_metadata(&object).await? else { continue };
        match relabel::relabel_namespace(&name, &found, &keepers, own.as_deref()) {
            LostNamespace::Left => {}
            LostNamespace::Unknown => {
                let version = ObjectVersion::of(&found);
                tracing::warn!(namespace = name, "the project of a hub namespace is unknown");
                let event = unreadable::mirrored(&object, &version, round.now.time);
                round.events.send(&hub.plane, &event, metrics, round.now).await;
            }
            LostNamespace::Relabelled(write) => {
                tracing::warn!(namespace = name, "restoring the lost labels of a hub namespace");
                match send(&hub.plane, &write, metrics).await {
                    Err(error) if error.class() != Class::Conflict => return Err(error),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// Returns the namespaces that hold objects of ours without the labels of a hub namespace. Each comes with the project's
/// namespace that its copies name, if they agree.
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
