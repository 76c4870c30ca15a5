//! Cities that leave a cluster: what is known of them, and whom it concerns what is decided.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::controllers::management::{
    city_policy::policy_memory::RefusedPolicies,
    drain::move_memory::Moves,
    hub::hub_cache::HubCache,
    wiring::{
        index::{city_index, held_index, policies_index},
        queues::PolicyKey,
        triggers::Triggers,
    },
};
use crate::{
    api::names::{CityCode, CityPolicyName},
    controllers::{record, send},
    io::{clock::Now, store::ObjectKey},
    metrics::Metrics,
    plan::{
        Next,
        management::{
            city_policy::guard::Transfer,
            drain::{
                moves::{self, Move, Observed, PolicyTrouble, Whereabouts},
                unguarded,
            },
            observed::cluster::ClusterFacts,
        },
    },
    timing::Timing,
};

/// Looks at them.
pub(crate) struct CityMoves {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) moves: Arc<Moves>,
    pub(crate) triggers: Arc<Triggers>,
    pub(crate) refused: Arc<RefusedPolicies>,
    pub(crate) city_guard: bool,
    /// The Clusters on which it was told that nothing moves without the city guard.
    pub(crate) told_unguarded: Mutex<BTreeSet<String>>,
    pub(crate) timing: Timing,
    pub(crate) metrics: Metrics,
}

impl CityMoves {
    /// Decides how every move goes on, and has the policies look whom that concerns. Says when to look again.
    pub(crate) async fn look(&self, now: Now) -> Next {
        // What cannot be read is somewhere all the same.
        if !self.hub.knows_karmada() || self.hub.clusters.has_unreadable("") {
            return if self.moves.all().is_empty() { Next::Await } else { Next::After(self.timing.policy_poll) };
        }
        if !self.city_guard {
            self.look_unguarded(now).await;
            return Next::Await;
        }
        let observed = self.observe();
        if observed.cities.is_empty() {
            self.metrics.drains(Move::STATES.map(|state| (state, 0)));
            self.remember(BTreeMap::new());
            return Next::Await;
        }
        let plan = moves::plan(&observed, now.time);
        record("city-moves", &"every city", &observed, now, &plan);
        let after: BTreeMap<CityCode, Move> = plan.signals.iter().cloned().collect();
        let count = |state| after.values().filter(|of| of.state() == state).count();
        self.metrics.drains(Move::STATES.map(|state| (state, count(state))));
        self.remember(after.clone());
        for city in observed.cities.keys() {
            if observed.before.get(city) != after.get(city) {
                self.concern(city);
            }
        }
        for event in &plan.steps {
            let _ = send(&self.hub.plane, event, &self.metrics).await; // a lost Event is no error
        }
        plan.next
    }

    /// Tells on the Clusters that are to be drained that nothing moves, and counts the cities that wait there.
    async fn look_unguarded(&self, now: Now) {
        let told = std::mem::take(&mut *self.told());
        let clusters = self.hub.clusters.entries();
        let draining = clusters.iter().filter(|(_, facts)| facts.draining);
        let draining = draining.map(|(key, _)| (key.name.to_string(), self.cities_on(&key.name))).collect();
        let observed = unguarded::Observed { draining, told };
        let plan = unguarded::plan(&observed, now.time);
        record("unguarded-drains", &"every cluster", &observed, now, &plan);
        let count = |state| if state == "waiting" { observed.waiting() } else { 0 };
        self.metrics.drains(Move::STATES.map(|state| (state, count(state))));
        *self.told() = plan.signals.iter().cloned().collect();
        for event in &plan.steps {
            let _ = send(&self.hub.plane, event, &self.metrics).await; // a lost Event is no error
        }
    }

    fn told(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.told_unguarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cities that have something on a cluster.
    fn cities_on(&self, cluster: &str) -> BTreeSet<CityCode> {
        let cities = self.hub.policies.keys().into_iter().filter_map(|key| CityPolicyName::parse(&key.name));
        let held = |city: &CityCode| self.hub.bindings.count_by_index(&held_index(city, cluster)) > 0;
        cities.collect::<BTreeSet<_>>().into_iter().filter(held).collect()
    }

    /// Keeps what was decided for those who go by it; policies have waited for the first time.
    fn remember(&self, decided: BTreeMap<CityCode, Move>) {
        if self.moves.remember(decided) {
            self.triggers.everything_again();
        }
    }

    /// Has every policy and every deployment of a city looked at.
    fn concern(&self, city: &CityCode) {
        for policy in self.hub.policies.keys_by_index(&policies_index(city)) {
            self.triggers.enqueue_policy(&policy.namespace, city.clone());
            for copy in self.hub.copies.keys_by_index(&city_index(&policy.namespace, city)) {
                self.triggers.enqueue_original(&copy);
            }
        }
    }

    fn observe(&self) -> Observed {
        let hub = &self.hub;
        let before = self.moves.all();
        let keys = hub.clusters.keys();
        let facts = |key: &ObjectKey| Some((key.name.to_string(), (*hub.clusters.get(key)?).clone()));
        let clusters: BTreeMap<String, ClusterFacts> = keys.iter().filter_map(facts).collect();
        let leaving: Vec<&String> =
            clusters.iter().filter(|(_, facts)| facts.is_leaving()).map(|(name, _)| name).collect();
        let first = !self.moves.are_known();
        let mut observed = Observed { before, first, timing: self.timing, ..Observed::default() };
        if !leaving.is_empty() || !observed.before.is_empty() || first {
            let mut cities: BTreeSet<CityCode> = BTreeSet::new();
            // What a policy sends elsewhere is followed also when nothing is left where it came from.
            let mut sent: BTreeSet<CityCode> = BTreeSet::new();
            for (key, policy) in hub.policies.entries() {
                let Some(city) = CityPolicyName::parse(&key.name) else { continue };
                sent.extend(Transfer::of(&policy.spec.placement).map(|_| city.clone()));
                cities.insert(city);
            }
            let held = |city: &CityCode, cluster: &String| hub.bindings.count_by_index(&held_index(city, cluster)) > 0;
            for city in cities {
                let moves = observed.before.contains_key(&city) || sent.contains(&city);
                if moves || leaving.iter().any(|cluster| held(&city, cluster)) {
                    let namespaces = self.whereabouts(&city, clusters.keys());
                    observed.cities.insert(city, namespaces);
                }
            }
            // One whose last policy is gone is not to move any more.
            for city in
                observed.before.keys().filter(|city| !observed.cities.contains_key(*city)).cloned().collect::<Vec<_>>()
            {
                observed.cities.insert(city, BTreeMap::new());
            }
        }
        Observed { clusters, ..observed }
    }

    /// Where a city is in each hub namespace that has something of it.
    fn whereabouts<'a>(
        &self,
        city: &CityCode,
        clusters: impl Iterator<Item = &'a String>,
    ) -> BTreeMap<String, Whereabouts> {
        let hub = &self.hub;
        let mut namespaces: BTreeMap<String, Whereabouts> = BTreeMap::new();
        for cluster in clusters {
            for key in hub.bindings.keys_by_index(&held_index(city, cluster)) {
                let Some(binding) = hub.bindings.get(&key) else { continue };
                let there = namespaces.entry(key.namespace.to_string()).or_default();
                there.on.entry(cluster.clone()).or_default().add(&binding, cluster);
            }
        }
        let name = city.policy_name();
        for (namespace, there) in &mut namespaces {
            let policy = hub.policies.get(&ObjectKey::new(namespace, &name));
            let said = policy.map(|policy| Whereabouts::of_policy(&policy)).unwrap_or_default();
            let trouble = said.policy_trouble.clone().or_else(|| self.policy_trouble(namespace, city));
            *there = Whereabouts { on: std::mem::take(&mut there.on), policy_trouble: trouble, ..said };
        }
        namespaces
    }

    /// What keeps a city's policy in a namespace from being written.
    fn policy_trouble(&self, namespace: &str, city: &CityCode) -> Option<PolicyTrouble> {
        if self.hub.policies.is_unreadable(&ObjectKey::new(namespace, &city.policy_name())) {
            return Some(PolicyTrouble::Unreadable);
        }
        let refused = self.refused.of(&PolicyKey { namespace: namespace.into(), city: city.clone() });
        let unknown = || self.hub.hides_places(namespace).map(PolicyTrouble::Unknown);
        refused.map(PolicyTrouble::Refused).or_else(unknown)
    }
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
