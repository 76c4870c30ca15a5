//! What is remembered of city policies between two looks at them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::queues::PolicyKey;
use crate::plan::management::unneeded::Unneeded;

/// Since when something is so, and what has been reported of it.
#[derive(Default)]
pub(super) struct PolicyMemory {
    /// When it was reported what a hub namespace will lose on the rollback to claims.
    warned: Mutex<BTreeMap<String, Instant>>,
    /// Since when nobody has needed a city's policy, and whether it has been reported why it stays.
    unneeded: Mutex<BTreeMap<PolicyKey, Unneeded>>,
}

impl PolicyMemory {
    /// It is reported now what a hub namespace will lose.
    pub(super) fn warned(&self, namespace: &str, now: Instant) {
        let mut all = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(namespace.to_owned()).or_insert(now);
    }

    /// How long ago it was reported.
    pub(super) fn warned_for(&self, namespace: &str, now: Instant) -> Option<Duration> {
        let all = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(namespace).map(|at| now.saturating_duration_since(*at))
    }

    /// How long nobody has needed this policy, and whether it has been reported why it stays.
    pub(super) fn unneeded_for(&self, policy: &PolicyKey, unneeded: bool, now: Instant) -> (Duration, bool) {
        let mut all = self.unneeded.lock().unwrap_or_else(PoisonError::into_inner);
        match Unneeded::look(all.remove(policy), unneeded, now) {
            Some(entry) => all.entry(policy.clone()).or_insert(entry).at(now),
            None => (Duration::ZERO, false),
        }
    }

    /// It is reported now why this policy stays.
    pub(super) fn wait_reported(&self, policy: &PolicyKey) {
        let mut all = self.unneeded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = all.get_mut(policy) {
            *entry = entry.reported();
        }
    }
}

/// What the hub does not take of city policies, for the deployments that wait for them.
#[derive(Default)]
pub(super) struct RefusedPolicies(Mutex<BTreeMap<PolicyKey, String>>);

impl RefusedPolicies {
    /// What the hub said to the last write; nothing when it took all.
    pub(super) fn note(&self, policy: &PolicyKey, words: Option<String>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match words {
            Some(words) => all.insert(policy.clone(), words),
            None => all.remove(policy),
        };
    }

    /// Why this policy is not there as it is to be.
    pub(super) fn of(&self, policy: &PolicyKey) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(policy).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::names::CityCode, timing::some_moment};

    fn policy(namespace: &str, city: &str) -> PolicyKey {
        PolicyKey { namespace: namespace.into(), city: CityCode::parse(city).unwrap() }
    }

    #[test]
    fn each_policy_has_a_time_of_its_own_that_begins_anew_when_it_is_needed() {
        let (memory, start) = (PolicyMemory::default(), some_moment());
        let (one, other) = (policy("ns-a", "dfw"), policy("ns-a", "ord"));
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(memory.unneeded_for(&one, true, at(0)), (Duration::ZERO, false));
        memory.wait_reported(&one);
        memory.wait_reported(&other);
        assert_eq!(memory.unneeded_for(&one, true, at(5)), (Duration::from_secs(5), true));
        assert_eq!(memory.unneeded_for(&other, true, at(5)), (Duration::ZERO, false), "nothing was remembered of it");
        assert_eq!(memory.unneeded_for(&one, false, at(6)), (Duration::ZERO, false));
        assert_eq!(memory.unneeded_for(&one, true, at(7)), (Duration::ZERO, false));
    }

    #[test]
    fn a_warning_counts_from_the_first_time() {
        let (memory, start) = (PolicyMemory::default(), some_moment());
        assert_eq!(memory.warned_for("ns-a", start), None);
        memory.warned("ns-a", start);
        let later = start + Duration::from_secs(9);
        memory.warned("ns-a", later);
        assert_eq!(memory.warned_for("ns-a", later), Some(Duration::from_secs(9)));
        assert_eq!(memory.warned_for("ns-b", later), None);
    }
}
