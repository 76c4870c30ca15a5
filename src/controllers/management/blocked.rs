//! What keeps deployments from being delivered, since when, and how often something was repaired for it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::io::store::ObjectKey;

/// Repairs after which the wait for the next begins to grow.
const REPAIRS_BEFORE_BACKOFF: u32 = 3;

/// Of each deployment that is not delivered.
#[derive(Default)]
pub(super) struct BlockedDeployments(Mutex<BTreeMap<ObjectKey, Blocked>>);

struct Blocked {
    /// What blocks it, in one word.
    reason: String,
    since: Instant,
    /// When it was repaired last, so that Karmada makes anew what is missing, and how often in vain.
    repaired: Option<Instant>,
    repairs: u32,
}

impl BlockedDeployments {
    /// Every deployment that is not delivered.
    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.lock().keys().cloned().collect()
    }

    /// What keeps a deployment from being delivered, and for how long it has.
    pub(super) fn of(&self, key: &ObjectKey, now: Instant) -> Option<(String, Duration)> {
        self.lock().get(key).map(|blocker| (blocker.reason.clone(), now.duration_since(blocker.since)))
    }

    /// Whether what a deployment lost may be repaired: at once the first time, then after `backoff`, which grows once
    /// several repairs were in vain.
    pub(super) fn may_repair(&self, key: &ObjectKey, now: Instant, backoff: Duration) -> bool {
        let all = self.lock();
        let Some(blocker) = all.get(key) else { return true };
        // Several hands may be at work; only what is repaired in vain again and again is left alone for longer.
        let wait = backoff * 2_u32.pow(blocker.repairs.saturating_sub(REPAIRS_BEFORE_BACKOFF).min(6));
        blocker.repaired.is_none_or(|last| now.duration_since(last) > wait)
    }

    /// It was repaired.
    pub(super) fn repaired(&self, key: &ObjectKey, now: Instant) {
        if let Some(blocker) = self.lock().get_mut(key) {
            (blocker.repaired, blocker.repairs) = (Some(now), blocker.repairs + 1);
        }
    }

    /// Notes what blocks a deployment; once nothing does, all is forgotten. Another cause begins anew: the last repair has
    /// moved something, and was not in vain.
    pub(super) fn note(&self, key: &ObjectKey, blocker: Option<&str>, now: Instant) {
        let mut all = self.lock();
        let Some(reason) = blocker else {
            all.remove(key);
            return;
        };
        let new = || Blocked { reason: reason.to_owned(), since: now, repaired: None, repairs: 0 };
        let known = all.entry(key.clone()).or_insert_with(new);
        if known.reason != reason {
            (known.reason, known.since) = (reason.to_owned(), now);
            known.repairs = known.repairs.min(REPAIRS_BEFORE_BACKOFF);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Blocked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::clock::Now;

    const BACKOFF: Duration = Duration::from_secs(5);

    #[test]
    fn each_cause_counts_its_own_time() {
        let (blocked, key, start) = (BlockedDeployments::default(), ObjectKey::new("ns", "wd"), Now::read().instant);
        let at = |seconds| start + Duration::from_secs(seconds);
        blocked.note(&key, Some("BindingMissing"), at(0));
        blocked.note(&key, Some("BindingMissing"), at(3));
        assert_eq!(blocked.of(&key, at(4)), Some(("BindingMissing".into(), Duration::from_secs(4))));
        blocked.note(&key, Some("NotApplied"), at(6));
        assert_eq!(blocked.of(&key, at(7)), Some(("NotApplied".into(), Duration::from_secs(1))));
        blocked.note(&key, None, at(8));
        assert_eq!(blocked.of(&key, at(9)), None);
    }

    #[test]
    fn what_is_repaired_in_vain_is_repaired_ever_more_rarely() {
        let (blocked, key, start) = (BlockedDeployments::default(), ObjectKey::new("ns", "wd"), Now::read().instant);
        assert!(blocked.may_repair(&key, start, BACKOFF), "at once");
        blocked.note(&key, Some("BindingMissing"), start);
        let mut now = start;
        for seconds in [5, 5, 5, 10, 20, 40, 80, 160, 320, 320] {
            blocked.repaired(&key, now);
            let due = now + Duration::from_secs(seconds);
            assert!(!blocked.may_repair(&key, due, BACKOFF), "{seconds} s after the last");
            now = due + Duration::from_millis(1);
            assert!(blocked.may_repair(&key, now, BACKOFF), "more than {seconds} s after the last");
        }
        blocked.note(&key, Some("NotApplied"), now);
        blocked.repaired(&key, now);
        blocked.note(&key, Some("BindingMissing"), now);
        let due = now + BACKOFF + Duration::from_millis(1);
        assert!(
            blocked.may_repair(&key, due, BACKOFF),
            "it comes back each time, and somebody takes it away each time"
        );
        blocked.note(&key, None, due);
        blocked.note(&key, Some("BindingMissing"), due);
        assert!(blocked.may_repair(&key, due, BACKOFF), "what was delivered in between is repaired at once");
    }
}
