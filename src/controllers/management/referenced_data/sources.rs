//! Cache of the last reading of each ConfigMap and Secret in use.
//!
//! A watch of metadata reports when a reading is out of date. The cache keeps no other objects, and no content.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    io::store::{Cache, Incoming, ObjectKey},
    plan::{
        Failure, ObjectVersion,
        condition::differs_in_their_numbers_alone,
        management::referenced_data::{companion::offer_pause, resolve::Source},
    },
    timing::Timing,
};

/// Sources of one kind in one project.
#[derive(Default)]
pub struct Sources {
    entries: Mutex<HashMap<ObjectKey, Entry>>,
    listener: OnceLock<Listener>,
    /// True while the watch fails, so that changes go unnoticed.
    failing: AtomicBool,
    /// Version up to which the watch has delivered all changes.
    passed: AtomicU64,
}

type Listener = Box<dyn Fn(&ObjectKey) + Send + Sync>;

#[derive(Default)]
struct Entry {
    /// Number of changes that the watch has reported.
    epoch: u64,
    /// Last reading, with the epoch in which it began.
    reading: Option<(u64, Reading)>,
    /// Version of the companion that was seen to have the content of the reading.
    copied: Option<ObjectVersion>,
    /// Time of the first failed authentication since the last successful read.
    unread_since: Option<Instant>,
    /// Time of the first miss of a source that existed at its last read.
    missing_since: Option<Instant>,
    /// Refusal of the copy by the hub.
    refused: Option<Refused>,
    /// Reason why the companion's list of users is full.
    full: Option<String>,
    /// Cause of a failure to read or copy the source for longer than the grace period.
    late: Option<String>,
}

/// Refusal of a copy by the hub.
struct Refused {
    /// Message of the hub's API server.
    why: String,
    /// Number of refusals since the last acceptance.
    times: u32,
    /// Time of the next attempt. `None` if the content has changed, so that it is offered at once.
    again: Option<Instant>,
}

/// Result of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Uid of the source. Empty if it does not exist.
    pub uid: String,
    /// Version of the source: its resourceVersion.
    pub version: u64,
    /// State of the source.
    pub source: Source,
}

/// Change of the known state of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// No change.
    Nothing,
    /// A doubtful reading is confirmed.
    Confirmed,
    /// The source has changed.
    Changed,
}

impl Sources {
    /// True while the watch fails. Then only a recent reading is reliable.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    /// Sets the listener for changes of sources in use. Set once, before the watch begins.
    pub fn listen(&self, listener: impl Fn(&ObjectKey) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Puts a source into use. Returns the epoch in which a read of it begins now.
    pub fn begin(&self, key: &ObjectKey) -> u64 {
        self.entries().entry(key.clone()).or_default().epoch
    }

    /// Records a failed authentication. Returns the time since the first one.
    pub fn unread_for(&self, key: &ObjectKey, now: Instant) -> Duration {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return Duration::ZERO };
        now.saturating_duration_since(*entry.unread_since.get_or_insert(now))
    }

    /// Records that a source was not found. Returns the time since the first miss. `None` if it did not exist at its last read.
    pub fn missing_for(&self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let mut entries = self.entries();
        let entry = entries.get_mut(key)?;
        entry.reading.as_ref().filter(|(_, reading)| matches!(reading.source, Source::Present { .. }))?;
        Some(now.saturating_duration_since(*entry.missing_since.get_or_insert(now)))
    }

    /// Returns the rest of `grace` for a missing source, because a replacement begins with its deletion.
    pub fn may_return_in(&self, key: &ObjectKey, now: Instant, grace: Duration) -> Option<Duration> {
        let since = self.entries().get(key)?.missing_since?;
        grace.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero())
    }

    /// Records the result of a read that began in `epoch`.
    pub fn read(&self, key: &ObjectKey, epoch: u64, reading: Reading) -> News {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return News::Changed };
        if !matches!(reading.source, Source::Unauthorized(_)) {
            entry.unread_since = None;
        }
        entry.missing_since = None;
        let before = entry.reading.replace((epoch, reading.clone()));
        let doubtful = before.as_ref().is_none_or(|(of, _)| *of != entry.epoch);
        let before = before.map(|(_, before)| before);
        if before.as_ref().map(|b| (&b.uid, b.version)) != Some((&reading.uid, reading.version)) {
            entry.copied = None;
            if let Some(refused) = &mut entry.refused {
                refused.again = None;
            }
        }
        if !matches!(reading.source, Source::Present { .. }) {
            entry.refused = None;
        }
        if before.map(|before| before.source) != Some(reading.source) {
            News::Changed
        } else if doubtful && epoch == entry.epoch {
            News::Confirmed
        } else {
            News::Nothing
        }
    }

    /// Returns the state of a source. [`Source::Unknown`] if it has changed since its last read.
    pub fn get(&self, key: &ObjectKey) -> Source {
        let entries = self.entries();
        let Some(entry) = entries.get(key) else { return Source::Unknown };
        match &entry.reading {
            Some((epoch, reading)) if *epoch == entry.epoch => reading.source.clone(),
            _ => Source::Unknown,
        }
    }

    /// Returns the state of a source at its last read, even if it has changed since. For callers that must not react to each
    /// change.
    pub fn last(&self, key: &ObjectKey) -> Source {
        let entries = self.entries();
        entries.get(key).and_then(|entry| entry.reading.as_ref()).map(|(_, r)| r.source.clone()).unwrap_or_default()
    }

    /// Returns the reported state of a source: the state at its last read, or the hub's refusal of the copy. A refusal is
    /// reported until the hub accepts a copy, even of new content. So the report does not change with each attempt.
    pub fn told(&self, key: &ObjectKey) -> Source {
        let entries = self.entries();
        let Some(entry) = entries.get(key) else { return Source::Unknown };
        match (&entry.refused, &entry.reading) {
            (Some(refused), Some(_)) => Source::Refused(refused.why.clone()),
            (_, reading) => reading.as_ref().map(|(_, reading)| reading.source.clone()).unwrap_or_default(),
        }
    }

    /// Records the hub's refusal of the last reading. The back-off starts at `now` and is based on `retry`. The refusal of a
    /// source that has changed since is ignored, because the source is read and offered again.
    pub fn refuse(&self, key: &ObjectKey, why: String, now: Instant, retry: Duration) -> News {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return News::Nothing };
        if entry.reading.as_ref().is_none_or(|(epoch, _)| *epoch != entry.epoch) {
            return News::Nothing;
        }
        let times = entry.refused.as_ref().map_or(0, |refused| refused.times) + 1;
        let again = Some(now + offer_pause(times, retry));
        let before = entry.refused.take().map(|refused| refused.why);
        // The message of each attempt has other numbers. They are not worth a write on every user.
        let same = before.filter(|before| *before == why || differs_in_their_numbers_alone(before, &why));
        let news = if same.is_some() { News::Nothing } else { News::Confirmed };
        entry.refused = Some(Refused { why: same.unwrap_or(why), times, again });
        news
    }

    /// Clears the refusal: the hub has accepted a copy, or none is needed.
    pub fn accept(&self, key: &ObjectKey) -> News {
        let mut entries = self.entries();
        let refused = entries.get_mut(key).and_then(|entry| entry.refused.take());
        if refused.is_some() { News::Confirmed } else { News::Nothing }
    }

    /// Records why the companion's list of users is full. `None` if it is not full.
    pub fn note_full(&self, key: &ObjectKey, full: Option<String>) -> News {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return News::Nothing };
        let same = match (&entry.full, &full) {
            (Some(before), Some(now)) => before == now || differs_in_their_numbers_alone(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        if same {
            return News::Nothing;
        }
        entry.full = full;
        News::Confirmed
    }

    /// Returns the reason why the companion's list of users is full.
    pub fn full(&self, key: &ObjectKey) -> Option<String> {
        self.entries().get(key)?.full.clone()
    }

    /// Records a failure to read or copy the source. `None` after a success. The report is kept until a success.
    pub fn note_late(&self, key: &ObjectKey, failure: Option<Failure>, timing: &Timing) -> News {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return News::Nothing };
        let before = entry.late.clone();
        entry.late = failure.and_then(|failure| failure.reported(before.clone(), timing));
        if before == entry.late { News::Nothing } else { News::Confirmed }
    }

    /// Returns the cause of a failure to read or copy the source for longer than the grace period.
    pub fn late(&self, key: &ObjectKey) -> Option<String> {
        self.entries().get(key)?.late.clone()
    }

    /// Returns the time until refused content is offered again. `None` if it may be offered now.
    pub fn offered_in(&self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let entries = self.entries();
        let entry = entries.get(key)?;
        entry.reading.as_ref().filter(|(epoch, _)| *epoch == entry.epoch)?;
        let again = entry.refused.as_ref()?.again?;
        Some(again.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Records a version of the companion that has the content of the last reading.
    pub fn copied(&self, key: &ObjectKey, companion: ObjectVersion) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.copied = Some(companion);
        }
    }

    /// Returns the version of the companion that has the source's present content. `None` if that content is unknown.
    pub fn copy(&self, key: &ObjectKey) -> Option<ObjectVersion> {
        let entries = self.entries();
        let entry = entries.get(key)?;
        entry.reading.as_ref().filter(|(epoch, _)| *epoch == entry.epoch)?;
        entry.copied.clone()
    }

    /// Forgets a source that is no longer in use.
    pub fn forget(&self, key: &ObjectKey) {
        self.entries().remove(key);
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ObjectKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a report of the watch: the source is at this version now, or gone (`None`). `complete` is true for a report of a
    /// complete list. An older version in such a list means that the server has another history, so it counts as a change.
    fn changed(&self, key: &ObjectKey, now: Option<(&str, u64)>, complete: bool) {
        {
            let mut entries = self.entries();
            let Some(entry) = entries.get_mut(key) else { return };
            let known = match (&entry.reading, now) {
                (Some((_, reading)), Some((uid, version))) => {
                    reading.uid == uid && (reading.version == version || reading.version > version && !complete)
                }
                (Some((_, reading)), None) => reading.source == Source::Absent,
                (None, _) => false,
            };
            if known {
                return;
            }
            entry.epoch += 1;
        }
        if let Some(listener) = self.listener.get() {
            listener(key);
        }
    }
}

impl Cache<()> for Sources {
    fn wants(&self, key: &ObjectKey) -> bool {
        self.entries().contains_key(key)
    }

    fn is_older(&self, _: &[Incoming<()>], version: u64) -> bool {
        version > 0 && version < self.passed.load(Ordering::Acquire)
    }

    fn replace(&self, objects: Vec<Incoming<()>>, version: u64) {
        self.passed.store(version, Ordering::Release);
        let listed: HashMap<&ObjectKey, (&str, u64)> =
            objects.iter().map(|object| (&object.key, (object.uid.as_str(), object.version))).collect();
        let keys: Vec<ObjectKey> = self.entries().keys().cloned().collect();
        for key in keys {
            self.changed(&key, listed.get(&key).copied(), true);
        }
    }

    fn observe(&self, object: Incoming<()>) {
        self.pass(object.version);
        self.changed(&object.key, Some((&object.uid, object.version)), false);
    }

    fn forget(&self, key: &ObjectKey, _: &str) {
        self.changed(key, None, false);
    }

    fn pass(&self, version: u64) {
        self.passed.fetch_max(version, Ordering::AcqRel);
    }

    fn set_live(&self, live: bool) {
        self.failing.store(!live, Ordering::Release);
    }
}

#[cfg(test)]
#[path = "sources_tests.rs"]
mod tests;
