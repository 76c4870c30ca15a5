//! The clock. Loops, listeners and measurements read it. Code that decides gets the time as an argument. A test lists the
//! readers.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::requests::ServerClock;

/// One reading of the clock.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Wall-clock time, for what is written into objects.
    pub time: Timestamp,
    /// Monotonic time, for durations in this process.
    pub instant: Instant,
}

impl Now {
    /// Reads the clock.
    pub fn read() -> Self {
        Self { time: Timestamp::now(), instant: tokio::time::Instant::now().into_std() }
    }

    /// Returns the same moment by the clock of a server, for comparison with times that this server has written.
    #[must_use]
    pub fn on(self, server: &ServerClock) -> Self {
        Self { time: server.time(self.time), ..self }
    }
}

/// Ticks at once and then every `period`. Work that takes longer delays the ticks after it.
pub fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
