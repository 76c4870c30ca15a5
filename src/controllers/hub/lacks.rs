//! What deployments have been lacking, since when, and how often something was touched for it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::io::store::ObjectKey;

/// How long to wait after the first touch that did not help.
const TOUCH_AGAIN: Duration = Duration::from_secs(5);

/// Touches after which patience begins to grow.
const FREE: u32 = 3;

/// Of each deployment that lacks something.
#[derive(Default)]
pub(super) struct Lacks(Mutex<BTreeMap<ObjectKey, Lack>>);

struct Lack {
    /// In one word.
    reason: String,
    since: Instant,
    /// When it was touched last, so that Karmada makes anew what is lacking, and how often in vain.
    touched: Option<Instant>,
    touches: u32,
}

impl Lacks {
    /// Every deployment that lacks something.
    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.lock().keys().cloned().collect()
    }

    /// What a deployment has been lacking, and for how long.
    pub(super) fn of(&self, key: &ObjectKey, now: Instant) -> Option<(String, Duration)> {
        self.lock().get(key).map(|lack| (lack.reason.clone(), now.duration_since(lack.since)))
    }

    /// Whether what a deployment lacks may be touched: at once the first time, and then with growing patience.
    pub(super) fn may_touch(&self, key: &ObjectKey, now: Instant) -> bool {
        let all = self.lock();
        let Some(lack) = all.get(key) else { return true };
        // Several hands may be at work; only what is touched in vain again and again is left alone for longer.
        let patience = TOUCH_AGAIN * 2_u32.pow(lack.touches.saturating_sub(FREE).min(6));
        lack.touched.is_none_or(|last| now.duration_since(last) > patience)
    }

    /// It was touched.
    pub(super) fn touched(&self, key: &ObjectKey, now: Instant) {
        if let Some(lack) = self.lock().get_mut(key) {
            (lack.touched, lack.touches) = (Some(now), lack.touches + 1);
        }
    }

    /// Notes what a deployment lacks; with nothing lacking all is forgotten. Another cause begins anew: the last touch has
    /// moved something, and was not in vain.
    pub(super) fn note(&self, key: &ObjectKey, lack: Option<&str>, now: Instant) {
        let mut all = self.lock();
        let Some(reason) = lack else {
            all.remove(key);
            return;
        };
        let new = || Lack { reason: reason.to_owned(), since: now, touched: None, touches: 0 };
        let known = all.entry(key.clone()).or_insert_with(new);
        if known.reason != reason {
            (known.reason, known.since) = (reason.to_owned(), now);
            known.touches = known.touches.min(FREE);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Lack>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_counts_its_own_time() {
        let (lacks, key, start) = (Lacks::default(), ObjectKey::new("ns", "wd"), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        lacks.note(&key, Some("BindingMissing"), at(0));
        lacks.note(&key, Some("BindingMissing"), at(3));
        assert_eq!(lacks.of(&key, at(4)), Some(("BindingMissing".into(), Duration::from_secs(4))));
        lacks.note(&key, Some("NotApplied"), at(6));
        assert_eq!(lacks.of(&key, at(7)), Some(("NotApplied".into(), Duration::from_secs(1))));
        lacks.note(&key, None, at(8));
        assert_eq!(lacks.of(&key, at(9)), None);
    }

    #[test]
    fn what_is_touched_in_vain_is_touched_ever_more_rarely() {
        let (lacks, key, start) = (Lacks::default(), ObjectKey::new("ns", "wd"), Instant::now());
        assert!(lacks.may_touch(&key, start), "at once");
        lacks.note(&key, Some("BindingMissing"), start);
        let mut now = start;
        for seconds in [5, 5, 5, 10, 20, 40, 80, 160, 320, 320] {
            lacks.touched(&key, now);
            let due = now + Duration::from_secs(seconds);
            assert!(!lacks.may_touch(&key, due), "{seconds} s after the last");
            now = due + Duration::from_millis(1);
            assert!(lacks.may_touch(&key, now), "more than {seconds} s after the last");
        }
        lacks.note(&key, Some("NotApplied"), now);
        lacks.touched(&key, now);
        lacks.note(&key, Some("BindingMissing"), now);
        let due = now + TOUCH_AGAIN + Duration::from_millis(1);
        assert!(lacks.may_touch(&key, due), "it comes back each time, and somebody takes it away each time");
        lacks.note(&key, None, due);
        lacks.note(&key, Some("BindingMissing"), due);
        assert!(lacks.may_touch(&key, due), "what was whole in between is touched at once");
    }
}
