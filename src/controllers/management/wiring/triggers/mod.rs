//! The keys to work on after a change. A missing mapping shows only as an object that waits for the next sweep, or forever.
//!
//! [`hub`] and [`project`] map each change to keys. This module finds the keys of related objects in the caches.

mod hub;
mod project;

use std::sync::Arc;

use kube::ResourceExt;

use crate::controllers::management::{
    drain::drains::Drains,
    federator::{blocked::BlockedDeployments, latency::Latency, reports::Reports, unshown::UnshownInstances},
    hub::hub_cache::HubCache,
    projector::quarantine::QuarantineRegistry,
    projects::{project_cache::ProjectCache, registry::ProjectRegistry},
    wiring::{
        index::{Index, city_index, copy_city, namespace_index, origin_namespace_index, project_index, source_index},
        queues::{CompanionKey, InstanceKey, Keys, ProjectKey, Queues},
    },
};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::{annotation, label},
        names::{CityCode, CityPolicyName, HubNamespace, ProjectName},
        referenced::{DataRef, SourceKind},
    },
    controllers::{compact::PackedDeployment, with},
    io::store::{Change, ObjectKey},
    plan::{
        Delta,
        management::{city_policy::policy, projector::projection},
        references::{annotated, references},
    },
};

/// Finds the keys that a change concerns, and enqueues them.
pub(crate) struct Triggers {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) projects: Arc<ProjectRegistry>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) blocked: Arc<BlockedDeployments>,
    pub(crate) latency: Arc<Latency>,
    pub(crate) quarantine: Arc<QuarantineRegistry>,
    pub(crate) unshown: Arc<UnshownInstances>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) drains: Arc<Drains>,
}

/// Listeners.
impl Triggers {
    /// A listener that enqueues the keys which `keys` returns. Listeners do not keep the triggers alive.
    fn on<V: 'static>(
        self: &Arc<Self>,
        keys: impl Fn(&Self, &Change<'_, V>) -> Keys + Send + Sync + 'static,
    ) -> impl Fn(&Change<'_, V>) + Send + Sync + 'static {
        let weak = Arc::downgrade(self);
        move |change| with(&weak, |this| this.queues.add(keys(this, change)))
    }

    /// The same, for namespaces in which all objects can be decoded again.
    fn on_readable(
        self: &Arc<Self>,
        keys: impl Fn(&Self, &str) -> Keys + Send + Sync + 'static,
    ) -> impl Fn(&str) + Send + Sync + 'static {
        let weak = Arc::downgrade(self);
        move |namespace| with(&weak, |this| this.queues.add(keys(this, namespace)))
    }

    /// The same, for a change in a project.
    fn on_in<V: 'static>(
        self: &Arc<Self>,
        project: &Arc<ProjectCache>,
        keys: impl Fn(&Self, &ProjectCache, &Change<'_, V>) -> Keys + Send + Sync + 'static,
    ) -> impl Fn(&Change<'_, V>) + Send + Sync + 'static {
        let (weak, of) = (Arc::downgrade(self), Arc::downgrade(project));
        move |change| {
            with(&weak, |this| with(&of, |project| this.queues.add(keys(this, project, change))));
        }
    }
}

/// All work at once.
impl Triggers {
    /// A cache of the hub was filled again: enqueues everything, and retries failed keys now.
    pub(crate) fn everything_again(&self) {
        self.queues.policy.retry_all_now();
        self.queues.projector.retry_now(&None);
        for project in self.projects.all() {
            self.project_again(&project);
        }
        let mut keys = Keys { clusters: true, ..Keys::default() };
        self.hub.instances.values().iter().for_each(|instance| self.projection(instance, &mut keys));
        self.queues.add(keys);
    }

    /// A cache of a project was filled again: enqueues its objects, and those that the hub has for it.
    pub(crate) fn project_again(&self, project: &ProjectCache) {
        self.queues.retry_project(&project.name);
        let mut keys = Keys::default();
        workloads(project, None, &mut keys);
        for (key, deployment) in project.deployments.entries() {
            with_references(project, key, &deployment, &mut keys);
        }
        for namespace in self.hub.namespaces.keys_by_index(&project_index(&project.name)) {
            self.all_of(&namespace.name, &mut keys);
        }
        self.hub_instances(&project_index(&project.name), &mut keys);
        project.instances.keys().into_iter().for_each(|key| keys.place(project, key));
        self.queues.add(keys);
    }

    /// A project was disengaged. Instances that the hub still has of it cannot be shown, and are reported.
    pub(crate) fn project_gone(&self, project: &ProjectName) {
        self.queues.forget_project(project);
        self.unshown.forget_project(project);
        let mut keys = Keys::default();
        self.hub_instances(&project_index(project), &mut keys);
        self.queues.add(keys);
    }

    /// Enqueues blocked deployments, in case an event was missed.
    pub(crate) fn enqueue_blocked(&self) {
        self.queues.add(Keys { federator: self.blocked.keys().into_iter().collect(), ..Keys::default() });
    }

    /// Enqueues every deployment: facts about the whole hub concern all of them.
    pub(crate) fn enqueue_deployments(&self) {
        for project in self.projects.all() {
            for key in project.deployments.keys() {
                self.enqueue_federator(&project, key);
            }
        }
    }

    /// Enqueues terminating deployments: the event for the next look may have come too early.
    pub(crate) fn enqueue_deleting(&self) {
        for project in self.projects.all() {
            let deployments = project.deployments.entries().into_iter();
            for (key, _) in deployments.filter(|(_, deployment)| deployment.is_deleting()) {
                self.enqueue_federator(&project, key);
            }
        }
    }

    /// Enqueues hub Instances that could not be shown. The cause (such as an old definition in the project) may have ended without
    /// an event of theirs.
    pub(crate) fn enqueue_quarantined(&self) {
        let instances = &self.hub.instances;
        self.quarantine.forget_where(|key| instances.is_synced() && !instances.contains(key));
        for instance in self.quarantine.keys().iter().filter_map(|key| instances.get(key)) {
            self.enqueue_projection(&instance);
        }
    }

    /// Enqueues hub Instances that wait for a hand-over.
    pub(crate) fn enqueue_waiting_instances(&self) {
        let mut keys = Keys::default();
        self.waiting_instances(&mut keys);
        self.queues.add(keys);
    }

    /// Enqueues every policy; with a namespace, every policy there.
    pub(crate) fn enqueue_policies(&self, namespace: Option<&str>) {
        let mut keys = Keys::default();
        self.policies(namespace, &mut keys);
        self.queues.add(keys);
    }

    /// Enqueues the originals of all copies in a hub namespace.
    pub(crate) fn enqueue_originals(&self, namespace: &str) {
        let mut keys = Keys::default();
        self.originals(Some(namespace), &mut keys);
        self.queues.add(keys);
    }

    /// Enqueues the original of a copy.
    pub(crate) fn enqueue_original(&self, copy: &ObjectKey) {
        self.queues.add(Keys { federator: self.original_of(copy).into_iter().collect(), ..Keys::default() });
    }

    /// Enqueues the policy of a city.
    pub(crate) fn enqueue_policy(&self, namespace: &str, city: CityCode) {
        let mut keys = Keys::default();
        keys.policy(namespace, city);
        self.queues.add(keys);
    }

    /// Enqueues the companions that a deployment references or expects.
    pub(crate) fn enqueue_companions_of(&self, project: &ProjectCache, deployment: &WorkloadDeployment) {
        self.queues.add(Keys { companion: companions_of(project, deployment).collect(), ..Keys::default() });
    }

    /// Enqueues a companion.
    pub(crate) fn enqueue_companion(&self, kind: SourceKind, companion: &ObjectKey) {
        let mut keys = Keys::default();
        self.companion(&companion.namespace, &DataRef { kind, name: companion.name.to_string() }, &mut keys);
        self.queues.add(keys);
    }

    /// Enqueues a deployment for the federator.
    pub(crate) fn enqueue_federator(&self, project: &ProjectCache, deployment: ObjectKey) {
        self.queues.federator.add(ProjectKey { project: project.name.clone(), object: deployment });
    }

    /// Enqueues the projection of a hub Instance.
    pub(crate) fn enqueue_projection(&self, instance: &Instance) {
        let mut keys = Keys::default();
        self.projection(instance, &mut keys);
        self.queues.add(keys);
    }
}

/// Keys of related objects, from the caches.
impl Triggers {
    /// The original of a copy, according to the hub namespace.
    fn original_of(&self, copy: &ObjectKey) -> Option<ProjectKey> {
        let facts = self.hub.namespaces.get(&ObjectKey::new("", &copy.namespace))?;
        let (project, namespace) = facts.upstream()?;
        Some(ProjectKey::new(&project, namespace, &copy.name))
    }

    fn original(&self, namespace: &str, name: &str, keys: &mut Keys) {
        keys.federator.extend(self.original_of(&ObjectKey::new(namespace, name)));
    }

    /// The originals of all copies, or of those in a hub namespace.
    fn originals(&self, namespace: Option<&str>, keys: &mut Keys) {
        let copies = &self.hub.copies;
        let copies = namespace.map_or_else(|| copies.keys(), |at| copies.keys_by_index(&namespace_index(at)));
        keys.federator.extend(copies.iter().filter_map(|copy| self.original_of(copy)));
    }

    /// All policies, or those of a hub namespace.
    fn policies(&self, namespace: Option<&str>, keys: &mut Keys) {
        let policies = &self.hub.policies;
        let policies = namespace.map_or_else(|| policies.keys(), |at| policies.keys_by_index(&namespace_index(at)));
        for policy in policies {
            if let Some(city) = CityPolicyName::parse(&policy.name) {
                keys.policy(&policy.namespace, city);
            }
        }
    }

    /// A companion, by its source in the project.
    fn companion(&self, namespace: &str, data_ref: &DataRef, keys: &mut Keys) {
        let facts = self.hub.namespaces.get(&ObjectKey::new("", namespace));
        if let Some((project, own)) = facts.as_ref().and_then(|facts| facts.upstream()) {
            keys.companion.insert(CompanionKey::new(&project, own, data_ref.clone()));
        }
    }

    /// All companions of a hub namespace.
    fn companions(&self, namespace: &str, keys: &mut Keys) {
        for kind in SourceKind::ALL {
            for key in self.hub.companions(kind).keys_by_index(&namespace_index(namespace)) {
                self.companion(namespace, &DataRef { kind, name: key.name.to_string() }, keys);
            }
        }
    }

    /// The users of a companion. If it does not name them: the deployments that reference its source, and the originals of copies
    /// that expect it.
    fn users(&self, namespace: &str, data_ref: &DataRef, keys: &mut Keys) {
        let facts = self.hub.companion(namespace, data_ref);
        if let Some(facts) = facts.filter(|facts| !facts.users.is_open()) {
            facts.users.names().for_each(|user| self.original(namespace, user.deployment(), keys));
            return;
        }
        let copies = self.hub.copies.entries_by_index(&namespace_index(namespace));
        for (copy, _) in copies.iter().filter(|(_, copy)| copy.expects(data_ref)) {
            self.original(&copy.namespace, &copy.name, keys);
        }
        let Some(facts) = self.hub.namespaces.get(&ObjectKey::new("", namespace)) else { return };
        let Some((project, own)) = facts.upstream() else { return };
        let Some(project) = self.projects.get(&project) else { return };
        let referencing = project.deployments.keys_by_index(&source_index(own, data_ref)).into_iter();
        keys.federator.extend(referencing.map(|object| ProjectKey { project: project.name.clone(), object }));
    }

    /// Everything in a hub namespace: its deployments, policies and companions.
    fn all_of(&self, namespace: &str, keys: &mut Keys) {
        self.originals(Some(namespace), keys);
        self.policies(Some(namespace), keys);
        self.companions(namespace, keys);
    }

    /// Everything in a namespace of a project, and the Instances that the hub has of it.
    fn namespace_of(&self, project: &ProjectCache, namespace: &str, keys: &mut Keys) {
        for (key, deployment) in project.deployments.entries_by_index(&namespace_index(namespace)) {
            with_references(project, key, &deployment, keys);
        }
        workloads(project, Some(namespace), keys);
        self.hub_instances(&origin_namespace_index(&project.name, namespace), keys);
        let projections = project.instances.keys_by_index(&namespace_index(namespace));
        for key in projections {
            keys.place(project, key);
        }
    }

    /// The hub Instances with this index value.
    fn hub_instances(&self, index: &Index, keys: &mut Keys) {
        self.hub.instances.by_index(index).iter().for_each(|instance| self.projection(instance, keys));
    }

    /// Hub Instances that a cell asks for, and those that no member cell writes any more.
    fn waiting_instances(&self, keys: &mut Keys) {
        self.hub.instances_of_no_member().iter().for_each(|instance| self.projection(instance, keys));
        self.hub_instances(&Index::Asked, keys);
    }

    /// The place of a hub Instance in its project. An Instance without a known project has a separate key.
    fn projection(&self, instance: &Instance, keys: &mut Keys) {
        let name = instance.name_any();
        keys.projector.insert(match projection::identify(instance) {
            Ok(origin) if self.projects.is_engaged(&origin.project) => {
                InstanceKey::Place(ProjectKey::new(&origin.project, &origin.namespace, &name))
            }
            _ => InstanceKey::Unresolved(ObjectKey::new(&instance.namespace().unwrap_or_default(), &name)),
        });
    }
}

/// The Workloads of a project, or of one of its namespaces.
fn workloads(project: &ProjectCache, namespace: Option<&str>, keys: &mut Keys) {
    let workloads = project.workloads.keys().into_iter();
    let workloads = workloads.filter(|key| namespace.is_none_or(|namespace| namespace == &*key.namespace));
    keys.workload.extend(workloads.map(|object| ProjectKey { project: project.name.clone(), object }));
}

/// A deployment, with its policy and its companions.
fn with_references(project: &ProjectCache, key: ObjectKey, deployment: &PackedDeployment, keys: &mut Keys) {
    let recorded = || deployment.open().annotations().get(annotation::FEDERATION_NAMESPACE).cloned();
    policy_in(project, &key.namespace, deployment.city_code(), recorded, keys);
    let data_refs = deployment.references().iter().map(|reference| &reference.data_ref).chain(deployment.expected());
    keys.companion.extend(data_refs.map(|data_ref| CompanionKey::new(&project.name, &key.namespace, data_ref.clone())));
    keys.federator.insert(ProjectKey { project: project.name.clone(), object: key });
}

/// New deployments next to others of their city.
impl Triggers {
    /// True if the policy of a city in a hub namespace [covers] a new deployment.
    ///
    /// [covers]: policy::covers
    fn is_covered(&self, namespace: &str, city: &CityCode, spelling: &str) -> bool {
        let policy = self.hub.policies.get(&ObjectKey::new(namespace, &city.policy_name()));
        policy.is_some_and(|policy| policy::covers(&policy, spelling))
    }

    /// True if a new copy joins others of its city. Its policy then decides as before, and looks again once the copy is bound.
    fn is_copy_among_others(&self, copy: &Delta<'_, WorkloadDeployment>) -> bool {
        let (None, Some(new)) = (copy.old, copy.new) else { return false };
        let (Some(city), Some(spelling)) = (copy_city(new), new.labels().get(label::TOPOLOGY_CITY)) else {
            return false;
        };
        new.metadata.deletion_timestamp.is_none()
            && self.hub.copies.count_by_index(&city_index(copy.namespace, &city)) > 1
            && self.hub.binding_of(copy.namespace, copy.name).is_none()
            && self.is_covered(copy.namespace, &city, spelling)
    }

    /// True if a change of a deployment leaves its policy as it is: the deployment is new and joins others of its city, or neither
    /// its city nor its life has changed.
    fn leaves_policy(&self, project: &ProjectCache, deployment: &Delta<'_, WorkloadDeployment>) -> bool {
        // Without its namespace, the policy is that of the recorded hub namespace.
        let (Some(uid), Some(new)) = (project.namespace_uid(deployment.namespace), deployment.new) else {
            return false;
        };
        let life = |of: &WorkloadDeployment| {
            (of.metadata.uid.clone(), of.metadata.deletion_timestamp.is_some(), of.spec.city_code.clone())
        };
        if let Some(old) = deployment.old {
            return life(old) == life(new);
        }
        let Ok(city) = CityCode::parse(&new.spec.city_code) else { return false };
        let is_other =
            |key: &ObjectKey, other: &PackedDeployment| &*key.name != deployment.name && !other.is_deleting();
        new.metadata.deletion_timestamp.is_none()
            && project.deployments.any_by_index(&city_index(deployment.namespace, &city), is_other)
            && self.is_covered(&HubNamespace::of(&uid), &city, &city.label_value(&new.spec.city_code))
    }
}

/// The policy of a deployment's city.
fn policy_of(project: &ProjectCache, deployment: &WorkloadDeployment, keys: &mut Keys) {
    let recorded = || deployment.annotations().get(annotation::FEDERATION_NAMESPACE).cloned();
    policy_in(project, &deployment.namespace().unwrap_or_default(), &deployment.spec.city_code, recorded, keys);
}

/// The policy of a city for a deployment in this namespace of a project. If that namespace is gone, the policy in the hub
/// namespace that the deployment has `recorded`.
fn policy_in(
    project: &ProjectCache,
    namespace: &str,
    city_code: &str,
    recorded: impl FnOnce() -> Option<String>,
    keys: &mut Keys,
) {
    let namespace = project.namespace_uid(namespace).map(|uid| HubNamespace::of(&uid)).or_else(recorded);
    if let (Some(namespace), Ok(city)) = (namespace, CityCode::parse(city_code)) {
        keys.policy(&namespace, city);
    }
}

/// The companions that a deployment references or expects.
fn companions_of(
    project: &ProjectCache,
    deployment: &WorkloadDeployment,
) -> impl Iterator<Item = CompanionKey> + use<> {
    let (project, namespace) = (project.name.clone(), deployment.namespace().unwrap_or_default());
    let expected = annotated(deployment, annotation::EXPECTED_REFERENCED_DATA);
    let referenced = references(&deployment.spec.template.spec).into_iter().map(|reference| reference.data_ref);
    referenced.chain(expected).map(move |data_ref| CompanionKey::new(&project, &namespace, data_ref))
}

#[cfg(test)]
mod tables_tests;
#[cfg(test)]
mod tests;
