//! Puts keys into the queues: what a change concerns, its plan says; who that is by name is looked up here.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt;

use super::{
    index::{Index, claimed_deployment_index, claimed_namespace_index, namespace_index, project_index},
    project_cache::ProjectCache,
    state::{Management, UNRESOLVED_LANE, with2},
};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        names::{CityCode, CityPolicyName, HubNamespace},
        referenced::{SourceKind, Token},
    },
    controllers::with,
    io::{
        clock::Now,
        queue::Key,
        store::{Change, ObjectKey},
    },
    plan::management::triggers::{self, Delta, HubChange, HubWork, ProjectChange, ProjectWork},
};

/// A change as plans take it.
fn delta<'a, V>(change: &'a Change<'_, V>) -> Delta<'a, V> {
    Delta {
        namespace: &change.key.namespace,
        name: &change.key.name,
        old: change.old.map(AsRef::as_ref),
        new: change.new.map(AsRef::as_ref),
    }
}

impl Management {
    /// A cache of the hub is fresh: look at everything, and let what failed meanwhile try now.
    pub(super) fn everything_again(&self) {
        self.count_phases();
        self.queues.policy.retry_all_now();
        self.queues.projector.retry_now(UNRESOLVED_LANE);
        for project in self.all_projects() {
            self.project_again(&project);
        }
        for instance in self.hub.instances.values() {
            self.enqueue_projection(&instance);
        }
        self.clusters_changed.notify_one();
    }

    /// A cache of a project is fresh: look at its own objects, and at what the hub holds for it.
    pub(super) fn project_again(&self, project: &ProjectCache) {
        let lane = project.name.as_str();
        for queue in [&self.queues.workload, &self.queues.federator, &self.queues.projector, &self.queues.companion] {
            queue.retry_now(lane);
        }
        self.enqueue_in(project, ProjectWork::Workloads(None));
        for deployment in project.deployments.values() {
            for work in triggers::with_its_namespace(&deployment) {
                self.enqueue_in(project, work);
            }
        }
        for namespace in self.hub.namespaces.keys_by_index(&project_index(&project.name)) {
            self.enqueue_all_of(&namespace.name);
        }
        for key in self.projections_of(project) {
            self.queues.projector.add(Key::new(lane, &key.namespace, &key.name));
        }
    }

    /// Whatever a hub namespace holds of its project.
    fn enqueue_all_of(&self, namespace: &str) {
        self.enqueue(HubWork::Originals(Some(namespace.to_owned())));
        self.enqueue(HubWork::Policies(Some(namespace.to_owned())));
        self.enqueue(HubWork::Companions(namespace.to_owned()));
    }

    /// Hears of every change on the hub.
    pub(super) fn listen_to_hub(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.hub.copies.listen(move |c| with(&weak, |this| this.after_hub(&HubChange::Copy(delta(c)))));
        let weak = Arc::downgrade(self);
        self.hub.policies.listen(move |c| with(&weak, |this| this.after_hub(&HubChange::Policy(delta(c)))));
        let weak = Arc::downgrade(self);
        self.hub.namespaces.listen(move |c| with(&weak, |this| this.after_hub(&HubChange::Namespace(delta(c)))));
        let weak = Arc::downgrade(self);
        self.hub.instances.listen(move |c| with(&weak, |this| this.after_hub(&HubChange::Instance(delta(c)))));
        for kind in SourceKind::ALL {
            let weak = Arc::downgrade(self);
            let after = move |c: &Change<'_, _>| {
                with(&weak, |this| this.after_hub(&HubChange::Companion(kind, delta(c))));
            };
            self.hub.companions(kind).listen(after);
        }
        let weak = Arc::downgrade(self);
        self.hub.bindings.listen(move |c| {
            with(&weak, |this| {
                if c.new.is_some() && c.old != c.new {
                    this.blocked.karmada_wrote(Now::read().instant);
                }
                this.after_hub(&HubChange::Binding(delta(c)));
            });
        });
        let weak = Arc::downgrade(self);
        self.hub.clusters.listen(move |c| with(&weak, |this| this.after_hub(&HubChange::Cluster(delta(c)))));
        let weak = Arc::downgrade(self);
        self.hub.copies.listen_readable(move |namespace| {
            with(&weak, |this| this.after_hub(&HubChange::CopiesReadable(namespace)));
        });
        let weak = Arc::downgrade(self);
        self.hub.instances.listen_readable(move |namespace| {
            with(&weak, |this| this.after_hub(&HubChange::InstancesReadable(namespace)));
        });
    }

    /// Hears of every change in a project.
    pub(super) fn listen_to_project(self: &Arc<Self>, project: &Arc<ProjectCache>) {
        let both = || (Arc::downgrade(self), Arc::downgrade(project));
        let (weak, of) = both();
        project.workloads.listen(move |c| {
            let change = ProjectChange::Workload(&c.key.namespace, &c.key.name);
            with2(&weak, &of, |this, project| this.after_project(project, &change));
        });
        let (weak, of) = both();
        project.deployments.listen(move |c| {
            with2(&weak, &of, |this, project| this.after_project(project, &ProjectChange::Deployment(delta(c))));
        });
        let (weak, of) = both();
        project.deployments.listen_readable(move |namespace| {
            let change = ProjectChange::DeploymentsReadable(namespace);
            with2(&weak, &of, |this, project| this.after_project(project, &change));
        });
        let (weak, of) = both();
        project.locations.listen(move |c| {
            with2(&weak, &of, |this, project| this.after_project(project, &ProjectChange::Location(delta(c))));
        });
        let (weak, of) = both();
        project.namespaces.listen(move |c| {
            with2(&weak, &of, |this, project| this.after_project(project, &ProjectChange::Namespace(delta(c))));
        });
        let (weak, of) = both();
        project.instances.listen(move |c| {
            let change = ProjectChange::Projection(&c.key.namespace, &c.key.name);
            with2(&weak, &of, |this, project| this.after_project(project, &change));
        });
        for kind in SourceKind::ALL {
            let (weak, of) = both();
            project.sources(kind).listen(move |source| {
                let change = ProjectChange::Source(&source.namespace, Token { kind, name: source.name.to_string() });
                with2(&weak, &of, |this, project| this.after_project(project, &change));
            });
        }
        if let Some(networks) = &project.networks {
            let (weak, of) = both();
            networks.listen(move |c| {
                with2(&weak, &of, |this, project| this.after_project(project, &ProjectChange::Network(delta(c))));
            });
        }
    }

    fn after_hub(&self, change: &HubChange<'_>) {
        for work in triggers::after_hub(change) {
            self.enqueue(work);
        }
    }

    fn after_project(&self, project: &ProjectCache, change: &ProjectChange<'_>) {
        for work in triggers::after_project(change) {
            self.enqueue_in(project, work);
        }
    }

    /// Work that a change on the hub brings.
    pub(super) fn enqueue(&self, work: HubWork) {
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
            HubWork::Users(namespace, token) => {
                let facts = self.hub.companion(&namespace, &token);
                let users: BTreeSet<String> = facts.and_then(|facts| facts.claims.clone()).unwrap_or_default();
                for (_, name) in users.iter().filter_map(|user| user.split_once('/')) {
                    self.enqueue_original(&ObjectKey::new(&namespace, name));
                }
            }
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
            HubWork::Companion(namespace, token) => {
                self.enqueue_companion(token.kind, &ObjectKey::new(&namespace, &token.name));
            }
            HubWork::Companions(namespace) => {
                for kind in SourceKind::ALL {
                    for key in self.hub.companions(kind).keys_by_index(&namespace_index(&namespace)) {
                        self.enqueue_companion(kind, &key);
                    }
                }
            }
            HubWork::Mirrored(project, namespace) => {
                if let Some(project) = self.project(project.as_str()) {
                    self.enqueue_in(&project, ProjectWork::Namespace(namespace));
                }
            }
            HubWork::Upstream(namespace) => {
                let facts = self.hub.namespaces.get(&ObjectKey::new("", &namespace));
                if let Some((project, namespace)) = facts.as_ref().and_then(|facts| facts.upstream()) {
                    self.enqueue(HubWork::Mirrored(project, namespace.to_owned()));
                }
            }
            // Where a hub Instance says that it belongs, if we know such a project; else in the lane of those who are lost.
            HubWork::Projection { namespace, name, claimed } => {
                let key = match claimed {
                    Some(claimed) if self.is_engaged(&claimed.project) => {
                        Key::new(claimed.project.as_str(), &claimed.namespace, &name)
                    }
                    _ => Key::new(UNRESOLVED_LANE, &namespace, &name),
                };
                self.queues.projector.add(key);
            }
            HubWork::Release(namespace, name) => self.quarantine.remove(&ObjectKey::new(&namespace, &name)),
            HubWork::Clusters => self.clusters_changed.notify_one(),
            HubWork::CalledOff(cluster) => self.moves.called_off(&cluster),
        }
    }

    /// Work that a change in a project brings.
    fn enqueue_in(&self, project: &ProjectCache, work: ProjectWork) {
        let lane = project.name.as_str();
        match work {
            ProjectWork::Workload(namespace, name) => self.queues.workload.add(Key::new(lane, &namespace, &name)),
            ProjectWork::Workloads(namespace) => {
                for key in project.workloads.keys() {
                    if namespace.as_ref().is_none_or(|namespace| **namespace == *key.namespace) {
                        self.queues.workload.add(Key::new(lane, &key.namespace, &key.name));
                    }
                }
            }
            ProjectWork::Deployment(namespace, name) => self.queues.federator.add(Key::new(lane, &namespace, &name)),
            ProjectWork::Policy { namespace, recorded, city } => {
                let derived = project.namespace_uid(&namespace).map(|uid| HubNamespace::of(&uid));
                if let Some(namespace) = derived.or(recorded) {
                    self.enqueue_policy(&namespace, &city);
                }
            }
            ProjectWork::Companion(namespace, token) => {
                self.queues.companion.add(Key::new(lane, &namespace, &token.to_string()));
            }
            ProjectWork::Claimants(namespace, deployment) => {
                self.enqueue_claimants(&claimed_deployment_index(&project.name, &namespace, &deployment));
            }
            ProjectWork::Mirror(namespace) => {
                let mirrors = |key: &ObjectKey| {
                    let facts = self.hub.namespaces.get(key);
                    facts.is_some_and(|facts| facts.upstream().is_some_and(|(_, own)| own == namespace))
                };
                let of_project = self.hub.namespaces.keys_by_index(&project_index(&project.name));
                of_project.iter().filter(|key| mirrors(key)).for_each(|key| self.enqueue_all_of(&key.name));
            }
            ProjectWork::Projection(namespace, name) => self.queues.projector.add(Key::new(lane, &namespace, &name)),
            ProjectWork::Namespace(namespace) => {
                for deployment in project.deployments.by_index(&namespace_index(&namespace)) {
                    for work in triggers::with_its_namespace(&deployment) {
                        self.enqueue_in(project, work);
                    }
                }
                self.enqueue_in(project, ProjectWork::Workloads(Some(namespace.clone())));
                self.enqueue_claimants(&claimed_namespace_index(&project.name, &namespace));
                for key in project.instances.keys_by_index(&namespace_index(&namespace)) {
                    self.queues.projector.add(Key::new(lane, &key.namespace, &key.name));
                }
            }
        }
    }

    /// Work on the companions that a deployment refers to, and on those that it was promised.
    pub(super) fn enqueue_companions_of(&self, project: &ProjectCache, deployment: &WorkloadDeployment) {
        for work in triggers::companions_of(deployment) {
            self.enqueue_in(project, work);
        }
    }

    /// Deployments that are blocked: should an event have been missed, this is what makes up for it.
    pub(super) fn enqueue_blocked(&self) {
        for key in self.blocked.keys() {
            self.queues.federator.add(key);
        }
    }

    /// Hub Instances that could not be shown: what kept them from it (a definition in the project that is older than ours)
    /// may have ended without any event of theirs.
    pub(super) fn enqueue_quarantined(&self) {
        for instance in self.quarantine.keys().iter().filter_map(|key| self.hub.instances.get(key)) {
            self.enqueue_projection(&instance);
        }
    }

    /// The federator's work on a deployment.
    pub(super) fn enqueue_federator(&self, project: &ProjectCache, deployment: &WorkloadDeployment) {
        let namespace = deployment.namespace().unwrap_or_default();
        self.queues.federator.add(Key::new(project.name.as_str(), &namespace, &deployment.name_any()));
    }

    /// Work on a companion, under the name that its source has in the project.
    pub(super) fn enqueue_companion(&self, kind: SourceKind, companion: &ObjectKey) {
        let Some(facts) = self.hub.namespaces.get(&ObjectKey::new("", &companion.namespace)) else { return };
        if let Some((project, namespace)) = facts.upstream() {
            let token = Token { kind, name: companion.name.to_string() };
            self.queues.companion.add(Key::new(project.as_str(), namespace, &token.to_string()));
        }
    }

    /// The federator's work on the original of a copy.
    fn enqueue_original(&self, copy: &ObjectKey) {
        let Some(facts) = self.hub.namespaces.get(&ObjectKey::new("", &copy.namespace)) else { return };
        if let Some((project, namespace)) = facts.upstream() {
            self.queues.federator.add(Key::new(project.as_str(), namespace, &copy.name));
        }
    }

    /// Hub Instances under this index value.
    pub(super) fn enqueue_claimants(&self, index: &Index) {
        for instance in self.hub.instances.by_index(index) {
            self.enqueue_projection(&instance);
        }
    }

    /// The projection of what a cell wrote back.
    pub(super) fn enqueue_projection(&self, instance: &Instance) {
        self.enqueue(triggers::projection_of(instance));
    }

    /// Every policy's work.
    pub(super) fn enqueue_policies(&self) {
        self.enqueue(HubWork::Policies(None));
    }

    fn enqueue_policy_named(&self, policy: &ObjectKey) {
        if let Some(city) = CityPolicyName::parse(&policy.name) {
            self.enqueue_policy(&policy.namespace, &city);
        }
    }

    fn enqueue_policy(&self, namespace: &str, city: &CityCode) {
        self.queues.policy.add(Key::new(namespace, namespace, city.as_str()));
    }
}
