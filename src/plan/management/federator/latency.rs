//! Time that federation takes, by leg: from a project to the hub, from there to the cell, and back.
//!
//! For a deployment, only the start of a change under way is kept, and only until the change arrives. If changes are faster than
//! their delivery, the oldest one is measured, up to the first arrival that includes it.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use super::snapshot::{Decided, Observed};
use crate::{
    api::{compute::WorkloadDeployment, meta::annotation},
    plan::{Delta, Known, Op, Step},
};

/// One leg of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// From the event of a deployment's change to the write of its copy on the hub.
    ProjectToHub,
    /// From the write of the copy to the event with the cell's report on this generation.
    HubToCell,
    /// From the event with a report on the hub to the write of the project's status.
    StatusBack,
}

impl Leg {
    /// Value of the metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::ProjectToHub => "project_to_hub",
            Self::HubToCell => "hub_to_cell",
            Self::StatusBack => "status_back",
        }
    }
}

/// True if a project's deployment has another generation, or is another object.
pub fn is_change(delta: &Delta<'_, WorkloadDeployment>) -> bool {
    let version = |wd: &WorkloadDeployment| (wd.metadata.uid.clone(), wd.metadata.generation);
    delta.new.is_some_and(|new| delta.old.map(version) != Some(version(new)))
}

/// True if a copy on the hub has another status. A copy that is first seen with a status does not count.
pub fn is_report(delta: &Delta<'_, WorkloadDeployment>) -> bool {
    delta.old.zip(delta.new).is_some_and(|(old, new)| old.status != new.status)
}

/// Result of one reconcile of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Uid of the project's deployment.
    pub uid: String,
    /// Generation of the project's deployment.
    pub generation: i64,
    /// Generation that the copy had before. `None` if there was no copy.
    pub copied: Option<i64>,
    /// Generation of the cell's last report.
    pub reported: Option<i64>,
    /// True if the copy was written.
    pub wrote_copy: bool,
    /// True if the project's status was written.
    pub wrote_status: bool,
}

impl Look {
    /// Reads the result from a plan that was carried out.
    pub fn of(observed: &Observed, plan: &Decided) -> Self {
        let (deployment, copy) = (&observed.deployment, observed.copy.as_deref());
        let copied = copy.and_then(|copy| copy.metadata.annotations.as_ref()?.get(annotation::SOURCE_GENERATION));
        let wrote = |step: &Step<_, _>, of_status: bool| {
            let (kind, op) = match step {
                Step::Local(write) if of_status => (write.object.kind, &write.op),
                Step::Remote(write) if !of_status => (write.object.kind, &write.op),
                _ => return false,
            };
            let applied = matches!(op, Op::Apply { status, .. } if *status == of_status);
            applied && kind == WorkloadDeployment::KIND
        };
        Self {
            uid: deployment.metadata.uid.clone().unwrap_or_default(),
            generation: deployment.metadata.generation.unwrap_or_default(),
            copied: copied.and_then(|generation| generation.parse().ok()),
            reported: copy.and_then(|copy| copy.report()?.observed_source_generation),
            wrote_copy: plan.steps.iter().any(|step| wrote(step, false)),
            wrote_status: plan.steps.iter().any(|step| wrote(step, true)),
        }
    }
}

/// First and last event of a change that is under way.
#[derive(Clone, Copy, Debug)]
struct Since {
    first: Instant,
    last: Instant,
}

impl Since {
    fn or_at(since: Option<Self>, at: Instant) -> Self {
        Self { first: since.map_or(at, |since| since.first), last: at }
    }

    /// Returns the rest after a reconcile that began at `began`: later events are for the next one.
    fn after(since: Option<Self>, began: Instant) -> Option<Self> {
        since.filter(|since| since.last > began).map(|since| Self { first: since.last, last: since.last })
    }
}

/// Changes under way for one deployment.
#[derive(Debug, Default)]
struct Marks {
    uid: String,
    /// The project's deployment has changed.
    changed: Option<Since>,
    /// The copy has this generation, and the cell has not reported on it yet.
    sent: Option<(i64, Instant)>,
    /// The cell has reported.
    reported: Option<Since>,
}

/// Changes under way, by deployment. `K` names one on the whole hub. After a start, all are under way for a moment, and few are
/// later.
#[derive(Debug)]
pub struct Latencies<K>(HashMap<K, Box<Marks>>);

/// Capacity that is kept while nothing is under way.
const ROOM: usize = 1024;

impl<K> Default for Latencies<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash + Clone> Latencies<K> {
    /// Records a change of a project's deployment.
    pub fn changed(&mut self, key: &K, uid: &str, now: Instant) {
        let marks = self.marks(key, uid);
        marks.changed = Some(Since::or_at(marks.changed, now));
    }

    /// Records another report on a copy. A deployment without marks gets them, and the next reconcile adds its uid.
    pub fn reported(&mut self, key: &K, now: Instant) {
        let marks = self.0.entry(key.clone()).or_default();
        marks.reported = Some(Since::or_at(marks.reported, now));
    }

    /// Records a reconcile that began at `began` and was carried out at `now`. Returns the legs that it ends, and how long each
    /// took.
    pub fn looked(&mut self, key: &K, look: &Look, began: Instant, now: Instant) -> Vec<(Leg, Duration)> {
        let mut ended = Vec::new();
        let mut took = |leg, from: Instant, to: Instant| ended.push((leg, to.saturating_duration_since(from)));
        let marks = self.marks(key, &look.uid);
        if let Some((generation, at)) = marks.sent
            && look.reported >= Some(generation)
        {
            let seen = marks.reported.map_or(began, |since| since.last.min(began));
            took(Leg::HubToCell, at, seen);
            marks.sent = None;
        }
        let behind = look.copied < Some(look.generation);
        if behind && !look.wrote_copy {
            // The change waits for something, at least since now.
            marks.changed.get_or_insert(Since { first: began, last: began });
        } else {
            if behind {
                took(Leg::ProjectToHub, marks.changed.map_or(began, |since| since.first), now);
                marks.sent.get_or_insert((look.generation, now));
            }
            marks.changed = Since::after(marks.changed, began);
        }
        if let Some(since) = marks.reported.filter(|_| look.wrote_status) {
            took(Leg::StatusBack, since.first, now);
        }
        marks.reported = Since::after(marks.reported, began);
        if marks.changed.is_none() && marks.sent.is_none() && marks.reported.is_none() {
            self.0.remove(key);
            if self.0.is_empty() && self.0.capacity() > ROOM {
                self.0.shrink_to_fit();
            }
        }
        ended
    }

    /// Forgets a deployment that is gone or terminating.
    pub fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// Forgets every deployment for which `gone` returns true.
    pub fn forget_where(&mut self, gone: impl Fn(&K) -> bool) {
        self.0.retain(|key, _| !gone(key));
    }

    /// Number of deployments with a change under way.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the marks of a deployment. Marks of an earlier deployment of the same name are dropped.
    fn marks(&mut self, key: &K, uid: &str) -> &mut Marks {
        let marks = self.0.entry(key.clone()).or_default();
        if marks.uid != uid {
            // A report may have come before any other event.
            let reported = marks.reported.filter(|_| marks.uid.is_empty());
            **marks = Marks { uid: uid.to_owned(), reported, ..Marks::default() };
        }
        marks
    }
}

#[cfg(test)]
#[path = "latency_tests.rs"]
mod tests;
