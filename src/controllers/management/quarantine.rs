//! Hub Instances that cannot be shown in a project: what is remembered of them, and how many there are.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kube::ResourceExt;

use crate::{
    api::compute::Instance,
    io::store::ObjectKey,
    metrics::Metrics,
    plan::management::{
        projection::Quarantine,
        quarantine::{self, Entry, Report},
    },
};

/// The registry of them.
pub(super) struct QuarantineRegistry {
    entries: Mutex<BTreeMap<ObjectKey, Entry>>,
    /// How long a hub Instance must have had no place before it is reported.
    grace: Duration,
    metrics: Metrics,
}

impl QuarantineRegistry {
    pub(super) fn new(grace: Duration, metrics: &Metrics) -> Self {
        Self { entries: Mutex::default(), grace, metrics: metrics.clone() }
    }

    /// A hub Instance cannot be shown: says what is to be done about it.
    pub(super) fn put(&self, instance: &Instance, why: Quarantine, now: Instant) -> Report {
        let mut entries = self.entries();
        let key = ObjectKey::of(instance);
        let uid = instance.uid().unwrap_or_default();
        let (entry, report) = quarantine::judge(entries.get(&key), &uid, why, self.grace, now);
        entries.insert(key, entry);
        self.count(&entries);
        report
    }

    /// A hub Instance is shown, or gone.
    pub(super) fn remove(&self, key: &ObjectKey) {
        let mut entries = self.entries();
        if entries.remove(key).is_some() {
            self.count(&entries);
        }
    }

    /// Every one of them.
    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.entries().keys().cloned().collect()
    }

    fn count(&self, entries: &BTreeMap<ObjectKey, Entry>) {
        for why in Quarantine::ALL {
            let here = entries.values().filter(|entry| entry.reported_as() == Some(why));
            self.metrics.quarantined(why.label(), here.count());
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
