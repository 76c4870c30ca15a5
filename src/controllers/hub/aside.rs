//! Hub Instances that cannot be shown in a project: told once, and looked at again when something changes.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use kube::ResourceExt;

use crate::{api::compute::Instance, io::store::ObjectKey, metrics::Metrics, plan::hub::project::Quarantine};

/// The registry of them.
pub(super) struct AsideRegistry {
    entries: Mutex<BTreeMap<ObjectKey, Aside>>,
    metrics: Metrics,
}

/// How long a hub Instance must have had no place to be put aside: its deployment may come after it, and go before it.
const HOPELESS: Duration = Duration::from_secs(5);

/// A hub Instance that cannot be shown.
#[derive(Clone)]
struct Aside {
    uid: String,
    why: Quarantine,
    since: Instant,
    told: bool,
}

/// What is to be done about a hub Instance that cannot be shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing: it has been told.
    Known,
    /// It is to be told now.
    News,
    /// It may still find its place.
    LookAgain(Duration),
}

impl AsideRegistry {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self { entries: Mutex::default(), metrics: metrics.clone() }
    }

    /// Puts a hub Instance aside. What is missing at first may be on its way, so this says when to look again, and
    /// only then, once, that it is to be told.
    pub(super) fn put(&self, instance: &Instance, why: Quarantine) -> Verdict {
        let mut aside = self.entries();
        let fresh = Aside { uid: instance.uid().unwrap_or_default(), why, since: Instant::now(), told: false };
        let entry = aside.entry(ObjectKey::of(instance)).or_insert_with(|| fresh.clone());
        if (&entry.uid, entry.why) != (&fresh.uid, why) {
            *entry = fresh;
        }
        let left = HOPELESS.saturating_sub(entry.since.elapsed());
        let verdict = match (entry.told, left.is_zero()) {
            (true, _) => Verdict::Known,
            (false, false) => Verdict::LookAgain(left),
            (false, true) => Verdict::News,
        };
        entry.told |= verdict == Verdict::News;
        self.count_aside(&aside);
        verdict
    }

    /// A hub Instance is shown, or gone.
    pub(super) fn remove(&self, key: &ObjectKey) {
        let mut aside = self.entries();
        if aside.remove(key).is_some() {
            self.count_aside(&aside);
        }
    }

    fn count_aside(&self, aside: &BTreeMap<ObjectKey, Aside>) {
        for why in Quarantine::ALL {
            self.metrics.quarantined(why.label(), aside.values().filter(|a| a.told && a.why == why).count());
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Aside>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
