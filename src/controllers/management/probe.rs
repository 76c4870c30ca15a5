//! Whether Karmada brings dependencies: what its plan is asked with.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use kube::ResourceExt;

use super::{hub_cache::HubCache, index::city_index, triggers::Triggers};
use crate::{
    api::{
        karmada::PropagationPolicy,
        meta::annotation,
        names::{self, CityCode, CityPolicyName},
        referenced::Token,
    },
    io::store::ObjectKey,
    metrics::Metrics,
    plan::{
        management::{
            facts::Phase,
            probe::{self, Asker, Candidate, Observed, Probe, State},
        },
        references::annotated,
    },
    timing::Timing,
};

/// Asks Karmada whether it brings dependencies, one policy at a time, and remembers what has come of it.
pub(super) struct Prober {
    pub(super) hub: Arc<HubCache>,
    pub(super) triggers: Arc<Triggers>,
    pub(super) metrics: Metrics,
    pub(super) timing: Timing,
    pub(super) memory: Mutex<State>,
}

impl Prober {
    /// What is known of it, for the policy of one city. The first to see the answer has all others look.
    pub(super) fn ask(&self, namespace: &str, city: &CityCode, phase: Phase, now: Instant) -> Probe {
        let timing = self.timing;
        let mut state = self.lock();
        if state.has_passed() {
            return Probe::Passed;
        }
        let due = state.is_election_due(now, timing.probe_election_ttl);
        let observed = Observed {
            own: self.hub.candidate(namespace, city, phase),
            candidates: due.then(|| self.hub.candidates()),
        };
        let (next, probe) = probe::look(std::mem::take(&mut *state), &observed, timing.probe_timeout, now);
        *state = next;
        drop(state);
        if probe == Probe::Passed {
            self.metrics.migration_refused(false);
            self.triggers.enqueue_policies();
        }
        probe
    }

    /// It has been reported that Karmada does not answer.
    pub(super) fn refused(&self) {
        let mut state = self.lock();
        *state = std::mem::take(&mut *state).refused();
        self.metrics.migration_refused(!state.has_passed());
    }

    /// It has been reported that nobody can be asked.
    pub(super) fn nobody_to_ask_reported(&self) {
        let mut state = self.lock();
        *state = std::mem::take(&mut *state).nobody_reported();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HubCache {
    /// Every policy, and what its deployments show.
    fn candidates(&self) -> Vec<Candidate> {
        let candidate = |policy: &PropagationPolicy| {
            let city = CityPolicyName::parse(policy.metadata.name.as_deref()?)?;
            Some(self.candidate(policy.metadata.namespace.as_deref()?, &city, Phase::of(&policy.spec)))
        };
        self.policies.values().iter().filter_map(|policy| candidate(policy)).collect()
    }

    /// A policy, and what its deployments show.
    fn candidate(&self, namespace: &str, city: &CityCode, phase: Phase) -> Candidate {
        let policy = city.policy_name();
        let attached = |token: &Token| {
            let companion = self.companion(namespace, token)?;
            let name = names::binding_name(token.kind.as_str(), &token.name);
            (!companion.terminating).then(|| self.bindings.get(&ObjectKey::new(namespace, &name)))
        };
        let copies = self.copies.by_index(&city_index(namespace, city));
        let evidence = copies.iter().filter_map(|copy| {
            let name = copy.name_any();
            let expected = annotated(copy, annotation::EXPECTED_REFERENCED_DATA);
            let parent = names::deployment_binding(&name);
            probe::evidence(&policy, &parent, &*self.binding_of(namespace, &name)?, &expected, attached)
        });
        Candidate::of(Asker { namespace: namespace.to_owned(), city: city.clone() }, phase, evidence)
    }
}
