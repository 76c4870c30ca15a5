//! A token bucket.

use std::time::{Duration, Instant};

use super::repair::Limits;

/// Allows a burst, and then one token in each interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    /// Time between two tokens. `None` if there is never one.
    interval: Option<Duration>,
    /// Time by which tokens may be taken in advance.
    ahead: Duration,
    /// Time when all taken tokens are back. `None` if none was taken.
    full_at: Option<Instant>,
}

impl TokenBucket {
    pub(super) fn new(limits: Limits) -> Self {
        let interval = (limits.per_minute > 0 && limits.burst > 0).then(|| Duration::from_mins(1) / limits.per_minute);
        let ahead = interval.map_or(Duration::ZERO, |interval| interval * (limits.burst - 1));
        Self { interval, ahead, full_at: None }
    }

    /// Returns the time until there is a token. `None` if there will never be one.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.interval?;
        let owed = self.full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        Some(owed.saturating_sub(self.ahead))
    }

    /// Takes a token. False if there is none.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let Some(interval) = self.interval.filter(|_| self.wait(now) == Some(Duration::ZERO)) else { return false };
        self.full_at = Some(self.full_at.map_or(now, |at| at.max(now)) + interval);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::some_moment;

    #[test]
    fn bucket_gives_a_burst_and_then_one_token_at_a_time() {
        let start = some_moment();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut bucket = TokenBucket::new(Limits { per_minute: 120, burst: 3 });
        for _ in 0..3 {
            assert_eq!(bucket.wait(at(0.0)), Some(Duration::ZERO));
            assert!(bucket.take(at(0.0)));
        }
        assert!(!bucket.take(at(0.0)));
        assert_eq!(bucket.wait(at(0.1)), Some(Duration::from_millis(400)));
        assert!(!bucket.take(at(0.4)));
        assert!(bucket.take(at(0.5)));
        assert!(!bucket.take(at(0.9)), "one came back, and was taken");
        let later = (0..100).filter(|_| bucket.take(at(1000.0))).count();
        assert_eq!(later, 3, "never more than the burst");
    }

    #[test]
    fn bucket_without_a_budget_gives_no_token() {
        for (per_minute, burst) in [(0, 20), (60, 0), (0, 0)] {
            let mut bucket = TokenBucket::new(Limits { per_minute, burst });
            assert_eq!(bucket.wait(some_moment()), None);
            assert!(!bucket.take(some_moment()));
        }
    }
}
