//! What keeps deployments from being delivered, on the whole hub: since when, what was repaired for it, how many lack the
//! same, and what Karmada is seen to do meanwhile.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    blocked::has_spoken,
    budget::Budget,
    federate::{self, Signal},
    repair::{Limits, Repairs},
};
use crate::api::reason::Reason;

/// Repairs after which the wait for the next begins to grow.
const REPAIRS_BEFORE_BACKOFF: u32 = 3;
/// How many times its length it takes until a lag is forgotten: some are served long after most.
const LAG_WEARS_OFF: u32 = 4;
/// Where no repairs are allowed at all: how long until the budget may allow one, as plans are told. Long enough to look
/// again only seldom.
const NO_BUDGET_WAIT: Duration = Duration::from_hours(1);

/// What is remembered of each deployment that is not delivered. `K` names one on the whole hub.
#[derive(Debug)]
pub struct Backlog<K> {
    all: BTreeMap<K, Blocked>,
    /// How many are blocked, by reason.
    by_reason: BTreeMap<String, usize>,
    /// Of how many Karmada says nothing.
    silent: usize,
    /// By reason, the deployment that was repaired last and is still blocked for it.
    trials: BTreeMap<String, Trial<K>>,
    budget: Budget,
    /// How long Karmada took for something that it was silent about, and when that ended.
    lag: Option<(Duration, Instant)>,
    /// When Karmada was last seen to write to a binding.
    karmada_wrote: Option<Instant>,
}

#[derive(Debug)]
struct Blocked {
    /// What blocks it, in one word.
    reason: String,
    /// Since when Karmada says nothing about it; nothing when it does.
    silent_since: Option<Instant>,
    since: Instant,
    /// Whether no Event told of it, since several lack the same.
    quiet: bool,
    /// Whether all of its copy had been delivered before.
    delivered_before: bool,
    /// The reasons that Events have given.
    events: Vec<String>,
    /// When it was repaired last, so that Karmada makes anew what is missing, and how often in vain.
    repaired: Option<Instant>,
    vain: u32,
    /// How often it was repaired at all.
    repairs: u32,
    /// Since when the hub is away: what blocked it before is not known meanwhile, and not over.
    away: Option<Instant>,
}

impl Blocked {
    /// What blocks it at present, and since when.
    fn present(&self) -> (String, Instant) {
        match self.away {
            Some(since) => (Reason::HubUnavailable.to_string(), since),
            None => (self.reason.clone(), self.since),
        }
    }

    /// The hub is seen again: none of the time without it counts for what blocked it before.
    fn back(&mut self, now: Instant) {
        let Some(away) = self.away.take() else { return };
        self.since += now.saturating_duration_since(away);
        self.silent_since = self.silent_since.map(|_| now);
    }
}

#[derive(Debug)]
struct Trial<K> {
    key: K,
    at: Instant,
    /// How many trials before it have not helped.
    vain: u32,
}

/// What came of a note.
#[derive(Debug, PartialEq, Eq)]
pub struct Noted<K> {
    /// How many are blocked now, for each reason that has changed.
    pub counts: Vec<(String, usize)>,
    /// A deployment that is missing what the last repair has just brought another: its turn may have come.
    pub next: Option<K>,
}

impl<K> Default for Noted<K> {
    fn default() -> Self {
        Self { counts: Vec::new(), next: None }
    }
}

/// Whether what blocks a deployment is that the hub is away.
fn is_outage(reason: &str) -> bool {
    reason == Reason::HubUnavailable.as_str()
}

/// The wait after so many repairs in vain.
fn backoff(base: Duration, vain: u32) -> Duration {
    // Several hands may be at work; only what is repaired in vain again and again is left alone for longer.
    base * 2_u32.pow(vain.saturating_sub(REPAIRS_BEFORE_BACKOFF).min(6))
}

impl<K: Ord + Clone> Backlog<K> {
    /// Nothing is blocked yet; repairs may use this budget.
    pub fn new(limits: Limits) -> Self {
        Self {
            all: BTreeMap::new(),
            by_reason: BTreeMap::new(),
            silent: 0,
            trials: BTreeMap::new(),
            budget: Budget::new(limits),
            lag: None,
            karmada_wrote: None,
        }
    }

    /// Every deployment that is not delivered.
    pub fn keys(&self) -> Vec<K> {
        self.all.keys().cloned().collect()
    }

    /// What keeps a deployment from being delivered.
    pub fn of(&self, key: &K, now: Instant) -> Option<federate::Blocked> {
        let blocked = self.all.get(key)?;
        let (reason, since) = blocked.present();
        Some(federate::Blocked {
            reason,
            silent: blocked.silent_since.is_some() && blocked.away.is_none(),
            elapsed: now.saturating_duration_since(since),
            quiet: blocked.quiet,
            events: blocked.events.clone(),
            repairs: blocked.repairs,
        })
    }

    /// A deployment is to be repaired: takes its share of the budget.
    ///
    /// # Errors
    /// What is known now, when others were quicker.
    pub fn take(&mut self, key: &K, deployments: usize, base: Duration, now: Instant) -> Result<(), Repairs> {
        let known = self.repairs(key, deployments, base, now);
        let waits = !known.again_in.is_zero() || known.are_many() && !known.trial.is_zero();
        let Some(blocked) = self.all.get_mut(key).filter(|_| !waits && self.budget.take(now)) else {
            return Err(known);
        };
        let before = self.trials.get(&blocked.reason);
        let trial = Trial { key: key.clone(), at: now, vain: before.map_or(0, |trial| trial.vain + 1) };
        self.trials.insert(blocked.reason.clone(), trial);
        (blocked.repaired, blocked.vain, blocked.repairs) = (Some(now), blocked.vain + 1, blocked.repairs + 1);
        Ok(())
    }

    /// Notes what a plan has signalled of a deployment. Once nothing blocks it, all is forgotten. Another reason begins
    /// anew: the last repair has moved something, and was not in vain.
    pub fn note(&mut self, key: &K, signals: &[Signal], now: Instant) -> Noted<K> {
        let blocker = signals.iter().find_map(|signal| match signal {
            Signal::Blocked { reason, silent, quiet, delivered_before } => {
                Some((reason, *silent, *quiet, *delivered_before))
            }
            Signal::Reported(_) | Signal::Repaired | Signal::Unexplained | Signal::NamespaceUnread => None,
        });
        let Some((reason, silent, quiet, delivered_before)) = blocker else { return self.forget(key, now) };
        let was_silent = self.is_silent(key);
        let mut noted = Noted::default();
        let given = || {
            signals.iter().filter_map(|signal| match signal {
                Signal::Reported(reason) => Some(reason.to_string()),
                _ => None,
            })
        };
        if let Some(known) = self.all.get_mut(key).filter(|known| is_outage(reason) && !is_outage(&known.reason)) {
            known.away.get_or_insert(now);
            known.events.extend(given());
            return noted;
        }
        if let Some(known) = self.all.get_mut(key) {
            known.back(now);
        }
        if let Some(known) = self.all.get(key).filter(|known| known.reason != *reason) {
            let left = known.reason.clone();
            noted = self.leaves(key, &left, now);
        }
        let is_new = self.all.get(key).is_none_or(|known| known.reason != *reason);
        if is_new {
            let count = self.by_reason.entry(reason.clone()).or_default();
            *count += 1;
            noted.counts.push((reason.clone(), *count));
        }
        let new = || Blocked {
            reason: reason.clone(),
            silent_since: silent.then_some(now),
            since: now,
            quiet: false,
            delivered_before: false,
            events: Vec::new(),
            repaired: None,
            vain: 0,
            repairs: 0,
            away: None,
        };
        let known = self.all.entry(key.clone()).or_insert_with(new);
        if known.reason != *reason {
            (known.reason, known.since, known.silent_since) = (reason.clone(), now, None);
            known.vain = known.vain.min(REPAIRS_BEFORE_BACKOFF);
        }
        if has_spoken(known.silent_since.is_some(), silent, known.repairs) {
            known.since = now;
        }
        // What it said before it fell silent is none of the time it takes.
        known.silent_since = silent.then(|| known.silent_since.unwrap_or(now));
        (known.quiet, known.delivered_before) = (quiet, delivered_before);
        known.events.extend(given());
        self.silent = self.silent + usize::from(silent) - usize::from(was_silent);
        noted
    }

    /// Whether Karmada says nothing about it, or did not before the hub was away.
    fn is_silent(&self, key: &K) -> bool {
        self.all.get(key).is_some_and(|blocked| blocked.silent_since.is_some())
    }

    /// Those are let go of which this is true.
    pub fn forget_where(&mut self, is_gone: impl Fn(&K) -> bool, now: Instant) -> Vec<(String, usize)> {
        let keys: Vec<K> = self.all.keys().filter(|key| is_gone(key)).cloned().collect();
        keys.iter().flat_map(|key| self.forget(key, now).counts).collect()
    }

    /// Karmada has written to a binding.
    pub fn karmada_wrote(&mut self, now: Instant) {
        self.karmada_wrote = Some(now);
    }

    /// What is known of repairs, for one deployment among so many, with the wait that follows a repair.
    pub fn repairs(&self, key: &K, deployments: usize, base: Duration, now: Instant) -> Repairs {
        let ago = |at: Instant| now.saturating_duration_since(at);
        let until = |at: Instant| at.saturating_duration_since(now);
        let mut repairs = Repairs {
            deployments,
            unsaid: self.silent.saturating_sub(usize::from(self.is_silent(key))),
            affordable_in: self.budget.wait(now).unwrap_or(NO_BUDGET_WAIT),
            karmada_wrote: self.karmada_wrote.map(ago),
            lag: self.lag_at(now),
            ..Repairs::default()
        };
        if let Some(blocked) = self.all.get(key) {
            repairs.others = self.by_reason.get(&blocked.reason).map_or(0, |count| count.saturating_sub(1));
            repairs.again_in = blocked.repaired.map_or(Duration::ZERO, |at| until(at + backoff(base, blocked.vain)));
            let trial = self.trials.get(&blocked.reason);
            repairs.trial = trial.map_or(Duration::ZERO, |trial| until(trial.at + backoff(base, trial.vain)));
        }
        repairs
    }

    /// How long Karmada lately took. It wears off: what was slow a while ago may not be any more.
    fn lag_at(&self, now: Instant) -> Duration {
        self.lag
            .map_or(Duration::ZERO, |(lag, at)| lag.saturating_sub(now.saturating_duration_since(at) / LAG_WEARS_OFF))
    }

    fn forget(&mut self, key: &K, now: Instant) -> Noted<K> {
        let Some(blocked) = self.all.get_mut(key) else { return Noted::default() };
        blocked.back(now);
        let reason = blocked.reason.clone();
        let noted = self.leaves(key, &reason, now);
        self.silent -= usize::from(self.is_silent(key));
        self.all.remove(key);
        noted
    }

    /// A deployment is no longer blocked for this reason.
    fn leaves(&mut self, key: &K, reason: &str, now: Instant) -> Noted<K> {
        let count = self.by_reason.get_mut(reason).map_or(0, |count| {
            *count = count.saturating_sub(1);
            *count
        });
        if count == 0 {
            self.by_reason.remove(reason);
        }
        let mut noted = Noted { counts: vec![(reason.to_owned(), count)], next: None };
        let Some(blocked) = self.all.get(key) else { return noted };
        if let Some(since) = blocked.silent_since.filter(|_| blocked.repairs == 0) {
            let took = now.saturating_duration_since(since);
            self.lag = (took >= self.lag_at(now)).then_some((took, now)).or(self.lag);
        }
        if self.trials.get(reason).is_some_and(|trial| trial.key == *key) {
            self.trials.remove(reason);
            let waits = |(other, blocked): &(&K, &Blocked)| {
                *other != key && blocked.reason == reason && blocked.repaired.is_none()
            };
            // One that is known to have been delivered, if there is any.
            let waiting = self.all.iter().filter(waits);
            noted.next = waiting.max_by_key(|(_, blocked)| blocked.delivered_before).map(|(other, _)| other.clone());
        }
        noted
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
