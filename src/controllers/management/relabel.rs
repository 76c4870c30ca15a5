//! Puts back the label of what has lost it, by which whoever keeps it finds it.

use super::hub_cache::HubCache;
use crate::{
    controllers::send,
    io::{Error, store::ObjectKey},
    metrics::Metrics,
    plan::{Kind, NamespaceFacts, Object, management::unlabelled},
};

/// Puts its label back on a companion or a copy that is there without it, if it is ours: whoever keeps it will see to it.
pub(super) async fn relabel(hub: &HubCache, object: &Object, metrics: &Metrics) -> Result<(), Error> {
    let Some(found) = hub.plane.read_metadata(object).await? else { return Ok(()) };
    let label = if object.kind == Kind::WorkloadDeployment {
        let namespace = hub.namespaces.get(&ObjectKey::new("", &object.namespace));
        let own = namespace.as_deref().and_then(NamespaceFacts::upstream).map(|(_, own)| own.to_owned());
        own.and_then(|own| unlabelled::relabel_copy(object, &found, &own))
    } else {
        unlabelled::relabel(object, &found)
    };
    if let Some(label) = label {
        tracing::warn!(%object, "an object that has lost its label gets it back");
        send(&hub.plane, &label, metrics).await?;
    }
    Ok(())
}
