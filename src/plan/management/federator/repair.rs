//! Decides whether a missing object is repaired now, and when it is checked again.
//!
//! A removed object and an object that Karmada has not got to yet look alike, and the second case is the common one. Karmada
//! answers a repair with several writes, so repairs make a slow Karmada slower. Therefore only an object that was delivered is
//! repaired at once. Everything else waits for a long time, and is then repaired one deployment at a time.

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

/// Longest wait between two reconciles of a blocked deployment, before it is spread.
const BLOCKED_POLL_MAX: Duration = Duration::from_mins(5);
/// Wait after the first repair of a lost object that did not help. Later waits are longer.
const FIRST_BACKOFF: Duration = Duration::from_secs(5);

/// Limits of repairs on the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Repairs in each minute. 0 turns repairs off.
    pub per_minute: u32,
    /// Repairs at once after a pause. 0 turns repairs off.
    pub burst: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_minute: 60, burst: 20 }
    }
}

/// Number of repairs that the hub can take at present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capacity {
    /// True if Karmada was silent about many deployments a short while ago: it is behind.
    pub is_karmada_behind: bool,
    /// Time until the budget allows one more repair.
    pub repair_in: Duration,
    /// Time until another [pending](Absence::Pending) deployment may be repaired.
    pub trial_in: Duration,
}

/// Cause that blocks a deployment, as its plans have signalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The reason.
    pub reason: String,
    /// Kind of the absence about which Karmada said nothing. `None` if Karmada named a cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<Absence>,
    /// Time for which this reason has lasted.
    pub elapsed: Duration,
    /// Number of repairs since the last delivery.
    pub repairs: u32,
    /// Time since the last repair for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired_ago: Option<Duration>,
}

/// True if the grace of a reason begins only now: Karmada has got to the object by itself, and named a cause or delivered it. After
/// a repair the grace does not begin again.
///
/// A delivery can be seen before the binding by which it was made, because each has its own watch. What is missing then is a loss
/// only if it stays missing.
pub(super) fn grace_begins(before: Option<Absence>, now: Option<Absence>, repairs: u32) -> bool {
    before != now && now != Some(Absence::Pending) && repairs == 0
}

/// Kind of an absence, as far as it matters to the repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Absence {
    /// It was delivered, and was removed after that.
    Lost,
    /// Karmada has not delivered it yet, or not its last change. Usually Karmada is about to. Karmada does not check again after an
    /// error (fact 38), or after a change that was reverted while its watch was cut (fact 73).
    Pending,
}

/// Time of a repair, and of the next check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// True if it is repaired now.
    pub now: bool,
    /// Time until the next check if no event comes.
    pub next: Duration,
}

/// Decides whether an object is repaired. `spread`: see [`spread`].
///
/// 1. A lost object is repaired at once, and a pending one after [`Timing::arrival`].
/// 2. If the repair did not help, the same wait follows, and then longer ones.
/// 3. One pending deployment at a time is repaired on the whole hub.
/// 4. All repairs share one budget.
pub fn decide(absence: Absence, blocked: &Blocked, capacity: &Capacity, timing: &Timing, spread: f64) -> Decision {
    let (first, base, doublings) = match absence {
        Absence::Lost => (Duration::ZERO, FIRST_BACKOFF, 6),
        Absence::Pending => (timing.arrival, timing.arrival, 2),
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
    Decision { now: true, next: FIRST_BACKOFF.max(timing.delivery_grace) }
}

/// Returns when to check an object again that has been missing for this time: ever more rarely.
pub fn look_again(elapsed: Duration, timing: &Timing, spread: f64) -> Duration {
    elapsed.clamp(timing.delivery_grace, BLOCKED_POLL_MAX.max(timing.delivery_grace)).mul_f64(spread)
}

/// Returns a number between 0.5 and 1 that stays the same for one object.
pub fn spread(uid: &str) -> f64 {
    let mixed = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    0.5 + f64::from(mixed >> 16) / f64::from(u32::from(u16::MAX) + 1) / 2.0
}

/// Returns the verdict for `Federated` if these clusters have the deployment.
pub fn delivered(clusters: &[String]) -> Verdict {
    Verdict::yes(Reason::Propagated, format!("Applied on {}", clusters.join(", ")))
}

/// Returns the verdict for data if all of its companions are in place.
pub fn materialised(count: usize) -> Verdict {
    Verdict::yes(Reason::Ready, format!("All {count} ConfigMaps and Secrets are in place"))
}

/// An object that Karmada lost, or never had.
#[derive(Clone, Copy, Debug)]
pub struct Loss<'a> {
    /// The deployment's copy.
    pub copy: &'a WorkloadDeployment,
    /// The missing companion. `None` for the copy itself: its last delivery names its uid.
    pub companion: Option<&'a DataRef>,
    /// Creation time of the companion, if it is known.
    pub created: Option<Timestamp>,
    /// Clusters of the deployment. Empty if its binding is lost.
    pub clusters: &'a [String],
}

impl Loss<'_> {
    /// True if it was delivered before. `last_delivery` is that of this copy.
    ///
    /// If the copy has lost its binding, a report of a cell proves the delivery too.
    pub fn had_been_delivered(&self, last_delivery: Option<&LastDelivery>) -> bool {
        if self.clusters.is_empty() && self.copy.report().is_some() {
            return true;
        }
        last_delivery.is_some_and(|delivery| {
            let same_place = self.clusters.is_empty() || last_delivery::was_on(delivery, self.clusters);
            same_place && self.was_part_of(delivery)
        })
    }

    /// True if the missing object belonged to the delivery, and was not recreated since. Times have whole seconds, and most
    /// companions arrive within the second of their creation.
    fn was_part_of(&self, delivery: &LastDelivery) -> bool {
        self.companion.is_none_or(|companion| last_delivery::had(delivery, companion))
            && self.created.is_none_or(|created| created <= delivery.time.0)
    }
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
