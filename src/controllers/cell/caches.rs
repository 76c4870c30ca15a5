//! What a cell knows: the caches behind the snapshots of its controllers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use kube::ResourceExt;

use super::{companions::Companions, index::Index, networks::Networks};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        names::{self, ProjectName},
    },
    io::{
        clients::ControlPlane,
        store::{ObjectKey, Store},
    },
    plan::{
        self, NamespaceFacts,
        cell::{Features, instances, networks, quota_trouble},
        ownership,
        references::references,
    },
};

/// The cell, and what is known of it.
pub(super) struct Caches {
    /// The cell's control plane.
    pub(super) plane: ControlPlane<plan::Cell>,
    /// Uid of the cell's `kube-system` namespace, once it is known.
    pub(super) uid: OnceLock<String>,
    /// What Instances are gated on.
    pub(super) features: Features,
    /// Namespaces that Karmada brought, with the labels that say what they mirror; by [`Index::Project`].
    pub(super) namespaces: Arc<Store<NamespaceFacts, Index>>,
    /// Copies that Karmada brought, by [`Index::Namespace`].
    pub(super) deployments: Arc<Store<WorkloadDeployment, Index>>,
    /// By [`Index::ControlledBy`], [`Index::NamedAfter`], [`Index::Namespace`], [`Index::Needs`] and [`Index::Unanswered`].
    pub(super) instances: Arc<Store<Instance, Index>>,
    /// With the network feature.
    pub(super) networks: Option<Networks>,
    /// With the data feature.
    pub(super) companions: Option<Companions>,
}

impl Caches {
    pub(super) fn new(plane: ControlPlane<plan::Cell>, features: Features) -> Self {
        Self {
            plane,
            uid: OnceLock::new(),
            features,
            namespaces: Arc::new(Store::new(|_, facts: &NamespaceFacts| {
                facts.upstream().map(|(project, _)| Index::Project(project)).into_iter().collect()
            })),
            deployments: Arc::new(Store::new(|key, _| vec![Index::namespace(&key.namespace)])),
            instances: Arc::new(Store::new(|key, instance: &Instance| {
                let owner = ownership::controller_of(instance).map(|owner| Index::ControlledBy(owner.uid.clone()));
                let needs = references(&instance.spec);
                let needs =
                    needs.into_iter().map(|reference| Index::Needs(key.namespace.to_string(), reference.data_ref));
                let unanswered = quota_trouble::unanswered(instance).map(Index::Unanswered);
                let named_after = names::deployment_of_instance(&key.name)
                    .map(|deployment| Index::NamedAfter(key.namespace.to_string(), deployment.to_owned()));
                let places = owner.into_iter().chain(named_after).chain([Index::namespace(&key.namespace)]);
                places.chain(needs).chain(unanswered).collect()
            })),
            networks: features.networks.then(Networks::default),
            companions: features.data.then(Companions::default),
        }
    }

    /// Whether everything is known that quota and the write-back read.
    pub(super) fn is_synced(&self) -> bool {
        self.namespaces.is_synced() && self.deployments.is_synced() && self.instances.is_synced()
    }

    /// Whether everything is known that making Instances and opening their gates reads.
    pub(super) fn knows_all(&self) -> bool {
        self.is_synced()
            && self.networks.as_ref().is_none_or(Networks::is_synced)
            && self.companions.as_ref().is_none_or(Companions::is_synced)
    }

    /// The deployment of this cell that controls an Instance. A projection in a project's namespace has none.
    pub(super) fn owner(&self, instance: &Instance) -> Option<Arc<WorkloadDeployment>> {
        let owner = ownership::controller_of(instance)?;
        let namespace = instance.namespace().unwrap_or_default();
        let deployment = self.deployments.get(&ObjectKey::new(&namespace, &owner.name))?;
        ownership::is_controlled_by(instance, deployment.as_ref()).then_some(deployment)
    }

    /// The Instances that a deployment controls.
    pub(super) fn instances_of(&self, deployment: &WorkloadDeployment) -> Vec<Arc<Instance>> {
        self.instances.by_index(&Index::ControlledBy(deployment.uid().unwrap_or_default()))
    }

    /// Instances under names that a deployment makes, which it does not control.
    pub(super) fn in_the_way_of(&self, deployment: &WorkloadDeployment) -> impl Iterator<Item = Arc<Instance>> {
        let named_after = Index::NamedAfter(deployment.namespace().unwrap_or_default(), deployment.name_any());
        let is_in_the_way = |instance: &Arc<Instance>| {
            instances::place_of(&instance.name_any(), deployment).is_some()
                && !ownership::is_controlled_by(instance.as_ref(), deployment)
        };
        self.instances.by_index(&named_after).into_iter().filter(is_in_the_way)
    }

    /// Names of Instances that nobody can read, under which a deployment may have one: unknown is not absent.
    pub(super) fn unreadable_of(&self, deployment: &WorkloadDeployment) -> BTreeSet<String> {
        let unreadable = self.instances.unreadable_in(&deployment.namespace().unwrap_or_default());
        let own = deployment.name_any();
        let is_own = |name: &Arc<str>| names::deployment_of_instance(name) == Some(own.as_str());
        unreadable.into_iter().filter(is_own).map(|name| name.to_string()).collect()
    }

    /// Keys of the Instances of a namespace.
    pub(super) fn instances_in(&self, namespace: &str) -> Vec<ObjectKey> {
        self.instances.keys_by_index(&Index::namespace(namespace))
    }

    /// Namespaces that mirror one of this project.
    pub(super) fn namespaces_of(&self, project: &ProjectName) -> Vec<ObjectKey> {
        self.namespaces.keys_by_index(&Index::Project(project.clone()))
    }

    /// Labels of a namespace, as far as they are kept; none when it is not there.
    pub(super) fn labels_of(&self, namespace: &str) -> BTreeMap<String, String> {
        let facts = self.namespaces.get(&ObjectKey::new("", namespace));
        facts.map(|facts| facts.labels.clone()).unwrap_or_default()
    }

    /// What is known of the networks of a deployment's first `interfaces` interfaces; only with the network feature.
    pub(super) fn observe_networks(
        &self,
        deployment: &WorkloadDeployment,
        interfaces: usize,
    ) -> Option<networks::Observed> {
        self.networks.as_ref().map(|networks| networks.observe(deployment, interfaces))
    }

    /// The companions that an Instance refers to and that stay; only with the data feature.
    pub(super) fn observe_companions(&self, instance: &Instance) -> Option<BTreeSet<crate::api::referenced::DataRef>> {
        let companions = self.companions.as_ref()?;
        let namespace = instance.namespace().unwrap_or_default();
        let needed = references(&instance.spec).into_iter().map(|reference| reference.data_ref);
        Some(needed.filter(|data_ref| companions.has(&namespace, data_ref)).collect())
    }
}

#[cfg(test)]
#[path = "caches_tests.rs"]
mod tests;
