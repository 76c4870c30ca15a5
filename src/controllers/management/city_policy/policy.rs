//! The PropagationPolicy of each city in each hub namespace. The key is not an object but a namespace and a city.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::controllers::management::{
    Context,
    city_policy::migration::probe::Prober,
    projects::project_cache::ProjectCache,
    wiring::{index::city_index, queues::PolicyKey},
};
use crate::{
    api::{karmada::PropagationPolicy, names::CityCode},
    controllers::{Reconciler, came_of, contests::Contests, failure_of, record, rest_after, send},
    io::{Error, clock::Now, queue::Key as _, store::ObjectKey},
    plan::{
        Failure, Next, Object, Shared,
        contest::Regarding,
        management::{
            city_policy::{
                guard,
                migration::{
                    probe::Probe,
                    rollback::{all_delivered_by_dependency, rollback_impact},
                },
                policy::{self, ClaimsGivenUp, Observed, Questions},
                unneeded,
            },
            observed::facts::Phase,
        },
    },
};

/// Keeps the policy of a city in a hub namespace while it has deployments.
pub(crate) struct CityPolicy {
    pub(crate) ctx: Arc<Context>,
    pub(crate) prober: Prober,
    pub(crate) contests: Contests<PolicyKey>,
    /// Cache of the namespaces whose migration is not complete, with the causes that block a rollback. The state is the same for all
    /// cities of a namespace, and reading it visits all of its deployments.
    pub(crate) incomplete: Mutex<Incomplete>,
}

/// By hub namespace, the time of the reading and the causes that block a rollback.
type Incomplete = HashMap<Arc<str>, (Instant, Vec<String>)>;

/// The loss of data by a rollback, or the causes that block it.
type Impact = Result<Vec<String>, Vec<String>>;

impl Reconciler for CityPolicy {
    const NAME: &'static str = "city-policy";
    type Key = PolicyKey;

    /// Each run reads all deployments of the city in the namespace.
    fn rest(&self, key: &PolicyKey) -> Duration {
        rest_after(PolicyKey::REST, self.ctx.hub.copies.count_by_index(&city_index(&key.namespace, &key.city)))
    }

    fn by_server(&self, _: &PolicyKey, now: Now) -> Now {
        now.on(self.ctx.hub.plane.connection().clock())
    }

    /// 1. Waits until the hub's caches are filled. A refilled cache enqueues every key.
    /// 2. Observes the policy, its deployments, the place of the city, and the progress of the migration.
    /// 3. Decides. A write that another client reverts, or that the hub does not keep, waits.
    /// 4. Writes.
    /// 5. Counts.
    async fn reconcile(&self, key: &PolicyKey, now: Now, failing: Duration) -> Result<Next, Error> {
        let Some(observed) = self.observe(key, now) else { return Ok(Next::Await) };
        let mut plan = policy::plan(&observed, now.time);
        record(Self::NAME, key, &observed, now, &plan);
        let at = || Object::named::<PropagationPolicy>(&key.namespace, &key.city.policy_name());
        let regarding = observed.policy.as_deref().map_or_else(|| Regarding::absent(at()), Regarding::of);
        let mut round = self.contests.begin(key, &mut plan, &regarding, now.time);
        for write in &plan.steps {
            let sent =
                send(&self.ctx.hub.plane, write, &self.ctx.metrics).await.map(|answer| round.came(came_of(answer)));
            if let Err(error) = sent {
                self.note(key, Some(failure_of(&error, failing)));
                return Err(error);
            }
        }
        drop(round);
        self.note(key, None);
        for ClaimsGivenUp in &plan.signals {
            self.ctx.metrics.policy_claims_given_up();
        }
        if !plan.steps.is_empty() {
            self.ctx.hub.count_phases(&self.ctx.metrics);
        }
        Ok(plan.next)
    }
}

impl CityPolicy {
    /// Notes the result of the last write. If the reported message changes, the deployments that wait for the policy are enqueued.
    fn note(&self, key: &PolicyKey, failure: Option<Failure>) {
        if self.ctx.refused.note(key, failure, &self.ctx.options.timing) {
            self.ctx.triggers.enqueue_originals(&key.namespace);
        }
    }

    /// The facts about the city in the namespace. `None` while the hub's caches are not filled.
    fn observe(&self, key: &PolicyKey, now: Now) -> Option<Observed> {
        let hub = &self.ctx.hub;
        if !hub.is_synced() {
            return None;
        }
        let PolicyKey { namespace, city } = key;
        let facts = hub.namespaces.get(&ObjectKey::new("", namespace))?;
        let mirrored = facts.upstream().and_then(|(project, own)| Some((self.ctx.projects.get(&project)?, own)));
        // The deployments of a recreated namespace are copied elsewhere.
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
            return None; // it exists but cannot be read: it is not changed, and its next event enqueues the city
        }
        let phase = policy.as_ref().map(|policy| Phase::of(&policy.spec));
        let questions = Questions::of(phase, self.ctx.options.propagation, hub.knows_karmada());
        let (probe, problem) = if questions.probe { self.prober.probe(key, now) } else { (Probe::Wait, None) };
        let (delivered_by_dependency, impact) = self.migration(namespace, questions, now);
        let (rollback_impact, rollback_waits) = match impact {
            Some(Ok(impact)) => (Some(impact), Vec::new()),
            Some(Err(waits)) => (None, waits),
            None => (None, Vec::new()),
        };
        let (wanted, complete) = (alive.count() > 0, known && !hub.copies.has_unreadable(namespace));
        let is_unneeded = unneeded::is_unneeded(wanted, copies.len(), complete);
        Some(Observed {
            spellings,
            copies: copies.len(),
            wanted,
            complete,
            namespace_lives: !facts.terminating,
            place: self.place(city, namespace, &keys),
            guard: self.ctx.options.city_guard,
            delivered_by_dependency,
            claimed: if is_unneeded { hub.claims_left(namespace, &name) } else { 0 },
            propagation: self.ctx.options.propagation,
            probe,
            problem,
            rollback_impact,
            rollback_waits,
            timing: self.ctx.options.timing,
            namespace: namespace.to_string(),
            policy: policy.map(Shared::from),
            city: city.clone(),
        })
    }

    /// True if every companion of the namespace is delivered by dependency, and the impact of a rollback.
    fn migration(&self, namespace: &Arc<str>, questions: Questions, now: Now) -> (bool, Option<Impact>) {
        if !questions.migration {
            return (false, None);
        }
        let ttl = self.ctx.options.timing.poll;
        let mut incomplete = self.incomplete.lock().unwrap_or_else(PoisonError::into_inner);
        incomplete.retain(|_, (at, _)| now.instant.saturating_duration_since(*at) < ttl);
        if let Some((_, waits)) = incomplete.get(namespace) {
            return (false, questions.rollback.then(|| Err(waits.clone())));
        }
        let seen = self.ctx.hub.migration(namespace);
        let delivered = all_delivered_by_dependency(&seen);
        let impact = questions.rollback.then(|| rollback_impact(&seen));
        let waits = match &impact {
            Some(Err(waits)) => Some(waits.clone()),
            Some(Ok(_)) => None,
            None => (!delivered).then(Vec::new),
        };
        if let Some(waits) = waits {
            incomplete.insert(namespace.clone(), (now.instant, waits));
        }
        (delivered, impact)
    }

    /// The place of the city, with the instruction of its drain.
    fn place(&self, city: &CityCode, namespace: &str, copies: &[ObjectKey]) -> Option<guard::Observed> {
        let known = self.ctx.drains.are_known() || !self.ctx.options.city_guard;
        let place = self.ctx.hub.place_of(city, namespace, copies).filter(|_| known)?;
        Some(guard::Observed { instruction: self.ctx.drains.instruction(city, namespace), ..place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{
            compute::WorkloadDeployment,
            meta::{annotation, label},
        },
        controllers::{compact::PackedDeployment, management::Context},
        io::{reads, store::Incoming},
        plan::NamespaceFacts,
    };

    /// An unreadable policy of the Go operator counted as missing, and was overwritten.
    #[tokio::test]
    async fn unreadable_policy_is_not_changed() {
        let ctx = Context::of_tests();
        let hub = &ctx.hub;
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
        assert!(ctx.policy().observe(&key, now).is_some_and(|observed| observed.policy.is_none()), "there is none");
        let unreadable = Incoming { key: ObjectKey::new("ns-1", "city-dfw"), uid: "p".into(), version: 2, value: None };
        hub.policies.observe(unreadable);
        assert!(ctx.policy().observe(&key, now).is_none(), "its content is unknown");
    }

    /// Every policy of a migrating namespace read all of its deployments at each look.
    #[tokio::test]
    async fn incomplete_migration_is_read_once_for_all_cities_of_a_namespace() {
        let ctx = Context::of_tests();
        let copy: WorkloadDeployment = serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "web", "namespace": "ns-1", "uid": "w", "resourceVersion": "1",
                "labels": { label::TOPOLOGY_CITY: "dfw" },
                "annotations": { annotation::EXPECTED_REFERENCED_DATA: r#"["Secret/db"]"# },
            },
            "spec": {
                "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw",
                "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                "scaleSettings": { "minReplicas": 1 },
            },
        }))
        .unwrap();
        ctx.hub.copies.replace(vec![Incoming::new(&copy.clone(), Some(PackedDeployment::of(copy)))], 1);
        let (policy, namespace, began) = (ctx.policy(), Arc::<str>::from("ns-1"), Now::read());
        let rest =
            |city| policy.rest(&PolicyKey { namespace: namespace.clone(), city: CityCode::parse(city).unwrap() });
        assert_eq!(rest("ord"), PolicyKey::REST);
        assert_eq!(rest("dfw"), rest_after(PolicyKey::REST, 1), "it reads the copies of its city");
        let questions = Questions { migration: true, rollback: false, probe: false };
        let ttl = ctx.options.timing.poll;
        for (after, is_read) in [(Duration::ZERO, true), (ttl / 2, false), (ttl, true)] {
            reads::take();
            let now = Now { instant: began.instant + after, ..began };
            assert_eq!(policy.migration(&namespace, questions, now), (false, None));
            assert_eq!(reads::take() > 0, is_read, "after {after:?}");
        }
    }
}
