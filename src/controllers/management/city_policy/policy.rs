//! The PropagationPolicy of each city in each hub namespace. The key is not an object but a namespace and a city.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::controllers::management::{
    city_policy::{policy_memory::PolicyMemory, probe::Prober},
    drain::move_memory::Moves,
    hub::hub_cache::HubCache,
    projects::{project_cache::ProjectCache, registry::ProjectRegistry},
    wiring::{index::city_index, queues::PolicyKey},
};
use crate::{
    api::{karmada::PropagationPolicy, names::CityCode},
    controllers::{Reconciler, came_of, contests::Contests, failure_of, record, send},
    io::{Class, Error, clock::Now, store::ObjectKey},
    metrics::Metrics,
    plan::{
        Failure, Next, Object, Shared,
        contest::Regarding,
        management::{
            city_policy::{
                guard, migration,
                policy::{self, Observed, Propagation, Questions, Signal},
                probe::Probe,
                unneeded,
            },
            observed::facts::Phase,
        },
    },
    timing::Timing,
};

/// What the way back to claims takes away, or what it waits for, in words.
type Impact = Result<Vec<String>, Vec<String>>;

/// Keeps the policy of a city in a hub namespace as long as somebody needs it.
pub(crate) struct CityPolicy {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) projects: Arc<ProjectRegistry>,
    pub(crate) moves: Arc<Moves>,
    pub(crate) prober: Prober,
    pub(crate) memory: Arc<PolicyMemory>,
    pub(crate) contests: Contests<PolicyKey>,
    pub(crate) propagation: Propagation,
    /// Whether what runs in a city stays where it is when its cluster loses the city's label.
    pub(crate) city_guard: bool,
    pub(crate) timing: Timing,
    pub(crate) metrics: Metrics,
}

impl Reconciler for CityPolicy {
    const NAME: &'static str = "city-policy";
    type Key = PolicyKey;

    /// 1. Waits until the hub's caches are filled; a cache that has been filled anew enqueues every key.
    /// 2. Observes the policy, who needs it, where the city is, and how far companions are from needing no claims.
    /// 3. Decides. What somebody takes back again and again, or the hub does not keep, waits.
    /// 4. Writes.
    /// 5. Remembers and counts what has been reported: only now, for it is reported only once it is sent.
    async fn reconcile(&self, key: &PolicyKey, now: Now, failing: Duration) -> Result<Next, Error> {
        let Some(observed) = self.observe(key, now) else { return Ok(Next::Await) };
        let mut plan = policy::plan(&observed, now.time);
        record(Self::NAME, key, &observed, now, &plan);
        let at = || Object::named::<PropagationPolicy>(&key.namespace, &key.city.policy_name());
        let regarding = observed.policy.as_deref().map_or_else(|| Regarding::absent(at()), Regarding::of);
        let mut round = self.contests.begin(key, &mut plan, &regarding, now.time);
        for write in &plan.steps {
            let sent = send(&self.hub.plane, write, &self.metrics).await.map(|answer| round.came(came_of(answer)));
            if let Err(error) = sent {
                self.note(key, Some(failure_of(&error, failing)));
                if ends_its_turn(error.class()) {
                    self.prober.could_not_ask(&key.namespace, &key.city);
                }
                return Err(error);
            }
        }
        drop(round);
        self.note(key, None);
        for signal in &plan.signals {
            match signal {
                Signal::Waits => self.memory.wait_reported(key),
                Signal::GaveUp => self.metrics.policy_claims_given_up(),
                Signal::Warned => {
                    let impact = observed.rollback_impact.as_ref().map_or(&[][..], |(impact, _)| impact);
                    self.memory.warned(&key.namespace, impact, now.instant);
                }
                Signal::RollbackWaits => self.memory.rollback_waits_reported(now.instant),
                Signal::Refused => self.prober.refused(),
                Signal::NobodyToAsk => self.prober.nobody_to_ask_reported(),
            }
        }
        if !plan.steps.is_empty() {
            self.hub.count_phases(&self.metrics);
        }
        Ok(plan.next)
    }
}

impl CityPolicy {
    /// Notes what came of the last write, and has those look again that wait for the policy if they have to report something
    /// else.
    fn note(&self, key: &PolicyKey, failure: Option<Failure>) {
        if self.memory.refused.note(key, failure, &self.timing) {
            self.prober.triggers.enqueue_originals(&key.namespace);
        }
    }

    /// Everything that is known about the city in the namespace; nothing while the hub's caches are not filled.
    fn observe(&self, key: &PolicyKey, now: Now) -> Option<Observed> {
        let hub = &self.hub;
        if !hub.is_synced() {
            return None;
        }
        let PolicyKey { namespace, city } = key;
        let Some(facts) = hub.namespaces.get(&ObjectKey::new("", namespace)) else {
            self.memory.rollback_waits(key, None, now.instant);
            self.memory.note_not_yet(namespace, None, now.instant);
            return None;
        };
        let mirrored = facts.upstream().and_then(|(project, own)| Some((self.projects.get(&project)?, own)));
        // Of a namespace that was made anew under its name, the deployments are copied elsewhere.
        let mirrors = |project: &ProjectCache, own: &str| project.may_be_mirrored_by(own, namespace);
        let originals = mirrored.as_ref().filter(|(project, own)| mirrors(project, own));
        let originals = originals.map(|(project, own)| project.deployments.by_index(&city_index(own, city)));
        let originals = originals.unwrap_or_default();
        let alive = originals.iter().filter(|wd| !wd.is_deleting());
        let known =
            mirrored.is_some_and(|(project, own)| project.is_synced() && !project.deployments.has_unreadable(own));
        let copies = hub.copies.entries_by_index(&city_index(namespace, city));
        let spellings: BTreeSet<String> = copies
            .iter()
            .filter_map(|(_, copy)| copy.city_label().map(str::to_owned))
            .chain(alive.clone().map(|wd| city.label_value(wd.city_code())))
            .collect();
        let keys: Vec<ObjectKey> = copies.iter().map(|(key, _)| key.clone()).collect();
        let name = city.policy_name();
        let at = ObjectKey::new(namespace, &name);
        let policy = hub.policies.get(&at);
        if policy.is_none() && hub.policies.contains(&at) {
            return None; // there, but it cannot be read: it is left as it is, and its next event enqueues the city
        }
        let phase = policy.as_ref().map(|policy| Phase::of(&policy.spec));
        let questions = Questions::of(phase, self.propagation, hub.knows_karmada());
        let probe = questions.probe.map_or(Probe::Elsewhere, |phase| self.prober.ask(namespace, city, phase, now));
        let (delivered_by_dependency, impact) = self.migration(namespace, questions, now);
        let (impact, rollback_wait) = match impact {
            Some(Ok(impact)) => (Some(impact), self.memory.rollback_waits(key, None, now.instant)),
            Some(Err(waits)) => (None, self.memory.rollback_waits(key, Some(waits), now.instant)),
            None => (None, self.memory.rollback_waits(key, None, now.instant)),
        };
        let (wanted, complete) = (alive.count() > 0, known && !hub.copies.has_unreadable(namespace));
        let is_unneeded = unneeded::is_unneeded(wanted, copies.len(), complete);
        let (unneeded_for, wait_is_reported) =
            self.memory.unneeded_for(key, is_unneeded && policy.is_some(), now.instant);
        Some(Observed {
            spellings,
            copies: copies.len(),
            wanted,
            complete,
            namespace_lives: !facts.terminating,
            place: self.place(city, namespace, &keys),
            guard: self.city_guard,
            delivered_by_dependency,
            claimed: if is_unneeded { hub.claims_left(namespace, &name) } else { 0 },
            unneeded_for,
            wait_is_reported,
            propagation: self.propagation,
            probe,
            rollback_impact: impact.map(|impact| {
                let warned_for = self.memory.warned_for(namespace, &impact, now.instant);
                (impact, warned_for)
            }),
            rollback_wait,
            timing: self.timing,
            namespace: namespace.to_string(),
            policy: policy.map(Shared::from),
            city: city.clone(),
        })
    }

    /// Whether every companion of the namespace is brought by need, and what the way back to claims would take away. Both are the
    /// same for all cities there, and take going over all their deployments: while policies may not go on, it is looked at once in
    /// a while for all of them.
    fn migration(&self, namespace: &str, questions: Questions, now: Now) -> (bool, Option<Impact>) {
        if !questions.migration {
            return (false, None);
        }
        if let Some(waits) = self.memory.not_yet(namespace, self.timing.policy_poll, now.instant) {
            return (false, questions.rollback.then_some(Err(waits)));
        }
        let seen = self.hub.migration(namespace);
        let delivered = migration::all_delivered_by_dependency(&seen);
        let impact = questions.rollback.then(|| migration::rollback_impact(&seen));
        let not_yet = match &impact {
            Some(Err(waits)) => Some(waits.clone()),
            Some(Ok(_)) => None,
            None => (!delivered).then(Vec::new),
        };
        self.memory.note_not_yet(namespace, not_yet, now.instant);
        (delivered, impact)
    }

    /// Where the city is, and whether it is to move.
    fn place(&self, city: &CityCode, namespace: &str, copies: &[ObjectKey]) -> Option<guard::Observed> {
        let known = self.moves.are_known() || !self.city_guard;
        let place = self.hub.place_of(city, namespace, copies).filter(|_| known)?;
        Some(self.moves.instruct(city, namespace, place))
    }
}

/// Whether a policy that was to ask Karmada makes way for another when its write fails. A conflict is over with its next look.
fn ends_its_turn(failed: Class) -> bool {
    failed != Class::Conflict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::meta::label, controllers::management::Parts, io::store::Incoming, plan::NamespaceFacts};

    /// Found under load: whoever lost a race for its own policy lost its turn to ask, and the migration waited for the next round.
    #[test]
    fn a_conflict_costs_no_policy_its_turn() {
        assert!(!ends_its_turn(Class::Conflict));
        let others = [Class::Retry, Class::Gone, Class::Unauthenticated, Class::Forbidden, Class::Invalid];
        assert!(others.into_iter().all(ends_its_turn), "whoever cannot write keeps nobody waiting");
    }

    /// Found by reading: one of the Go operator's that could not be read counted as none, and a new one was forced in its
    /// place.
    #[tokio::test]
    async fn a_policy_that_cannot_be_read_is_left_as_it_is() {
        let parts = Parts::of_tests();
        let hub = &parts.hub;
        let labels = [(label::UPSTREAM_CLUSTER, "cluster-single"), (label::UPSTREAM_NAMESPACE, "shop")];
        let facts = NamespaceFacts {
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..NamespaceFacts::default()
        };
        let namespace =
            Incoming { key: ObjectKey::new("", "ns-1"), uid: "n".into(), version: 1, value: Some(Arc::new(facts)) };
        hub.namespaces.replace(vec![namespace], 1);
        hub.copies.replace(Vec::new(), 1);
        for kind in crate::api::referenced::SourceKind::ALL {
            hub.companions(kind).replace(Vec::new(), 1);
        }
        hub.policies.replace(Vec::new(), 1);
        let key = PolicyKey { namespace: "ns-1".into(), city: CityCode::parse("dfw").unwrap() };
        let now = Now::read();
        assert!(parts.policy().observe(&key, now).is_some_and(|observed| observed.policy.is_none()), "there is none");
        let unreadable = Incoming { key: ObjectKey::new("ns-1", "city-dfw"), uid: "p".into(), version: 2, value: None };
        hub.policies.observe(unreadable);
        assert!(parts.policy().observe(&key, now).is_none(), "nobody knows what it says");
    }
}
