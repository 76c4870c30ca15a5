//! Compares the cities on member clusters with their labels and drains. Runs when a Cluster changes, while cities move, and with
//! each sweep.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;

use crate::controllers::management::{
    Context,
    wiring::{
        index::{city_index, held_index, policies_index},
        queues::PolicyKey,
    },
};
use crate::{
    api::names::{CityCode, CityPolicyName},
    controllers::{record, send},
    io::{clock::Now, store::ObjectKey},
    plan::{
        Next,
        management::drain::{
            cities::{self, Observed},
            city_drain::Drain,
            placement_status::{PlacementStatus, PolicyTrouble},
        },
    },
};

/// Reconciles every city and every Cluster.
pub(crate) struct CityWatch {
    pub(crate) ctx: Arc<Context>,
}

impl CityWatch {
    /// Runs until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        loop {
            let period = match self.look(self.ctx.hub.plane.now()).await {
                Next::After(period) => period.min(self.ctx.options.sweep.interval),
                Next::Await => self.ctx.options.sweep.interval,
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.ctx.queues.clusters.notified() => {},
                () = tokio::time::sleep(period) => {},
            }
        }
    }

    /// Decides about every city, enqueues the affected policies and deployments, and reports on the Clusters.
    pub(crate) async fn look(&self, now: Now) -> Next {
        // An unreadable Cluster may hold a city: every drain stays as it was.
        if !self.ctx.hub.knows_karmada() || self.ctx.hub.clusters.has_unreadable("") {
            let moves = !self.ctx.drains.last().0.drains.is_empty();
            return if moves { Next::After(self.ctx.options.timing.poll) } else { Next::Await };
        }
        let observed = self.observe(now);
        let mut plan = cities::plan(&observed, now.time);
        record("city-drains", &"every city", &observed, now, &plan);
        let decision = plan.signals.pop().unwrap_or_default();
        self.count(&observed, &decision.drains);
        for notice in decision.notices.difference(&observed.before.notices) {
            tracing::warn!(cluster = notice.cluster, "{}", notice.text);
        }
        let (before, after) = (&observed.before.drains, decision.drains.clone());
        let is_first = self.ctx.drains.keep(decision);
        for city in observed.cities.keys().filter(|city| before.get(*city) != after.get(*city)) {
            self.concern(city);
        }
        if is_first {
            self.ctx.triggers.everything_again(); // policies have waited for it
        }
        for event in &plan.steps {
            let _ = send(&self.ctx.hub.plane, event, &self.ctx.metrics).await; // a lost Event is no error
        }
        plan.next
    }

    fn count(&self, observed: &Observed, drains: &BTreeMap<CityCode, Drain>) {
        let metrics = &self.ctx.metrics;
        // A drain that was recalled while nothing is under way has no cluster.
        let states = drains.iter().flat_map(|(city, drain)| {
            let clusters = drain.concerned();
            let no_cluster = clusters.is_empty().then_some("");
            clusters.into_iter().chain(no_cluster).map(move |cluster| (cluster, city.as_str(), drain.state()))
        });
        let unguarded = cities::unguarded(observed).map(|(cluster, city)| (&**cluster, city.as_str(), "waiting"));
        metrics.drains(states.chain(unguarded));
        metrics.mislabelled(cities::mislabelled(observed).map(|(cluster, city)| (&**cluster, city.as_str())));
        metrics.unready(cities::unready(observed).into_iter().map(|(cluster, city)| (&**cluster, city.as_str())));
    }

    /// Enqueues every policy and every deployment of a city.
    fn concern(&self, city: &CityCode) {
        for policy in self.ctx.hub.policies.keys_by_index(&policies_index(city)) {
            self.ctx.triggers.enqueue_policy(&policy.namespace, city.clone());
            for copy in self.ctx.hub.copies.keys_by_index(&city_index(&policy.namespace, city)) {
                self.ctx.triggers.enqueue_original(&copy);
            }
        }
    }

    fn observe(&self, now: Now) -> Observed {
        let hub = &self.ctx.hub;
        let (before, recalled) = self.ctx.drains.last();
        let facts = |key: &ObjectKey| Some((key.name.to_string(), (*hub.clusters.get(key)?).clone()));
        let mut observed = Observed {
            clusters: hub.clusters.keys().iter().filter_map(facts).collect(),
            guard: self.ctx.options.city_guard,
            recalled,
            before,
            timing: self.ctx.options.timing,
            ..Observed::default()
        };
        let mut cities: BTreeSet<CityCode> = observed.before.drains.keys().cloned().collect();
        // A transfer is followed even if nothing is left on its source cluster.
        let mut moving = cities.clone();
        for (key, policy) in hub.policies.entries() {
            let Some(city) = CityPolicyName::parse(&key.name) else { continue };
            if PlacementStatus::of_policy(&policy, now.time).transfer.is_some() {
                moving.insert(city.clone());
            }
            cities.insert(city);
        }
        for city in cities {
            let holds = |cluster: &&String| hub.bindings.count_by_index(&held_index(&city, cluster)) > 0;
            let holders: BTreeSet<String> = observed.clusters.keys().filter(holds).cloned().collect();
            let leaves = holders.iter().any(|name| observed.clusters[name].is_leaving());
            if moving.contains(&city) || leaves || holders.len() > 1 {
                observed.cities.insert(city.clone(), self.placement_status(&city, &holders, now));
            }
            observed.holders.insert(city, holders);
        }
        observed
    }

    /// The place of a city in each hub namespace that has something of it.
    fn placement_status(
        &self,
        city: &CityCode,
        holders: &BTreeSet<String>,
        now: Now,
    ) -> BTreeMap<String, PlacementStatus> {
        let hub = &self.ctx.hub;
        let mut namespaces: BTreeMap<String, PlacementStatus> = BTreeMap::new();
        for cluster in holders {
            for key in hub.bindings.keys_by_index(&held_index(city, cluster)) {
                let Some(binding) = hub.bindings.get(&key) else { continue };
                let there = namespaces.entry(key.namespace.to_string()).or_default();
                there.on.entry(cluster.clone()).or_default().add(&binding, cluster);
            }
        }
        let name = city.policy_name();
        for (namespace, there) in &mut namespaces {
            let policy = hub.policies.get(&ObjectKey::new(namespace, &name));
            let said = policy.map(|policy| PlacementStatus::of_policy(&policy, now.time)).unwrap_or_default();
            let policy_trouble = said.policy_trouble.clone().or_else(|| self.policy_trouble(namespace, city));
            *there = PlacementStatus { on: std::mem::take(&mut there.on), policy_trouble, ..said };
        }
        namespaces
    }

    /// The problem that blocks writes of a city's policy in a namespace.
    fn policy_trouble(&self, namespace: &str, city: &CityCode) -> Option<PolicyTrouble> {
        if self.ctx.hub.policies.is_unreadable(&ObjectKey::new(namespace, &city.policy_name())) {
            return Some(PolicyTrouble::Unreadable);
        }
        let refused = self.ctx.refused.of(&PolicyKey { namespace: namespace.into(), city: city.clone() });
        let unknown = || self.ctx.hub.hides_places(namespace).map(PolicyTrouble::Unknown);
        refused.map(PolicyTrouble::Refused).or_else(unknown)
    }
}

#[cfg(test)]
#[path = "city_watch_tests.rs"]
mod tests;
