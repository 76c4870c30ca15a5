//! The keys that a change in a project concerns.

use std::sync::Arc;

use kube::{ResourceExt, api::ObjectMeta};

use super::{Keys, Triggers, companions_of, policy_of, workloads};
use crate::{
    api::{
        compute::WorkloadDeployment,
        names::CityCode,
        referenced::{DataRef, SourceKind},
    },
    controllers::{
        compact::opened,
        delta,
        management::{
            projects::project_cache::ProjectCache,
            wiring::{
                index::{Index, origin_deployment_index, project_index},
                queues::{CompanionKey, ProjectKey},
            },
        },
    },
    io::{clock::Now, store::ObjectKey},
    plan::{
        Delta, NamespaceFacts,
        management::{
            federator::{latency, unheard},
            workload::placement,
        },
        ownership,
    },
};

impl Triggers {
    /// Enqueues the keys that each change in a project concerns, while the triggers and the project exist.
    pub(crate) fn listen_to_project(self: &Arc<Self>, project: &Arc<ProjectCache>) {
        let key_of =
            |project: &ProjectCache, key: &ObjectKey| ProjectKey::new(&project.name, &key.namespace, &key.name);
        project.workloads.listen(self.on_in(project, move |_, project, change| Keys {
            workload: [key_of(project, change.key)].into(),
            ..Keys::default()
        }));
        project.deployments.listen(self.on_in(project, |this, project, change| {
            opened(change, |deployment| {
                this.measure_change(project, &deployment);
                let mut keys = this.after_deployment(project, &deployment);
                // If another look has to follow its own status, the federator asks for it.
                keys.federator.retain(|key| !this.is_own_report(key, &deployment));
                keys
            })
        }));
        project.locations.listen(self.on_in(project, |_, project, change| after_location(project, &delta(change))));
        project
            .namespaces
            .listen(self.on_in(project, |this, project, change| this.after_own_namespace(project, &delta(change))));
        project.instances.listen(self.on_in(project, |_, project, change| {
            let mut keys = Keys::default();
            keys.place(project, change.key.clone());
            keys
        }));
        if let Some(networks) = &project.networks {
            networks.listen(self.on_in(project, |_, project, change| after_network(project, &delta(change))));
        }
        for kind in SourceKind::ALL {
            let (weak, of) = (Arc::downgrade(self), Arc::downgrade(project));
            project.sources(kind).listen(move |source| {
                let (Some(this), Some(project)) = (weak.upgrade(), of.upgrade()) else { return };
                let data_ref = DataRef { kind, name: source.name.to_string() };
                this.queues.companion.add(CompanionKey::new(&project.name, &source.namespace, data_ref));
            });
        }
        let (weak, of) = (Arc::downgrade(self), Arc::downgrade(project));
        project.deployments.listen_readable(move |namespace| {
            if let (Some(this), Some(project)) = (weak.upgrade(), of.upgrade()) {
                this.queues.add(this.deployments_readable(&project, namespace));
            }
        });
    }

    /// Starts the measurement of a changed deployment.
    fn measure_change(&self, project: &ProjectCache, deployment: &Delta<'_, WorkloadDeployment>) {
        if latency::is_change(deployment) {
            let uid = deployment.new.and_then(ResourceExt::uid).unwrap_or_default();
            let key = ProjectKey::new(&project.name, deployment.namespace, deployment.name);
            self.latency.changed(&key, &uid, Now::read().instant);
        }
    }

    /// A deployment concerns itself, its Workload and its companions, and its policy if it comes, moves or goes. If it appears, is
    /// deleted or loses its cluster, it concerns its projections, which show its readiness. If its name becomes free, it concerns
    /// the Workloads that wait for it.
    pub(super) fn after_deployment(&self, project: &ProjectCache, deployment: &Delta<'_, WorkloadDeployment>) -> Keys {
        let (mut keys, namespace, name) = (Keys::default(), deployment.namespace, deployment.name);
        let own = |name: &str| ProjectKey::new(&project.name, namespace, name);
        keys.federator.insert(own(name));
        keys.workload.extend(deployment.both().map(|wd| own(&wd.spec.workload_ref.name)));
        if !deployment.old.zip(deployment.new).is_some_and(|(old, new)| asks_for_the_same(old, new)) {
            if !self.leaves_policy(project, deployment) {
                deployment.both().for_each(|wd| policy_of(project, wd, &mut keys));
            }
            keys.companion.extend(deployment.both().flat_map(|wd| companions_of(project, wd)));
        }
        let owner = |wd: Option<&WorkloadDeployment>| wd.and_then(ownership::controller_of).map(|own| own.uid.clone());
        if deployment.old.is_some() && (deployment.new.is_none() || owner(deployment.old) != owner(deployment.new)) {
            let waiting = project.workloads.by_index(&Index::WaitsForName(namespace.to_owned()));
            let waiting = waiting.iter().filter(|workload| placement::names(workload).contains(name));
            keys.workload.extend(waiting.map(|workload| own(&workload.name_any())));
        }
        let uid = |wd: Option<&WorkloadDeployment>| wd.and_then(ResourceExt::uid);
        let unheard = |wd: Option<&WorkloadDeployment>| wd.and_then(unheard::standing).cloned();
        if uid(deployment.old) != uid(deployment.new) || unheard(deployment.old) != unheard(deployment.new) {
            self.hub_instances(&origin_deployment_index(&project.name, namespace, name), &mut keys);
        }
        keys
    }

    /// True if the status that the federator is writing is all that has changed. The version and the field managers do not count.
    fn is_own_report(&self, key: &ProjectKey, deployment: &Delta<'_, WorkloadDeployment>) -> bool {
        let Some((old, new)) = deployment.old.zip(deployment.new) else { return false };
        let metadata = |of: &WorkloadDeployment| ObjectMeta {
            resource_version: None,
            managed_fields: None,
            ..of.metadata.clone()
        };
        self.reports.has(key, new.status.as_ref()) && old.spec == new.spec && metadata(old) == metadata(new)
    }

    pub(super) fn after_own_namespace(&self, project: &ProjectCache, namespace: &Delta<'_, NamespaceFacts>) -> Keys {
        let mut keys = Keys::default();
        if namespace.old != namespace.new {
            self.namespace_of(project, namespace.name, &mut keys);
        }
        keys
    }

    /// Controllers that found an undecodable deployment have waited, for objects of the project and for those on the hub.
    pub(super) fn deployments_readable(&self, project: &ProjectCache, namespace: &str) -> Keys {
        let mut keys = Keys::default();
        self.namespace_of(project, namespace, &mut keys);
        for key in self.hub.namespaces.keys_by_index(&project_index(&project.name)) {
            let facts = self.hub.namespaces.get(&key);
            if facts.is_some_and(|facts| facts.upstream().is_some_and(|(_, own)| own == namespace)) {
                self.all_of(&key.name, &mut keys);
            }
        }
        keys
    }
}

/// A location that opens another city concerns all Workloads.
pub(super) fn after_location(project: &ProjectCache, location: &Delta<'_, Option<CityCode>>) -> Keys {
    let mut keys = Keys::default();
    if location.old != location.new {
        workloads(project, None, &mut keys);
    }
    keys
}

/// A Network concerns the Workloads of its namespace when it is created or deleted. Its content does not matter.
pub(super) fn after_network(project: &ProjectCache, network: &Delta<'_, ()>) -> Keys {
    let mut keys = Keys::default();
    if network.old.is_none() || network.new.is_none() {
        workloads(project, Some(network.namespace), &mut keys);
    }
    keys
}

/// True if the policy and the companions of a deployment have no reason for another look.
fn asks_for_the_same(old: &WorkloadDeployment, new: &WorkloadDeployment) -> bool {
    old.metadata.generation == new.metadata.generation
        && old.metadata.annotations == new.metadata.annotations
        && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        && old.metadata.uid == new.metadata.uid
}
