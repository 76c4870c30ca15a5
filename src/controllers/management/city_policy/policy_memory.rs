//! What is remembered of city policies between two looks at them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::controllers::management::wiring::queues::PolicyKey;
use crate::{
    plan::{
        Failure,
        management::city_policy::{
            policy::{self, OthersWaiting, RollbackWait},
            unneeded::Unneeded,
        },
    },
    timing::Timing,
};

/// How many other policies a report names that wait as one does.
const MAX_OTHERS: usize = 3;

/// A policy of which the rollback waits.
struct Waiting {
    since: Instant,
    /// Whether it has been reported.
    reported: bool,
    /// For what, in words.
    companions: String,
}

/// Since when something is so, and what has been reported of it.
#[derive(Default)]
pub(crate) struct PolicyMemory {
    /// When it was reported what a hub namespace will lose on the rollback to claims, and what that was.
    warned: Mutex<BTreeMap<String, (Instant, Vec<String>)>>,
    /// The policies of which the rollback to claims waits for companions.
    rollback_waits: Mutex<BTreeMap<PolicyKey, Waiting>>,
    /// Since when nobody has needed a city's policy, and whether it has been reported why it stays.
    unneeded: Mutex<BTreeMap<PolicyKey, Unneeded>>,
    /// Hub namespaces whose policies may not go on between claims and needs: when that was found, and what the way back waits for.
    not_yet: Mutex<BTreeMap<String, (Instant, Vec<String>)>>,
    /// What the hub does not take of them.
    pub(crate) refused: Arc<RefusedPolicies>,
}

impl PolicyMemory {
    /// It is reported now what a hub namespace will lose. Each of its policies reports it, and the first counts.
    pub(crate) fn warned(&self, namespace: &str, impact: &[String], now: Instant) {
        let mut all = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.get(namespace).is_some_and(|(_, reported)| holds(reported, impact)) {
            all.insert(namespace.to_owned(), (now, impact.to_vec()));
        }
    }

    /// How long ago all of this was reported; nothing while some of it was not.
    pub(crate) fn warned_for(&self, namespace: &str, impact: &[String], now: Instant) -> Option<Duration> {
        let all = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, _) = all.get(namespace).filter(|(_, reported)| holds(reported, impact))?;
        Some(now.saturating_duration_since(*at))
    }

    /// What has been found to keep a hub namespace's policies from going on, less than `lasts` ago.
    pub(crate) fn not_yet(&self, namespace: &str, lasts: Duration, now: Instant) -> Option<Vec<String>> {
        let all = self.not_yet.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, waits) = all.get(namespace).filter(|(at, _)| now.saturating_duration_since(*at) < lasts)?;
        Some(waits.clone())
    }

    /// This keeps them now, or nothing does.
    pub(crate) fn note_not_yet(&self, namespace: &str, waits: Option<Vec<String>>, now: Instant) {
        let mut all = self.not_yet.lock().unwrap_or_else(PoisonError::into_inner);
        match waits {
            Some(waits) => all.insert(namespace.to_owned(), (now, waits)),
            None => all.remove(namespace),
        };
    }

    /// What a policy's rollback waits for, if it does; `companions` as they are seen now.
    pub(crate) fn rollback_waits(
        &self,
        policy: &PolicyKey,
        companions: Option<Vec<String>>,
        now: Instant,
    ) -> Option<RollbackWait> {
        let mut all = self.rollback_waits.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.remove(policy);
        let companions = companions?;
        let words = |(other, wait): (&PolicyKey, &Waiting)| {
            format!("{}/{} for {}", other.namespace, other.city.policy_name(), wait.companions)
        };
        let others = all.iter().take(MAX_OTHERS).map(words);
        let others = OthersWaiting { count: all.len(), first: others.collect() };
        let (since, reported) = before.map_or((now, false), |before| (before.since, before.reported));
        all.insert(policy.clone(), Waiting { since, reported, companions: policy::named(&companions, 1) });
        Some(RollbackWait { companions, lasted: now.saturating_duration_since(since), reported, others })
    }

    /// It is reported what every rollback waits for that has waited at `now`.
    pub(crate) fn rollback_waits_reported(&self, now: Instant) {
        let mut all = self.rollback_waits.lock().unwrap_or_else(PoisonError::into_inner);
        all.values_mut().filter(|wait| wait.since <= now).for_each(|wait| wait.reported = true);
    }

    /// Forgets what was in hub namespaces that are gone.
    pub(crate) fn forget_gone(&self, is_there: impl Fn(&str) -> bool) {
        fn retain<V>(all: &Mutex<BTreeMap<PolicyKey, V>>, is_there: impl Fn(&str) -> bool) {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|policy, _| is_there(&policy.namespace));
        }
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).retain(|namespace, _| is_there(namespace));
        self.not_yet.lock().unwrap_or_else(PoisonError::into_inner).retain(|namespace, _| is_there(namespace));
        retain(&self.rollback_waits, &is_there);
        retain(&self.unneeded, &is_there);
        retain(&self.refused.0, &is_there);
    }

    /// How long nobody has needed this policy, and whether it has been reported why it stays.
    pub(crate) fn unneeded_for(&self, policy: &PolicyKey, unneeded: bool, now: Instant) -> (Duration, bool) {
        let mut all = self.unneeded.lock().unwrap_or_else(PoisonError::into_inner);
        match Unneeded::look(all.remove(policy), unneeded, now) {
            Some(entry) => all.entry(policy.clone()).or_insert(entry).at(now),
            None => (Duration::ZERO, false),
        }
    }

    /// It is reported now why this policy stays.
    pub(crate) fn wait_reported(&self, policy: &PolicyKey) {
        let mut all = self.unneeded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = all.get_mut(policy) {
            *entry = entry.reported();
        }
    }
}

/// Whether nothing will be lost but what was reported.
fn holds(reported: &[String], impact: &[String]) -> bool {
    impact.iter().all(|loss| reported.contains(loss))
}

/// What the hub does not take of city policies, for the deployments that wait for them.
#[derive(Default)]
pub(crate) struct RefusedPolicies(Mutex<BTreeMap<PolicyKey, String>>);

impl RefusedPolicies {
    /// Notes that the last write failed; `None` if the hub took all. Returns true if what is reported has changed.
    pub(crate) fn note(&self, policy: &PolicyKey, failure: Option<Failure>, timing: &Timing) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(policy).cloned();
        let words = failure.and_then(|failure| failure.reported(before.clone(), timing));
        match words.clone() {
            Some(words) => all.insert(policy.clone(), words),
            None => all.remove(policy),
        };
        before != words
    }

    /// Why this policy is not there as it is to be.
    pub(crate) fn of(&self, policy: &PolicyKey) -> Option<String> {
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

    fn refused(words: &str) -> Failure {
        Failure { words: words.into(), is_final: true, lasted: Duration::ZERO }
    }

    /// A 5xx cleared what the hub had refused before, and was itself never reported.
    #[test]
    fn refusal_of_a_policy_stays_until_the_hub_takes_the_policy() {
        let (memory, timing, dfw) = (RefusedPolicies::default(), Timing::default(), policy("ns-a", "dfw"));
        let passing = |seconds| Failure {
            words: "it answers with HTTP 500".into(),
            is_final: false,
            lasted: Duration::from_secs(seconds),
        };
        assert!(!memory.note(&dfw, Some(passing(3)), &timing) && memory.of(&dfw).is_none(), "it may pass");
        assert!(memory.note(&dfw, Some(passing(20)), &timing), "it lasts");
        assert_eq!(memory.of(&dfw).as_deref(), Some("it answers with HTTP 500"));
        assert!(memory.note(&dfw, Some(refused("no")), &timing));
        assert!(!memory.note(&dfw, Some(passing(3)), &timing), "what is reported stays");
        assert_eq!(memory.of(&dfw).as_deref(), Some("no"));
        assert!(memory.note(&dfw, None, &timing) && memory.of(&dfw).is_none());
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

    /// Found by reading: what a namespace was to lose beside what had once been reported went unreported.
    #[test]
    fn what_is_to_be_lost_is_reported_before_it_is_and_again_when_it_is_more() {
        let (memory, start) = (PolicyMemory::default(), some_moment());
        let at = |seconds| start + Duration::from_secs(seconds);
        let (one, other) = ("ord loses Secret/db".to_owned(), "dfw loses Secret/tls".to_owned());
        let both = [one.clone(), other.clone()];
        assert_eq!(memory.warned_for("ns-a", &both[..1], at(0)), None);
        memory.warned("ns-a", &both[..1], at(0));
        memory.warned("ns-a", &both[..1], at(3));
        assert_eq!(memory.warned_for("ns-a", &[one], at(5)), Some(Duration::from_secs(5)), "the first report counts");
        assert_eq!(memory.warned_for("ns-b", &[], at(5)), None);
        assert_eq!(memory.warned_for("ns-a", &both, at(5)), None, "of the other nobody was told");
        memory.warned("ns-a", &both, at(5));
        assert_eq!(memory.warned_for("ns-a", &both, at(6)), Some(Duration::from_secs(1)));
        assert_eq!(memory.warned_for("ns-a", &[other], at(6)), Some(Duration::from_secs(1)), "less than was reported");
    }

    /// Found by reading: what was remembered of a namespace that went stayed for as long as the process.
    #[test]
    fn of_a_namespace_that_is_gone_nothing_is_remembered() {
        let (memory, start) = (PolicyMemory::default(), some_moment());
        for namespace in ["ns-a", "ns-b"] {
            let policy = policy(namespace, "dfw");
            memory.warned(namespace, &[], start);
            memory.note_not_yet(namespace, Some(Vec::new()), start);
            memory.unneeded_for(&policy, true, start);
            memory.rollback_waits(&policy, Some(Vec::new()), start);
            memory.refused.note(&policy, Some(refused("no")), &Timing::default());
        }
        memory.forget_gone(|namespace| namespace == "ns-b");
        let later = start + Duration::from_secs(1);
        for (namespace, known) in [("ns-a", false), ("ns-b", true)] {
            let policy = policy(namespace, "dfw");
            assert_eq!(memory.warned_for(namespace, &[], later).is_some(), known);
            assert_eq!(memory.not_yet(namespace, Duration::from_secs(9), later).is_some(), known);
            assert_eq!(memory.refused.of(&policy).is_some(), known);
            assert_eq!(!memory.unneeded_for(&policy, true, later).0.is_zero(), known);
            let wait = memory.rollback_waits(&policy, Some(Vec::new()), later).unwrap();
            assert_eq!(!wait.lasted.is_zero(), known);
        }
    }

    #[test]
    fn a_rollback_waits_from_the_first_time_until_it_goes_on_and_says_so_once() {
        let (memory, start) = (PolicyMemory::default(), some_moment());
        let at = |seconds| start + Duration::from_secs(seconds);
        let (one, other) = (policy("ns-a", "dfw"), policy("ns-a", "ord"));
        let waits = |second| {
            let wait = memory.rollback_waits(&one, Some(vec!["Secret/db".into()]), at(second));
            wait.map(|wait| (wait.lasted.as_secs(), wait.reported))
        };
        assert_eq!((waits(0), waits(7)), (Some((0, false)), Some((7, false))));
        memory.rollback_waits_reported(at(7));
        assert_eq!(waits(8), Some((8, true)));
        assert_eq!(memory.rollback_waits(&other, None, at(8)), None);
        assert_eq!(memory.rollback_waits(&one, None, at(9)), None);
        assert_eq!(waits(10), Some((0, false)), "another one");
    }

    /// Found by reading: with 500 hub namespaces it was told 500 times.
    #[test]
    fn what_many_rollbacks_wait_for_is_told_once_with_the_first_of_them_and_anew_for_those_that_come_later() {
        let (memory, start) = (PolicyMemory::default(), some_moment());
        let at = |seconds| start + Duration::from_secs(seconds);
        let waits = |n: u64, second| {
            let companions = ["Secret/db", "Secret/tls"].map(|name| format!("{name}, which no policy claims"));
            memory.rollback_waits(&policy(&format!("ns-{n:03}"), "dfw"), Some(companions.into()), at(second)).unwrap()
        };
        for n in 0..500 {
            waits(n, n / 100);
        }
        let look = waits(7, 30);
        assert!(!look.reported);
        assert_eq!((look.others.count, look.others.first.len()), (499, MAX_OTHERS));
        assert_eq!(look.others.first[0], "ns-000/city-dfw for Secret/db, which no policy claims; and 1 more");
        memory.rollback_waits_reported(at(30));
        waits(600, 31);
        assert!((0..500).all(|n| waits(n, 40).reported), "it was told of all that waited then");
        assert!(!waits(600, 61).reported, "it is told of those that came later");
    }
}
