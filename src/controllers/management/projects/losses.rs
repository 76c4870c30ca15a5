//! Where many known objects are missing: deletions wait there, which is told, counted, and ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Namespace;
use tokio_util::sync::CancellationToken;

use crate::controllers::management::{
    hub::hub_cache::HubCache,
    projects::{
        first_look::{Compared, FirstLook},
        registry::ProjectRegistry,
    },
    wiring::triggers::Triggers,
};
use crate::{
    api::names::ProjectName,
    controllers::{IsThere, send, with},
    io::{
        clients::ControlPlane,
        clock::{Now, ticks},
        store::{Listed, Lost, ObjectKey, Taking},
    },
    metrics::Metrics,
    plan::{
        Discovery, Hub, Kind, Object, Plane, Project,
        management::projects::losses::{self, End, Pause},
    },
};

/// How often to look whether a pause is over.
const LOOK: Duration = Duration::from_secs(2);

/// Where something is missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// On the hub: nothing is deleted anywhere.
    Hub,
    /// Where projects are discovered: no hub namespace is deleted.
    Discovery,
    /// In a project: nothing is deleted there, nor what the hub holds of it.
    Project(ProjectName),
}

/// Deletions that wait.
struct Waiting {
    since: Instant,
    /// What whoever confirms it has to say.
    token: String,
    /// What is missing, by kind.
    missing: BTreeMap<String, Missing>,
    told: bool,
}

/// What is missing of one kind.
struct Missing {
    known: usize,
    lost: BTreeSet<Lost>,
    is_there: IsThere,
    /// The server has been given another history: every single one of them is in doubt.
    proved: bool,
    /// The list that lacks them has not been taken over yet, so that the cache has them still.
    unsettled: bool,
}

impl Missing {
    fn is_many(&self) -> bool {
        losses::is_loss(self.proved, self.known, self.lost.len())
    }
}

impl Waiting {
    /// What is missing, in words; nothing when it is not many any more.
    fn look(&mut self) -> Option<String> {
        self.missing.retain(|_, missing| {
            if missing.unsettled {
                return true;
            }
            missing.lost.retain(|lost| !(missing.is_there)(lost));
            missing.is_many()
        });
        let of = |(kind, missing): (&String, &Missing)| format!("{} of {} {kind}", missing.lost.len(), missing.known);
        let all: Vec<String> = self.missing.iter().map(of).collect();
        let deployments = self.missing.iter().filter(|(kind, _)| *kind == "workloaddeployments");
        let example = deployments.chain(&self.missing).find_map(|(_, missing)| missing.lost.first())?;
        let example = &example.key;
        Some(format!("{} that were known are missing since {}, {example} among them", all.join(", "), self.token))
    }
}

/// A pause that is to be told.
struct ToTell {
    what: String,
    token: String,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Losses {
    waiting: Mutex<BTreeMap<Scope, Waiting>>,
    /// What was told and is over, which is to be told as well.
    over: Mutex<Vec<(Scope, End)>>,
    first: OnceLock<FirstLook>,
}

impl Losses {
    /// A complete list comes in: where it lacks many that were known, deletions wait from now on. What is missing since an
    /// earlier list as well is no reason to begin anew; anything else is a loss of its own, with its own time and its own
    /// confirmation.
    pub(crate) fn note(&self, scope: &Scope, kind: &str, listed: &Listed, taking: Taking, is_there: IsThere, now: Now) {
        let mut all = self.lock();
        if taking == Taking::Over {
            if let Some(missing) = all.get_mut(scope).and_then(|waiting| waiting.missing.get_mut(kind)) {
                missing.unsettled = false;
            }
            return;
        }
        if !losses::is_loss(listed.another_history, listed.known, listed.missing.len()) {
            return;
        }
        let token = format!("{:.0}", now.time);
        let begun = || Waiting { since: now.instant, token: token.clone(), missing: BTreeMap::new(), told: false };
        let waiting = all.entry(scope.clone()).or_insert_with(begun);
        let mut lost: BTreeSet<Lost> = listed.missing.iter().cloned().collect();
        let (mut known, mut proved) = (listed.known, listed.another_history);
        let before = waiting.missing.remove(kind);
        let is_known = before.as_ref().is_some_and(|before| lost.is_subset(&before.lost));
        if let Some(before) = before {
            // Those that have come back meanwhile are among the known of this list.
            known += before.lost.iter().filter(|lost| !is_there(lost)).count();
            proved |= before.proved;
            lost.extend(before.lost);
        }
        waiting.missing.insert(kind.to_owned(), Missing { known, lost, is_there, proved, unsettled: true });
        if !is_known {
            (waiting.since, waiting.token, waiting.told) = (now.instant, token, false);
        }
    }

    /// Ends what is over by itself; answers with where it did.
    fn end(&self, patience: Duration, now: Now) -> Vec<(Scope, End)> {
        let mut all = self.lock();
        let mut ended = Vec::new();
        all.retain(|scope, waiting| {
            let missing = waiting.look().is_some();
            let lasted = now.instant.saturating_duration_since(waiting.since);
            let end = losses::end(&Pause { missing, lasted, patience, confirmed: false });
            ended.extend(end.map(|end| (scope.clone(), end, waiting.told)));
            end.is_none()
        });
        drop(all);
        let told = ended.iter().filter(|(.., told)| *told).map(|(scope, end, _)| (scope.clone(), *end));
        self.lock_over().extend(told);
        ended.into_iter().map(|(scope, end, _)| (scope, end)).collect()
    }

    /// Where deletions wait, with what confirms it there.
    fn waiting(&self) -> Vec<(Scope, String)> {
        self.lock().iter().map(|(scope, waiting)| (scope.clone(), waiting.token.clone())).collect()
    }

    /// Somebody has confirmed it: over, unless something else has gone missing meanwhile.
    fn confirm(&self, scope: &Scope, token: &str) -> bool {
        let mut all = self.lock();
        let confirmed = all.get(scope).is_some_and(|waiting| waiting.token == token);
        if confirmed {
            all.remove(scope);
        }
        confirmed
    }

    /// What has not been told yet, and counts as told from now on.
    fn to_tell(&self, scope: &Scope) -> Option<ToTell> {
        let mut all = self.lock();
        let waiting = all.get_mut(scope).filter(|waiting| !waiting.told)?;
        let what = waiting.look()?;
        waiting.told = true;
        Some(ToTell { what, token: waiting.token.clone() })
    }

    /// Whether deletions wait there.
    pub(crate) fn holds(&self, scope: &Scope) -> bool {
        self.lock().contains_key(scope)
    }

    /// Whether deletions wait in this project, so that what is missing there may be back.
    pub(crate) fn holds_project(&self, project: &ProjectName) -> bool {
        self.compare(project);
        self.holds(&Scope::Hub) || self.holds(&Scope::Project(project.clone()))
    }

    /// Compares a project with what the hub holds of it, if that has not been done; answers whether it has by now.
    fn compare(&self, project: &ProjectName) -> bool {
        let Some(first) = self.first.get() else { return true };
        let note = |listed: &Listed| {
            let (scope, plural) = (Scope::Project(project.clone()), Kind::WorkloadDeployment.plural());
            for taking in [Taking::Begins, Taking::Over] {
                self.note(&scope, plural, listed, taking, first.is_there(project), Now::read());
            }
        };
        match first.look(project, note) {
            Compared::NotYet => false,
            Compared::NoProject | Compared::Done => true,
        }
    }

    /// A project is let go, and what is missing in it with it.
    pub(crate) fn forget(&self, project: &ProjectName) {
        if let Some(first) = self.first.get() {
            first.forget(project);
        }
        self.lock().remove(&Scope::Project(project.clone()));
    }

    /// Why this object of the hub is not deleted at present.
    fn holds_on_hub(&self, hub: &HubCache, object: &Object) -> bool {
        let is_namespace = object.kind == Kind::Namespace;
        let namespace = if is_namespace { &object.name } else { &object.namespace };
        let facts = hub.namespaces.get(&ObjectKey::new("", namespace));
        let project = facts.and_then(|facts| facts.upstream().map(|(project, _)| project));
        let waits = |project: &ProjectName| !self.compare(project) || self.holds(&Scope::Project(project.clone()));
        self.holds(&Scope::Hub)
            || (is_namespace && self.holds(&Scope::Discovery))
            || project.is_some_and(|project| waits(&project))
    }

    /// Has the hub's deletions wait where they must.
    pub(crate) fn guard_hub(self: &Arc<Self>, hub: &Arc<HubCache>, projects: &Arc<ProjectRegistry>) {
        let _ = self.first.set(FirstLook::new(hub, projects));
        let (losses, cache): (Arc<Self>, Weak<HubCache>) = (Arc::clone(self), Arc::downgrade(hub));
        hub.plane.hold_deletions(move |object| cache.upgrade().is_some_and(|hub| losses.holds_on_hub(&hub, object)));
    }

    /// Has a project's deletions wait where they must.
    pub(crate) fn guard_project(self: &Arc<Self>, plane: &ControlPlane<Project>, name: &ProjectName) {
        let (losses, name) = (Arc::clone(self), name.clone());
        plane.hold_deletions(move |_| losses.holds_project(&name));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Scope, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_over(&self) -> MutexGuard<'_, Vec<(Scope, End)>> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells of pauses, and ends them.
#[derive(Clone)]
pub(crate) struct LossWatch {
    pub(crate) losses: Arc<Losses>,
    pub(crate) hub: Arc<HubCache>,
    pub(crate) projects: Arc<ProjectRegistry>,
    pub(crate) triggers: Arc<Triggers>,
    /// How long deletions wait at most.
    pub(crate) patience: Duration,
    pub(crate) metrics: Metrics,
}

impl LossWatch {
    /// Ends pauses that are over by themselves, and counts them, until `stop`. Every replica watches, and so each does this: a
    /// pause that nobody ended would be an old one by the time at which the replica leads.
    pub(crate) async fn keep(self, stop: CancellationToken) {
        let mut ticks = ticks(LOOK);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let ended = self.losses.end(self.patience, Now::read());
            for (scope, end) in &ended {
                tracing::warn!(place = self.place(scope), why = end.as_str(), "deletions go on");
            }
            if !ended.is_empty() {
                self.triggers.everything_again();
            }
            self.count();
        }
    }

    /// Tells of pauses, and ends those that somebody has confirmed, until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let mut ticks = ticks(LOOK);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let over = std::mem::take(&mut *self.losses.lock_over());
            for (scope, end) in over {
                self.tell_end(&scope, end, Now::read()).await;
            }
            let waiting = self.losses.waiting();
            futures::future::join_all(waiting.iter().map(|(scope, token)| self.look(scope, token, Now::read()))).await;
        }
    }

    /// Tells of one pause that is new, and ends one that is confirmed.
    async fn look(&self, scope: &Scope, token: &str, now: Now) {
        if let Some(ToTell { what, token }) = self.losses.to_tell(scope) {
            let place = self.place(scope);
            tracing::warn!(place, what, "deletions wait");
            match scope {
                Scope::Project(name) => {
                    if let Some(project) = self.projects.get(name) {
                        let event = losses::paused(&what, &place, &token, self.patience, now.time);
                        let _ = send::<Project>(&project.plane, &event, &self.metrics).await; // a lost Event is no error
                    }
                }
                Scope::Hub | Scope::Discovery => {
                    let event = losses::paused(&what, &place, &token, self.patience, now.time);
                    let _ = send::<Hub>(&self.hub.plane, &event, &self.metrics).await;
                }
            }
        }
        if self.is_confirmed(scope, token).await && self.losses.confirm(scope, token) {
            tracing::warn!(place = self.place(scope), why = End::Confirmed.as_str(), "deletions go on");
            self.tell_end(scope, End::Confirmed, now).await;
            self.triggers.everything_again();
        }
    }

    /// Whether somebody has confirmed it, on the plane where it is told.
    async fn is_confirmed(&self, scope: &Scope, token: &str) -> bool {
        async fn on<P: Plane>(plane: &ControlPlane<P>, token: &str) -> bool {
            let found = plane.read_metadata(&Object::named::<Namespace>("", losses::TOLD_ON)).await;
            found.ok().flatten().is_some_and(|found| losses::is_confirmed(&found, token))
        }
        match scope {
            Scope::Hub | Scope::Discovery => on::<Hub>(&self.hub.plane, token).await,
            Scope::Project(name) => match self.projects.get(name) {
                Some(project) => on::<Project>(&project.plane, token).await,
                None => false,
            },
        }
    }

    async fn tell_end(&self, scope: &Scope, end: End, now: Now) {
        let place = self.place(scope);
        match scope {
            Scope::Project(name) => {
                if let Some(project) = self.projects.get(name) {
                    let event = losses::resumed(end, &place, now.time);
                    let _ = send::<Project>(&project.plane, &event, &self.metrics).await;
                }
            }
            Scope::Hub | Scope::Discovery => {
                let event = losses::resumed(end, &place, now.time);
                let _ = send::<Hub>(&self.hub.plane, &event, &self.metrics).await;
            }
        }
    }

    fn place(&self, scope: &Scope) -> String {
        match scope {
            Scope::Hub => "the hub and every project".to_owned(),
            Scope::Discovery => format!("{}: hub namespaces", self.hub.plane.name()),
            Scope::Project(name) => format!("project {name}, and of what the hub holds of it"),
        }
    }

    /// Keeps the gauge of how many control planes deletions wait for.
    fn count(&self) {
        let all = self.losses.lock();
        let of = |wanted: fn(&Scope) -> bool| all.keys().filter(|scope| wanted(scope)).count();
        self.metrics.deletions_paused(Hub::NAME, of(|scope| matches!(scope, Scope::Hub)));
        self.metrics.deletions_paused(Discovery::NAME, of(|scope| matches!(scope, Scope::Discovery)));
        self.metrics.deletions_paused(Project::NAME, of(|scope| matches!(scope, Scope::Project(_))));
    }
}

/// What a watch of this scope reports its lists to.
pub(crate) fn reporter(losses: &Arc<Losses>, scope: Scope) -> crate::controllers::OnListed {
    let losses = Arc::downgrade(losses);
    Arc::new(move |kind: &str, listed: &Listed, taking: Taking, is_there: IsThere| {
        with(&losses, |losses| losses.note(&scope, kind, listed, taking, is_there, Now::read()));
    })
}

#[cfg(test)]
#[path = "losses_tests.rs"]
mod tests;
