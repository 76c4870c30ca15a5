//! How long federation takes, by leg: from a project to the hub, from there to the cell, and back.
//!
//! Of each deployment no more is kept than since when something is under way, and only while it is. Where changes come
//! quicker than they arrive, the oldest of them is measured, to the first arrival that has it.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use super::federated::{Decided, Observed};
use crate::{
    api::{compute::WorkloadDeployment, meta::annotation},
    plan::{Delta, Known, Op, Step},
};

/// One leg of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// From a change of a project's deployment being seen to its copy on the hub being written.
    ProjectToHub,
    /// From the copy being written to the cell's report of this generation being seen on the hub.
    HubToCell,
    /// From a report being seen on the hub to the project's status being written.
    StatusBack,
}

impl Leg {
    /// Its name, as a label.
    pub fn label(self) -> &'static str {
        match self {
            Self::ProjectToHub => "project_to_hub",
            Self::HubToCell => "hub_to_cell",
            Self::StatusBack => "status_back",
        }
    }
}

/// Whether a project's deployment asks for something that it did not ask for before.
pub fn is_change(delta: &Delta<'_, WorkloadDeployment>) -> bool {
    let version = |of: &WorkloadDeployment| (of.metadata.uid.clone(), of.metadata.generation);
    delta.new.is_some_and(|new| delta.old.map(version) != Some(version(new)))
}

/// Whether a copy on the hub has another report of its cell. One that is met with its report is no news.
pub fn is_report(delta: &Delta<'_, WorkloadDeployment>) -> bool {
    delta.old.zip(delta.new).is_some_and(|(old, new)| old.status != new.status)
}

/// What a look at a deployment has found and written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Uid of the project's deployment.
    pub uid: String,
    /// What the project asks for.
    pub generation: i64,
    /// What the copy had before; nothing where there was no copy.
    pub copied: Option<i64>,
    /// What the cell has reported of last.
    pub reported: Option<i64>,
    /// Whether the copy was written.
    pub wrote_copy: bool,
    /// Whether the project's status was written.
    pub wrote_status: bool,
}

impl Look {
    /// Of a plan that was carried out.
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
            reported: copy.and_then(|copy| copy.status.as_ref()?.observed_source_generation),
            wrote_copy: plan.steps.iter().any(|step| wrote(step, false)),
            wrote_status: plan.steps.iter().any(|step| wrote(step, true)),
        }
    }
}

/// Since when something is under way, and when more of it came last.
#[derive(Clone, Copy, Debug)]
struct Since {
    first: Instant,
    last: Instant,
}

impl Since {
    fn or_at(since: Option<Self>, at: Instant) -> Self {
        Self { first: since.map_or(at, |since| since.first), last: at }
    }

    /// What is left of it after a look that began then: what came meanwhile is for the next.
    fn after(since: Option<Self>, began: Instant) -> Option<Self> {
        since.filter(|since| since.last > began).map(|since| Self { first: since.last, last: since.last })
    }
}

/// What is under way of one deployment.
#[derive(Debug, Default)]
struct Marks {
    uid: String,
    /// The project asks for something new.
    changed: Option<Since>,
    /// The copy has this generation, of which the cell has not reported yet.
    sent: Option<(i64, Instant)>,
    /// The cell has reported.
    reported: Option<Since>,
}

/// What is under way, by deployment. `K` names one on the whole hub. At a start all are under way for a moment, and few are later.
#[derive(Debug)]
pub struct Latencies<K>(HashMap<K, Box<Marks>>);

/// Room for so many is kept while nothing is under way.
const ROOM: usize = 1024;

impl<K> Default for Latencies<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash + Clone> Latencies<K> {
    /// A project's deployment was seen to ask for something new.
    pub fn changed(&mut self, key: &K, uid: &str, now: Instant) {
        let marks = self.of(key, uid);
        marks.changed = Some(Since::or_at(marks.changed, now));
    }

    /// A copy was seen with another report. What is not known to be under way is looked at first.
    pub fn reported(&mut self, key: &K, now: Instant) {
        let marks = self.0.entry(key.clone()).or_default();
        marks.reported = Some(Since::or_at(marks.reported, now));
    }

    /// A look that began at `began` is carried out at `now`. Says which legs that ends, and how long each took.
    pub fn looked(&mut self, key: &K, look: &Look, began: Instant, now: Instant) -> Vec<(Leg, Duration)> {
        let mut ended = Vec::new();
        let mut took = |leg, from: Instant, to: Instant| ended.push((leg, to.saturating_duration_since(from)));
        let marks = self.of(key, &look.uid);
        if let Some((generation, at)) = marks.sent
            && look.reported >= Some(generation)
        {
            let seen = marks.reported.map_or(began, |since| since.last.min(began));
            took(Leg::HubToCell, at, seen);
            marks.sent = None;
        }
        let behind = look.copied < Some(look.generation);
        if behind && !look.wrote_copy {
            // It waits for something, and has at least since now.
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

    /// A deployment is gone, or going: nothing of it is measured.
    pub fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// All of those are gone.
    pub fn forget_where(&mut self, gone: impl Fn(&K) -> bool) {
        self.0.retain(|key, _| !gone(key));
    }

    /// How many deployments have something under way.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is under way of a deployment; of another one that had its name before, nothing.
    fn of(&mut self, key: &K, uid: &str) -> &mut Marks {
        let marks = self.0.entry(key.clone()).or_default();
        if marks.uid != uid {
            // A report may have come before anything else was known of it.
            let reported = marks.reported.filter(|_| marks.uid.is_empty());
            **marks = Marks { uid: uid.to_owned(), reported, ..Marks::default() };
        }
        marks
    }
}

#[cfg(test)]
#[path = "latency_tests.rs"]
mod tests;
