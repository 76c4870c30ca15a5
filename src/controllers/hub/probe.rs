//! Whether Karmada on this hub brings dependencies at all: one policy asks, and the others wait for the answer.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    hub_state::HubState,
    state::{Management, city_index},
};
use crate::{
    api::{meta::annotation, names::CityCode},
    plan::{
        hub::policy::{Phase, Probe},
        references::annotated,
    },
};

/// What has come of asking.
#[derive(Default)]
pub(super) struct ProbeMemory(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// Karmada has answered.
    passed: bool,
    /// Since when a binding asks without an answer.
    unanswered: Option<Instant>,
    /// It has been told that there is none.
    told: bool,
}

impl Management {
    /// What is known of it, for the policy of one city.
    pub(super) fn probe(&self, namespace: &str, city: &CityCode) -> Probe {
        let mut memory = self.probing.0.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.passed {
            return Probe::Passed;
        }
        if self.hub.bindings.values().iter().any(|binding| binding.shows_dependencies()) {
            *memory = Memory { passed: true, ..Memory::default() };
            self.metrics.migration_refused(false);
            self.wake_policies();
            return Probe::Passed;
        }
        if self.hub.who_asks() != Some((namespace.to_owned(), city.clone())) {
            return Probe::Elsewhere;
        }
        let asked = self.hub.copies.keys_by_index(&city_index(namespace, city)).iter().any(|copy| {
            let binding = self.hub.binding_of(namespace, &copy.name);
            binding.is_some_and(|binding| binding.propagates && !binding.terminating)
        });
        if !asked {
            memory.unanswered = None;
            return Probe::Here { unanswered_for: Duration::ZERO, told: memory.told };
        }
        let since = *memory.unanswered.get_or_insert_with(Instant::now);
        Probe::Here { unanswered_for: since.elapsed(), told: memory.told }
    }

    /// It has been told that Karmada does not answer.
    pub(super) fn migration_refused(&self) {
        self.probing.0.lock().unwrap_or_else(PoisonError::into_inner).told = true;
        self.metrics.migration_refused(true);
    }
}

impl HubState {
    /// The policy that asks: one whose deployments need data, and that asks already, before others.
    fn who_asks(&self) -> Option<(String, CityCode)> {
        let candidates = self.policies.values().into_iter().filter_map(|policy| {
            let phase = Phase::of(&policy.spec);
            let namespace = policy.metadata.namespace.clone()?;
            let city = CityCode::parse(policy.metadata.name.as_deref()?.strip_prefix("city-")?).ok()?;
            let copies = self.copies.by_index(&city_index(&namespace, &city));
            let needs = copies.iter().any(|copy| !annotated(copy, annotation::EXPECTED_REFERENCED_DATA).is_empty());
            (phase != Phase::Dependencies && !copies.is_empty()).then_some((
                !needs,
                phase == Phase::Claims,
                namespace,
                city,
            ))
        });
        candidates.min().map(|(_, _, namespace, city)| (namespace, city))
    }
}
