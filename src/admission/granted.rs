//! What has been granted a moment ago is not asked for again.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// How long a yes counts, as in Kubernetes' own delegated authorizers. What is let in within that time after a right was taken
/// away stays: it is the price for not asking twenty questions again with each change of many Workloads.
const LIFETIME: Duration = Duration::from_secs(10);

/// Most answers that are kept, of a project; 48 bytes each.
const MAX_KEPT: usize = 4096;

/// The reviews of one control plane that were answered with a plain yes lately, as digests of all that was asked: the
/// object, the verb, and everything that is known of the user. A no is never kept: a right that is given counts at once.
#[derive(Default)]
pub(super) struct Granted(Mutex<HashMap<[u8; 32], Instant>>);

/// A review that may have been granted.
#[derive(Clone, Copy)]
pub(super) struct Asked([u8; 32]);

impl Asked {
    /// What this review asks.
    pub fn of(review: &Value) -> Self {
        Self(Sha256::digest(review.to_string()).into())
    }
}

impl Granted {
    /// Whether a yes to it still counts.
    pub fn covers(&self, asked: &Asked, now: Instant) -> bool {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(&asked.0).is_some_and(|since| counts(*since, now))
    }

    /// It was answered with a yes. `asked_at`: when the question was sent, so that it counts from what was true then.
    pub fn add(&self, asked: Asked, asked_at: Instant) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, since| counts(*since, asked_at));
        }
        // Where so many ask for so much within the time, the next ones are asked for each time.
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
    fn a_yes_counts_for_ten_seconds_and_for_what_was_asked_alone() {
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
    fn so_many_are_kept_and_no_more_until_they_count_no_more() {
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
