//! Gathers the evidence of all policies about Karmada's dependencies, and keeps the verdict for a moment.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use crate::controllers::management::{
    Context,
    wiring::{index::city_index, queues::PolicyKey},
};
use crate::{
    api::{
        meta::annotation,
        names::{self, CityCode, CityPolicyName},
        referenced::DataRef,
    },
    controllers::record,
    io::{clock::Now, store::ObjectKey},
    plan::{
        management::{
            city_policy::migration::{
                karmada_version::{self, FormerBug},
                late_companions,
                probe::{self, Candidate, Observed, Probe, Problem, Verdict},
            },
            observed::facts::Phase,
        },
        references::annotated,
    },
};

/// Decides for all policies together if Karmada brings dependencies, and which policy asks.
pub(crate) struct Prober {
    pub(crate) ctx: Arc<Context>,
    /// A cache: the evidence is spread over all deployments of the hub. An answer of Karmada counts until the process ends.
    pub(crate) verdict: Mutex<Option<(Instant, Verdict)>>,
}

impl Prober {
    /// Returns the state of the probe for one policy, and the problem to report on it.
    pub(crate) fn probe(&self, key: &PolicyKey, now: Now) -> (Probe, Option<Problem>) {
        let mut cached = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |(at, verdict): &(Instant, Verdict)| {
            !verdict.passed && now.instant.saturating_duration_since(*at) > probe::TURN
        };
        if cached.as_ref().is_none_or(is_old) {
            *cached = Some((now.instant, self.decide(now)));
        }
        let PolicyKey { namespace, city } = key;
        let verdict = cached.as_ref().map(|(_, verdict)| verdict);
        verdict.map_or((Probe::Wait, None), |of| (of.probe(namespace, city), of.problem(namespace, city)))
    }

    fn decide(&self, now: Now) -> Verdict {
        let observed = Observed { candidates: self.candidates(now), timing: self.ctx.options.timing };
        let mut plan = probe::plan(&observed, now.time);
        record("propagation-probe", &"every city policy", &observed, now, &plan);
        let verdict = plan.signals.pop().unwrap_or_default();
        let is_refused = verdict.problem.as_ref().is_some_and(|(problem, ..)| *problem != Problem::NobodyToAsk);
        self.ctx.metrics.migration_refused(is_refused);
        if verdict.passed {
            self.ctx.triggers.enqueue_policies(None);
        } else if let Some((namespace, city)) = verdict.asker.clone() {
            self.ctx.triggers.enqueue_policy(&namespace, city);
        }
        verdict
    }

    /// Reports the assumptions about Karmada on this hub.
    pub(crate) fn report_assumptions(&self) {
        for bug in FormerBug::ALL {
            self.ctx.metrics.karmada_assumed(bug.label());
        }
        tracing::info!("{}", karmada_version::text(self.ctx.options.karmada));
    }

    /// Every city policy, with the evidence of its deployments.
    fn candidates(&self, now: Now) -> Vec<Candidate> {
        let entries = self.ctx.hub.policies.entries();
        let candidates = entries.iter().filter_map(|(key, policy)| {
            let city = CityPolicyName::parse(&key.name)?;
            Some(self.candidate(&key.namespace, city, Phase::of(&policy.spec), now))
        });
        candidates.collect()
    }

    fn candidate(&self, namespace: &str, city: CityCode, phase: Phase, now: Now) -> Candidate {
        let (hub, policy) = (&self.ctx.hub, city.policy_name());
        let known = |data_ref: &DataRef| {
            let companion = hub.companion(namespace, data_ref)?;
            let name = names::binding_name(data_ref.kind.as_str(), &data_ref.name);
            Some((companion, hub.bindings.get(&ObjectKey::new(namespace, &name))))
        };
        let attached = |data_ref: &DataRef| {
            let (companion, attached) = known(data_ref)?;
            (!companion.terminating).then_some(attached)
        };
        let copies = hub.copies.entries_by_index(&city_index(namespace, &city));
        let evidence = copies.iter().filter_map(|(key, copy)| {
            let expected = annotated(&copy.open(), annotation::EXPECTED_REFERENCED_DATA);
            let parent = names::deployment_binding(&key.name);
            probe::evidence(&policy, &parent, &*hub.binding_of(namespace, &key.name)?, &expected, attached)
        });
        let is_ready =
            |name: &str| hub.clusters.get(&ObjectKey::new("", name)).is_some_and(|cluster| cluster.ready.is_ok());
        let later = copies.iter().filter_map(|(key, _)| {
            let (binding, parent) = (hub.binding_of(namespace, &key.name)?, names::deployment_binding(&key.name));
            late_companions::observe(
                &parent,
                &binding,
                known,
                is_ready,
                self.ctx.options.timing.migration_step,
                now.time,
            )
        });
        Candidate::new(namespace, city, phase).with(evidence, later)
    }
}
