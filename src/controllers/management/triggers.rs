//! Which change wakes whom on the management side.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt;

use super::project_cache::ProjectCache;
use super::state::{
    Management, UNRESOLVED_LANE, claimed_deployment_index, claimed_namespace_index, copy_city, namespace_index,
    original_city, project_index, with2,
};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        karmada::PropagationPolicy,
        meta::annotation,
        names::{self, CityCode},
        referenced::{SourceKind, Token},
    },
    controllers::with,
    io::{
        queue::Key,
        store::{Change, ObjectKey},
    },
    plan::{
        NamespaceFacts,
        management::{
            facts::{BindingFacts, ClusterFacts, CompanionFacts, Phase, Template},
            projection,
        },
        ownership,
        references::{annotated, references},
    },
};

/// Whether a deployment's companions have no reason to look at it again.
fn asks_for_the_same(old: &WorkloadDeployment, new: &WorkloadDeployment) -> bool {
    old.metadata.generation == new.metadata.generation
        && old.metadata.annotations == new.metadata.annotations
        && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        && old.metadata.uid == new.metadata.uid
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
    }

    /// The same for a project: its own objects, and what the hub holds for it.
    pub(super) fn project_again(&self, project: &ProjectCache) {
        let lane = project.name.as_str();
        for queue in [&self.queues.workload, &self.queues.federator, &self.queues.projector, &self.queues.companion] {
            queue.retry_now(lane);
        }
        self.enqueue_workloads(project, None);
        for deployment in project.deployments.values() {
            let key = ObjectKey::of(deployment.as_ref());
            self.queues.federator.add(Key::new(lane, &key.namespace, &key.name));
            self.enqueue_policy_of(project, &deployment);
            self.enqueue_companions_of(project, &deployment);
        }
        for namespace in self.hub.namespaces.keys_by_index(&project_index(&project.name)) {
            for key in self.hub.copies.keys_by_index(&namespace_index(&namespace.name)) {
                self.enqueue_original(&key);
            }
            for key in self.hub.policies.keys_by_index(&namespace_index(&namespace.name)) {
                self.enqueue_policy_named(&key);
            }
            for kind in SourceKind::ALL {
                for key in self.hub.companions(kind).keys_by_index(&namespace_index(&namespace.name)) {
                    self.enqueue_companion(kind, &key);
                }
            }
        }
        for key in self.projections_of(project) {
            self.queues.projector.add(Key::new(lane, &key.namespace, &key.name));
        }
    }

    pub(super) fn listen_to_hub(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.hub.copies.listen(move |change| with(&weak, |this| this.on_copy(change)));
        let weak = Arc::downgrade(self);
        self.hub.policies.listen(move |change| with(&weak, |this| this.on_policy(change)));
        let weak = Arc::downgrade(self);
        self.hub.namespaces.listen(move |change| with(&weak, |this| this.on_hub_namespace(change)));
        let weak = Arc::downgrade(self);
        self.hub.instances.listen(move |change| with(&weak, |this| this.on_hub_instance(change)));
        for kind in SourceKind::ALL {
            let weak = Arc::downgrade(self);
            self.hub.companions(kind).listen(move |change| with(&weak, |this| this.on_companion(kind, change)));
        }
        let weak = Arc::downgrade(self);
        self.hub.bindings.listen(move |change| with(&weak, |this| this.on_binding(change)));
        let weak = Arc::downgrade(self);
        self.hub.clusters.listen(move |change| with(&weak, |this| this.on_cluster(change)));
    }

    pub(super) fn listen_to_project(self: &Arc<Self>, project: &Arc<ProjectCache>) {
        let lane = project.name.clone();
        let queue = self.queues.workload.clone();
        project.workloads.listen(move |change| {
            queue.add(Key::new(lane.as_str(), &change.key.namespace, &change.key.name));
        });
        let (weak, of) = (Arc::downgrade(self), Arc::downgrade(project));
        project
            .deployments
            .listen(move |change| with2(&weak, &of, |this, project| this.on_deployment(project, change)));
        let (weak, of) = (Arc::downgrade(self), Arc::downgrade(project));
        project.locations.listen(move |change| {
            if change.old != change.new {
                with2(&weak, &of, |this, project| this.enqueue_workloads(project, None));
            }
        });
        let (weak, of) = (Arc::downgrade(self), Arc::downgrade(project));
        project.namespaces.listen(move |change| {
            if change.old != change.new {
                with2(&weak, &of, |this, project| this.on_project_namespace(project, &change.key.name));
            }
        });
        let lane = project.name.clone();
        let queue = self.queues.projector.clone();
        project.instances.listen(move |change| {
            queue.add(Key::new(lane.as_str(), &change.key.namespace, &change.key.name));
        });
        for kind in SourceKind::ALL {
            let (lane, queue) = (project.name.clone(), self.queues.companion.clone());
            project.sources(kind).listen(move |source| {
                let token = Token { kind, name: source.name.to_string() };
                queue.add(Key::new(lane.as_str(), &source.namespace, &token.to_string()));
            });
        }
        if let Some(networks) = &project.networks {
            let (weak, of) = (Arc::downgrade(self), Arc::downgrade(project));
            networks.listen(move |change| {
                // That a Network is there is all that matters of it.
                if change.old.is_none() || change.new.is_none() {
                    let namespace = &change.key.namespace;
                    with2(&weak, &of, |this, project| this.enqueue_workloads(project, Some(namespace)));
                }
            });
        }
    }

    fn on_deployment(&self, project: &ProjectCache, change: &Change<'_, WorkloadDeployment>) {
        let lane = project.name.as_str();
        let key = change.key;
        self.queues.federator.add(Key::new(lane, &key.namespace, &key.name));
        for deployment in change.old.into_iter().chain(change.new) {
            let workload = &deployment.spec.workload_ref.name;
            self.queues.workload.add(Key::new(lane, &key.namespace, workload));
            self.enqueue_policy_of(project, deployment);
        }
        let same = change.old.zip(change.new).is_some_and(|(old, new)| asks_for_the_same(old, new));
        for deployment in change.old.into_iter().chain(change.new).filter(|_| !same) {
            self.enqueue_companions_of(project, deployment);
        }
        if change.old.and_then(|wd| wd.uid()) != change.new.and_then(|wd| wd.uid()) {
            self.enqueue_claimants(&claimed_deployment_index(&project.name, &key.namespace, &key.name));
        }
    }

    fn on_copy(&self, change: &Change<'_, WorkloadDeployment>) {
        for copy in change.old.into_iter().chain(change.new) {
            self.enqueue_policy(&change.key.namespace, copy_city(copy));
        }
        self.enqueue_original(change.key);
        let tokens = |copy: Option<&Arc<WorkloadDeployment>>| -> BTreeSet<Token> {
            let expected = |copy: &Arc<WorkloadDeployment>| annotated(copy, annotation::EXPECTED_REFERENCED_DATA);
            copy.map(expected).unwrap_or_default().into_iter().collect()
        };
        for token in tokens(change.old).symmetric_difference(&tokens(change.new)) {
            self.enqueue_companion(token.kind, &ObjectKey::new(&change.key.namespace, &token.name));
        }
    }

    fn on_policy(&self, change: &Change<'_, PropagationPolicy>) {
        self.enqueue_policy_named(change.key);
        // Whether claims are to be undone, and what a deployment lacks, is read off the policy's phase.
        let phase = |policy: Option<&Arc<PropagationPolicy>>| {
            policy.map(|policy| (ownership::is_managed(policy.as_ref()), Phase::of(&policy.spec)))
        };
        if phase(change.old) == phase(change.new) {
            return;
        }
        let index = namespace_index(&change.key.namespace);
        for kind in SourceKind::ALL {
            for key in self.hub.companions(kind).keys_by_index(&index) {
                self.enqueue_companion(kind, &key);
            }
        }
        for key in self.hub.copies.keys_by_index(&index) {
            self.enqueue_original(&key);
        }
    }

    fn on_companion(&self, kind: SourceKind, change: &Change<'_, CompanionFacts>) {
        self.enqueue_companion(kind, change.key);
        let users = |facts: Option<&Arc<CompanionFacts>>| -> BTreeSet<String> {
            facts.and_then(|facts| facts.claims.clone()).unwrap_or_default()
        };
        if change.old.map(|facts| &facts.policy) != change.new.map(|facts| &facts.policy) {
            for key in self.hub.policies.keys_by_index(&namespace_index(&change.key.namespace)) {
                self.enqueue_policy_named(&key);
            }
        }
        let (old, new) = (users(change.old), users(change.new));
        let of = |facts: &Arc<CompanionFacts>| (facts.uid.clone(), facts.policy.clone(), facts.terminating);
        // A claim concerns whoever makes it, everything else all of them.
        let concerned: BTreeSet<&String> = if change.old.map(of) == change.new.map(of) {
            old.symmetric_difference(&new).collect()
        } else {
            old.union(&new).collect()
        };
        for user in concerned {
            if let Some((_, name)) = user.split_once('/') {
                self.enqueue_original(&ObjectKey::new(&change.key.namespace, name));
            }
        }
    }

    fn on_binding(&self, change: &Change<'_, BindingFacts>) {
        if change.new.is_some_and(|binding| binding.shows_dependencies()) {
            self.dependencies_are_brought();
        }
        let place =
            |facts: &Arc<BindingFacts>| (facts.clusters.clone(), facts.required_by.clone(), facts.policy.clone());
        if change.old.map(place) != change.new.map(place) {
            for key in self.hub.policies.keys_by_index(&namespace_index(&change.key.namespace)) {
                self.enqueue_policy_named(&key);
            }
        }
        let parent = |name: &str| name.strip_suffix("-workloaddeployment").map(str::to_owned);
        for binding in change.old.into_iter().chain(change.new) {
            let own = parent(&change.key.name).into_iter();
            for name in own.chain(binding.required_by.iter().filter_map(|by| parent(&by.name))) {
                self.enqueue_original(&ObjectKey::new(&change.key.namespace, &name));
            }
        }
        if let Some(Template::Companion(token)) = change.any().map(|binding| &binding.template) {
            let key = ObjectKey::new(&change.key.namespace, &token.name);
            self.enqueue_companion(token.kind, &key);
            let users = self.hub.companions(token.kind).get(&key).and_then(|facts| facts.claims.clone());
            for (_, name) in users.iter().flatten().filter_map(|user| user.split_once('/')) {
                self.enqueue_original(&ObjectKey::new(&change.key.namespace, name));
            }
        }
    }

    fn on_cluster(&self, change: &Change<'_, ClusterFacts>) {
        if change.old == change.new {
            return;
        }
        self.relabelled.notify_one();
        for key in self.hub.copies.keys() {
            self.enqueue_original(&key);
        }
        for key in self.hub.policies.keys() {
            self.enqueue_policy_named(&key);
        }
    }

    /// Work on the companions that a deployment refers to, and on those that it was promised.
    pub(super) fn enqueue_companions_of(&self, project: &ProjectCache, deployment: &WorkloadDeployment) {
        let namespace = deployment.namespace().unwrap_or_default();
        let promised = annotated(deployment, annotation::EXPECTED_REFERENCED_DATA);
        let asked = references(&deployment.spec.template.spec).into_iter().map(|reference| reference.token);
        for token in asked.chain(promised) {
            self.queues.companion.add(Key::new(project.name.as_str(), &namespace, &token.to_string()));
        }
    }

    /// Deployments that lack something: should an event have been missed, this is what makes up for it.
    pub(super) fn enqueue_blocked(&self) {
        for project in self.all_projects() {
            for key in project.blocked.keys() {
                self.queues.federator.add(Key::new(project.name.as_str(), &key.namespace, &key.name));
            }
        }
    }

    /// The federator's work on a deployment.
    pub(super) fn enqueue_federator(&self, project: &ProjectCache, deployment: &WorkloadDeployment) {
        let namespace = deployment.namespace().unwrap_or_default();
        self.queues.federator.add(Key::new(project.name.as_str(), &namespace, &deployment.name_any()));
    }

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

    fn on_hub_namespace(&self, change: &Change<'_, NamespaceFacts>) {
        if change.old == change.new {
            return;
        }
        let Some((project, namespace)) = change.any().and_then(|facts| facts.upstream()) else { return };
        if let Some(project) = self.project(project.as_str()) {
            self.on_project_namespace(&project, namespace);
        }
    }

    fn on_hub_instance(&self, change: &Change<'_, Instance>) {
        if change.new.is_none() {
            self.quarantine.remove(change.key);
        }
        // Both: a label that changed may leave a projection behind where it pointed before.
        for instance in change.old.into_iter().chain(change.new) {
            self.enqueue_projection(instance);
        }
    }

    fn on_project_namespace(&self, project: &ProjectCache, namespace: &str) {
        for deployment in project.deployments.by_index(&namespace_index(namespace)) {
            self.queues.federator.add(Key::new(project.name.as_str(), namespace, &deployment.name_any()));
            self.enqueue_policy_of(project, &deployment);
            self.enqueue_companions_of(project, &deployment);
        }
        self.enqueue_workloads(project, Some(namespace));
        self.enqueue_claimants(&claimed_namespace_index(&project.name, namespace));
        for key in project.instances.keys_by_index(&namespace_index(namespace)) {
            self.queues.projector.add(Key::new(project.name.as_str(), &key.namespace, &key.name));
        }
    }

    /// Hub Instances under this index value.
    pub(super) fn enqueue_claimants(&self, index: &str) {
        for instance in self.hub.instances.by_index(index) {
            self.enqueue_projection(&instance);
        }
    }

    /// Where a hub Instance says that it belongs, if we know such a project; else in the lane of those who are lost.
    pub(super) fn enqueue_projection(&self, instance: &Instance) {
        let name = instance.name_any();
        let key = match projection::identify(instance) {
            Ok(claimed) if self.is_engaged(&claimed.project) => {
                Key::new(claimed.project.as_str(), &claimed.namespace, &name)
            }
            _ => Key::new(UNRESOLVED_LANE, &instance.namespace().unwrap_or_default(), &name),
        };
        self.queues.projector.add(key);
    }

    fn enqueue_workloads(&self, project: &ProjectCache, namespace: Option<&str>) {
        for key in project.workloads.keys() {
            if namespace.is_none_or(|namespace| namespace == &*key.namespace) {
                self.queues.workload.add(Key::new(project.name.as_str(), &key.namespace, &key.name));
            }
        }
    }

    fn enqueue_policy_of(&self, project: &ProjectCache, deployment: &WorkloadDeployment) {
        let derived = project.namespace_uid(&deployment.namespace().unwrap_or_default());
        let recorded = || deployment.annotations().get(annotation::FEDERATION_NAMESPACE).cloned();
        if let Some(namespace) = derived.map(|uid| names::hub_namespace(&uid)).or_else(recorded) {
            self.enqueue_policy(&namespace, original_city(deployment));
        }
    }

    pub(super) fn enqueue_policies(&self) {
        for key in self.hub.policies.keys() {
            self.enqueue_policy_named(&key);
        }
    }

    fn enqueue_policy_named(&self, policy: &ObjectKey) {
        let city = policy.name.strip_prefix("city-").and_then(|city| CityCode::parse(city).ok());
        self.enqueue_policy(&policy.namespace, city);
    }

    fn enqueue_policy(&self, namespace: &str, city: Option<CityCode>) {
        if let Some(city) = city {
            self.queues.policy.add(Key::new(namespace, namespace, city.as_str()));
        }
    }
}
