//! The PropagationPolicy of each city in each hub namespace. The key is not an object but a namespace and a city.

use std::{sync::Arc, time::Duration};

use super::{index::city_index, state::Management};
use crate::{
    api::names::CityCode,
    controllers::{Reconciler, send},
    io::{Error, clock::Now, queue::Key, store::ObjectKey},
    plan::{
        Next,
        management::{
            facts::{BindingFacts, Phase},
            guard::Clusters,
            migration,
            policy::{self, Decision, News, Observed, Propagation},
            probe::Probe,
        },
    },
};

/// See the module.
pub(super) struct CityPolicy(pub(super) Arc<Management>);

impl Reconciler for CityPolicy {
    const NAME: &'static str = "city-policy";

    async fn reconcile(&self, key: &Key, now: Now) -> Result<Next, Error> {
        let Some(decision) = self.decide(key, now) else { return Ok(Next::Await) };
        for write in &decision.plan.steps {
            send(&self.0.hub.plane, write, &self.0.metrics).await?;
        }
        // Reported only once it is sent.
        match decision.news {
            Some(News::Waits) => self.0.wait_reported(&key.namespace, &key.name),
            Some(News::GaveUp) => self.0.metrics.guard_given_up(),
            Some(News::Warned) => self.0.warned(&key.namespace, now.instant),
            Some(News::Refused) => self.0.migration_refused(),
            None => {}
        }
        if !decision.plan.steps.is_empty() {
            self.0.count_phases();
        }
        Ok(decision.plan.next)
    }
}

impl CityPolicy {
    fn decide(&self, key: &Key, now: Now) -> Option<Decision> {
        let hub = &self.0.hub;
        let city = CityCode::parse(&key.name).ok()?;
        if !hub.is_synced() {
            return None; // a fresh cache brings every key back
        }
        let namespace = &key.namespace;
        let facts = hub.namespaces.get(&ObjectKey::new("", namespace))?;
        let mirrored = facts.upstream().and_then(|(project, own)| Some((self.0.project(project.as_str())?, own)));
        let (wanted, complete) = match mirrored {
            Some((project, own)) => {
                let deployments = project.deployments.by_index(&city_index(own, &city));
                let alive = deployments.iter().any(|wd| wd.metadata.deletion_timestamp.is_none());
                (alive, project.is_synced() && !project.deployments.has_unreadable(own))
            }
            None => (false, false),
        };
        let name = city.policy_name();
        let policy = hub.policies.get(&ObjectKey::new(namespace, &name));
        let copies = hub.copies.keys_by_index(&city_index(namespace, &city));
        let guard = self.0.options.city_guard;
        let known = hub.knows_karmada();
        let bindings: Vec<Arc<BindingFacts>> =
            copies.iter().filter(|_| guard).filter_map(|copy| hub.binding_of(namespace, &copy.name)).collect();
        let clusters = Clusters {
            bindings: &bindings,
            cluster: &|name| hub.clusters.get(&ObjectKey::new("", name)),
            clusters_of: &|city| hub.clusters_of(city),
        };
        let phase = policy.as_ref().map(|policy| Phase::of(&policy.spec));
        let migration = (phase == Some(Phase::Both) && known).then(|| hub.migration(namespace));
        let mut observed = Observed {
            namespace,
            city: &city,
            copies: copies.len(),
            wanted,
            complete: complete && !hub.copies.has_unreadable(namespace),
            namespace_lives: !facts.terminating,
            policy: policy.as_deref(),
            clusters: (guard && known).then_some(clusters),
            guard,
            delivered_by_dependency: migration.as_ref().is_some_and(migration::all_delivered_by_dependency),
            claimed: 0,
            unneeded_for: Duration::ZERO,
            wait_is_reported: false,
            propagation: self.0.options.propagation,
            probe: Probe::Elsewhere,
            rollback_impact: None,
            timing: self.0.options.timing,
        };
        let moving = matches!(phase, Some(Phase::Claims | Phase::Both));
        if observed.propagation == Propagation::Dependencies && moving && known {
            observed.probe = self.0.probe(namespace, &city, now.instant);
        }
        if observed.propagation == Propagation::Selectors {
            let impact = migration.as_ref().and_then(migration::rollback_impact);
            observed.rollback_impact = impact.map(|impact| (impact, self.0.warned_for(namespace, now.instant)));
        }
        let unneeded = policy::is_unneeded(&observed);
        (observed.unneeded_for, observed.wait_is_reported) =
            self.0.unneeded_for(namespace, &city, unneeded && policy.is_some(), now.instant);
        observed.claimed = if unneeded { hub.claims_left(namespace, &name) } else { 0 };
        Some(policy::plan(&observed, now.time))
    }
}
