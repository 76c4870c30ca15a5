//! Cities that leave a cluster: what is known of them, and what is remembered from one look to the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    index::{city_index, held_index, policies_index},
    state::Management,
};
use crate::{
    api::names::{CityCode, CityPolicyName},
    controllers::{record, send},
    io::{clock::Now, queue::Key, store::ObjectKey},
    plan::{
        Next,
        management::{
            cluster::ClusterFacts,
            guard::{self, Turn},
            moves::{self, Move, Observed, Whereabouts},
            triggers::HubWork,
        },
    },
};

/// The moves that the last look decided on.
#[derive(Default)]
pub(super) struct Moves {
    all: Mutex<BTreeMap<CityCode, Move>>,
    /// Whether anybody has looked yet: until then it is not known what is on its way.
    looked: AtomicBool,
}

impl Moves {
    /// Whether anybody has looked yet.
    pub(super) fn are_known(&self) -> bool {
        self.looked.load(Ordering::Acquire)
    }

    /// Somebody has taken back that a cluster is to be drained: what went wrong with it is to be tried again, should it be
    /// asked for again.
    pub(super) fn called_off(&self, cluster: &str) {
        self.lock().values_mut().filter(|of| of.from.contains(cluster)).for_each(|of| of.failed = None);
    }

    /// What a city's policy in a hub namespace is to know of them.
    pub(super) fn instruct(&self, city: &CityCode, namespace: &str, place: guard::Observed) -> guard::Observed {
        let all = self.lock();
        let Some(of) = all.get(city) else { return place };
        guard::Observed { turn: of.turn(namespace).cloned(), home: of.home.clone(), ..place }
    }

    /// What a deployment of the city on one of these clusters is to say of it.
    pub(super) fn note(&self, city: &CityCode, on: &[String]) -> Option<String> {
        let all = self.lock();
        let of = all.get(city).filter(|of| on.iter().any(|cluster| of.from.contains(cluster)))?;
        moves::note(city, of)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CityCode, Move>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides how every move goes on, and has the policies look whom that concerns. Says when to look again.
pub(super) async fn look(all: &Arc<Management>, now: Now) -> Next {
    // What cannot be read is somewhere all the same.
    if !all.hub.knows_karmada() || all.hub.clusters.has_unreadable("") || !all.options.city_guard {
        let none = all.moves.lock().is_empty();
        return if none { Next::Await } else { Next::After(all.options.timing.policy_poll) };
    }
    let observed = observe(all);
    if observed.cities.is_empty() {
        all.metrics.drains(Move::STATES.map(|state| (state, 0)));
        known(all);
        return Next::Await;
    }
    let plan = moves::plan(&observed, &all.options.timing, now.time);
    record("city-moves", &Key::new("", "", ""), &observed, now, &plan);
    let after: BTreeMap<CityCode, Move> = plan.signals.iter().cloned().collect();
    let count = |state| after.values().filter(|of| of.state() == state).count();
    all.metrics.drains(Move::STATES.map(|state| (state, count(state))));
    all.moves.lock().clone_from(&after);
    known(all);
    for city in observed.cities.keys() {
        if observed.before.get(city) != after.get(city) {
            concern(all, city);
        }
    }
    for event in &plan.steps {
        let _ = send(&all.hub.plane, event, &all.metrics).await; // a lost Event is no error
    }
    plan.next
}

/// Every move is known from now on. Policies have waited for the first time.
fn known(all: &Management) {
    if !all.moves.looked.swap(true, Ordering::AcqRel) {
        all.everything_again();
    }
}

/// Has every policy and every deployment of a city looked at.
fn concern(all: &Management, city: &CityCode) {
    for policy in all.hub.policies.keys_by_index(&policies_index(city)) {
        all.enqueue(HubWork::Policy(policy.namespace.to_string(), city.clone()));
        for copy in all.hub.copies.keys_by_index(&city_index(&policy.namespace, city)) {
            all.enqueue(HubWork::Original { namespace: copy.namespace.to_string(), name: copy.name.to_string() });
        }
    }
}

fn observe(all: &Management) -> Observed {
    let hub = &all.hub;
    let before = all.moves.lock().clone();
    let keys = hub.clusters.keys();
    let facts = |key: &ObjectKey| Some((key.name.to_string(), (*hub.clusters.get(key)?).clone()));
    let clusters: BTreeMap<String, ClusterFacts> = keys.iter().filter_map(facts).collect();
    let leaving: Vec<&String> = clusters.iter().filter(|(_, facts)| facts.is_leaving()).map(|(name, _)| name).collect();
    let mut observed = Observed { before, ..Observed::default() };
    if !leaving.is_empty() || !observed.before.is_empty() || !all.moves.are_known() {
        let mut cities: BTreeSet<CityCode> = BTreeSet::new();
        // What a policy sends elsewhere is followed also when nothing is left where it came from.
        let mut sent: BTreeSet<CityCode> = BTreeSet::new();
        for (key, policy) in hub.policies.entries() {
            let Some(city) = CityPolicyName::parse(&key.name) else { continue };
            sent.extend(Turn::of(&policy.spec.placement).map(|_| city.clone()));
            cities.insert(city);
        }
        let held = |city: &CityCode, cluster: &String| hub.bindings.count_by_index(&held_index(city, cluster)) > 0;
        for city in cities {
            let moves = observed.before.contains_key(&city) || sent.contains(&city);
            if moves || leaving.iter().any(|cluster| held(&city, cluster)) {
                let namespaces = whereabouts(all, &city, clusters.keys());
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
    all: &Management,
    city: &CityCode,
    clusters: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, Whereabouts> {
    let hub = &all.hub;
    let mut namespaces: BTreeMap<String, Whereabouts> = BTreeMap::new();
    for cluster in clusters {
        for key in hub.bindings.keys_by_index(&held_index(city, cluster)) {
            let Some(binding) = hub.bindings.get(&key) else { continue };
            let there = namespaces.entry(key.namespace.to_string()).or_default();
            let presence = there.on.entry(cluster.clone()).or_default();
            let replicas = binding.replicas.get(cluster).copied().unwrap_or_default();
            presence.bindings += 1;
            presence.applied += usize::from(binding.applied.get(cluster) == Some(&Ok(())));
            presence.suspended += usize::from(binding.suspension.stops_scheduling());
            presence.desired += replicas.desired;
            presence.current += replicas.current;
        }
    }
    let name = city.policy_name();
    for (namespace, there) in &mut namespaces {
        let policy = hub.policies.get(&ObjectKey::new(namespace, &name));
        there.standing = policy.and_then(|policy| Turn::of(&policy.spec.placement));
    }
    namespaces
}
