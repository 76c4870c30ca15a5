//! Companions from Karmada. The caches hold only their presence.

use std::sync::Arc;

use crate::{
    api::{
        meta::label,
        referenced::{DataRef, PerKind, SourceKind},
    },
    controllers::Watches,
    io::{
        store::{ObjectKey, Store},
        watch::{Metadata, PAGE_SIZE},
    },
    plan,
};

/// The companions of a cell. The value is true if the companion is not terminating.
pub(super) struct Companions(PerKind<Arc<Store<bool>>>);

impl Default for Companions {
    fn default() -> Self {
        Self(PerKind::new(|_| Arc::new(Store::new(|_, _| Vec::new()))))
    }
}

impl Companions {
    /// Starts the watches.
    pub(super) fn start(&self, watches: &Watches<'_, plan::Cell>) {
        let scope = format!("{}=true", label::REFERENCED_DATA);
        for kind in SourceKind::ALL {
            let stays = |of: Metadata| of.metadata.deletion_timestamp.is_none();
            watches.metadata(kind.into(), &scope, PAGE_SIZE, stays, self.of(kind).clone());
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.0.values().all(|of_kind| of_kind.is_synced())
    }

    /// True if a companion exists and is not terminating.
    pub(super) fn has(&self, namespace: &str, data_ref: &DataRef) -> bool {
        self.of(data_ref.kind).get(&ObjectKey::new(namespace, &data_ref.name)).is_some_and(|stays| *stays)
    }

    /// Returns the companions of one kind.
    pub(super) fn of(&self, kind: SourceKind) -> &Arc<Store<bool>> {
        self.0.get(kind)
    }
}
