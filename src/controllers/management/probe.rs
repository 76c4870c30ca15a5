//! Whether Karmada on this hub brings dependencies at all: one policy asks, and the others wait for the answer.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    hub_cache::HubCache,
    state::{Management, city_index},
};
use crate::{
    api::{meta::annotation, names::CityCode},
    plan::{
        management::{facts::Phase, policy::Probe},
        references::annotated,
    },
};

/// How long a choice of who asks stands: every policy that waits comes by, and choosing goes over them all.
const PROBE_ELECTION_TTL: Duration = Duration::from_secs(1);

/// What has come of asking.
#[derive(Default)]
pub(super) struct ProbeMemory {
    /// Karmada has answered.
    passed: AtomicBool,
    asking: Mutex<Asking>,
}

#[derive(Default)]
struct Asking {
    /// Hub namespace and city of the policy that asks, and when it was chosen.
    who: Option<((String, CityCode), Instant)>,
    /// Since when a binding of it asks without an answer.
    unanswered: Option<Instant>,
    /// It has been reported that there is none.
    reported: bool,
}

impl Management {
    /// What is known of it, for the policy of one city.
    pub(super) fn probe(&self, namespace: &str, city: &CityCode) -> Probe {
        if self.probing.passed.load(Ordering::Acquire) {
            return Probe::Passed;
        }
        let mut asking = self.probing.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if asking.who.as_ref().is_none_or(|(_, chosen)| chosen.elapsed() > PROBE_ELECTION_TTL) {
            asking.who = self.hub.who_asks().map(|who| (who, Instant::now()));
        }
        if !asking.who.as_ref().is_some_and(|((of, who), _)| of == namespace && who == city) {
            return Probe::Elsewhere;
        }
        let asked = self.hub.copies.keys_by_index(&city_index(namespace, city)).iter().any(|copy| {
            let binding = self.hub.binding_of(namespace, &copy.name);
            binding.is_some_and(|binding| binding.propagates && !binding.terminating)
        });
        asking.unanswered = asking.unanswered.filter(|_| asked).or_else(|| asked.then(Instant::now));
        let unanswered_for = asking.unanswered.map_or(Duration::ZERO, |since| since.elapsed());
        Probe::Here { unanswered_for, reported: asking.reported }
    }

    /// A binding shows that Karmada brings dependencies.
    pub(super) fn dependencies_are_brought(&self) {
        if !self.probing.passed.swap(true, Ordering::AcqRel) {
            self.metrics.migration_refused(false);
            self.enqueue_policies();
        }
    }

    /// It has been reported that Karmada does not answer.
    pub(super) fn migration_refused(&self) {
        self.probing.asking.lock().unwrap_or_else(PoisonError::into_inner).reported = true;
        self.metrics.migration_refused(!self.probing.passed.load(Ordering::Acquire));
    }
}

impl HubCache {
    /// The policy that asks: one whose deployments need data, and that asks already, before others.
    fn who_asks(&self) -> Option<(String, CityCode)> {
        let candidates = self.policies.values().into_iter().filter_map(|policy| {
            let phase = Phase::of(&policy.spec);
            let namespace = policy.metadata.namespace.clone()?;
            let city = CityCode::parse(policy.metadata.name.as_deref()?.strip_prefix("city-")?).ok()?;
            let copies = self.copies.by_index(&city_index(&namespace, &city));
            if phase == Phase::Dependencies || copies.is_empty() {
                return None;
            }
            let needs = copies.iter().any(|copy| !annotated(copy, annotation::EXPECTED_REFERENCED_DATA).is_empty());
            Some((!needs, phase == Phase::Claims, namespace, city))
        });
        candidates.min().map(|(_, _, namespace, city)| (namespace, city))
    }
}
