//! What is known of the ConfigMaps and Secrets that are in use: of each, what its last reading came to.
//!
//! A watch of metadata reports when a reading is out of date. Nothing is kept of any other object, and no content of any.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::store::{Cache, Incoming, Listed, ObjectKey};
use crate::plan::{ObjectVersion, management::resolve::Source};

/// The sources of one kind in one project.
#[derive(Default)]
pub struct Sources {
    entries: Mutex<HashMap<ObjectKey, Entry>>,
    listener: OnceLock<Listener>,
    /// Whether the watch fails, so that changes go unnoticed.
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
}

/// What a reading came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Uid of what was read; empty when there was nothing.
    pub uid: String,
    /// Its resourceVersion.
    pub version: u64,
    /// What it is.
    pub source: Source,
}

/// What a reading changes in what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    Nothing,
    /// What was known once, and had become doubtful, is known again.
    Confirmed,
    /// It is another thing than was known.
    Changed,
}

impl Sources {
    /// Whether the watch fails. Meanwhile a reading is only as good as it is young.
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

    /// Notes what a reading came to, that was begun in `epoch`.
    pub fn read(&self, key: &ObjectKey, epoch: u64, reading: Reading) -> News {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(key) else { return News::Changed };
        let before = entry.reading.replace((epoch, reading.clone()));
        let doubtful = before.as_ref().is_none_or(|(of, _)| *of != entry.epoch);
        let before = before.map(|(_, before)| before);
        if before.as_ref().map(|b| (&b.uid, b.version)) != Some((&reading.uid, reading.version)) {
            entry.copied = None;
        }
        if before.map(|before| before.source) != Some(reading.source) {
            News::Changed
        } else if doubtful && epoch == entry.epoch {
            News::Confirmed
        } else {
            News::Nothing
        }
    }

    /// What a source is, as far as is known; [`Source::Unknown`] since it last changed.
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

    /// Whether there is such a source, by a reading that nothing has overtaken.
    fn contains(&self, key: &ObjectKey) -> bool {
        matches!(self.get(key), Source::Present { .. })
    }

    /// Only those count that were there when they were last read: the copy of one that may be missing goes with it.
    fn compare(&self, objects: &[Incoming<()>], version: u64) -> Listed {
        let listed: HashSet<&ObjectKey> = objects.iter().map(|object| &object.key).collect();
        let entries = self.entries();
        let was_there =
            |entry: &Entry| matches!(&entry.reading, Some((_, of)) if matches!(of.source, Source::Present { .. }));
        let known = || entries.iter().filter(|(_, entry)| was_there(entry)).map(|(key, _)| key);
        let another_history = version > 0 && version < self.passed.load(Ordering::Acquire);
        let missing = known().filter(|key| !listed.contains(key)).cloned().collect();
        Listed { another_history, known: known().count(), missing }
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
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    fn object(version: u64) -> Incoming<()> {
        Incoming { key: ObjectKey::new("shop", "db"), uid: "u".into(), version, value: Some(()) }
    }

    fn reading(version: u64) -> Reading {
        Reading { uid: "u".into(), version, source: Source::Present { size: 3 } }
    }

    #[test]
    fn a_reading_stands_until_the_watch_reports_of_a_change() {
        let sources = Sources::default();
        let reported = Arc::new(AtomicUsize::new(0));
        let counter = reported.clone();
        sources.listen(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let key = ObjectKey::new("shop", "db");
        assert!(!sources.wants(&key));
        sources.observe(object(5)); // nobody uses it
        assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Unknown, 0));

        let epoch = sources.begin(&key);
        assert!(sources.wants(&key));
        assert_eq!(sources.read(&key, epoch, reading(5)), News::Changed);
        sources.copied(&key, ObjectVersion::new("c", "9"));
        sources.observe(object(5)); // what was read
        assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Present { size: 3 }, 0));
        assert!(sources.copy(&key).is_some());

        sources.observe(object(6));
        assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Unknown, 1));
        assert_eq!((sources.last(&key), sources.copy(&key)), (Source::Present { size: 3 }, None));

        // A change that comes while it is read makes the reading old before it is noted.
        let epoch = sources.begin(&key);
        Cache::forget(&sources, &key, "u");
        sources.read(&key, epoch, reading(6));
        assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Unknown, 2));
    }

    #[test]
    fn a_reading_that_the_watch_overtakes_is_news_once_it_is_confirmed() {
        let (sources, key) = (Sources::default(), ObjectKey::new("shop", "db"));
        let first = sources.begin(&key);
        sources.observe(object(5)); // while it is read
        assert_eq!(sources.read(&key, first, reading(5)), News::Changed);
        sources.copied(&key, ObjectVersion::new("c", "9"));
        assert_eq!(sources.copy(&key), None, "nobody knows whether it is the present one");
        let second = sources.begin(&key);
        assert_eq!(sources.read(&key, second, reading(5)), News::Confirmed);
        assert!(sources.copy(&key).is_some());
        assert_eq!(sources.read(&key, second, reading(5)), News::Nothing);
    }

    /// Found by reading: a project that was restored without its optional Secrets lost all their companions at once.
    #[test]
    fn a_source_that_was_there_and_is_not_listed_is_missing_until_it_is_read_again() {
        let sources = Sources::default();
        let key = |name: &str| ObjectKey::new("shop", name);
        for (name, source) in [("there", Source::Present { size: 3 }), ("never", Source::Absent)] {
            let epoch = sources.begin(&key(name));
            sources.read(&key(name), epoch, Reading { uid: "u".into(), version: 5, source });
        }
        sources.pass(30);
        let listed = sources.compare(&[], 40);
        assert_eq!(listed, Listed { another_history: false, known: 1, missing: vec![key("there")] });
        assert!(sources.compare(&[], 20).another_history);
        assert!(Cache::contains(&sources, &key("there")) && !Cache::contains(&sources, &key("never")));
        sources.replace(vec![], 40);
        assert!(!Cache::contains(&sources, &key("there")), "what was read before the list says nothing any more");
        let epoch = sources.begin(&key("there"));
        sources.read(&key("there"), epoch, Reading { version: 41, ..reading(41) });
        assert!(Cache::contains(&sources, &key("there")));
    }

    #[test]
    fn a_list_reports_what_was_missed() {
        let (sources, key) = (Sources::default(), ObjectKey::new("shop", "db"));
        let epoch = sources.begin(&key);
        sources.read(&key, epoch, reading(5));
        sources.replace(vec![object(5)], 8);
        assert_eq!(sources.get(&key), Source::Present { size: 3 });
        sources.replace(vec![], 9);
        assert_eq!(sources.get(&key), Source::Unknown);
        let epoch = sources.begin(&key);
        let absent = Reading { source: Source::Absent, ..Reading::default() };
        assert_eq!(sources.read(&key, epoch, absent), News::Changed);
        sources.replace(vec![], 9);
        assert_eq!(sources.get(&key), Source::Absent);
        sources.replace(vec![object(10)], 10);
        assert_eq!(sources.get(&key), Source::Unknown);
    }
}
