//! Hub Instances that cannot be shown in a project: reported once, and looked at again when something changes.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kube::ResourceExt;

use crate::{api::compute::Instance, io::store::ObjectKey, metrics::Metrics, plan::management::projection::Quarantine};

/// The registry of them.
pub(super) struct QuarantineRegistry {
    entries: Mutex<BTreeMap<ObjectKey, Entry>>,
    metrics: Metrics,
}

/// How long a hub Instance must have had no place to be put aside: its deployment may come after it, and go before it.
const QUARANTINE_GRACE: Duration = Duration::from_secs(5);

/// A hub Instance that cannot be shown.
#[derive(Clone)]
struct Entry {
    uid: String,
    why: Quarantine,
    since: Instant,
    reported: bool,
}

/// What is to be done about a hub Instance that cannot be shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// Nothing: it has been reported.
    Already,
    /// It is to be reported now.
    Now,
    /// It may still find its place.
    After(Duration),
}

impl QuarantineRegistry {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self { entries: Mutex::default(), metrics: metrics.clone() }
    }

    /// Puts a hub Instance entries. What is missing at first may be on its way, so this says when to look again, and
    /// only then, once, that it is to be reported.
    pub(super) fn put(&self, instance: &Instance, why: Quarantine) -> Report {
        let mut entries = self.entries();
        let fresh = Entry { uid: instance.uid().unwrap_or_default(), why, since: Instant::now(), reported: false };
        let entry = entries.entry(ObjectKey::of(instance)).or_insert_with(|| fresh.clone());
        if (&entry.uid, entry.why) != (&fresh.uid, why) {
            *entry = fresh;
        }
        let left = QUARANTINE_GRACE.saturating_sub(entry.since.elapsed());
        let verdict = match (entry.reported, left.is_zero()) {
            (true, _) => Report::Already,
            (false, false) => Report::After(left),
            (false, true) => Report::Now,
        };
        entry.reported |= verdict == Report::Now;
        self.count(&entries);
        verdict
    }

    /// A hub Instance is shown, or gone.
    pub(super) fn remove(&self, key: &ObjectKey) {
        let mut entries = self.entries();
        if entries.remove(key).is_some() {
            self.count(&entries);
        }
    }

    fn count(&self, entries: &BTreeMap<ObjectKey, Entry>) {
        for why in Quarantine::ALL {
            self.metrics.quarantined(why.label(), entries.values().filter(|a| a.reported && a.why == why).count());
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
