//! The collector: deletes what is on the hub, or on clusters, although its owner is gone.
//!
//! Events delete nearly all of it at once. A sweep, every few minutes, finds what was missed, or left when a process died:
//!
//! 1. Every queue gets the keys that no event may have announced.
//! 2. The policies of other owners are read: what one of them has claimed counts as long as it exists.
//! 3. Works, companions and bindings are listed. Each companion is enqueued, and gets its label back if it has lost it.
//! 4. Everything without an owner is judged by one plan and its table ([`collect`]), and deleted after a live read.
//! 5. Hub namespaces without their labels get them back.

mod foreign_policies;
mod lists;
mod owners;
mod relabel;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use self::{lists::Lists, owners::Owners};
use crate::controllers::management::{
    city_policy::policy_memory::PolicyMemory, hub::hub_cache::HubCache, projects::registry::ProjectRegistry,
    wiring::triggers::Triggers,
};
use crate::{
    api::names::ProjectName,
    controllers::{is_silence, record, send, worst},
    io::{Class, Error, clock::Now, shared, store::ObjectKey},
    metrics::Metrics,
    plan::{
        Op,
        management::collector::{
            collect::{self, Signal},
            report,
            table::{Action, Observed, Rule, Sweep},
            works::AllLeft,
        },
    },
    timing::Timing,
};

pub(crate) use self::relabel::relabel;

/// How a sweep ended, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// It has done all its work.
    Success,
    /// The hub's caches are not filled: it has done nothing.
    Postponed,
    /// Some of its work failed.
    Error,
}

impl End {
    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Postponed => "postponed",
            Self::Error => "error",
        }
    }
}

/// What a sweep has found without an owner.
#[derive(Default)]
struct Collected {
    /// Uids of all of it.
    found: BTreeSet<String>,
    /// Uids of what it has deleted.
    deleted: BTreeSet<String>,
    failed: Vec<Error>,
}

/// Collects.
#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) projects: Arc<ProjectRegistry>,
    pub(crate) triggers: Arc<Triggers>,
    pub(crate) policies: Arc<PolicyMemory>,
    pub(crate) sweep: Sweep,
    pub(crate) timing: Timing,
    pub(crate) metrics: Metrics,
}

impl Collector {
    /// Sweeps until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let every = self.sweep.interval;
        // Uids of what the sweep before has found without an owner.
        let mut seen = BTreeSet::new();
        let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.triggers.enqueue_blocked();
            self.triggers.enqueue_deleting();
            self.triggers.enqueue_quarantined();
            self.triggers.enqueue_waiting_instances();
            shared::clean();
            self.forget_gone();
            let began = Now::read();
            let (result, found) = self.sweep_once(&seen, began).await;
            seen = found;
            let ended = Now::read();
            self.metrics.swept(result.label(), ended.instant.duration_since(began.instant), ended.time.as_second());
        }
    }

    /// Forgets what is remembered of hub namespaces that are gone.
    pub(crate) fn forget_gone(&self) {
        if !self.hub.is_synced() {
            return; // nobody knows which there are
        }
        let is_there = |namespace: &str| self.hub.namespaces.contains(&ObjectKey::new("", namespace));
        self.policies.forget_gone(is_there);
        self.projects.forget_gone(is_there);
    }

    /// One sweep. A part that fails keeps no other from its work. Returns the uids of what it has found without an owner.
    async fn sweep_once(&self, seen: &BTreeSet<String>, now: Now) -> (End, BTreeSet<String>) {
        if !self.hub.is_synced() || !self.hub.bindings.is_synced() {
            return (End::Postponed, BTreeSet::new()); // nobody knows what is in use
        }
        let mut end = self.note("policies of others", foreign_policies::read(&self.hub, self.sweep).await);
        let mut found = BTreeSet::new();
        // A list that fails ends this part: what is not seen is not gone.
        match Lists::read(self, now).await {
            Err(error) => end = end.max(self.note("lists", Err(error))),
            Ok(lists) => {
                let bindings = self.collect(lists.bindings_without_template(self, seen), now).await;
                let works = self.collect(lists.works_without_template(self, seen), now).await;
                self.report_left(&lists.left_on_clusters(self, seen, &works.deleted, now), now).await;
                end = end.max(self.note("labels", worst(lists.failed).map_or(Ok(()), Err)));
                for (part, collected) in [("bindings without their template", bindings), ("Works", works)] {
                    found.extend(collected.found);
                    end = end.max(self.note(part, worst(collected.failed).map_or(Ok(()), Err)));
                }
            }
        }
        let relabelled = relabel::relabel_namespaces(&self.hub, &self.projects, &self.metrics, now.time).await;
        end = end.max(self.note("hub namespaces without their labels", relabelled));
        let owners = Owners::of(self);
        let copies = self.collect(owners.lost_copies(), now).await;
        end = end.max(self.note("copies without an original", worst(copies.failed).map_or(Ok(()), Err)));
        let (lost, adoptions) = owners.lost_namespaces();
        for (project, steps) in adoptions {
            end = end.max(self.note("hub namespaces", self.carry_out(Some(&project), &steps).await));
        }
        let namespaces = self.collect(lost, now).await;
        (end.max(self.note("stranded namespaces", worst(namespaces.failed).map_or(Ok(()), Err))), found)
    }

    fn note(&self, part: &'static str, done: Result<(), Error>) -> End {
        match done {
            Ok(()) => End::Success,
            // It has changed since it was judged: the next sweep decides again.
            Err(error) if error.class() == Class::Conflict => End::Success,
            Err(error) => {
                tracing::warn!(part, %error, class = error.label(), "sweep could not do all its work");
                self.metrics.reconcile_failed("sweep", error.label());
                End::Error
            }
        }
    }

    /// Judges what was found, and carries out what is due of it, as much as one sweep may. What the hub does not let go keeps
    /// nothing else from being deleted.
    async fn collect(&self, mut found: Vec<Observed>, now: Now) -> Collected {
        let mut collected = Collected::default();
        // Where few are deleted, and some are refused each time, none is always the last.
        fastrand::shuffle(&mut found);
        let mut spent = BTreeMap::<Rule, usize>::new();
        for observed in found {
            let plan = collect::plan(&observed, now.time);
            record("collector", &observed.namespace, &observed, now, &plan);
            let uids = || observed.items.iter().map(|item| item.version.uid.clone());
            collected.found.extend(uids());
            if plan.signals.contains(&Signal::Paused) {
                tracing::info!(namespace = observed.namespace, rule = ?observed.rule, "kept: clean-up is paused");
            }
            let counts = plan.signals.contains(&Signal::Counts);
            let most = observed.rule.most(&self.sweep, self.hub.namespaces.count());
            let spent = spent.entry(observed.rule.brake()).or_default();
            if plan.steps.is_empty() || counts && *spent >= most {
                continue;
            }
            *spent += usize::from(counts);
            match self.carry_out(observed.project.as_ref(), &plan.steps).await {
                Ok(()) if plan.steps.iter().any(is_delete) => {
                    self.count(&observed);
                    collected.deleted.extend(uids());
                }
                Ok(()) => {}
                Err(error) => {
                    let silent = is_silence(&error);
                    self.report_refused(&observed, &error, now).await;
                    collected.failed.push(error);
                    if silent {
                        break;
                    }
                }
            }
        }
        collected
    }

    /// Counts and logs what was deleted.
    fn count(&self, observed: &Observed) {
        match observed.rule {
            Rule::CompanionBinding | Rule::CopyBinding => self.metrics.reaped(),
            Rule::Work => self.metrics.work_removed(),
            Rule::Copy | Rule::Content | Rule::ControlPlane | Rule::Namespace => {}
        }
        for item in &observed.items {
            let owner = &observed.owner;
            tracing::warn!(object = %item.object, rule = ?observed.rule, ?owner, "deleted: its owner is gone");
        }
    }

    /// Carries out the steps of a plan in their order. A live read that does not find what it must ends them. An object that cannot
    /// be deleted keeps no other.
    async fn carry_out(&self, project: Option<&ProjectName>, steps: &[Action]) -> Result<(), Error> {
        let project = project.and_then(|project| self.projects.get(project));
        let mut refused = Vec::new();
        for action in steps {
            let (sent, deletes) = match action {
                Action::Hub(write) => {
                    (send(&self.hub.plane, write, &self.metrics).await, matches!(write.op, Op::Delete { .. }))
                }
                Action::Discovery(write) => match self.projects.discovered() {
                    Some(discovered) => (send(&discovered.plane, write, &self.metrics).await, false),
                    None => return Ok(()),
                },
                Action::Project(write) => match &project {
                    Some(project) => (send(&project.plane, write, &self.metrics).await, false),
                    None => return Ok(()), // it was let go in between: nothing is proved
                },
            };
            match sent {
                Ok(_) => {}
                Err(error) if deletes && !is_silence(&error) => refused.push(error),
                Err(error @ Error::StillThere(_)) => {
                    // An owner that no cache has may have lost its label: with it the next sweep finds the owner.
                    if let Action::Hub(write) = action {
                        relabel(&self.hub, &write.object, &self.metrics).await?;
                    }
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        worst(refused).map_or(Ok(()), Err)
    }

    /// Reports on a hub namespace what cannot be deleted.
    async fn report_refused(&self, observed: &Observed, error: &Error, now: Now) {
        let namespace = &observed.namespace;
        if error.class() == Class::Conflict {
            // It has changed since it was read, or its owner is there after all.
            tracing::info!(namespace, rule = ?observed.rule, %error, "what seems to have lost its owner stays for now");
            return;
        }
        tracing::warn!(namespace, rule = ?observed.rule, %error, "what has lost its owner cannot be deleted");
        if !is_silence(error) {
            let event = report::refused(observed, &error.words_for_tenants(), now.time);
            let _ = send(&self.hub.plane, &event, &self.metrics).await; // a lost Event is no error
        }
    }

    /// Counts by cluster what Karmada keeps there of what is deleted on the hub, and reports it on each hub namespace.
    async fn report_left(&self, left: &AllLeft, now: Now) {
        let mut counts: BTreeMap<String, usize> =
            self.hub.clusters.keys().iter().map(|cluster| (cluster.name.to_string(), 0)).collect();
        for ((_, cluster), left) in left {
            *counts.entry(cluster.clone()).or_default() += left.count;
        }
        self.metrics.left_on_clusters(&counts);
        for ((namespace, cluster), left) in left {
            tracing::info!(namespace, cluster, works = left.count, "Works are left of what is deleted on the hub");
            // Of a namespace that is gone itself the log and the gauge alone can tell.
            let Some(facts) = self.hub.namespaces.get(&ObjectKey::new("", namespace)) else { continue };
            let event = report::left_on_cluster(namespace, &facts.uid, cluster, left, now.time);
            let _ = send(&self.hub.plane, &event, &self.metrics).await; // a lost Event is no error
        }
    }

    /// Deletes a project's copy that a write under way has recreated after its original was gone. Any other begins its grace.
    pub(crate) async fn collect_copy(&self, project: &ProjectName, copy: &ObjectKey, now: Now) -> Result<(), Error> {
        let found = Owners::of(self).lost_copy(copy);
        // A hub namespace that names another project is that project's.
        let Some(observed) = found.filter(|found| found.project.as_ref() == Some(project)) else { return Ok(()) };
        // After the grace a few are deleted by each sweep.
        let observed = Observed { paused: true, ..observed };
        let plan = collect::plan(&observed, now.time);
        record("collector", copy, &observed, now, &plan);
        self.carry_out(observed.project.as_ref(), &plan.steps).await
    }
}

fn is_delete(action: &Action) -> bool {
    matches!(action, Action::Hub(write) if matches!(write.op, Op::Delete { .. }))
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
