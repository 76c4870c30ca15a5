//! Decides whether what Karmada lacks of a template is repaired now, and when to look again.
//!
//! "It was removed" and "Karmada has not got to it yet" look alike, and the second is the common one. Karmada answers a
//! repair with several writes, so repairs make a slow Karmada slower. Therefore only what had been delivered is repaired at
//! once. Everything else waits for a long time, and is then repaired one deployment at a time.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::last_delivery;
use crate::{
    api::{
        compute::{LastDelivery, WorkloadDeployment},
        reason::Reason,
        referenced::DataRef,
    },
    plan::condition::Verdict,
    timing::Timing,
};

/// Longest wait between two looks at a deployment that is blocked, before it is spread.
const BLOCKED_POLL_MAX: Duration = Duration::from_mins(5);

/// How many repairs the hub is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In each minute; none at all when it is 0.
    pub per_minute: u32,
    /// At once, after a time without any; none at all when it is 0.
    pub burst: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_minute: 60, burst: 20 }
    }
}

/// How much the hub can take at present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capacity {
    /// True if Karmada was silent about many deployments a short while ago: it is behind with its work.
    pub is_karmada_behind: bool,
    /// How long until the budget allows one more repair.
    pub repair_in: Duration,
    /// How long until another [pending](Absence::Pending) deployment may be repaired.
    pub trial_in: Duration,
}

/// What keeps a deployment from being delivered, as plans have signalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// In one word.
    pub reason: String,
    /// True if Karmada said nothing about it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
    /// For how long it has been this.
    pub elapsed: Duration,
    /// How often it was repaired since it was delivered last.
    pub repairs: u32,
    /// How long ago it was repaired last for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired_ago: Option<Duration>,
}

/// True if Karmada, which was silent about something, has got to it by itself: its grace begins only now. If it was made to look
/// again, that is no news.
pub(super) fn has_spoken(was_silent: bool, is_silent: bool, repairs: u32) -> bool {
    was_silent && !is_silent && repairs == 0
}

/// Why something is missing, as far as that matters to its repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It had been delivered, and somebody removed it.
    Lost,
    /// Karmada has not delivered it yet, or not its last change. As a rule it is about to. It does not look again by itself at what
    /// it found wrong (fact 38), or at what was changed back while its watch was cut (fact 73).
    Pending,
}

/// When something is repaired, and when to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// True if it is repaired now.
    pub now: bool,
    /// When to look again, should no event come.
    pub next: Duration,
}

/// Decides whether something is repaired. `spread`: see [`spread`].
///
/// 1. What was lost is repaired at once, and what is pending after [`Timing::never_delivered_repair`].
/// 2. If that did not help, the same wait follows, and then longer ones.
/// 3. Of what is pending, one deployment at a time is repaired on the whole hub.
/// 4. All repairs share one budget.
pub fn decide(absence: Absence, blocked: &Blocked, capacity: &Capacity, timing: &Timing, spread: f64) -> Decision {
    let (first, base, doublings) = match absence {
        Absence::Lost => (Duration::ZERO, timing.repair_backoff_base, 6),
        Absence::Pending => (timing.never_delivered_repair, timing.never_delivered_repair, 2),
    };
    let due_in = match blocked.repaired_ago {
        None => first.saturating_sub(blocked.elapsed),
        Some(ago) => (base * 2_u32.pow(blocked.repairs.saturating_sub(1).min(doublings))).saturating_sub(ago),
    };
    let trial_in = if absence == Absence::Pending { capacity.trial_in } else { Duration::ZERO };
    let free_in = capacity.repair_in.max(trial_in);
    if !due_in.is_zero() {
        return Decision { now: false, next: due_in.min(look_again(blocked.elapsed, timing, spread)) };
    }
    if !free_in.is_zero() {
        return Decision { now: false, next: free_in.max(look_again(blocked.elapsed, timing, spread)) };
    }
    Decision { now: true, next: timing.repair_backoff_base.max(timing.delivery_grace) }
}

/// When to look again at something that has been missing for so long: ever more rarely.
pub fn look_again(elapsed: Duration, timing: &Timing, spread: f64) -> Duration {
    elapsed.clamp(timing.delivery_grace, BLOCKED_POLL_MAX.max(timing.delivery_grace)).mul_f64(spread)
}

/// A number between 0.5 and 1 that stays the same for one object.
pub fn spread(uid: &str) -> f64 {
    let mixed = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    0.5 + f64::from(mixed >> 16) / f64::from(u32::from(u16::MAX) + 1) / 2.0
}

/// What `Federated` says of a deployment that these clusters have.
pub fn delivered(clusters: &[String]) -> Verdict {
    Verdict::yes(Reason::Propagated, format!("{} has what the hub was given", clusters.join(", ")))
}

/// What is said of data that is all there, so many companions.
pub fn materialised(count: usize) -> Verdict {
    Verdict::yes(Reason::Ready, format!("All {count} referenced companion(s) are materialised"))
}

/// Something that Karmada lost, or never had.
#[derive(Clone, Copy, Debug)]
pub struct Loss<'a> {
    /// The deployment's copy.
    pub copy: &'a WorkloadDeployment,
    /// The companion that is missing; `None` for the copy itself, whose last delivery names its uid.
    pub companion: Option<&'a DataRef>,
    /// When the companion was created, if that is known.
    pub created: Option<Timestamp>,
    /// Where the deployment goes; empty when that itself is lost.
    pub clusters: &'a [String],
}

impl Loss<'_> {
    /// True if it had been delivered before. `last_delivery` is that of this copy.
    ///
    /// If the copy has lost its binding, a report of a cell on it says so as well.
    pub fn had_been_delivered(&self, last_delivery: Option<&LastDelivery>) -> bool {
        if self.clusters.is_empty() && self.copy.status.is_some() {
            return true;
        }
        last_delivery.is_some_and(|delivery| {
            let same_place = self.clusters.is_empty() || last_delivery::was_on(delivery, self.clusters);
            same_place && self.was_part_of(delivery)
        })
    }

    /// True if what is missing belonged to the delivery, and is the same object that was there then. Times have whole seconds,
    /// and most companions arrive within the second in which they are created.
    fn was_part_of(&self, delivery: &LastDelivery) -> bool {
        self.companion.is_none_or(|companion| last_delivery::had(delivery, companion))
            && self.created.is_none_or(|created| created <= delivery.time.0)
    }
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
