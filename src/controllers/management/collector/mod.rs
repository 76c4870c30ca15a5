//! The collector: deletes objects on the hub and on clusters without their owner.
//!
//! Nearly all of them are deleted at once after an event. A sweep every few minutes finds the rest, for example after a crash:
//!
//! 1. Every queue gets the keys that no event may have announced.
//! 2. The policies of other owners are read: the claims of such a policy count while it exists.
//! 3. Works, companions and bindings are listed. Each companion is enqueued, and gets its label back if it has lost it.
//! 4. Hub namespaces without their labels get them back. If the original is back, a copy or hub namespace loses the note of its
//!    grace.
//! 5. Everything without an owner is judged by one plan and its table ([`collect`]), and deleted after live reads. A part that
//!    fails, or a server that does not answer, does not stop the other deletions.

mod foreign_policies;
mod lists;
mod owners;
mod relabel;
mod round;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Namespace;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use self::{
    lists::Lists,
    owners::{Namespaces, Owners},
    round::{HUB, Memory, Round, SentEvents, Stopped, server_of},
};
use crate::controllers::management::Context;
use crate::{
    api::names::ProjectName,
    controllers::{is_silence, record, send, worst},
    io::{Class, Error, clock::Now, shared, store::ObjectKey},
    plan::{
        Discovery, Hub, Kind, NamespaceFacts, Object, ObjectVersion, Op, Plane, Project, Write,
        management::collector::{
            collect::{self, Decided, Signal},
            report,
            table::{Action, Observed, Rule},
            works::AllLeft,
        },
    },
};

pub(crate) use self::relabel::relabel;

/// Most objects of each part to which one sweep writes only notes.
const NOTES: usize = 100;

/// Result of a sweep, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// All work is done.
    Success,
    /// The hub's caches are not filled: nothing is done.
    Postponed,
    /// Some of the work failed.
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

/// Patched objects, each with its new version. `None` if the object is gone.
type Patched = Vec<(Object, Option<ObjectVersion>)>;

/// Result of the judgement of one finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is kept, and its grace has not begun.
    Kept,
    /// It waits for the end of its grace.
    Waits,
    /// It is deleted.
    Deleted,
    /// A live read has found its owner.
    Owned,
}

/// Objects without an owner that a sweep has found.
#[derive(Default)]
struct Collected {
    /// Uids of all of them.
    found: BTreeSet<String>,
    /// Uids of deleted objects, and of those with an owner that a live read found.
    settled: BTreeSet<String>,
    /// Projects of objects that wait for the end of their grace.
    waiting: BTreeSet<ProjectName>,
    failed: Vec<Error>,
}

/// Deletes objects without their owner.
#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) ctx: Arc<Context>,
}

impl Collector {
    /// Sweeps until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let every = self.ctx.options.sweep.interval;
        let mut memory = Memory::default();
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.ctx.triggers.enqueue_blocked();
            self.ctx.triggers.enqueue_deleting();
            self.ctx.triggers.enqueue_quarantined();
            self.ctx.triggers.enqueue_waiting_instances();
            shared::clean();
            self.forget_gone();
            // The hub wrote most of the times that a sweep compares, so the hub's clock counts.
            let began = self.ctx.hub.plane.now();
            let result = self.sweep_once(&mut memory, began).await;
            let ended = Now::read();
            self.ctx.metrics.swept(result.label(), ended.instant.duration_since(began.instant), ended.time.as_second());
        }
    }

    /// Forgets the memory of deleted hub namespaces.
    pub(crate) fn forget_gone(&self) {
        if !self.ctx.hub.is_synced() {
            return; // the existing hub namespaces are unknown
        }
        let is_there = |namespace: &str| self.ctx.hub.namespaces.contains(&ObjectKey::new("", namespace));
        self.ctx.refused.forget_gone(is_there);
        self.ctx.projects.forget_gone(is_there);
    }

    /// Runs one sweep. A part that fails does not stop the others, except that Works also need the lists of companions.
    async fn sweep_once(&self, memory: &mut Memory, now: Now) -> End {
        if !self.ctx.hub.is_synced() || !self.ctx.hub.bindings.is_synced() {
            return End::Postponed; // the objects in use are unknown
        }
        let owners = Owners::of(self);
        let Memory { bindings, works, events } = memory;
        events.expire(now);
        let (namespaces, present, silent) = (owners.kept_namespaces(), BTreeMap::new(), BTreeSet::new());
        let mut round = Round { now, namespaces, present, silent, events };
        let mut end =
            self.note("policies of others", foreign_policies::read(&self.ctx.hub, self.ctx.options.sweep).await);
        // A failed list ends this part: an object that is not listed may still exist.
        match Lists::read(self, now).await {
            Err(error) => end = end.max(self.note("lists", Err(error))),
            Ok(lists) => end = end.max(self.collect_listed(lists, (bindings, works), &mut round).await),
        }
        let relabelled = relabel::relabel_namespaces(self, &mut round).await;
        end = end.max(self.note("hub namespaces without their labels", relabelled));
        end = end.max(self.write_notes("copies with their original", owners.returned_copies(), &mut round).await);
        let copies = self.collect(owners.lost_copies(), &mut round).await;
        self.ctx.metrics.deletions_paused(Project::NAME, copies.waiting.len());
        end = end.max(self.note_all("copies without an original", copies.failed));
        let Namespaces { lost, adopted, events } = owners.namespaces(now.time);
        for event in events {
            self.send_event(&event, &mut round).await;
        }
        end = end.max(self.write_notes("hub namespaces", adopted, &mut round).await);
        let namespaces = self.collect(lost, &mut round).await;
        end.max(self.note_all("stranded namespaces", namespaces.failed))
    }

    /// Deletes bindings and Works without their template. `bindings` and `works`: uids that the last sweep found.
    async fn collect_listed(
        &self,
        mut lists: Lists,
        (bindings, works): (&mut BTreeSet<String>, &mut BTreeSet<String>),
        round: &mut Round<'_>,
    ) -> End {
        for event in std::mem::take(&mut lists.events) {
            self.send_event(&event, round).await;
        }
        let collected = self.collect(lists.bindings_without_template(self, bindings), round).await;
        *bindings = collected.found;
        let mut end = self.note_all("bindings without their template", collected.failed);
        if let Some(forgotten) = lists.works_without_template(self, works) {
            let collected = self.collect(forgotten, round).await;
            if let Some(left) = lists.left_on_clusters(self, works, &collected.settled, round.now) {
                self.report_left(&left, round).await;
            }
            *works = collected.found;
            end = end.max(self.note_all("Works without their template", collected.failed));
        }
        end.max(self.note_all("lists of Works, and labels", lists.failed))
    }

    fn note_all(&self, part: &'static str, failed: Vec<Error>) -> End {
        self.note(part, worst(failed).map_or(Ok(()), Err))
    }

    async fn send_event(&self, event: &Write<Hub>, round: &mut Round<'_>) {
        round.events.send(&self.ctx.hub.plane, event, &self.ctx.metrics, round.now).await;
    }

    fn note(&self, part: &'static str, done: Result<(), Error>) -> End {
        match done {
            Ok(()) => End::Success,
            // The object has changed since it was judged: the next sweep decides again.
            Err(error) if error.class() == Class::Conflict => End::Success,
            Err(error) => {
                tracing::warn!(part, %error, class = error.label(), "a part of the sweep failed");
                self.ctx.metrics.reconcile_failed("sweep", error.label());
                End::Error
            }
        }
    }

    /// Carries out steps that delete nothing, at most [`NOTES`] of each part in one sweep.
    async fn write_notes(
        &self,
        part: &'static str,
        mut found: Vec<(ProjectName, Vec<Action>)>,
        round: &mut Round<'_>,
    ) -> End {
        // The order changes in each sweep, so that the limit does not always skip the same objects.
        fastrand::shuffle(&mut found);
        let mut failed = Vec::new();
        for (project, steps) in found.into_iter().take(NOTES) {
            if round.is_silent(&(Project::NAME, Some(project.clone()))) {
                continue;
            }
            if let Err(stopped) = self.carry_out(Some(&project), &steps, round.events, round.now).await {
                round.failed(&stopped);
                failed.push(stopped.error);
            }
        }
        self.note_all(part, failed)
    }

    /// Judges the findings, and deletes those that are due, up to the limit of a sweep. A refused deletion, or a server that does
    /// not answer, does not stop the other deletions.
    async fn collect(&self, mut found: Vec<Observed>, round: &mut Round<'_>) -> Collected {
        let uids = |observed: &Observed| observed.items.iter().map(|item| item.version.uid.clone()).collect::<Vec<_>>();
        let mut collected = Collected { found: found.iter().flat_map(uids).collect(), ..Collected::default() };
        // The order changes in each sweep, so that refused deletions do not use up the limit each time.
        fastrand::shuffle(&mut found);
        let (mut spent, mut postponed) = (BTreeMap::<Rule, usize>::new(), BTreeMap::<Rule, usize>::new());
        for mut observed in found {
            let (uids, rule) = (uids(&observed), observed.rule.brake());
            let spent = spent.entry(rule).or_default();
            let is_spent = *spent >= rule.most(&self.ctx.options.sweep, round.namespaces);
            let plan = decide(&observed, round.now);
            let mut fate = if observed.waits_since().is_some() { Fate::Waits } else { Fate::Kept };
            if plan.signals.contains(&Signal::Counts) && is_spent {
                *postponed.entry(rule).or_default() += 1;
            } else if !round.is_silent(&server_of(&observed)) {
                *spent += usize::from(plan.signals.contains(&Signal::Counts));
                match self.carry_out_plan(&mut observed, plan, round).await {
                    Ok(Some(now)) => fate = now,
                    Ok(None) => {}
                    Err(stopped) => {
                        if matches!(stopped.error, Error::StillThere(_)) && !stopped.is_write {
                            fate = Fate::Owned;
                        }
                        round.failed(&stopped);
                        collected.failed.push(stopped.error);
                    }
                }
            }
            match fate {
                Fate::Kept => {}
                Fate::Waits => collected.waiting.extend(observed.project),
                Fate::Deleted | Fate::Owned => collected.settled.extend(uids),
            }
        }
        for (rule, count) in postponed {
            tracing::warn!(
                ?rule,
                count,
                "more objects without an owner than one sweep may delete: the next sweeps delete the rest"
            );
        }
        collected
    }

    /// Carries out the plan for one finding. Returns its fate if that has changed.
    async fn carry_out_plan(
        &self,
        observed: &mut Observed,
        mut plan: Decided,
        round: &mut Round<'_>,
    ) -> Result<Option<Fate>, Stopped> {
        if plan.signals.contains(&Signal::Unread) {
            observed.present = Some(self.present(&observed.namespace, round).await?);
            plan = decide(observed, round.now);
        }
        for signal in &plan.signals {
            let (namespace, rule) = (&observed.namespace, observed.rule);
            match signal {
                Signal::Paused => tracing::info!(namespace, ?rule, "kept: clean-up is paused"),
                Signal::Changed => tracing::info!(namespace, ?rule, "kept for now: the hub namespace has changed"),
                Signal::Counts | Signal::Unread => {}
            }
        }
        let mut fate = None;
        for _ in 0..2 {
            if plan.steps.is_empty() {
                break;
            }
            let is_deletion = plan.signals.contains(&Signal::Counts);
            let done = self.carry_out(observed.project.as_ref(), &plan.steps, round.events, round.now).await;
            let patched = match done {
                Ok(Some(patched)) => patched,
                Ok(None) => return Ok(None), // nothing is proved
                Err(stopped) => {
                    self.report_stopped(observed, &stopped, is_deletion, round).await;
                    return Err(stopped);
                }
            };
            fate = Some(if is_deletion { Fate::Deleted } else { Fate::Waits });
            if plan.steps.iter().any(is_delete) {
                self.count(observed, &plan.steps);
            }
            if !is_deletion || patched.is_empty() {
                break;
            }
            // Objects that have lost their protection are deleted in the same sweep.
            observed.unprotect(&patched);
            plan = decide(observed, round.now);
        }
        Ok(fate)
    }

    /// Reads a hub namespace live, once in a sweep. Empty if it is gone.
    async fn present(&self, namespace: &str, round: &mut Round<'_>) -> Result<NamespaceFacts, Stopped> {
        if let Some(known) = round.present.get(namespace) {
            return Ok(known.clone());
        }
        let found = self.read_namespace(namespace).await.map_err(|error| Stopped::read(error, HUB))?;
        round.present.insert(namespace.to_owned(), found.clone());
        Ok(found)
    }

    async fn read_namespace(&self, namespace: &str) -> Result<NamespaceFacts, Error> {
        let found = self.ctx.hub.plane.read_metadata(&Object::named::<Namespace>("", namespace)).await?;
        Ok(found.map(NamespaceFacts::of).unwrap_or_default())
    }

    /// Counts and logs deletions.
    fn count(&self, observed: &Observed, steps: &[Action]) {
        match observed.rule {
            Rule::CompanionBinding | Rule::CopyBinding => self.ctx.metrics.reaped(),
            Rule::Work => self.ctx.metrics.work_removed(),
            Rule::Copy | Rule::Content | Rule::ControlPlane | Rule::Namespace => {}
        }
        for step in steps.iter().filter(|step| is_delete(step)) {
            if let Action::Hub(Write { object, .. }) = step {
                let (rule, owner) = (observed.rule, &observed.owner);
                tracing::warn!(%object, ?rule, ?owner, "deleted: its owner does not exist");
            }
        }
    }

    /// Carries out the steps of a plan in their order. A live read that contradicts the plan ends them. A refused deletion does
    /// not stop the others. Returns `None` if the project was disengaged, because then nothing is proved.
    async fn carry_out(
        &self,
        project: Option<&ProjectName>,
        steps: &[Action],
        events: &mut SentEvents,
        now: Now,
    ) -> Result<Option<Patched>, Stopped> {
        let engaged = project.and_then(|project| self.ctx.projects.get(project));
        let (mut refused, mut patched) = (Vec::new(), Patched::new());
        for action in steps {
            match action {
                Action::Hub(write) if write.object.kind == Kind::Event => {
                    events.send(&self.ctx.hub.plane, write, &self.ctx.metrics, now).await;
                }
                Action::Hub(write) => match send(&self.ctx.hub.plane, write, &self.ctx.metrics).await {
                    Ok(stored) if matches!(write.op, Op::Merge { .. }) => {
                        patched.push((write.object.clone(), stored.map(|stored| stored.version)));
                    }
                    Ok(_) => {}
                    Err(error) if matches!(write.op, Op::Delete { .. }) && !is_silence(&error) => refused.push(error),
                    Err(error) => {
                        if matches!(error, Error::StillThere(_)) {
                            // The owner is in no cache, so it may have lost its label. With the label the next sweep finds it.
                            let labelled = relabel(&self.ctx.hub, &write.object, &self.ctx.metrics).await;
                            labelled.map_err(|error| Stopped::read(error, HUB))?;
                        }
                        return Err(Stopped { error, server: HUB, is_write: !write.op.is_look() });
                    }
                },
                Action::Discovery(write) => {
                    let Some(discovered) = self.ctx.projects.discovered() else { return Ok(None) };
                    let read = send(&discovered.plane, write, &self.ctx.metrics).await;
                    read.map_err(|error| Stopped::read(error, (Discovery::NAME, None)))?;
                }
                Action::Project(write) => {
                    let Some(engaged) = &engaged else { return Ok(None) };
                    let read = send(&engaged.plane, write, &self.ctx.metrics).await;
                    read.map_err(|error| Stopped::read(error, (Project::NAME, project.cloned())))?;
                }
            }
        }
        match worst(refused) {
            Some(error) => Err(Stopped { error, server: HUB, is_write: true }),
            None => Ok(Some(patched)),
        }
    }

    /// Reports why a finding is kept. A refusal by the hub is also reported on the hub namespace.
    async fn report_stopped(&self, observed: &Observed, stopped: &Stopped, is_deletion: bool, round: &mut Round<'_>) {
        let (namespace, rule, error) = (&observed.namespace, observed.rule, &stopped.error);
        let (server, class) = (stopped.server.0, error.label());
        match (error.class(), stopped.is_write) {
            // The object has changed since it was read, or its owner exists.
            (Class::Conflict, _) => {
                tracing::info!(namespace, ?rule, %error, "kept for now: the object has changed, or its owner exists");
                return;
            }
            (_, false) => {
                tracing::warn!(namespace, ?rule, %error, server, class, "a live read failed: nothing is deleted");
            }
            (_, true) if is_deletion => {
                tracing::warn!(namespace, ?rule, %error, class, "objects without an owner cannot be deleted");
            }
            (_, true) => {
                tracing::warn!(namespace, ?rule, %error, class, "the start of a grace period cannot be recorded");
            }
        }
        if stopped.is_write && !is_silence(error) {
            let report = if is_deletion { report::refused } else { report::note_refused };
            let event = report(observed, &error.words_for_tenants(), round.now.time);
            self.send_event(&event, round).await;
        }
    }

    /// Counts by cluster the Works that are left of objects deleted on the hub, and reports them on each hub namespace.
    async fn report_left(&self, left: &AllLeft, round: &mut Round<'_>) {
        let mut counts: BTreeMap<String, usize> =
            self.ctx.hub.clusters.keys().iter().map(|cluster| (cluster.name.to_string(), 0)).collect();
        for ((_, cluster), left) in left {
            *counts.entry(cluster.clone()).or_default() += left.count;
        }
        self.ctx.metrics.left_on_clusters(&counts);
        for ((namespace, cluster), left) in left {
            tracing::info!(
                namespace,
                cluster,
                works = left.count,
                "Works remain of objects that are deleted on the hub"
            );
            // For a deleted namespace, only the log and the gauge report them.
            let Some(facts) = self.ctx.hub.namespaces.get(&ObjectKey::new("", namespace)) else { continue };
            let event = report::left_on_cluster(namespace, &facts.uid, cluster, left, round.now.time);
            self.send_event(&event, round).await;
        }
    }

    /// Deletes a project's copy that a write under way recreated after its original was deleted. Any other copy begins its grace.
    pub(crate) async fn collect_copy(&self, project: &ProjectName, copy: &ObjectKey, now: Now) -> Result<(), Error> {
        let found = Owners::of(self).lost_copy(copy);
        // A hub namespace that names another project belongs to that project.
        let Some(observed) = found.filter(|found| found.project.as_ref() == Some(project)) else { return Ok(()) };
        let mut observed = Observed { in_sweep: false, ..observed };
        let mut plan = decide(&observed, now);
        if plan.signals.contains(&Signal::Unread) {
            observed.present = Some(self.read_namespace(&observed.namespace).await?);
            plan = decide(&observed, now);
        }
        let done = self.carry_out(Some(project), &plan.steps, &mut SentEvents::default(), now).await;
        done.map(drop).map_err(|stopped| stopped.error)
    }
}

fn decide(observed: &Observed, now: Now) -> Decided {
    let plan = collect::plan(observed, now.time);
    record("collector", &observed.namespace, observed, now, &plan);
    plan
}

fn is_delete(action: &Action) -> bool {
    matches!(action, Action::Hub(write) if matches!(write.op, Op::Delete { .. }))
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
