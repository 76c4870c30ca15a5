//! The companions that Karmada brought: that they are there, and nothing else of them.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::PartialObjectMeta;

use super::{State, namespace_index};
use crate::{
    api::{
        meta::{annotation, label},
        referenced::{SourceKind, Token},
    },
    controllers::{Watches, with},
    io::store::{Change, ObjectKey, Store},
    plan::{self, references::annotated},
};

/// See the module. A companion counts while it is not on its way out.
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

/// Index value of Instances that refer to a ConfigMap or Secret.
pub(super) fn index(namespace: &str, token: &Token) -> String {
    format!("needs {namespace}/{token}")
}

impl Companions {
    pub(super) fn start(&self, state: &Arc<State>, watches: &Watches<'_, plan::Cell>) {
        for kind in SourceKind::ALL {
            let weak = Arc::downgrade(state);
            self.of(kind).listen(move |change| with(&weak, |state| state.on_companion(kind, change)));
        }
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

    fn of(&self, kind: SourceKind) -> &Arc<Store<bool>> {
        match kind {
            SourceKind::ConfigMap => &self.config_maps,
            SourceKind::Secret => &self.secrets,
        }
    }
}

impl State {
    /// A companion came or went: those who need it look again, and nobody else.
    fn on_companion(&self, kind: SourceKind, change: &Change<'_, bool>) {
        if change.old == change.new {
            return;
        }
        let token = Token { kind, name: change.key.name.to_string() };
        for instance in self.instances.keys_by_index(&index(&change.key.namespace, &token)) {
            self.wake_instance(&instance);
        }
        self.count_companions(&change.key.namespace);
    }

    /// Keeps the gauges of a namespace.
    pub(super) fn count_companions(&self, namespace: &str) {
        let Some(companions) = &self.companions else { return };
        let expected: BTreeSet<Token> = self
            .deployments
            .by_index(&namespace_index(namespace))
            .iter()
            .flat_map(|deployment| annotated(deployment, annotation::EXPECTED_REFERENCED_DATA))
            .collect();
        let present = expected.iter().filter(|token| companions.has(namespace, token)).count();
        self.metrics.companions(namespace, expected.len(), present);
    }
}
