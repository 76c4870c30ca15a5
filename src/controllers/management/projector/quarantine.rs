//! Registry of the hub Instances that cannot be shown in a project, with their number by reason.

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
    plan::management::projector::{
        projection::Quarantine,
        quarantine::{self, Entry, Report},
    },
};

/// Registry of the quarantined Instances.
pub(crate) struct QuarantineRegistry {
    entries: Mutex<Entries>,
    /// Time that a hub Instance must be without a place before it is reported.
    grace: Duration,
    metrics: Metrics,
}

#[derive(Default)]
struct Entries {
    by_key: BTreeMap<ObjectKey, Entry>,
    /// Number of reported Instances by reason. Kept up to date with each change, because a cell may bring thousands of Instances.
    reported: BTreeMap<Quarantine, usize>,
}

impl Entries {
    /// Replaces or removes an entry. Returns the reasons with a changed number.
    fn set(&mut self, key: &ObjectKey, entry: Option<Entry>) -> [Option<Quarantine>; 2] {
        let is = entry.as_ref().and_then(Entry::reported_as);
        let before = match entry {
            Some(entry) => self.by_key.insert(key.clone(), entry),
            None => self.by_key.remove(key),
        };
        let was = before.as_ref().and_then(Entry::reported_as);
        if was == is {
            return [None; 2];
        }
        if let Some(count) = was.and_then(|why| self.reported.get_mut(&why)) {
            *count -= 1;
        }
        if let Some(why) = is {
            *self.reported.entry(why).or_default() += 1;
        }
        [was, is]
    }
}

impl QuarantineRegistry {
    pub(crate) fn new(grace: Duration, metrics: &Metrics) -> Self {
        for why in Quarantine::ALL {
            metrics.quarantined(why.label(), 0);
        }
        Self { entries: Mutex::default(), grace, metrics: metrics.clone() }
    }

    /// Records a hub Instance that cannot be shown. Returns the report that is due.
    pub(crate) fn put(&self, instance: &Instance, why: Quarantine, now: Instant) -> Report {
        let mut entries = self.entries();
        let key = ObjectKey::of(instance);
        let uid = instance.uid().unwrap_or_default();
        let (entry, report) = quarantine::judge(entries.by_key.get(&key), &uid, why, self.grace, now);
        self.set(&mut entries, &key, Some(entry));
        report
    }

    /// Removes a hub Instance that is shown or gone.
    pub(crate) fn remove(&self, key: &ObjectKey) {
        self.set(&mut self.entries(), key, None);
    }

    /// Removes every entry for which `is_gone` returns true. An Instance that is deleted during its reconcile is recorded
    /// afterwards.
    pub(crate) fn forget_where(&self, is_gone: impl Fn(&ObjectKey) -> bool) {
        self.keys().iter().filter(|key| is_gone(key)).for_each(|key| self.remove(key));
    }

    /// Returns every quarantined Instance.
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.entries().by_key.keys().cloned().collect()
    }

    fn set(&self, entries: &mut Entries, key: &ObjectKey, entry: Option<Entry>) {
        for why in entries.set(key, entry).into_iter().flatten() {
            self.metrics.quarantined(why.label(), entries.reported.get(&why).copied().unwrap_or_default());
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::some_moment;

    /// Each reconcile of one quarantined Instance counted all of them, once for each reason.
    #[test]
    fn quarantine_numbers_follow_each_change() {
        let metrics = Metrics::default();
        let registry = QuarantineRegistry::new(Duration::from_secs(1), &metrics);
        let instance = |nth: usize| {
            let mut instance = Instance::new(&format!("web-{nth}"), crate::api::compute::InstanceSpec::default());
            instance.metadata.uid = Some(format!("uid-{nth}"));
            instance
        };
        let counted = |why: Quarantine| {
            let text = metrics.text();
            let line = text.lines().find(|line| line.contains("quarantined_objects{") && line.contains(why.label()));
            line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
        };
        let (early, late) = (some_moment(), some_moment() + Duration::from_secs(5));
        let (absent, refused) = (Quarantine::DeploymentAbsent, Quarantine::Refused);
        for nth in 0..10 {
            registry.put(&instance(nth), absent, early);
        }
        assert_eq!(counted(absent), 0, "within the grace period");
        for nth in (0..10).chain(0..10) {
            registry.put(&instance(nth), absent, late);
        }
        assert_eq!(counted(absent), 10, "each once, even if reconciled again");
        registry.put(&instance(0), refused, late);
        assert_eq!((counted(absent), counted(refused)), (9, 0), "another cause starts a new grace period");
        registry.put(&instance(0), refused, late + Duration::from_secs(5));
        registry.remove(&ObjectKey::of(&instance(1)));
        registry.remove(&ObjectKey::of(&instance(1)));
        assert_eq!((counted(absent), counted(refused)), (8, 1));
    }
}
