//! The clock. Loops, listeners and measurements read it; whatever decides is given what it said as an argument. A test lists
//! who reads it.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::requests::ServerClock;

/// One reading of the clock.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For what is written into objects.
    pub time: Timestamp,
    /// For lengths of time within this process, which a change of the wall clock does not touch.
    pub instant: Instant,
}

impl Now {
    /// Reads the clock.
    pub fn read() -> Self {
        Self { time: Timestamp::now(), instant: tokio::time::Instant::now().into_std() }
    }

    /// The same moment by a server's clock, for a decision that compares it with times that this server has written.
    #[must_use]
    pub fn on(self, server: &ServerClock) -> Self {
        Self { time: server.time(self.time), ..self }
    }
}

/// When to look, for something that looks again and again: at once, and then each `period`. A look that takes longer puts
/// off those after it.
pub fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
