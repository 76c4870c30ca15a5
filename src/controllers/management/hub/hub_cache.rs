//! Caches of the hub.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use kube::ResourceExt;

use crate::controllers::management::wiring::index::{
    Index, city_index, copy_city, held_index, held_indices, label_city, namespace_index, on_indices,
    origin_deployment_index, origin_namespace_index, origin_place_index, others_index, policies_index, project_index,
};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        karmada::PropagationPolicy,
        meta::annotation,
        names::{self, CityCode, CityPolicyName, HubNamespace, Template},
        referenced::{DataRef, PerKind, SourceKind},
    },
    controllers::compact::{PackedDeployment, PackedInstance},
    io::{
        clients::ControlPlane,
        store::{ObjectKey, Store},
    },
    metrics::Metrics,
    plan::{
        self, NamespaceFacts, Shared,
        admission::sharing::InUse,
        management::{
            city_policy::{
                guard,
                migration::rollback::{self, Consumer},
                policy::Propagation,
            },
            drain::placement_status::PlacementStatus,
            observed::{
                cluster::{self, ClusterFacts},
                facts::{self, BindingFacts, CompanionFacts, Phase},
                placement,
            },
            projector::{
                dead_claim,
                hand_over::{self, Unbound},
                projection,
            },
            referenced_data::foreign_claim::ForeignClaim,
        },
        ownership,
        references::annotated,
    },
};

/// Uids of the member cells. `None` if a member has no uid.
type Members = Option<Shared<BTreeSet<String>>>;

/// The hub's caches.
pub(crate) struct HubCache {
    pub(crate) plane: ControlPlane<plan::Hub>,
    /// Namespaces that a federator made, by [`project_index`].
    pub(crate) namespaces: Arc<Store<NamespaceFacts, Index>>,
    /// Copies of deployments, by [`city_index`] and by [`namespace_index`].
    pub(crate) copies: Arc<Store<PackedDeployment, Index>>,
    /// Policies with the name of a city policy, by [`namespace_index`], by city and by phase.
    pub(crate) policies: Arc<Store<PropagationPolicy, Index>>,
    /// Instances that the cells wrote back. Their labels name the project ([`project_index`]), the namespace there
    /// ([`origin_namespace_index`]) and the deployment there ([`origin_deployment_index`]). They are also indexed by the place of
    /// their projection ([`origin_place_index`]).
    pub(crate) instances: Arc<Store<PackedInstance, Index>>,
    /// Companions, by [`namespace_index`] and [`others_index`].
    companions: PerKind<Arc<Store<CompanionFacts, Index>>>,
    /// Bindings of deployments and companions, by [`namespace_index`], [`held_indices`], [`on_indices`] and [`others_index`].
    pub(crate) bindings: Arc<Store<BindingFacts, Index>>,
    /// Member clusters, by city.
    pub(crate) clusters: Arc<Store<ClusterFacts, Index>>,
    /// Members, with the number of changes of the clusters that they include.
    members: Mutex<Option<(u64, Members)>>,
    /// Claims of policies that are gone, by the last sweep.
    abandoned: Mutex<ForeignClaims>,
}

/// Claims of policies that are not the policy of a city, with their hub namespace.
pub(crate) type ForeignClaims = BTreeSet<(String, ForeignClaim)>;

/// True if the policy has the name of a city policy.
fn may_be_city_policy(policy: &ObjectKey) -> bool {
    HubNamespace::parse(&policy.namespace).is_some() && CityPolicyName::parse(&policy.name).is_some()
}

/// True if the binding has the name of the binding of one of our templates.
fn may_be_ours(binding: &ObjectKey) -> bool {
    HubNamespace::parse(&binding.namespace).is_some() && Template::of_binding(&binding.name) != Template::Foreign
}

impl HubCache {
    pub(crate) fn new(plane: ControlPlane<plan::Hub>) -> Self {
        Self {
            plane,
            namespaces: Arc::new(Store::new(|_, facts: &NamespaceFacts| {
                facts.upstream().map(|(project, _)| project_index(&project)).into_iter().collect()
            })),
            copies: Arc::new(Store::inheriting(PackedDeployment::inherit, |key, copy: &PackedDeployment| {
                let city = label_city(copy).map(|city| city_index(&key.namespace, &city));
                city.into_iter().chain([namespace_index(&key.namespace)]).collect()
            })),
            policies: Arc::new(Store::of_those(may_be_city_policy, |key, policy: &PropagationPolicy| {
                let city = CityPolicyName::parse(&key.name).map(|city| policies_index(&city));
                let phase = Index::InPhase(Phase::of(&policy.spec));
                city.into_iter().chain([namespace_index(&key.namespace), phase]).collect()
            })),
            instances: Arc::new(Store::new(|key, instance: &PackedInstance| {
                let instance: &Instance = instance;
                // Instances that wait for a change of a Cluster or a binding.
                let asked = ownership::asking_cell(instance).is_some() || dead_claim::is_waiting(instance);
                let owner = ownership::controller_of(instance).filter(|_| asked);
                let of_owner = owner.map(|owner| Index::AskedOf(key.namespace.to_string(), owner.name.clone()));
                let asks = of_owner.into_iter().chain(asked.then_some(Index::Asked));
                let Ok(origin) = projection::identify(instance) else { return asks.collect() };
                let of_origin = [
                    project_index(&origin.project),
                    origin_namespace_index(&origin.project, &origin.namespace),
                    origin_deployment_index(&origin.project, &origin.namespace, &origin.deployment),
                    origin_place_index(&origin.project, &origin.namespace, &key.name),
                ];
                asks.chain(of_origin).collect()
            })),
            companions: PerKind::new(|_| {
                Arc::new(Store::new(|key, facts: &CompanionFacts| {
                    let others = others_index(facts.foreign_claims());
                    others.into_iter().chain([namespace_index(&key.namespace)]).collect()
                }))
            }),
            bindings: Arc::new(Store::of_those(may_be_ours, |key, facts| {
                let places = held_indices(facts).into_iter().chain(on_indices(facts));
                let others = others_index(facts.foreign_claims()).filter(|_| !facts.template.is_deployment());
                places.chain(others).chain([namespace_index(&key.namespace)]).collect()
            })),
            clusters: Arc::new(Store::new(|_, cluster: &ClusterFacts| {
                cluster.city.iter().cloned().map(Index::Cluster).collect()
            })),
            members: Mutex::new(None),
            abandoned: Mutex::default(),
        }
    }

    /// Companions of a kind, by [`namespace_index`].
    pub(crate) fn companions(&self, kind: SourceKind) -> &Arc<Store<CompanionFacts, Index>> {
        self.companions.get(kind)
    }

    /// Returns one companion.
    pub(crate) fn companion(&self, namespace: &str, data_ref: &DataRef) -> Option<Arc<CompanionFacts>> {
        self.companions(data_ref.kind).get(&ObjectKey::new(namespace, &data_ref.name))
    }

    /// True if a namespace contains objects of a project. A companion without known users does not count.
    pub(crate) fn has_content(&self, namespace: &str) -> bool {
        let index = namespace_index(namespace);
        let holds = |kind| {
            let companions = self.companions(kind).by_index(&index);
            companions.iter().any(|companion| !companion.users.is_unknown())
        };
        self.has_copies(namespace) || SourceKind::ALL.into_iter().any(holds)
    }

    /// True if a namespace contains a copy of a deployment, readable or not.
    pub(crate) fn has_copies(&self, namespace: &str) -> bool {
        self.copies.count_by_index(&namespace_index(namespace)) > 0 || self.copies.has_unreadable(namespace)
    }

    /// Returns the copy of a deployment.
    pub(crate) fn copy(&self, key: &ObjectKey) -> Option<Shared<WorkloadDeployment>> {
        self.copies.get(key).map(|copy| copy.open())
    }

    /// Returns the binding of a deployment's copy.
    pub(crate) fn binding_of(&self, namespace: &str, copy: &str) -> Option<Arc<BindingFacts>> {
        self.bindings.get(&ObjectKey::new(namespace, &names::deployment_binding(copy)))
    }

    /// Returns the uid of the cell that Karmada has bound the Instance's deployment to.
    ///
    /// # Errors
    /// The reason why the cell is not known.
    pub(crate) fn cell_of(&self, instance: &Instance) -> Result<String, Unbound> {
        if !self.knows_karmada() {
            return Err(Unbound::Unseen);
        }
        let namespace = instance.namespace().unwrap_or_default();
        let name = hand_over::deployment_of(instance).ok_or(Unbound::NoOwner)?;
        let deployment = self.copy(&ObjectKey::new(&namespace, name));
        if !deployment.is_some_and(|of| hand_over::is_of(instance, &of)) {
            return Err(Unbound::NoOwner);
        }
        let binding = self.binding_of(&namespace, name).filter(|binding| !binding.terminating);
        let binding = binding.ok_or(Unbound::NoBinding)?;
        let [cluster] = &binding.clusters[..] else { return Err(Unbound::Clusters(binding.clusters.len())) };
        let facts = self.clusters.get(&ObjectKey::new("", cluster));
        facts.and_then(|facts| facts.cell.clone()).ok_or_else(|| Unbound::Unnamed(cluster.clone()))
    }

    /// Returns the uids of the cells that are members and not given up. `None` while they are unknown, or if a member has no uid.
    pub(crate) fn members(&self) -> Members {
        if !self.knows_karmada() || self.clusters.has_unreadable("") {
            return None;
        }
        // Each reconcile of an Instance reads the members. There may be a thousand Clusters, which rarely change.
        let changes = self.clusters.changes();
        let mut known = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|(of, _)| *of != changes) {
            let members = cluster::members(self.clusters.values().iter().map(AsRef::as_ref));
            *known = Some((changes, members.map(Shared::from)));
        }
        known.as_ref().and_then(|(_, members)| members.clone())
    }

    /// Returns Instances that no member cell has written back. Empty while the members are unknown.
    pub(crate) fn instances_of_no_member(&self) -> Vec<Arc<PackedInstance>> {
        let Some(members) = self.members() else { return Vec::new() };
        let is_of_none = |instance: &Arc<PackedInstance>| {
            ownership::cell_of(&***instance).is_none_or(|cell| !members.contains(cell))
        };
        self.instances.values().into_iter().filter(is_of_none).collect()
    }

    /// True if all caches of the hub that federation needs are filled.
    pub(crate) fn is_synced(&self) -> bool {
        self.namespaces.is_synced()
            && self.copies.is_synced()
            && self.policies.is_synced()
            && self.companions.values().all(|of_kind| of_kind.is_synced())
    }

    /// Returns the clusters that have a city's label.
    pub(crate) fn clusters_of(&self, city: &CityCode) -> Vec<String> {
        self.clusters.keys_by_index(&Index::Cluster(city.clone())).into_iter().map(|key| key.name.to_string()).collect()
    }

    /// Returns the clusters of a city for its policy in a namespace. `copies` are its deployments there. `None` while the
    /// clusters are unknown.
    pub(crate) fn place_of(&self, city: &CityCode, namespace: &str, copies: &[ObjectKey]) -> Option<guard::Observed> {
        // An unreadable Cluster or binding may be one of the city's.
        if !self.knows_karmada() || self.clusters.has_unreadable("") || self.bindings.has_unreadable(namespace) {
            return None;
        }
        let bindings: Vec<_> = copies.iter().filter_map(|copy| self.binding_of(namespace, &copy.name)).collect();
        let bindings: Vec<&BindingFacts> = bindings.iter().map(AsRef::as_ref).collect();
        let policy = self.policies.get(&ObjectKey::new(namespace, &city.policy_name()));
        let asked = policy.as_ref().map(|policy| placement::digest(&policy.spec.placement));
        let (on, under_way) = facts::places(city, asked.as_deref(), &bindings);
        let status =
            policy.map(|policy| PlacementStatus::of_policy(&policy, Timestamp::UNIX_EPOCH)).unwrap_or_default();
        let moves = status.transfer.iter().flat_map(|of| [of.route.from.clone(), of.route.to.clone()]);
        let of_transfer = moves.chain(status.failed.into_keys());
        let cluster = |name: &str| Some((name.to_owned(), (*self.clusters.get(&ObjectKey::new("", name))?).clone()));
        let named: BTreeSet<String> =
            on.iter().flatten().cloned().chain(self.clusters_of(city)).chain(of_transfer).collect();
        let clusters = named.iter().filter_map(|name| cluster(name)).collect();
        let held = bindings.iter().filter(|binding| !binding.terminating && binding.is_of_city(city));
        let mut shares = held.fold(PlacementStatus::default(), |status, binding| status.with(binding)).on;
        // The drains count existing Clusters too. A binding can name one that was deleted.
        shares.retain(|name, _| self.clusters.contains(&ObjectKey::new("", name)));
        let mut place = guard::Observed { on, under_way, clusters, shares, ..guard::Observed::default() };
        if place.on.is_empty() {
            for key in self.clusters.keys() {
                let held = self.bindings.count_by_index(&held_index(city, &key.name));
                if held > 0 {
                    place.elsewhere.insert(key.name.to_string(), held);
                    place.clusters.extend(cluster(&key.name));
                }
            }
        }
        Some(place)
    }

    /// Message about an unreadable object that hides the clusters of cities in a namespace. `None` if all can be read.
    pub(crate) fn hides_places(&self, namespace: &str) -> Option<String> {
        let clusters = self.clusters.unreadable_in("").into_iter().map(|name| format!("Cluster {name}"));
        let bindings = self.bindings.unreadable_in(namespace).into_iter();
        let hidden = clusters.chain(bindings.map(|name| format!("ResourceBinding {namespace}/{name}"))).next()?;
        Some(format!("this operator cannot read {hidden}, so the Clusters of the cities are unknown"))
    }

    /// Returns the state of a namespace's migration from claims to dependencies.
    pub(crate) fn migration(&self, namespace: &str) -> rollback::Observed {
        let mut observed = rollback::Observed::default();
        for copy in self.copies.by_index(&namespace_index(namespace)) {
            let copy = copy.open();
            let expects = annotated(&copy, annotation::EXPECTED_REFERENCED_DATA);
            for data_ref in &expects {
                if observed.required_by.contains_key(data_ref) || observed.claimed_by.contains_key(data_ref) {
                    continue;
                }
                let binding = names::binding_name(data_ref.kind.as_str(), &data_ref.name);
                if let Some(binding) = self.bindings.get(&ObjectKey::new(namespace, &binding)) {
                    let by = binding.required_by.iter().map(|by| by.name.clone()).collect();
                    observed.required_by.insert(data_ref.clone(), by);
                }
                if let Some(companion) = self.companion(namespace, data_ref) {
                    let claimant = companion.policy.clone().filter(|_| companion.cluster_policy.is_none());
                    let of_all = facts::claimant(None, companion.cluster_policy.as_deref());
                    observed.claimed_by.insert(data_ref.clone(), claimant.or(of_all));
                }
            }
            let city = copy_city(&copy);
            observed.consumers.push(Consumer { deployment: copy.name_any(), city, expects });
        }
        observed
    }

    /// Updates the gauge of policies by phase of the migration from claims to dependencies.
    pub(crate) fn count_phases(&self, metrics: &Metrics) {
        for phase in Phase::ALL {
            metrics.policies(phase.label(), self.policies.count_by_index(&Index::InPhase(phase)));
        }
    }

    /// Returns the data in use in a namespace of the hub, if policies that claim bring each object to one city only. `None` if
    /// dependencies bring the data to all its users, or if the caches are not filled.
    pub(crate) fn claimed(&self, namespace: &str, propagation: Propagation) -> Option<Vec<InUse>> {
        if !self.is_synced() {
            return None;
        }
        let index = namespace_index(namespace);
        let claims = || self.policies.by_index(&index).iter().any(|policy| Phase::of(&policy.spec) == Phase::Claims);
        if propagation != Propagation::Selectors && !claims() {
            return None;
        }
        let copies = self.copies.by_index(&index);
        let used = copies.iter().filter(|copy| !copy.is_deleting()).filter_map(|copy| {
            let copy = copy.open();
            Some(InUse::of(&copy, copy_city(&copy)?))
        });
        Some(used.collect())
    }

    /// True if the policy of a claim in a namespace is known to be gone. Each sweep checks that.
    pub(crate) fn is_abandoned(&self, namespace: &str, claim: &ForeignClaim) -> bool {
        let abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        abandoned.contains(&(namespace.to_owned(), claim.clone()))
    }

    /// Stores the claims of policies that a sweep has found to be gone.
    pub(crate) fn set_abandoned_claims(&self, claims: ForeignClaims) {
        *self.abandoned.lock().unwrap_or_else(PoisonError::into_inner) = claims;
    }

    /// Returns the number of companions and of their bindings that a policy claims.
    pub(crate) fn claims_left(&self, namespace: &str, policy: &str) -> usize {
        let index = namespace_index(namespace);
        let companions: Vec<_> = self.companions.values().flat_map(|of_kind| of_kind.by_index(&index)).collect();
        let bindings = self.bindings.by_index(&index);
        rollback::claims_left(policy, companions.iter().map(AsRef::as_ref), bindings.iter().map(AsRef::as_ref))
    }

    /// True if the caches of bindings, clusters, policies and copies are current.
    pub(crate) fn knows_karmada(&self) -> bool {
        self.bindings.is_live() && self.clusters.is_live() && self.policies.is_live() && self.copies.is_live()
    }

    /// True if the caches of companions are current.
    pub(crate) fn knows_companions(&self) -> bool {
        SourceKind::ALL.iter().all(|kind| self.companions(*kind).is_live())
    }
}

#[cfg(test)]
#[path = "hub_cache_tests.rs"]
mod tests;
