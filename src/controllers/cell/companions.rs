//! The companions that Karmada brought: that they are there, and nothing else of them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;

use crate::{
    api::{
        meta::label,
        referenced::{SourceKind, Token},
    },
    controllers::Watches,
    io::store::{ObjectKey, Store},
    plan,
};

/// The companions of a cell, each with whether it stays: one that is on its way out does not count.
pub(super) struct Companions {
    config_maps: Arc<Store<bool>>,
    secrets: Arc<Store<bool>>,
}

impl Default for Companions {
    fn default() -> Self {
        let store = || Arc::new(Store::new(|_, _| Vec::new()));
        Self { config_maps: store(), secrets: store() }
    }
}

impl Companions {
    /// Starts the watches.
    pub(super) fn start(&self, watches: &Watches<'_, plan::Cell>) {
        let scope = format!("{}=true", label::REFERENCED_DATA);
        watches.start::<PartialObjectMeta<ConfigMap>, _>(
            &scope,
            |of| of.metadata.deletion_timestamp.is_none(),
            &self.config_maps,
        );
        watches.start::<PartialObjectMeta<Secret>, _>(
            &scope,
            |of| of.metadata.deletion_timestamp.is_none(),
            &self.secrets,
        );
    }

    pub(super) fn is_synced(&self) -> bool {
        SourceKind::ALL.into_iter().all(|kind| self.of(kind).is_synced())
    }

    /// Whether a companion is there, and stays.
    pub(super) fn has(&self, namespace: &str, token: &Token) -> bool {
        self.of(token.kind).get(&ObjectKey::new(namespace, &token.name)).is_some_and(|stays| *stays)
    }

    /// The companions of one kind.
    pub(super) fn of(&self, kind: SourceKind) -> &Arc<Store<bool>> {
        match kind {
            SourceKind::ConfigMap => &self.config_maps,
            SourceKind::Secret => &self.secrets,
        }
    }
}
