//! Whether what Karmada lost of a template is repaired now; if not, when to look again.
//!
//! "Somebody removed it" and "Karmada has not got there yet" look alike, and the second is the common one. A repair is a
//! write that Karmada answers with several more, so that repairs make a slow Karmada slower. Hence what had been
//! delivered is repaired at once, everything else only when Karmada has had its time and is seen to work; what many lack
//! at the same time is tried on one of them first; and all repairs share one budget.

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

/// So few that lack the same are no reason to suspect Karmada, however small the federation is.
const MANY_BLOCKED_MIN: usize = 20;
/// Nor is one in so many.
const MANY_BLOCKED_ONE_IN: usize = 10;
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

/// What is known of repairs at one moment, of one deployment and of the whole hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repairs {
    /// How many other deployments are blocked for the same reason.
    pub others: usize,
    /// Of how many others Karmada says nothing, whatever they wait for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsaid: usize,
    /// How many deployments the hub has.
    pub deployments: usize,
    /// How long until this one may be repaired again, because the last time was in vain.
    pub again_in: Duration,
    /// How long until the budget allows one more.
    pub affordable_in: Duration,
    /// How long the outcome of the last repair is still waited for, of whichever deployment is missing the same.
    pub trial: Duration,
    /// How long ago Karmada was seen to write to any binding; nothing when it never was.
    pub karmada_wrote: Option<Duration>,
    /// How long Karmada lately took for what it was silent about.
    pub lag: Duration,
}

impl Repairs {
    /// Whether so many lack the same that the trouble is Karmada's, or of somebody's making all at once.
    pub fn are_many(&self) -> bool {
        self.is_many(self.others)
    }

    /// Whether so much waits for a word of Karmada, at whichever step, that it may have all hands full.
    fn is_much_unsaid(&self) -> bool {
        self.is_many(self.unsaid)
    }

    fn is_many(&self, count: usize) -> bool {
        count >= MANY_BLOCKED_MIN.max(self.deployments / MANY_BLOCKED_ONE_IN)
    }

    /// Whether so many lack the same that they are no news each.
    pub fn are_several(&self) -> bool {
        self.others >= MANY_BLOCKED_MIN
    }

    /// Whether Karmada is known to take its time.
    pub fn is_karmada_behind(&self, timing: &Timing) -> bool {
        self.lag > timing.delivery_grace
    }

    fn is_karmada_at_work(&self, timing: &Timing) -> bool {
        self.karmada_wrote.is_some_and(|ago| ago < timing.never_delivered_repair / 2)
    }
}

/// For serde, which hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is repaired now.
    pub now: bool,
    /// When to look again, should no event come.
    pub next: Duration,
}

/// Why something is not where it is to be, as far as that matters to its repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It had been delivered.
    Lost,
    /// It never was, and Karmada says nothing of it.
    NeverDelivered,
    /// It is there as it was before its last change, which Karmada does not take up. As a rule it is about to; one that was changed
    /// back while Karmada's watch was cut is none to its detector (fact 73).
    Untaken,
    /// Karmada has looked at the copy as it is, which shows that it is at work, and found that there is nothing to bring or
    /// nobody who could tell it. It does not look again by itself, whatever is mended meanwhile (fact 38).
    LookedAt {
        /// How often it was made to look again since the deployment was delivered last.
        times: u32,
    },
}

/// Decides whether something is repaired that has been missing for `elapsed`, longer than the grace. `spread` is
/// between 0.5 and 1, another one for each deployment, so that not all of them look at once.
pub fn decide(absence: Absence, elapsed: Duration, repairs: &Repairs, timing: &Timing, spread: f64) -> Decision {
    let look = look_again(elapsed, timing, spread);
    let wait = |next| Decision { now: false, next };
    if absence != Absence::Lost {
        let patience = timing.never_delivered_repair + repairs.lag;
        let overwhelmed = !repairs.is_karmada_at_work(timing) || repairs.are_many() || repairs.is_much_unsaid();
        let held = match absence {
            Absence::LookedAt { times } => elapsed < looked_at_patience(patience, times),
            Absence::Lost | Absence::NeverDelivered | Absence::Untaken => elapsed < patience || overwhelmed,
        };
        if held {
            return wait(look);
        }
    }
    // Where Karmada has looked, the cause is likely one for all: however few they are, one is tried.
    let one_at_a_time = repairs.are_many() || matches!(absence, Absence::LookedAt { .. });
    if one_at_a_time && !repairs.trial.is_zero() {
        return wait(look.max(repairs.trial));
    }
    if !repairs.again_in.is_zero() {
        return wait(repairs.again_in);
    }
    if !repairs.affordable_in.is_zero() {
        return wait(look.max(repairs.affordable_in));
    }
    Decision { now: true, next: timing.repair_backoff_base.max(timing.delivery_grace) }
}

/// For how long something has to be missing before Karmada is made to look at it once more, after so many times: twice as
/// long each time, until it is three times the first patience from one to the next.
fn looked_at_patience(first: Duration, times: u32) -> Duration {
    first * 2_u32.pow(times.min(2)) + first * 3 * times.saturating_sub(2)
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

/// The cause in full: whether it was ever different, and whether many lack the same.
pub fn reported(cause: &Verdict, absence: Absence, repairs: &Repairs) -> Verdict {
    let mut full = cause.clone();
    if absence == Absence::NeverDelivered {
        full.message.push_str("; it has not been there before: Karmada may not have got to it yet");
    }
    if repairs.are_many() || absence == Absence::NeverDelivered && repairs.are_several() {
        // By its scale alone: each other number would be another write.
        let scale =
            [10_000, 1_000, 100].into_iter().find(|scale| repairs.others > *scale).unwrap_or(MANY_BLOCKED_MIN - 1);
        let held = if repairs.are_many() { ", repairs are held back" } else { "" };
        full.message = format!("{}; more than {scale} others lack the same{held}", full.message);
    }
    full
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
