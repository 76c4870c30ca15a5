//! The keys that a change on the hub concerns.
//!
//! The old object counts as well as the new one: what it referred to has changed too. Comparisons keep changes that many objects
//! share from waking all of them. If thousands of deployments share a companion, each writes to its binding.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::ResourceExt;

use super::{Keys, Triggers};
use crate::{
    api::{
        compute::WorkloadDeployment,
        karmada::{BindingSnapshot, PropagationPolicy},
        meta::{annotation, label},
        names::{CityCode, CityPolicyName, Template},
        referenced::{DataRef, SourceKind},
    },
    controllers::{
        compact::{PackedInstance, opened},
        delta,
        management::wiring::index::{Index, city_index, copy_city, policies_index},
    },
    io::{clock::Now, store::ObjectKey},
    plan::{
        Delta, NamespaceFacts,
        management::{
            federator::latency,
            observed::{
                cluster::ClusterFacts,
                facts::{BindingFacts, CompanionFacts, Phase},
            },
        },
        ownership,
        references::annotated,
    },
};

impl Triggers {
    /// Enqueues the keys that each change on the hub concerns, while the triggers exist.
    pub(crate) fn listen_to_hub(self: &Arc<Self>) {
        let hub = &self.hub;
        hub.copies.listen(self.on(|this, change| {
            opened(change, |copy| {
                this.measure_report(&copy);
                this.after_copy(&copy)
            })
        }));
        hub.policies.listen(self.on(|this, change| this.after_policy(&delta(change))));
        hub.namespaces.listen(self.on(|this, change| this.after_namespace(&delta(change))));
        hub.instances.listen(self.on(|this, change| {
            let change: Delta<'_, PackedInstance> = delta(change);
            if change.new.is_none() {
                this.quarantine.remove(&ObjectKey::new(change.namespace, change.name));
            }
            this.after_instance(&change)
        }));
        for kind in SourceKind::ALL {
            let companions = hub.companions(kind);
            companions.listen(self.on(move |this, change| this.after_companion(kind, &delta(change))));
        }
        hub.bindings.listen(self.on(|this, change| this.after_binding(&delta(change))));
        hub.clusters.listen(self.on(|this, change| {
            let change = delta(change);
            let is_draining = |facts: Option<&ClusterFacts>| facts.is_some_and(|facts| facts.draining);
            if is_draining(change.old) && !is_draining(change.new) {
                this.drains.recalled(change.name, this.hub.plane.now().time);
            }
            this.after_cluster(&change)
        }));
        // A controller that found an undecodable object has waited, and no other event wakes its key.
        hub.copies.listen_readable(self.on_readable(|this, namespace| this.copies_readable(namespace)));
        hub.bindings.listen_readable(self.on_readable(|this, namespace| this.bindings_readable(namespace)));
        hub.clusters.listen_readable(self.on_readable(|this, _| this.clusters_readable()));
        hub.instances.listen_readable(self.on_readable(|this, namespace| this.instances_readable(namespace)));
    }

    /// Starts the measurement of a report. Copies of other management planes are not measured.
    pub(super) fn measure_report(&self, copy: &Delta<'_, WorkloadDeployment>) {
        if latency::is_report(copy)
            && let Some(original) = self.original_of(&ObjectKey::new(copy.namespace, copy.name))
            && self.projects.is_engaged(&original.project)
        {
            self.latency.reported(&original, Now::read().instant);
        }
    }

    /// A copy concerns its original. If more than its status has changed, it concerns the policies of its cities and the companions
    /// that it expects, or expected.
    pub(super) fn after_copy(&self, copy: &Delta<'_, WorkloadDeployment>) -> Keys {
        let mut keys = Keys::default();
        self.original(copy.namespace, copy.name, &mut keys);
        let placed = |copy: &WorkloadDeployment| {
            let city = copy.labels().get(label::TOPOLOGY_CITY).cloned();
            let expected = copy.annotations().get(annotation::EXPECTED_REFERENCED_DATA).cloned();
            (copy.uid(), copy.metadata.deletion_timestamp.is_some(), city, expected)
        };
        if copy.old.map(placed) != copy.new.map(placed) && !self.is_copy_among_others(copy) {
            copy.both().filter_map(copy_city).for_each(|city| keys.policy(copy.namespace, city));
        }
        let expected = |copy: Option<&WorkloadDeployment>| -> BTreeSet<DataRef> {
            copy.map(|copy| annotated(copy, annotation::EXPECTED_REFERENCED_DATA)).into_iter().flatten().collect()
        };
        for data_ref in expected(copy.old).symmetric_difference(&expected(copy.new)) {
            self.companion(copy.namespace, data_ref, &mut keys);
        }
        keys
    }

    /// A policy concerns its city. Its owner and its phase concern all deployments and companions of the namespace: they decide
    /// if claims are undone, and what a deployment lacks.
    pub(super) fn after_policy(&self, policy: &Delta<'_, PropagationPolicy>) -> Keys {
        let mut keys = Keys::default();
        if let Some(city) = CityPolicyName::parse(policy.name) {
            keys.policy(policy.namespace, city);
        }
        let phase = |policy: Option<&PropagationPolicy>| {
            policy.map(|policy| (ownership::is_managed(policy), Phase::of(&policy.spec)))
        };
        if phase(policy.old) != phase(policy.new) {
            self.companions(policy.namespace, &mut keys);
            self.originals(Some(policy.namespace), &mut keys);
        }
        keys
    }

    /// A companion concerns its source, the city that claims it, and its users. A change of the list of users concerns those that
    /// were added or removed. Any other change concerns all users.
    pub(super) fn after_companion(&self, kind: SourceKind, companion: &Delta<'_, CompanionFacts>) -> Keys {
        let (mut keys, namespace) = (Keys::default(), companion.namespace);
        let data_ref = DataRef { kind, name: companion.name.to_owned() };
        self.companion(namespace, &data_ref, &mut keys);
        let claim = |facts: Option<&CompanionFacts>| facts.map(|f| (f.policy.clone(), f.cluster_policy.clone()));
        if claim(companion.old) != claim(companion.new) {
            // A policy that is on its way between claims and dependencies checks all companions by itself.
            let cities = companion.both().filter_map(|facts| CityPolicyName::parse(facts.policy.as_deref()?));
            cities.for_each(|city| keys.policy(namespace, city));
        }
        let [old, new] = [companion.old, companion.new]
            .map(|facts| facts.into_iter().flat_map(|facts| facts.users.names()).collect::<BTreeSet<_>>());
        // Deployments that wait for its deletion report its finalizers.
        let object = |facts: &CompanionFacts| (facts.uid.clone(), facts.terminating, facts.going.clone());
        let is_same =
            companion.old.map(object) == companion.new.map(object) && claim(companion.old) == claim(companion.new);
        for user in if is_same { &old ^ &new } else { &old | &new } {
            self.original(namespace, user.deployment(), &mut keys);
        }
        let is_open = |facts: Option<&CompanionFacts>| facts.is_some_and(|facts| facts.users.is_open());
        if is_open(companion.old) != is_open(companion.new) || !is_same && is_open(companion.new) {
            self.users(namespace, &data_ref, &mut keys);
        }
        keys
    }

    /// A binding concerns the policies of its city, and the deployments for which it has changed.
    pub(super) fn after_binding(&self, binding: &Delta<'_, BindingFacts>) -> Keys {
        let (mut keys, namespace) = (Keys::default(), binding.namespace);
        let both = binding.old.zip(binding.new);
        if both.is_some_and(|(old, new)| old.says_the_same(new)) {
            return keys;
        }
        if !both.is_some_and(|(old, new)| is_placed_alike(old, new)) {
            binding.both().flat_map(BindingFacts::cities).for_each(|city| keys.policy(namespace, city));
        }
        let bound = |facts: &BindingFacts| (facts.clusters.clone(), facts.terminating);
        if binding.old.map(bound) != binding.new.map(bound)
            && let Template::Deployment(name) = Template::of_binding(binding.name)
        {
            self.hub_instances(&Index::AskedOf(namespace.to_owned(), name), &mut keys);
        }
        for name in parents_with_changes(binding).into_iter().chain([binding.name]) {
            if let Template::Deployment(name) = Template::of_binding(name) {
                self.original(namespace, &name, &mut keys);
            }
        }
        if let Some(Template::Companion(data_ref)) = binding.newest().map(|binding| &binding.template) {
            let concerns_all = concerns_all(binding);
            let is_claimed = || self.hub.companion(namespace, data_ref).is_some_and(|facts| facts.is_claimed());
            if concerns_all || binding.both().any(BindingFacts::has_own_place) || is_claimed() {
                self.companion(namespace, data_ref, &mut keys);
            }
            if concerns_all {
                self.users(namespace, data_ref, &mut keys);
            }
        }
        keys
    }

    /// A Cluster concerns what is bound to it, and the cities that it has or had. If another cell is behind it, other Instances may
    /// be handed over.
    pub(super) fn after_cluster(&self, cluster: &Delta<'_, ClusterFacts>) -> Keys {
        if cluster.old == cluster.new {
            return Keys::default();
        }
        let mut keys = Keys { clusters: true, ..Keys::default() };
        let cities = cluster.both().filter_map(|facts| facts.city.clone()).collect();
        self.on_cluster(cluster.name, &cities, &mut keys);
        let member =
            |facts: Option<&ClusterFacts>| facts.filter(|facts| !facts.dead).and_then(|facts| facts.cell.clone());
        if member(cluster.old) != member(cluster.new) {
            self.waiting_instances(&mut keys);
        }
        keys
    }

    /// The deployments and policies on a Cluster, and those of these cities.
    fn on_cluster(&self, cluster: &str, cities: &BTreeSet<CityCode>, keys: &mut Keys) {
        let hub = &self.hub;
        for key in hub.bindings.keys_by_index(&Index::On(cluster.to_owned())) {
            let Template::Deployment(name) = Template::of_binding(&key.name) else { continue };
            let facts = hub.bindings.get(&key);
            let others = facts.iter().flat_map(|facts| facts.cities()).filter(|city| !cities.contains(city));
            others.for_each(|city| keys.policy(&key.namespace, city));
            self.original(&key.namespace, &name, keys);
        }
        for city in cities {
            for policy in hub.policies.keys_by_index(&policies_index(city)) {
                keys.policy(&policy.namespace, city.clone());
                for copy in hub.copies.keys_by_index(&city_index(&policy.namespace, city)) {
                    self.original(&copy.namespace, &copy.name, keys);
                }
            }
        }
    }

    /// A hub namespace concerns the project's namespaces that it mirrors and mirrored: only they correct its labels. A namespace
    /// that names its project now concerns all of its objects.
    pub(super) fn after_namespace(&self, namespace: &Delta<'_, NamespaceFacts>) -> Keys {
        let mut keys = Keys::default();
        if namespace.old == namespace.new {
            return keys;
        }
        for (project, own) in namespace.both().filter_map(NamespaceFacts::upstream) {
            if let Some(project) = self.projects.get(&project) {
                self.namespace_of(&project, own, &mut keys);
            }
        }
        let mirrored = |facts: Option<&'_ NamespaceFacts>| {
            facts.and_then(NamespaceFacts::upstream).map(|(project, own)| (project, own.to_owned()))
        };
        if mirrored(namespace.new).is_some_and(|new| mirrored(namespace.old) != Some(new)) {
            self.all_of(namespace.name, &mut keys);
        }
        keys
    }

    /// An Instance concerns the places that its labels name and named: a projection may be left at the old place.
    pub(super) fn after_instance(&self, instance: &Delta<'_, PackedInstance>) -> Keys {
        let mut keys = Keys::default();
        instance.both().for_each(|instance| self.projection(instance, &mut keys));
        keys
    }

    pub(super) fn copies_readable(&self, namespace: &str) -> Keys {
        let mut keys = Keys::default();
        self.all_of(namespace, &mut keys);
        keys
    }

    /// While a binding could not be decoded, no city could be given a place.
    pub(super) fn bindings_readable(&self, namespace: &str) -> Keys {
        let mut keys = Keys { clusters: true, ..Keys::default() };
        self.originals(Some(namespace), &mut keys);
        self.policies(Some(namespace), &mut keys);
        keys
    }

    pub(super) fn clusters_readable(&self) -> Keys {
        let mut keys = Keys { clusters: true, ..Keys::default() };
        self.originals(None, &mut keys);
        self.policies(None, &mut keys);
        self.waiting_instances(&mut keys);
        keys
    }

    pub(super) fn instances_readable(&self, namespace: &str) -> Keys {
        let mut keys = Keys::default();
        let facts = self.hub.namespaces.get(&ObjectKey::new("", namespace));
        if let Some((project, own)) = facts.as_ref().and_then(|facts| facts.upstream())
            && let Some(project) = self.projects.get(&project)
        {
            self.namespace_of(&project, own, &mut keys);
        }
        keys
    }
}

/// True if both say the same about where the template goes, and why. Nothing is copied, because thousands may need the binding.
fn is_placed_alike(old: &BindingFacts, new: &BindingFacts) -> bool {
    old.clusters == new.clusters
        && old.required_by == new.required_by
        && old.policy == new.policy
        && old.cluster_policy == new.cluster_policy
        && old.placement == new.placement
        && old.scheduled_by == new.scheduled_by
        && old.suspension == new.suspension
        && old.shows_dependencies() == new.shows_dependencies()
}

/// True if a fact has changed that concerns every deployment that needs the binding.
fn concerns_all(binding: &Delta<'_, BindingFacts>) -> bool {
    let shared = |facts: &BindingFacts| (facts.clusters.clone(), facts.suspension.clone(), facts.terminating);
    binding.old.map(shared) != binding.new.map(shared)
}

/// The bindings that need this one, and for which it has changed: that they need it, where, or if it is applied there.
fn parents_with_changes<'a>(binding: &Delta<'a, BindingFacts>) -> BTreeSet<&'a str> {
    let needed = |facts: Option<&'a BindingFacts>| -> BTreeMap<&'a str, &'a BindingSnapshot> {
        facts.into_iter().flat_map(|facts| &facts.required_by).map(|by| (by.name.as_str(), by)).collect()
    };
    let (before, now, all) = (needed(binding.old), needed(binding.new), concerns_all(binding));
    let applied = |facts: Option<&'a BindingFacts>, on: &str| facts.and_then(|facts| facts.applied.get(on));
    let clusters: BTreeSet<&str> = binding.both().flat_map(|facts| facts.applied.keys()).map(String::as_str).collect();
    let has_changed = |on: &&str| applied(binding.old, on) != applied(binding.new, on);
    let clusters: BTreeSet<&str> = clusters.into_iter().filter(has_changed).collect();
    let is_on_one = |by: &BindingSnapshot| by.clusters.iter().any(|on| clusters.contains(on.name.as_str()));
    let names = before.keys().chain(now.keys()).copied();
    names
        .filter(|name| {
            let (old, new) = (before.get(name), now.get(name));
            all || old != new || new.is_some_and(|by| is_on_one(by))
        })
        .collect()
}
