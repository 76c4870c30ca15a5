//! Caches of a cell, from which its controllers take their snapshots.

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

/// The control plane of the cell, and the caches of its objects.
pub(super) struct Caches {
    /// The cell's control plane.
    pub(super) plane: ControlPlane<plan::Cell>,
    /// Uid of the cell's `kube-system` namespace. Unset until it is known.
    pub(super) uid: OnceLock<String>,
    /// Features that hold Instances at a gate.
    pub(super) features: Features,
    /// Namespaces from Karmada, with the labels that name the mirrored namespace. Indexed by [`Index::Project`].
    pub(super) namespaces: Arc<Store<NamespaceFacts, Index>>,
    /// Deployments from Karmada. Indexed by [`Index::Namespace`].
    pub(super) deployments: Arc<Store<WorkloadDeployment, Index>>,
    /// Indexed by [`Index::ControlledBy`], [`Index::NamedAfter`], [`Index::Namespace`], [`Index::Needs`] and
    /// [`Index::Unanswered`].
    pub(super) instances: Arc<Store<Instance, Index>>,
    /// Set only with the network feature.
    pub(super) networks: Option<Networks>,
    /// Set only with the data feature.
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

    /// True if all caches are filled that quota and the write-back read.
    pub(super) fn is_synced(&self) -> bool {
        self.namespaces.is_synced() && self.deployments.is_synced() && self.instances.is_synced()
    }

    /// True if all caches are filled that are read to create Instances and to open their gates.
    pub(super) fn knows_all(&self) -> bool {
        self.is_synced()
            && self.networks.as_ref().is_none_or(Networks::is_synced)
            && self.companions.as_ref().is_none_or(Companions::is_synced)
    }

    /// Returns the deployment of this cell that controls an Instance. A projection in a project's namespace has none.
    pub(super) fn owner(&self, instance: &Instance) -> Option<Arc<WorkloadDeployment>> {
        let owner = ownership::controller_of(instance)?;
        let namespace = instance.namespace().unwrap_or_default();
        let deployment = self.deployments.get(&ObjectKey::new(&namespace, &owner.name))?;
        ownership::is_controlled_by(instance, deployment.as_ref()).then_some(deployment)
    }

    /// Returns the Instances that a deployment controls.
    pub(super) fn instances_of(&self, deployment: &WorkloadDeployment) -> Vec<Arc<Instance>> {
        self.instances.by_index(&Index::ControlledBy(deployment.uid().unwrap_or_default()))
    }

    /// Returns Instances that have a name which the deployment uses, and that it does not control.
    pub(super) fn in_the_way_of(&self, deployment: &WorkloadDeployment) -> impl Iterator<Item = Arc<Instance>> {
        let named_after = Index::NamedAfter(deployment.namespace().unwrap_or_default(), deployment.name_any());
        let is_in_the_way = |instance: &Arc<Instance>| {
            instances::place_of(&instance.name_any(), deployment).is_some()
                && !ownership::is_controlled_by(instance.as_ref(), deployment)
        };
        self.instances.by_index(&named_after).into_iter().filter(is_in_the_way)
    }

    /// Returns the names of undecodable Instances that may belong to a deployment. An unknown Instance does not count as absent.
    pub(super) fn unreadable_of(&self, deployment: &WorkloadDeployment) -> BTreeSet<String> {
        let unreadable = self.instances.unreadable_in(&deployment.namespace().unwrap_or_default());
        let own = deployment.name_any();
        let is_own = |name: &Arc<str>| names::deployment_of_instance(name) == Some(own.as_str());
        unreadable.into_iter().filter(is_own).map(|name| name.to_string()).collect()
    }

    /// Returns the keys of the Instances of a namespace.
    pub(super) fn instances_in(&self, namespace: &str) -> Vec<ObjectKey> {
        self.instances.keys_by_index(&Index::namespace(namespace))
    }

    /// Returns the keys of the namespaces that mirror one of this project.
    pub(super) fn namespaces_of(&self, project: &ProjectName) -> Vec<ObjectKey> {
        self.namespaces.keys_by_index(&Index::Project(project.clone()))
    }

    /// Returns the cached labels of a namespace. Empty if the namespace does not exist.
    pub(super) fn labels_of(&self, namespace: &str) -> BTreeMap<String, String> {
        let facts = self.namespaces.get(&ObjectKey::new("", namespace));
        facts.map(|facts| facts.labels.clone()).unwrap_or_default()
    }

    /// Returns the facts about the networks of a deployment's first `interfaces` interfaces. `None` without the network feature.
    pub(super) fn observe_networks(
        &self,
        deployment: &WorkloadDeployment,
        interfaces: usize,
    ) -> Option<networks::Observed> {
        self.networks.as_ref().map(|networks| networks.observe(deployment, interfaces))
    }

    /// Returns the companions that an Instance references, without terminating ones. `None` without the data feature.
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
