//! Deployments that have just changed, kept decoded.
//!
//! A new deployment changes several times within a second or two: our own writes, Karmada's, the report of its cell. Each version
//! is read at once, by the triggers and by the reconcile, and is then replaced. To pack each version took a tenth of the manager's
//! CPU time. So a version stays decoded while it is new, and is packed when it gets cold.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// Most values that stay decoded, and the most bytes of them.
const ROOM: (usize, usize) = (256, 4 << 20);
/// Time for which a value stays decoded.
const HOT: Duration = Duration::from_secs(5);

/// A value that can be packed.
pub(super) trait Pack: Send + Sync {
    /// Packs the value, unless it is packed.
    fn pack(&self);
}

/// The decoded values of this process.
static DECODED: Mutex<Decoded> = Mutex::new(Decoded { values: VecDeque::new(), bytes: 0 });

/// Decoded values, oldest first, with their sizes.
#[derive(Default)]
struct Decoded {
    values: VecDeque<(Instant, usize, Weak<dyn Pack>)>,
    bytes: usize,
}

impl Decoded {
    fn add(&mut self, value: Weak<dyn Pack>, bytes: usize, now: Instant) {
        self.values.push_back((now, bytes, value));
        self.bytes += bytes;
    }

    /// Removes the values for which there is no more room or time.
    fn take_cold(&mut self, now: Instant) -> Vec<Weak<dyn Pack>> {
        let mut cold = Vec::new();
        while let Some((since, bytes, _)) = self.values.front()
            && (self.values.len() > ROOM.0 || self.bytes > ROOM.1 || now.saturating_duration_since(*since) >= HOT)
        {
            self.bytes -= bytes;
            cold.extend(self.values.pop_front().map(|(_, _, value)| value));
        }
        cold
    }
}

fn decoded() -> MutexGuard<'static, Decoded> {
    DECODED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps `value` decoded while it is new. `bytes`: its size, roughly.
pub(super) fn keep(value: &Arc<impl Pack + 'static>, bytes: usize) {
    let (now, value) = (Instant::now(), Arc::downgrade(value));
    let cold = {
        let mut decoded = decoded();
        decoded.add(value, bytes, now);
        decoded.take_cold(now)
    };
    pack(&cold);
}

/// Packs the values that become cold, until `stop`.
pub(crate) async fn run(stop: &CancellationToken) {
    let mut ticks = tokio::time::interval(HOT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let cold = decoded().take_cold(Instant::now());
        pack(&cold);
    }
}

/// Packs values outside the lock. A value that was replaced is gone.
fn pack(values: &[Weak<dyn Pack>]) {
    values.iter().filter_map(Weak::upgrade).for_each(|value| value.pack());
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Value;

    impl Pack for Value {
        fn pack(&self) {}
    }

    #[test]
    fn value_becomes_cold_by_age_by_number_and_by_size() {
        let (mut decoded, start, value) = (Decoded::default(), Instant::now(), Arc::new(Value));
        let add = |decoded: &mut Decoded, bytes: usize, after: Duration| {
            let value = Arc::downgrade(&value);
            decoded.add(value, bytes, start + after);
            decoded.take_cold(start + after).len()
        };
        assert_eq!(add(&mut decoded, 1, Duration::ZERO), 0);
        assert_eq!(add(&mut decoded, 1, HOT / 2), 0);
        assert_eq!(add(&mut decoded, 1, HOT), 1, "the first is old");
        let more = (0..ROOM.0).map(|_| add(&mut decoded, 1, HOT)).sum::<usize>();
        assert_eq!((more, decoded.values.len(), decoded.bytes), (2, ROOM.0, ROOM.0), "there is room for a number");
        assert_eq!(add(&mut decoded, ROOM.1 + 1, HOT), ROOM.0 + 1, "one that is too large is packed at once");
        assert_eq!((decoded.values.len(), decoded.bytes), (0, 0));
    }
}
