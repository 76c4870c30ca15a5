//! Registers the triggers as listeners of all caches.

use std::sync::Arc;

use super::{networks::Networks, triggers::Triggers, write_back::Copies};
use crate::{
    api::referenced::SourceKind,
    controllers::{delta, with},
    plan::cell::triggers::Change,
};

impl Triggers {
    /// Listens to every change on the cell, and to every change of its copies on the hub.
    pub(super) fn listen(self: &Arc<Self>) {
        let caches = &self.caches;
        let weak = Arc::downgrade(self);
        caches.deployments.listen(move |c| with(&weak, |this| this.after(&Change::Deployment(delta(c)))));
        let weak = Arc::downgrade(self);
        caches.instances.listen(move |c| with(&weak, |this| this.after(&Change::Instance(delta(c)))));
        let weak = Arc::downgrade(self);
        caches.instances.listen_readable(move |namespace| {
            with(&weak, |this| this.after(&Change::InstancesReadable(namespace)));
        });
        let weak = Arc::downgrade(self);
        caches.namespaces.listen(move |c| with(&weak, |this| this.after(&Change::Namespace(delta(c)))));
        if let Some(companions) = &caches.companions {
            for kind in SourceKind::ALL {
                let weak = Arc::downgrade(self);
                companions.of(kind).listen(move |c| with(&weak, |this| this.after(&Change::Companion(kind, delta(c)))));
            }
        }
        if let Some(networks) = &caches.networks {
            self.listen_to_networks(networks);
        }
        if let Some(copies) = &self.copies {
            self.listen_to_copies(copies);
        }
    }

    fn listen_to_networks(self: &Arc<Self>, networks: &Networks) {
        let weak = Arc::downgrade(self);
        networks.bindings.listen(move |c| with(&weak, |this| this.after(&Change::NetworkBinding(delta(c)))));
        let weak = Arc::downgrade(self);
        networks.contexts.listen(move |c| {
            with(&weak, |this| this.after(&Change::NetworkContext(&c.key.namespace, &c.key.name)));
        });
        let weak = Arc::downgrade(self);
        networks.claims.listen(move |c| with(&weak, |this| this.after(&Change::SubnetClaim(delta(c)))));
        let weak = Arc::downgrade(self);
        networks.subnets.listen(move |c| with(&weak, |this| this.after(&Change::Subnet(delta(c)))));
        let weak = Arc::downgrade(self);
        networks.locations.listen(move |c| with(&weak, |this| this.after(&Change::Location(delta(c)))));
    }

    fn listen_to_copies(self: &Arc<Self>, copies: &Copies) {
        let weak = Arc::downgrade(self);
        copies.store.listen(move |c| {
            with(&weak, |this| this.after(&Change::Copy(&c.key.namespace, &c.key.name)));
        });
        let weak = Arc::downgrade(self);
        copies.store.listen_readable(move |namespace| {
            with(&weak, |this| this.after(&Change::CopiesReadable(namespace)));
        });
    }
}
