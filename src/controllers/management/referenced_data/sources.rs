//! The last reading of each ConfigMap and Secret that is in use.
//!
//! A watch of metadata reports when a reading is out of date. Nothing is kept of any other object, and no content of any.

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

/// The sources of one kind in one project.
#[derive(Default)]
pub struct Sources {
    entries: Mutex<HashMap<ObjectKey, Entry>>,
    listener: OnceLock<Listener>,
    /// True while the watch fails, so that changes go unnoticed.
    failing: AtomicBool,
    /// Everything up to this version has been delivered.
    passed: AtomicU64,
}

type Listener = Box<dyn Fn(&ObjectKey) + Send + Sync>;

#[derive(Default)]
struct Entry {
    /// Grows with each change that the watch reports.
    epoch: u64,
    /// The last reading, and the epoch in which it was begun.
    reading: Option<(u64, Reading)>,
    /// The companion that was seen to have what the reading has.
    copied: Option<ObjectVersion>,
    /// Since when it cannot be read, for want of credentials that are taken.
    unread_since: Option<Instant>,
    /// Since when it has not been found, though it was there when it was last read.
    missing_since: Option<Instant>,
    /// That the hub took no copy of what was read.
    refused: Option<Refused>,
    /// Why the companion's list of users takes no more of them.
    full: Option<String>,
    /// Why reading it, or copying it, has failed for longer than the grace.
    late: Option<String>,
}

/// That the hub took no copy.
struct Refused {
    /// In its API server's words.
    why: String,
    /// Number of refusals since the last acceptance.
    times: u32,
    /// When it is offered again: at once when it is another content by now.
    again: Option<Instant>,
}

/// The result of a reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Uid of what was read; empty when there was nothing.
    pub uid: String,
    /// Its resourceVersion.
    pub version: u64,
    /// The source.
    pub source: Source,
}

/// The change that a reading makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    Nothing,
    /// A doubtful reading is confirmed.
    Confirmed,
    /// The source has changed.
    Changed,
}

impl Sources {
    /// True while the watch fails. Meanwhile only a young reading is reliable.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    /// Called when a source in use has changed. Set once, before the watch begins.
    pub fn listen(&self, listener: impl Fn(&ObjectKey) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Puts a source into use, and answers with the epoch in which a reading of it begins now.
    pub fn begin(&self, key: &ObjectKey) -> u64 {
        self.entries().entry(key.clone()).or_default().epoch
    }

    /// For how long a source has not been read because nobody knew who asked: it was not just now.
    pub fn unread_for(&self, key: &ObjectKey, now: Instant) -> Duration {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return Duration::ZERO };
        now.saturating_duration_since(*entry.unread_since.get_or_insert(now))
    }

    /// For how long a source has not been found that was there when it was last read; `None` if it was not.
    pub fn missing_for(&self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let mut entries = self.entries();
        let entry = entries.get_mut(key)?;
        entry.reading.as_ref().filter(|(_, reading)| matches!(reading.source, Source::Present { .. }))?;
        Some(now.saturating_duration_since(*entry.missing_since.get_or_insert(now)))
    }

    /// Rest of `grace` for a source that is missing: a replacement begins with its deletion.
    pub fn may_return_in(&self, key: &ObjectKey, now: Instant, grace: Duration) -> Option<Duration> {
        let since = self.entries().get(key)?.missing_since?;
        grace.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero())
    }

    /// Notes what a reading came to, that was begun in `epoch`.
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

    /// The source as it was read. [`Source::Unknown`] if it has changed since.
    pub fn get(&self, key: &ObjectKey) -> Source {
        let entries = self.entries();
        let Some(entry) = entries.get(key) else { return Source::Unknown };
        match &entry.reading {
            Some((epoch, reading)) if *epoch == entry.epoch => reading.source.clone(),
            _ => Source::Unknown,
        }
    }

    /// What a source was when it was last read, also while it has not been read anew: for whoever must not react to each
    /// change.
    pub fn last(&self, key: &ObjectKey) -> Source {
        let entries = self.entries();
        entries.get(key).and_then(|entry| entry.reading.as_ref()).map(|(_, r)| r.source.clone()).unwrap_or_default()
    }

    /// What is to be said of a source: what it was when it was last read, and that the hub took no copy of that. It is said
    /// until the hub takes one, also of another content: so it does not come and go with each attempt.
    pub fn told(&self, key: &ObjectKey) -> Source {
        let entries = self.entries();
        let Some(entry) = entries.get(key) else { return Source::Unknown };
        match (&entry.refused, &entry.reading) {
            (Some(refused), Some(_)) => Source::Refused(refused.why.clone()),
            (_, reading) => reading.as_ref().map(|(_, reading)| reading.source.clone()).unwrap_or_default(),
        }
    }

    /// The hub took no copy of the last reading; when it is offered next is counted from `now`, in steps of `retry`. It
    /// says nothing of a source that has changed meanwhile: that is read anew, and offered.
    pub fn refuse(&self, key: &ObjectKey, why: String, now: Instant, retry: Duration) -> News {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return News::Nothing };
        if entry.reading.as_ref().is_none_or(|(epoch, _)| *epoch != entry.epoch) {
            return News::Nothing;
        }
        let times = entry.refused.as_ref().map_or(0, |refused| refused.times) + 1;
        let again = Some(now + offer_pause(times, retry));
        let before = entry.refused.take().map(|refused| refused.why);
        // Each attempt has other numbers in it, and none is worth a write for each who refers to it.
        let same = before.filter(|before| *before == why || differs_in_their_numbers_alone(before, &why));
        let news = if same.is_some() { News::Nothing } else { News::Confirmed };
        entry.refused = Some(Refused { why: same.unwrap_or(why), times, again });
        news
    }

    /// Nothing is known any more against a copy: the hub has one, or none is to be made.
    pub fn accept(&self, key: &ObjectKey) -> News {
        let mut entries = self.entries();
        let refused = entries.get_mut(key).and_then(|entry| entry.refused.take());
        if refused.is_some() { News::Confirmed } else { News::Nothing }
    }

    /// Records why the companion's list of users takes no more of them. `None` if it takes all.
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

    /// Why the companion's list of users takes no more of them.
    pub fn full(&self, key: &ObjectKey) -> Option<String> {
        self.entries().get(key)?.full.clone()
    }

    /// Notes that work on the copy failed; `None` if it succeeded. What is to be said of it stays until a success.
    pub fn note_late(&self, key: &ObjectKey, failure: Option<Failure>, timing: &Timing) -> News {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return News::Nothing };
        let before = entry.late.clone();
        entry.late = failure.and_then(|failure| failure.reported(before.clone(), timing));
        if before == entry.late { News::Nothing } else { News::Confirmed }
    }

    /// Why reading it, or copying it, has failed for longer than the grace.
    pub fn late(&self, key: &ObjectKey) -> Option<String> {
        self.entries().get(key)?.late.clone()
    }

    /// For how long what the hub has refused is not offered again; nothing when it may be offered now.
    pub fn offered_in(&self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let entries = self.entries();
        let entry = entries.get(key)?;
        entry.reading.as_ref().filter(|(epoch, _)| *epoch == entry.epoch)?;
        let again = entry.refused.as_ref()?.again?;
        Some(again.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// A companion was seen, or made, to have the content of the last reading.
    pub fn copied(&self, key: &ObjectKey, companion: ObjectVersion) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.copied = Some(companion);
        }
    }

    /// The companion that has the content of the last reading, which is the present one.
    pub fn copy(&self, key: &ObjectKey) -> Option<ObjectVersion> {
        let entries = self.entries();
        let entry = entries.get(key)?;
        entry.reading.as_ref().filter(|(epoch, _)| *epoch == entry.epoch)?;
        entry.copied.clone()
    }

    /// A source is not in use any more.
    pub fn forget(&self, key: &ObjectKey) {
        self.entries().remove(key);
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ObjectKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watch says that a source is at this version now, or gone (`None`).
    /// `complete`: a complete list says so, in which nothing is older than what has been read, unless the server has been given
    /// another history.
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
