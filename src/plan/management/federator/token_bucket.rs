//! A token bucket.

use std::time::{Duration, Instant};

use super::repair::Limits;

/// So many at once, and then one by one as time passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    /// Between two tokens; nothing when there is never one.
    interval: Option<Duration>,
    /// How far ahead of time tokens may be taken.
    ahead: Duration,
    /// When all taken tokens will have come back; nothing while none was taken.
    full_at: Option<Instant>,
}

impl TokenBucket {
    pub(super) fn new(limits: Limits) -> Self {
        let interval = (limits.per_minute > 0 && limits.burst > 0).then(|| Duration::from_mins(1) / limits.per_minute);
        let ahead = interval.map_or(Duration::ZERO, |interval| interval * (limits.burst - 1));
        Self { interval, ahead, full_at: None }
    }

    /// How long until there is a token: zero when there is one, nothing when there never will be.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.interval?;
        let owed = self.full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        Some(owed.saturating_sub(self.ahead))
    }

    /// Takes a token; whether there was one.
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
    fn a_burst_and_then_one_by_one() {
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
    fn nothing_at_all_where_there_is_no_budget() {
        for (per_minute, burst) in [(0, 20), (60, 0), (0, 0)] {
            let mut bucket = TokenBucket::new(Limits { per_minute, burst });
            assert_eq!(bucket.wait(some_moment()), None);
            assert!(!bucket.take(some_moment()));
        }
    }
}
