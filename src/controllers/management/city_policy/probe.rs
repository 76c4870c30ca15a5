//! Whether Karmada brings dependencies: what its plan is asked with.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;

use crate::controllers::management::{
    hub::hub_cache::HubCache,
    wiring::{index::city_index, triggers::Triggers},
};
use crate::{
    api::{
        karmada::PropagationPolicy,
        meta::annotation,
        names::{self, CityCode, CityPolicyName},
        referenced::DataRef,
    },
    controllers::record,
    io::{clock::Now, store::ObjectKey},
    metrics::Metrics,
    plan::{
        management::{
            city_policy::{
                karmada_version::{self, FormerBug, KarmadaVersion},
                later,
                probe::{self, Asker, Candidate, Observed, Probe, Signal, State},
            },
            observed::facts::Phase,
        },
        references::annotated,
    },
    timing::Timing,
};

/// Asks Karmada whether it brings dependencies, one policy at a time, and remembers what has come of it.
pub(crate) struct Prober {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) triggers: Arc<Triggers>,
    pub(crate) metrics: Metrics,
    pub(crate) timing: Timing,
    /// The least version of Karmada on the hub, as configured.
    pub(crate) karmada: KarmadaVersion,
    pub(crate) memory: Mutex<Remembered>,
}

impl Prober {
    /// What is known of it, for the policy of one city. The first to see the answer has all others look.
    pub(crate) fn ask(&self, namespace: &str, city: &CityCode, phase: Phase, now: Now) -> Probe {
        let mut memory = self.lock();
        let state = memory.at(now.instant);
        if state.has_passed() {
            return Probe::Passed;
        }
        // Compared with times that the hub has written.
        let age = Age { timeout: self.timing.probe_timeout, now: self.hub.plane.connection().clock().time(now.time) };
        let observed = Observed {
            own: self.hub.candidate(namespace, city, phase, age),
            candidates: state.is_election_due(self.timing.probe_election_ttl).then(|| self.hub.candidates(age)),
            timeout: self.timing.probe_timeout,
            state,
        };
        let plan = probe::plan(&observed, now.time);
        record("propagation-probe", &format!("{namespace}/{city}"), &observed, now, &plan);
        let mut probe = Probe::Elsewhere;
        for signal in plan.signals {
            match signal {
                Signal::Known(known) => probe = known,
                Signal::Remember(state) => memory.keep(state, now.instant),
            }
        }
        drop(memory);
        if probe == Probe::Passed {
            self.metrics.migration_refused(false);
            self.triggers.enqueue_policies(None);
        }
        probe
    }

    /// Says what is assumed of Karmada on this hub.
    pub(crate) fn tell_assumed(&self) {
        for bug in FormerBug::ALL {
            self.metrics.karmada_assumed(bug.label());
        }
        tracing::info!("{}", karmada_version::text(self.karmada));
    }

    /// It has been reported that Karmada does not answer.
    pub(crate) fn refused(&self) {
        let mut memory = self.lock();
        memory.state = std::mem::take(&mut memory.state).refused();
        self.metrics.migration_refused(!memory.state.has_passed());
    }

    /// The hub has not taken what the policy of this city is to be.
    pub(crate) fn could_not_ask(&self, namespace: &str, city: &CityCode) {
        let asker = Asker { namespace: namespace.to_owned(), city: city.clone() };
        let mut memory = self.lock();
        memory.state = std::mem::take(&mut memory.state).could_not_ask(&asker);
    }

    /// It has been reported that nobody can be asked.
    pub(crate) fn nobody_to_ask_reported(&self) {
        let mut memory = self.lock();
        memory.state = std::mem::take(&mut memory.state).nobody_reported();
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is remembered from one look to the next, as it was at the last.
#[derive(Default)]
pub(crate) struct Remembered {
    state: State,
    at: Option<Instant>,
}

impl Remembered {
    /// As it is now.
    fn at(&self, now: Instant) -> State {
        self.state.clone().after(self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at)))
    }

    /// As a look at `now` leaves it. Workers look side by side, each by the time at which it began: time that has been
    /// counted once is not counted again.
    fn keep(&mut self, state: State, now: Instant) {
        *self = Self { state, at: Some(self.at.map_or(now, |at| at.max(now))) };
    }
}

/// By what it is judged whether Karmada has had its time.
#[derive(Clone, Copy)]
struct Age {
    timeout: Duration,
    now: Timestamp,
}

impl HubCache {
    /// Every policy, and what its deployments show.
    fn candidates(&self, age: Age) -> Vec<Candidate> {
        let candidate = |policy: &PropagationPolicy| {
            let city = CityPolicyName::parse(policy.metadata.name.as_deref()?)?;
            Some(self.candidate(policy.metadata.namespace.as_deref()?, &city, Phase::of(&policy.spec), age))
        };
        self.policies.values().iter().filter_map(|policy| candidate(policy)).collect()
    }

    /// A policy, and what its deployments show.
    fn candidate(&self, namespace: &str, city: &CityCode, phase: Phase, age: Age) -> Candidate {
        let policy = city.policy_name();
        let known = |data_ref: &DataRef| {
            let companion = self.companion(namespace, data_ref)?;
            let name = names::binding_name(data_ref.kind.as_str(), &data_ref.name);
            Some((companion, self.bindings.get(&ObjectKey::new(namespace, &name))))
        };
        let attached = |data_ref: &DataRef| {
            let (companion, attached) = known(data_ref)?;
            (!companion.terminating).then_some(attached)
        };
        let copies = self.copies.entries_by_index(&city_index(namespace, city));
        let evidence = copies.iter().filter_map(|(key, copy)| {
            let expected = annotated(&copy.open(), annotation::EXPECTED_REFERENCED_DATA);
            let parent = names::deployment_binding(&key.name);
            probe::evidence(&policy, &parent, &*self.binding_of(namespace, &key.name)?, &expected, attached)
        });
        let is_ready =
            |name: &str| self.clusters.get(&ObjectKey::new("", name)).is_some_and(|cluster| cluster.ready.is_ok());
        let later = copies.iter().filter_map(|(key, _)| {
            let (binding, parent) = (self.binding_of(namespace, &key.name)?, names::deployment_binding(&key.name));
            later::of(&parent, &binding, known, is_ready, age.timeout, age.now)
        });
        let asker = Asker { namespace: namespace.to_owned(), city: city.clone() };
        Candidate::of(asker, phase, evidence).with_later(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::some_moment;

    /// Found by a test under load: workers that had begun earlier turned the time back, and whoever asked lost its turn.
    #[test]
    fn no_time_is_counted_twice() {
        let start = some_moment();
        let at = |seconds| start + Duration::from_secs(seconds);
        let own = Candidate {
            policy: Asker { namespace: "ns-1".into(), city: CityCode::parse("dfw").unwrap() },
            phase: Phase::Claims,
            can_show: None,
            asks: false,
            answered: None,
            later: None,
        };
        let mut memory = Remembered::default();
        let mut waited = |began: u64| {
            let (state, candidates) = (memory.at(at(began)), Some(vec![own.clone()]));
            let observed = Observed { state, own: own.clone(), candidates, timeout: Duration::from_secs(30) };
            let mut known = None;
            for signal in probe::plan(&observed, jiff::Timestamp::UNIX_EPOCH).signals {
                match signal {
                    Signal::Known(Probe::Nobody { waited_for, .. }) => known = Some(waited_for.as_secs()),
                    Signal::Known(probe) => panic!("{probe:?}"),
                    Signal::Remember(state) => memory.keep(state, at(began)),
                }
            }
            known.unwrap()
        };
        assert_eq!([0, 5, 1, 5, 1, 6].map(&mut waited), [0, 5, 5, 5, 5, 6]);
    }
}
