//! Deployments that are not delivered, on the whole hub: since when, and how often each was repaired.
//!
//! The backlog is back-off state in memory: after a restart each grace and each wait begins again. The deployment's
//! [`LastDelivery`](crate::api::compute::LastDelivery) decides whether something was lost.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    federate::{self, Signal},
    repair::{Absence, Capacity, Limits, grace_begins},
    token_bucket::TokenBucket,
};
use crate::timing::Timing;

/// Karmada counts as behind if it says nothing about this number of deployments.
const MANY_SILENT: usize = 20;
/// Wait until the next reconcile if repairs are turned off.
const NO_REPAIRS_WAIT: Duration = Duration::from_hours(1);

/// All deployments that are not delivered. `K` names one on the whole hub.
#[derive(Debug)]
pub struct Backlog<K> {
    episodes: BTreeMap<K, Episode>,
    /// Number of deployments by reason.
    by_reason: BTreeMap<String, usize>,
    /// Number of deployments about which Karmada says nothing.
    silent: usize,
    /// Time when Karmada was last silent about [`MANY_SILENT`] deployments.
    many_silent: Option<Instant>,
    /// The pending deployment that was repaired last, until it arrives or its time is over.
    trial: Option<(K, Instant)>,
    bucket: TokenBucket,
}

/// The time since a deployment was last delivered, or since its reason changed.
#[derive(Debug)]
struct Episode {
    reason: String,
    since: Instant,
    /// Kind of the absence about which Karmada says nothing.
    silence: Option<Absence>,
    /// Number of repairs since the last delivery.
    repairs: u32,
    /// Time of the last repair for this reason.
    repaired: Option<Instant>,
}

impl<K: Ord + Clone> Backlog<K> {
    /// Returns an empty backlog with these limits for repairs.
    pub fn new(limits: Limits) -> Self {
        Self {
            episodes: BTreeMap::new(),
            by_reason: BTreeMap::new(),
            silent: 0,
            many_silent: None,
            trial: None,
            bucket: TokenBucket::new(limits),
        }
    }

    /// Deployments that are not delivered.
    pub fn keys(&self) -> Vec<K> {
        self.episodes.keys().cloned().collect()
    }

    /// Returns the cause that blocks a deployment. `None` if it is not blocked.
    pub fn of(&self, key: &K, now: Instant) -> Option<federate::Blocked> {
        let episode = self.episodes.get(key)?;
        let ago = |at: Instant| now.saturating_duration_since(at);
        Some(federate::Blocked {
            reason: episode.reason.clone(),
            silence: episode.silence,
            elapsed: ago(episode.since),
            repairs: episode.repairs,
            repaired_ago: episode.repaired.map(ago),
        })
    }

    /// Returns how many repairs the hub can take at present.
    pub fn capacity(&self, key: &K, timing: &Timing, now: Instant) -> Capacity {
        // The next pending deployment is repaired once the last one has arrived, or its attempt has failed.
        let left = |since: Instant| timing.attempt().saturating_sub(now.saturating_duration_since(since));
        let trial = self.trial.as_ref().filter(|(other, _)| other != key);
        Capacity {
            is_karmada_behind: self.many_silent.is_some_and(|at| !left(at).is_zero()),
            repair_in: self.bucket.wait(now).unwrap_or(NO_REPAIRS_WAIT),
            trial_in: trial.map_or(Duration::ZERO, |(_, at)| left(*at)),
        }
    }

    /// Takes a repair of this deployment from the budget. False if other deployments have used it up.
    pub fn take(&mut self, key: &K, absence: Absence, timing: &Timing, now: Instant) -> bool {
        let waits = absence == Absence::Pending && !self.capacity(key, timing, now).trial_in.is_zero();
        let Some(episode) = self.episodes.get_mut(key).filter(|_| !waits && self.bucket.take(now)) else {
            return false;
        };
        (episode.repairs, episode.repaired) = (episode.repairs + 1, Some(now));
        if absence == Absence::Pending {
            self.trial = Some((key.clone(), now));
        }
        true
    }

    /// Records the signals of a plan for a deployment. A plan without [`Signal::Blocked`] ends its episode. Returns the new
    /// number of deployments for each reason with a change.
    pub fn note(&mut self, key: &K, signals: &[Signal], now: Instant) -> Vec<(String, usize)> {
        let blocked = signals.iter().find_map(|signal| match signal {
            Signal::Blocked { reason, silence } => Some((reason, *silence)),
            _ => None,
        });
        let before = self.episodes.remove(key);
        self.silent -= usize::from(before.as_ref().is_some_and(|before| before.silence.is_some()));
        let Some((reason, silence)) = blocked else {
            self.trial.take_if(|(trial, _)| trial == key);
            return before.map(|before| self.count(&before.reason, false)).into_iter().collect();
        };
        self.silent += usize::from(silence.is_some());
        if self.silent >= MANY_SILENT {
            self.many_silent = Some(now);
        }
        let repairs = before.as_ref().map_or(0, |before| before.repairs);
        let new = || Episode { reason: reason.clone(), since: now, silence, repairs, repaired: None };
        let mut counts = Vec::new();
        let episode = match before {
            Some(before) if before.reason == *reason => {
                let begins = grace_begins(before.silence, silence, before.repairs);
                let since = if begins { now } else { before.since };
                Episode { since, silence, ..before }
            }
            Some(before) => {
                counts.push(self.count(&before.reason, false));
                counts.push(self.count(reason, true));
                new()
            }
            None => {
                counts.push(self.count(reason, true));
                new()
            }
        };
        self.episodes.insert(key.clone(), episode);
        counts
    }

    fn count(&mut self, reason: &str, more: bool) -> (String, usize) {
        let count = self.by_reason.entry(reason.to_owned()).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        let counted = (reason.to_owned(), *count);
        self.by_reason.retain(|_, count| *count > 0);
        counted
    }

    /// Forgets every deployment for which `is_gone` returns true, like [`Self::note`] without a signal.
    pub fn forget_where(&mut self, is_gone: impl Fn(&K) -> bool, now: Instant) -> Vec<(String, usize)> {
        let keys: Vec<K> = self.episodes.keys().filter(|key| is_gone(key)).cloned().collect();
        keys.iter().flat_map(|key| self.note(key, &[], now)).collect()
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
