//! Cache of granted SubjectAccessReviews, so that a recent grant is not reviewed again.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Lifetime of a grant, as in Kubernetes' own delegated authorizers. A right that is revoked counts for that much longer. In
/// return, a change of many Workloads does not repeat twenty reviews for each.
const LIFETIME: Duration = Duration::from_secs(10);

/// Most grants kept for a project, at 48 bytes each.
const MAX_KEPT: usize = 4096;

/// Recently granted reviews of one control plane. The key is a digest of the whole review: the object, the verb, and all that is
/// known of the user. Refusals are never kept, so a newly granted right counts at once.
#[derive(Default)]
pub(super) struct Granted(Mutex<HashMap<[u8; 32], Instant>>);

/// Digest of a review.
#[derive(Clone, Copy)]
pub(super) struct Asked([u8; 32]);

impl Asked {
    /// Returns the digest of this review.
    pub fn of(review: &Value) -> Self {
        Self(Sha256::digest(review.to_string()).into())
    }
}

impl Granted {
    /// True if a grant of this review is recent enough.
    pub fn covers(&self, asked: &Asked, now: Instant) -> bool {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(&asked.0).is_some_and(|since| counts(*since, now))
    }

    /// Adds a grant. `asked_at` is when the review was sent: the lifetime begins there.
    pub fn add(&self, asked: Asked, asked_at: Instant) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, since| counts(*since, asked_at));
        }
        // If the cache is full of recent grants, further reviews are sent each time.
        if kept.len() < MAX_KEPT {
            kept.insert(asked.0, asked_at);
        }
    }
}

fn counts(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) < LIFETIME
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn grant_of_a_review_covers_only_that_review_for_ten_seconds() {
        let (granted, at) = (Granted::default(), Instant::now());
        let review =
            |user: &str, name: &str| json!({ "spec": { "user": user, "resourceAttributes": { "name": name } } });
        granted.add(Asked::of(&review("ada", "db")), at);
        for (user, name, after, covered) in [
            ("ada", "db", 0, true),
            ("ada", "db", 9_999, true),
            ("ada", "db", 10_000, false),
            ("ada", "other", 0, false),
            ("eve", "db", 0, false),
        ] {
            let now = at + Duration::from_millis(after);
            assert_eq!(granted.covers(&Asked::of(&review(user, name)), now), covered, "{user} {name} after {after} ms");
        }
    }

    #[test]
    fn grants_at_capacity_are_not_kept_until_old_ones_expire() {
        let (granted, at) = (Granted::default(), Instant::now());
        let asked = |n: usize| Asked::of(&json!(n));
        for n in 0..MAX_KEPT {
            granted.add(asked(n), at);
        }
        granted.add(asked(MAX_KEPT), at);
        assert!(granted.covers(&asked(0), at) && !granted.covers(&asked(MAX_KEPT), at));
        let later = at + LIFETIME;
        granted.add(asked(MAX_KEPT), later);
        assert!(granted.covers(&asked(MAX_KEPT), later));
        assert_eq!(granted.0.lock().unwrap().len(), 1);
    }
}
