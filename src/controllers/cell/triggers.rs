//! Which change of a cell's objects enqueues whom.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use kube::ResourceExt;

use super::{caches::Caches, index::Index, networks::Networks, quota_backends::QuotaBackends, write_back::Copies};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::annotation,
        names,
        referenced::{SourceKind, Token},
    },
    controllers::with,
    io::{
        queue::Queue,
        store::{Change, ObjectKey},
    },
    metrics::Metrics,
    plan::{NamespaceFacts, ownership, references::annotated},
};

/// The queues of a cell, and what decides which keys a change puts into them.
pub(super) struct Triggers {
    caches: Arc<Caches>,
    pub(super) deployments: Arc<Queue<ObjectKey>>,
    pub(super) instances: Arc<Queue<ObjectKey>>,
    /// With the quota feature.
    quota: Option<Arc<QuotaBackends>>,
    /// With a hub to write back to.
    copies: Option<Arc<Copies>>,
    metrics: Metrics,
}

impl Triggers {
    pub(super) fn new(
        caches: Arc<Caches>,
        quota: Option<Arc<QuotaBackends>>,
        copies: Option<Arc<Copies>>,
        metrics: Metrics,
    ) -> Self {
        Self { caches, deployments: Arc::default(), instances: Arc::default(), quota, copies, metrics }
    }

    /// Listens to every cache, for as long as `self` lives.
    pub(super) fn listen(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.caches.deployments.listen(move |change| with(&weak, |triggers| triggers.on_deployment(change)));
        let weak = Arc::downgrade(self);
        self.caches.instances.listen(move |change| with(&weak, |triggers| triggers.on_instance(change)));
        let weak = Arc::downgrade(self);
        self.caches.namespaces.listen(move |change| with(&weak, |triggers| triggers.on_namespace(change)));
        let weak = Arc::downgrade(self);
        self.caches.instances.listen_readable(move |namespace| {
            with(&weak, |triggers| triggers.on_readable_instances(namespace));
        });
        if let Some(copies) = &self.copies {
            let weak = Arc::downgrade(self);
            copies.store.listen_readable(move |namespace| {
                with(&weak, |triggers| triggers.enqueue_copies_in(namespace));
            });
        }
        if let Some(companions) = &self.caches.companions {
            for kind in SourceKind::ALL {
                let weak = Arc::downgrade(self);
                companions.of(kind).listen(move |change| with(&weak, |triggers| triggers.on_companion(kind, change)));
            }
        }
        if let Some(networks) = &self.caches.networks {
            self.listen_to_networks(networks);
        }
    }

    fn listen_to_networks(self: &Arc<Self>, networks: &Networks) {
        let weak = Arc::downgrade(self);
        networks.bindings.listen(move |change| {
            let owners = change.old.into_iter().chain(change.new).filter_map(|b| ownership::controller_of(b.as_ref()));
            with(&weak, |triggers| {
                owners.for_each(|owner| triggers.enqueue_deployment(&change.key.namespace, &owner.name));
            });
        });
        let weak = Arc::downgrade(self);
        networks.contexts.listen(move |change| {
            with(&weak, |triggers| triggers.enqueue_users_of_context(&change.key.namespace, &change.key.name));
        });
        let weak = Arc::downgrade(self);
        networks.claims.listen(move |change| {
            let context = change.any().map(|claim| claim.spec.network_context.name.clone());
            with(&weak, |triggers| {
                triggers.enqueue_users_of_context(&change.key.namespace, &context.unwrap_or_default());
            });
        });
        let weak = Arc::downgrade(self);
        networks.subnets.listen(move |change| {
            let context = change.any().map(|subnet| subnet.spec.network_context.name.clone());
            with(&weak, |triggers| {
                triggers.enqueue_users_of_context(&change.key.namespace, &context.unwrap_or_default());
            });
        });
        let weak: Weak<Self> = Arc::downgrade(self);
        networks.locations.listen(move || with(&weak, |triggers| triggers.enqueue_everything()));
    }

    /// A deployment and each of its Instances.
    fn enqueue_deployment(&self, namespace: &str, name: &str) {
        self.deployments.add(ObjectKey::new(namespace, name));
        let Some(deployment) = self.caches.deployments.get(&ObjectKey::new(namespace, name)) else { return };
        let controlled = Index::ControlledBy(deployment.uid().unwrap_or_default());
        for instance in self.caches.instances.keys_by_index(&controlled) {
            self.enqueue_instance(&instance);
        }
    }

    /// Everything that is done for an Instance.
    fn enqueue_instance(&self, instance: &ObjectKey) {
        self.instances.add(instance.clone());
        if let Some(copies) = &self.copies {
            copies.queue.add(instance.clone());
        }
        if let Some(quota) = &self.quota {
            quota.enqueue(instance);
        }
    }

    /// Every Instance.
    pub(super) fn enqueue_instances(&self) {
        for instance in self.caches.instances.keys() {
            self.enqueue_instance(&instance);
        }
    }

    /// Deployments with a binding to a context.
    fn enqueue_users_of_context(&self, namespace: &str, context: &str) {
        let Some(networks) = &self.caches.networks else { return };
        for binding in networks.bindings.by_index(&Index::Context(namespace.to_owned(), context.to_owned())) {
            if let Some(owner) = ownership::controller_of(binding.as_ref()) {
                self.enqueue_deployment(&binding.namespace().unwrap_or_default(), &owner.name);
            }
        }
    }

    /// A cache has been filled anew: everything is looked at, and what failed meanwhile is tried now.
    pub(super) fn enqueue_everything(&self) {
        for queue in [&self.deployments, &self.instances] {
            queue.retry_now(&());
        }
        for key in self.caches.deployments.keys() {
            self.deployments.add(key);
        }
        self.enqueue_instances();
        self.enqueue_copies();
    }

    /// The hub's cache, or the cell's, has been filled anew: every copy is looked at.
    pub(super) fn enqueue_copies(&self) {
        let Some(copies) = &self.copies else { return };
        copies.queue.retry_now(&());
        for key in self.caches.instances.keys().into_iter().chain(copies.store.keys()) {
            copies.queue.add(key);
        }
    }

    fn on_deployment(&self, change: &Change<'_, WorkloadDeployment>) {
        self.deployments.add(change.key.clone());
        // Instances read nothing of a deployment's status.
        let same = change.old.zip(change.new).is_some_and(|(old, new)| {
            old.metadata.generation == new.metadata.generation && old.metadata.annotations == new.metadata.annotations
        });
        if !same {
            self.count_companions(&change.key.namespace);
            self.enqueue_deployment(&change.key.namespace, &change.key.name);
        }
    }

    fn on_instance(&self, change: &Change<'_, Instance>) {
        self.enqueue_instance(change.key);
        if let Some(owner) = change.any().and_then(|instance| ownership::controller_of(instance.as_ref())) {
            self.deployments.add(ObjectKey::new(&change.key.namespace, &owner.name));
        }
        // One that has another owner, or lost it, may have stood in the way of what a deployment is to have.
        if let (None, Some(deployment)) = (change.new, names::deployment_of_instance(&change.key.name)) {
            self.deployments.add(ObjectKey::new(&change.key.namespace, deployment));
        }
        if let (None, Some(quota)) = (change.new, &self.quota) {
            quota.retire_unused(&change.key.namespace);
        }
    }

    /// Every Instance of a namespace can be read again: whoever waited for that is looked at, also for Instances that
    /// went meanwhile.
    fn on_readable_instances(&self, namespace: &str) {
        for key in self.caches.deployments.keys_by_index(&Index::namespace(namespace)) {
            self.deployments.add(key);
        }
        for instance in self.caches.instances_in(namespace) {
            self.enqueue_instance(&instance);
        }
        self.enqueue_copies_in(namespace);
        if let Some(quota) = &self.quota {
            quota.enqueue_claims_for(namespace);
        }
    }

    /// The write-back of every Instance of a namespace, and of every copy that may have lost its Instance.
    fn enqueue_copies_in(&self, namespace: &str) {
        let Some(copies) = &self.copies else { return };
        let there = copies.store.keys().into_iter().filter(|copy| &*copy.namespace == namespace);
        for key in self.caches.instances_in(namespace).into_iter().chain(there) {
            copies.queue.add(key);
        }
    }

    fn on_namespace(&self, change: &Change<'_, NamespaceFacts>) {
        if change.old != change.new {
            for instance in self.caches.instances_in(&change.key.name) {
                self.enqueue_instance(&instance);
            }
        }
    }

    /// A companion came or went: those who need it are looked at, and nobody else.
    fn on_companion(&self, kind: SourceKind, change: &Change<'_, bool>) {
        if change.old == change.new {
            return;
        }
        let token = Token { kind, name: change.key.name.to_string() };
        let needs = Index::Needs(change.key.namespace.to_string(), token);
        for instance in self.caches.instances.keys_by_index(&needs) {
            self.enqueue_instance(&instance);
        }
        self.count_companions(&change.key.namespace);
    }

    /// Keeps the gauges of a namespace.
    fn count_companions(&self, namespace: &str) {
        let Some(companions) = &self.caches.companions else { return };
        let expected: BTreeSet<Token> = self
            .caches
            .deployments
            .by_index(&Index::namespace(namespace))
            .iter()
            .flat_map(|deployment| annotated(deployment, annotation::EXPECTED_REFERENCED_DATA))
            .collect();
        let present = expected.iter().filter(|token| companions.has(namespace, token)).count();
        self.metrics.companions(namespace, expected.len(), present);
    }
}
