//! What has come of asking Karmada for dependencies: the memory behind its plan, and what the plan is asked with.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::{hub_cache::HubCache, index::city_index, state::Management};
use crate::{
    api::{
        meta::annotation,
        names::{CityCode, CityPolicyName},
    },
    plan::{
        management::{
            facts::Phase,
            probe::{self, Asker, Candidate, Observed, Probe, State},
        },
        references::annotated,
    },
};

/// What has come of asking.
#[derive(Default)]
pub(super) struct ProbeMemory(Mutex<State>);

impl ProbeMemory {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Management {
    /// What is known of it, for the policy of one city.
    pub(super) fn probe(&self, namespace: &str, city: &CityCode, now: Instant) -> Probe {
        let mut state = self.probing.lock();
        let due = state.is_election_due(now, self.options.timing.probe_election_ttl);
        let observed = Observed {
            policy: Asker { namespace: namespace.to_owned(), city: city.clone() },
            candidates: due.then(|| self.hub.candidates()),
            asks: self.hub.asks(namespace, city),
        };
        let (next, probe) = probe::look(std::mem::take(&mut *state), &observed, now);
        *state = next;
        probe
    }

    /// A binding shows that Karmada brings dependencies.
    pub(super) fn dependencies_are_brought(&self) {
        let mut state = self.probing.lock();
        if !state.has_passed() {
            *state = std::mem::take(&mut *state).answered();
            drop(state);
            self.metrics.migration_refused(false);
            self.enqueue_policies();
        }
    }

    /// It has been reported that Karmada does not answer.
    pub(super) fn migration_refused(&self) {
        let mut state = self.probing.lock();
        *state = std::mem::take(&mut *state).refused();
        self.metrics.migration_refused(!state.has_passed());
    }
}

impl HubCache {
    /// Every policy that may be the one to ask.
    fn candidates(&self) -> Vec<Candidate> {
        let candidate = |policy: &std::sync::Arc<crate::api::karmada::PropagationPolicy>| {
            let namespace = policy.metadata.namespace.clone()?;
            let city = CityPolicyName::parse(policy.metadata.name.as_deref()?)?;
            let copies = self.copies.by_index(&city_index(&namespace, &city));
            let expects = |copy| !annotated(copy, annotation::EXPECTED_REFERENCED_DATA).is_empty();
            Some(Candidate {
                phase: Phase::of(&policy.spec),
                in_use: !copies.is_empty(),
                needs_data: copies.iter().any(|copy| expects(copy.as_ref())),
                policy: Asker { namespace, city },
            })
        };
        self.policies.values().iter().filter_map(candidate).collect()
    }

    /// Whether a binding of a city's deployments asks Karmada for dependencies, and stays.
    fn asks(&self, namespace: &str, city: &CityCode) -> bool {
        self.copies.keys_by_index(&city_index(namespace, city)).iter().any(|copy| {
            let binding = self.binding_of(namespace, &copy.name);
            binding.is_some_and(|binding| binding.propagates && !binding.terminating)
        })
    }
}
