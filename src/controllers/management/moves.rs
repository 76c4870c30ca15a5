//! Cities that leave a cluster: what is known of them, and whom it concerns what is decided.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
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
            guard::Turn,
            moves::{self, Move, Observed, Whereabouts},
            triggers::HubWork,
        },
    },
};

/// Decides how every move goes on, and has the policies look whom that concerns. Says when to look again.
pub(super) async fn look(all: &Arc<Management>, now: Now) -> Next {
    // What cannot be read is somewhere all the same.
    if !all.hub.knows_karmada() || all.hub.clusters.has_unreadable("") || !all.options.city_guard {
        return if all.moves.all().is_empty() { Next::Await } else { Next::After(all.options.timing.policy_poll) };
    }
    let observed = observe(all);
    if observed.cities.is_empty() {
        all.metrics.drains(Move::STATES.map(|state| (state, 0)));
        remember(all, BTreeMap::new());
        return Next::Await;
    }
    let plan = moves::plan(&observed, &all.options.timing, now.time);
    record("city-moves", &Key::new("", "", ""), &observed, now, &plan);
    let after: BTreeMap<CityCode, Move> = plan.signals.iter().cloned().collect();
    let count = |state| after.values().filter(|of| of.state() == state).count();
    all.metrics.drains(Move::STATES.map(|state| (state, count(state))));
    remember(all, after.clone());
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

/// Keeps what was decided for those who go by it; policies have waited for the first time.
fn remember(all: &Management, decided: BTreeMap<CityCode, Move>) {
    if all.moves.remember(decided) {
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
    let before = all.moves.all();
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
