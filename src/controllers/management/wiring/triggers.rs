//! Puts keys into the queues: what a change concerns, its plan says; who that is by name is looked up here.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt;

use crate::controllers::management::{
    drain::move_memory::Moves,
    federator::{blocked::BlockedDeployments, latency::Latency, unshown::UnshownInstances},
    hub::hub_cache::HubCache,
    projector::quarantine::QuarantineRegistry,
    projects::{project_cache::ProjectCache, registry::ProjectRegistry},
    wiring::{
        index::{
            Index, city_index, namespace_index, origin_deployment_index, origin_namespace_index, policies_index,
            project_index, source_index,
        },
        queues::{CompanionKey, InstanceKey, PolicyKey, ProjectKey, Queues},
    },
};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        names::{CityCode, CityPolicyName, HubNamespace, ProjectName, Template},
        referenced::{DataRef, SourceKind},
    },
    io::{clock::Now, store::ObjectKey},
    plan::management::{
        federator::latency,
        projector::projection,
        referenced_data::companion,
        triggers::{self, HubChange, HubWork, ProjectChange, ProjectWork},
        workload::placement,
    },
};

/// Who looks up by name whom a change concerns, and enqueues it.
pub(crate) struct Triggers {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) projects: Arc<ProjectRegistry>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) blocked: Arc<BlockedDeployments>,
    pub(crate) latency: Arc<Latency>,
    pub(crate) quarantine: Arc<QuarantineRegistry>,
    pub(crate) unshown: Arc<UnshownInstances>,
    pub(crate) moves: Arc<Moves>,
}

impl Triggers {
    /// A cache of the hub is fresh: look at everything, and let what failed meanwhile try now.
    pub(crate) fn everything_again(&self) {
        self.queues.policy.retry_all_now();
        self.queues.projector.retry_now(&None);
        for project in self.projects.all() {
            self.project_again(&project);
        }
        for instance in self.hub.instances.values() {
            self.enqueue_projection(&instance);
        }
        self.queues.clusters.notify_one();
    }

    /// A cache of a project is fresh: look at its own objects, and at what the hub holds for it.
    pub(crate) fn project_again(&self, project: &ProjectCache) {
        self.queues.retry_project(&project.name);
        self.enqueue_in(project, ProjectWork::Workloads(None));
        for deployment in project.deployments.values() {
            for work in triggers::with_its_namespace(&deployment.open()) {
                self.enqueue_in(project, work);
            }
        }
        for namespace in self.hub.namespaces.keys_by_index(&project_index(&project.name)) {
            self.enqueue_all_of(&namespace.name);
        }
        for key in self.projections_of(project) {
            self.enqueue_place(project, key);
        }
    }

    /// A project is let go. What the hub still holds of it has nowhere to be shown now, and is reported.
    pub(crate) fn project_gone(&self, project: &ProjectName) {
        self.queues.forget_project(project);
        self.unshown.forget_project(project);
        self.enqueue_hub_instances(&project_index(project));
    }

    /// Projections of a project, and what is to become one: keys in the project.
    fn projections_of(&self, project: &ProjectCache) -> BTreeSet<ObjectKey> {
        let instances = self.hub.instances.by_index(&project_index(&project.name));
        let placed = instances.iter().filter_map(|instance| {
            Some(ObjectKey::new(&projection::identify(instance).ok()?.namespace, &instance.name_any()))
        });
        placed.chain(project.instances.keys()).collect()
    }

    /// Whatever a hub namespace holds of its project.
    fn enqueue_all_of(&self, namespace: &str) {
        self.enqueue(HubWork::Originals(Some(namespace.to_owned())));
        self.enqueue(HubWork::Policies(Some(namespace.to_owned())));
        self.enqueue(HubWork::Companions(namespace.to_owned()));
    }

    /// What a change on the hub concerns.
    pub(crate) fn after_hub(&self, change: &HubChange<'_>) {
        if let HubChange::Copy(delta) = change
            && latency::is_report(delta)
            && let Some(original) = self.original_of(&ObjectKey::new(delta.namespace, delta.name))
            && self.projects.is_engaged(&original.project)
        // nobody here looks at what another management plane keeps
        {
            self.latency.reported(&original, Now::read().instant);
        }
        for work in triggers::after_hub(change) {
            self.enqueue(work);
        }
    }

    /// What a change in a project concerns.
    pub(crate) fn after_project(&self, project: &ProjectCache, change: &ProjectChange<'_>) {
        if let ProjectChange::Deployment(delta) = change
            && latency::is_change(delta)
        {
            let uid = delta.new.and_then(|new| new.uid()).unwrap_or_default();
            let key = ProjectKey::new(&project.name, delta.namespace, delta.name);
            self.latency.changed(&key, &uid, Now::read().instant);
        }
        for work in triggers::after_project(change) {
            self.enqueue_in(project, work);
        }
    }

    /// Work that a change on the hub brings.
    pub(crate) fn enqueue(&self, work: HubWork) {
        match work {
            HubWork::Original { namespace, name } => self.enqueue_original(&ObjectKey::new(&namespace, &name)),
            HubWork::Originals(namespace) => {
                let keys = namespace.map_or_else(
                    || self.hub.copies.keys(),
                    |namespace| self.hub.copies.keys_by_index(&namespace_index(&namespace)),
                );
                for key in keys {
                    self.enqueue_original(&key);
                }
            }
            HubWork::OnCluster(cluster, cities) => self.enqueue_on_cluster(&cluster, &cities),
            HubWork::Users(namespace, data_ref) => self.enqueue_users(&namespace, &data_ref),
            HubWork::Policy(namespace, city) => self.enqueue_policy(&namespace, &city),
            HubWork::Policies(namespace) => {
                let keys = namespace.map_or_else(
                    || self.hub.policies.keys(),
                    |namespace| self.hub.policies.keys_by_index(&namespace_index(&namespace)),
                );
                for key in keys {
                    self.enqueue_policy_named(&key);
                }
            }
            HubWork::Companion(namespace, data_ref) => {
                self.enqueue_companion(data_ref.kind, &ObjectKey::new(&namespace, &data_ref.name));
            }
            HubWork::ClaimedCompanion(namespace, data_ref) => {
                let facts = self.hub.companion(&namespace, &data_ref);
                if facts.is_some_and(|facts| facts.is_claimed()) {
                    self.enqueue_companion(data_ref.kind, &ObjectKey::new(&namespace, &data_ref.name));
                }
            }
            HubWork::Companions(namespace) => {
                for kind in SourceKind::ALL {
                    for key in self.hub.companions(kind).keys_by_index(&namespace_index(&namespace)) {
                        self.enqueue_companion(kind, &key);
                    }
                }
            }
            HubWork::ProjectNamespace(project, namespace) => {
                if let Some(project) = self.projects.get(&project) {
                    self.enqueue_in(&project, ProjectWork::Namespace(namespace));
                }
            }
            HubWork::ProjectNamespaceOf(namespace) => {
                let facts = self.hub.namespaces.get(&ObjectKey::new("", &namespace));
                if let Some((project, namespace)) = facts.as_ref().and_then(|facts| facts.upstream()) {
                    self.enqueue(HubWork::ProjectNamespace(project, namespace.to_owned()));
                }
            }
            // Where a hub Instance says that it belongs, if we know such a project; else in the lane of those who are lost.
            HubWork::Projection { namespace, name, origin } => {
                let key = match origin {
                    Some(origin) if self.projects.is_engaged(&origin.project) => {
                        InstanceKey::Place(ProjectKey::new(&origin.project, &origin.namespace, &name))
                    }
                    _ => InstanceKey::Unresolved(ObjectKey::new(&namespace, &name)),
                };
                self.queues.projector.add(key);
            }
            HubWork::Asked(of) => {
                if of.is_none() {
                    // Nobody asks for some of these, and nobody writes them any more.
                    self.hub.instances_of_no_member().iter().for_each(|instance| self.enqueue_projection(instance));
                }
                self.enqueue_hub_instances(&of.map_or(Index::Asked, |(of, name)| Index::AskedOf(of, name)));
            }
            HubWork::Release(namespace, name) => self.quarantine.remove(&ObjectKey::new(&namespace, &name)),
            HubWork::Clusters => self.queues.clusters.notify_one(),
            HubWork::CalledOff(cluster) => self.moves.called_off(&cluster),
        }
    }

    /// What is on a cluster, with the policies that have it there, and what is of these cities.
    fn enqueue_on_cluster(&self, cluster: &str, cities: &BTreeSet<CityCode>) {
        for key in self.hub.bindings.keys_by_index(&Index::On(cluster.to_owned())) {
            let Template::Deployment(name) = Template::of_binding(&key.name) else { continue };
            let facts = self.hub.bindings.get(&key);
            for city in facts.iter().flat_map(|facts| facts.cities()).filter(|city| !cities.contains(city)) {
                self.enqueue_policy(&key.namespace, &city);
            }
            self.enqueue_original(&ObjectKey::new(&key.namespace, &name));
        }
        for city in cities {
            for policy in self.hub.policies.keys_by_index(&policies_index(city)) {
                self.enqueue_policy(&policy.namespace, city);
                for copy in self.hub.copies.keys_by_index(&city_index(&policy.namespace, city)) {
                    self.enqueue_original(&copy);
                }
            }
        }
    }

    /// Work that a change in a project brings.
    fn enqueue_in(&self, project: &ProjectCache, work: ProjectWork) {
        let of_project = |namespace: &str, name: &str| ProjectKey::new(&project.name, namespace, name);
        match work {
            ProjectWork::Workload(namespace, name) => self.queues.workload.add(of_project(&namespace, &name)),
            ProjectWork::Workloads(namespace) => {
                for key in project.workloads.keys() {
                    if namespace.as_ref().is_none_or(|namespace| **namespace == *key.namespace) {
                        self.queues.workload.add(of_project(&key.namespace, &key.name));
                    }
                }
            }
            ProjectWork::NameFreed(namespace, name) => {
                let waiting = project.workloads.by_index(&Index::WaitsForName(namespace.clone()));
                for workload in waiting.iter().filter(|workload| placement::names(workload).contains(&name)) {
                    self.queues.workload.add(of_project(&namespace, &workload.name_any()));
                }
            }
            ProjectWork::Deployment(namespace, name) => self.queues.federator.add(of_project(&namespace, &name)),
            ProjectWork::Policy { namespace, recorded, city } => {
                let derived = project.namespace_uid(&namespace).map(|uid| HubNamespace::of(&uid));
                if let Some(namespace) = derived.or(recorded) {
                    self.enqueue_policy(&namespace, &city);
                }
            }
            ProjectWork::Companion(namespace, data_ref) => {
                self.queues.companion.add(CompanionKey::new(&project.name, &namespace, data_ref));
            }
            ProjectWork::HubInstances(namespace, deployment) => {
                self.enqueue_hub_instances(&origin_deployment_index(&project.name, &namespace, &deployment));
            }
            ProjectWork::Mirror(namespace) => {
                let mirrors = |key: &ObjectKey| {
                    let facts = self.hub.namespaces.get(key);
                    facts.is_some_and(|facts| facts.upstream().is_some_and(|(_, own)| own == namespace))
                };
                let of_project = self.hub.namespaces.keys_by_index(&project_index(&project.name));
                of_project.iter().filter(|key| mirrors(key)).for_each(|key| self.enqueue_all_of(&key.name));
            }
            ProjectWork::Projection(namespace, name) => self.enqueue_place(project, ObjectKey::new(&namespace, &name)),
            ProjectWork::Namespace(namespace) => {
                for deployment in project.deployments.by_index(&namespace_index(&namespace)) {
                    for work in triggers::with_its_namespace(&deployment.open()) {
                        self.enqueue_in(project, work);
                    }
                }
                self.enqueue_in(project, ProjectWork::Workloads(Some(namespace.clone())));
                self.enqueue_hub_instances(&origin_namespace_index(&project.name, &namespace));
                for key in project.instances.keys_by_index(&namespace_index(&namespace)) {
                    self.enqueue_place(project, key);
                }
            }
        }
    }

    /// Work on the companions that a deployment refers to, and on those that it was promised.
    pub(crate) fn enqueue_companions_of(&self, project: &ProjectCache, deployment: &WorkloadDeployment) {
        for work in triggers::companions_of(deployment) {
            self.enqueue_in(project, work);
        }
    }

    /// Deployments that are blocked: should an event have been missed, this is what makes up for it.
    pub(crate) fn enqueue_blocked(&self) {
        for key in self.blocked.keys() {
            self.queues.federator.add(key);
        }
    }

    /// Every deployment: what is known of the hub concerns all of them.
    pub(crate) fn enqueue_deployments(&self) {
        for project in self.projects.all() {
            for key in project.deployments.keys() {
                self.enqueue_federator(&project, key);
            }
        }
    }

    /// Deployments on their way out: the event that was to bring the next look at one may have come too early.
    pub(crate) fn enqueue_deleting(&self) {
        for project in self.projects.all() {
            let deployments = project.deployments.entries().into_iter();
            for (key, _) in deployments.filter(|(_, deployment)| deployment.is_deleting()) {
                self.enqueue_federator(&project, key);
            }
        }
    }

    /// Hub Instances that could not be shown: what kept them from it (a definition in the project that is older than ours)
    /// may have ended without any event of theirs.
    pub(crate) fn enqueue_quarantined(&self) {
        let instances = &self.hub.instances;
        self.quarantine.forget_where(|key| instances.is_synced() && !instances.contains(key));
        for instance in self.quarantine.keys().iter().filter_map(|key| instances.get(key)) {
            self.enqueue_projection(&instance);
        }
    }

    /// The federator's work on a deployment.
    pub(crate) fn enqueue_federator(&self, project: &ProjectCache, deployment: ObjectKey) {
        self.queues.federator.add(ProjectKey { project: project.name.clone(), object: deployment });
    }

    /// Work on a companion, under the name that its source has in the project.
    pub(crate) fn enqueue_companion(&self, kind: SourceKind, companion: &ObjectKey) {
        let Some(facts) = self.hub.namespaces.get(&ObjectKey::new("", &companion.namespace)) else { return };
        if let Some((project, namespace)) = facts.upstream() {
            let data_ref = DataRef { kind, name: companion.name.to_string() };
            self.queues.companion.add(CompanionKey::new(&project, namespace, data_ref));
        }
    }

    /// The federator's work on the original of a copy.
    fn enqueue_original(&self, copy: &ObjectKey) {
        if let Some(original) = self.original_of(copy) {
            self.queues.federator.add(original);
        }
    }

    /// The original of a copy, as far as its namespace says.
    fn original_of(&self, copy: &ObjectKey) -> Option<ProjectKey> {
        let facts = self.hub.namespaces.get(&ObjectKey::new("", &copy.namespace))?;
        let (project, namespace) = facts.upstream()?;
        Some(ProjectKey::new(&project, namespace, &copy.name))
    }

    /// The federator's work on whoever uses a companion: whom it names, or else who refers to its source, or has a copy that
    /// was promised it.
    fn enqueue_users(&self, namespace: &str, data_ref: &DataRef) {
        let facts = self.hub.companion(namespace, data_ref);
        if let Some(facts) = facts.filter(|facts| !facts.has_many_users()) {
            for (_, name) in facts.users.iter().flatten().filter_map(|user| companion::named(user)) {
                self.enqueue_original(&ObjectKey::new(namespace, name));
            }
            return;
        }
        let copies = self.hub.copies.entries_by_index(&namespace_index(namespace));
        for (copy, _) in copies.iter().filter(|(_, copy)| copy.expects(data_ref)) {
            self.enqueue_original(copy);
        }
        let Some(facts) = self.hub.namespaces.get(&ObjectKey::new("", namespace)) else { return };
        let Some((project, own)) = facts.upstream() else { return };
        let Some(project) = self.projects.get(&project) else { return };
        for key in project.deployments.keys_by_index(&source_index(own, data_ref)) {
            self.enqueue_federator(&project, key);
        }
    }

    /// Hub Instances under this index value.
    fn enqueue_hub_instances(&self, index: &Index) {
        for instance in self.hub.instances.by_index(index) {
            self.enqueue_projection(&instance);
        }
    }

    /// The projection of what a cell wrote back.
    pub(crate) fn enqueue_projection(&self, instance: &Instance) {
        self.enqueue(triggers::projection_of(instance));
    }

    /// Every policy's work.
    pub(crate) fn enqueue_policies(&self) {
        self.enqueue(HubWork::Policies(None));
    }

    /// The projector's work on a place in a project.
    fn enqueue_place(&self, project: &ProjectCache, object: ObjectKey) {
        self.queues.projector.add(InstanceKey::Place(ProjectKey { project: project.name.clone(), object }));
    }

    fn enqueue_policy_named(&self, policy: &ObjectKey) {
        if let Some(city) = CityPolicyName::parse(&policy.name) {
            self.enqueue_policy(&policy.namespace, &city);
        }
    }

    fn enqueue_policy(&self, namespace: &str, city: &CityCode) {
        self.queues.policy.add(PolicyKey { namespace: namespace.into(), city: city.clone() });
    }
}

#[cfg(test)]
#[path = "triggers_tests.rs"]
mod tests;
