//! Where many known objects are missing: deletions wait there, which is told, counted, and ends.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Namespace;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{hub_cache::HubCache, registry::ProjectRegistry, triggers::Triggers};
use crate::{
    api::names::ProjectName,
    controllers::{IsThere, send, with},
    io::{
        clients::ControlPlane,
        clock::Now,
        store::{Listed, ObjectKey},
    },
    metrics::Metrics,
    plan::{
        Discovery, Hub, Kind, Object, Plane, Project,
        management::losses::{self, End, Pause},
    },
};

/// How often to look whether a pause is over.
const LOOK: Duration = Duration::from_secs(2);

/// Where something is missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
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
    keys: Vec<ObjectKey>,
    is_there: IsThere,
}

impl Waiting {
    /// What is missing, in words; nothing when it is not many any more.
    fn look(&mut self) -> Option<String> {
        self.missing.retain(|_, missing| {
            missing.keys.retain(|key| !(missing.is_there)(key));
            losses::is_many(missing.known, missing.keys.len())
        });
        let of = |(kind, missing): (&String, &Missing)| format!("{} of {} {kind}", missing.keys.len(), missing.known);
        let all: Vec<String> = self.missing.iter().map(of).collect();
        (!all.is_empty()).then(|| format!("{} that were known are missing since {}", all.join(", "), self.token))
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Losses(Mutex<BTreeMap<Scope, Waiting>>);

impl Losses {
    /// A complete list has come in: where it lacks many that were known, deletions wait from now on.
    pub(super) fn note(&self, scope: &Scope, kind: &str, listed: &Listed, is_there: IsThere, now: Now) {
        if !losses::is_many(listed.known, listed.missing.len()) {
            return;
        }
        let mut all = self.lock();
        let waiting = all.entry(scope.clone()).or_insert_with(|| Waiting {
            since: now.instant,
            token: format!("{:.0}", now.time),
            missing: BTreeMap::new(),
            told: false,
        });
        let missing = Missing { known: listed.known, keys: listed.missing.clone(), is_there };
        waiting.missing.insert(kind.to_owned(), missing);
    }

    /// Whether deletions wait there.
    pub(super) fn holds(&self, scope: &Scope) -> bool {
        self.lock().contains_key(scope)
    }

    /// A project is let go, and what is missing in it with it.
    pub(super) fn forget(&self, project: &ProjectName) {
        self.lock().remove(&Scope::Project(project.clone()));
    }

    /// Why this object of the hub is not deleted at present.
    fn holds_on_hub(&self, hub: &HubCache, object: &Object) -> bool {
        let is_namespace = object.kind == Kind::Namespace;
        let namespace = if is_namespace { &object.name } else { &object.namespace };
        let facts = hub.namespaces.get(&ObjectKey::new("", namespace));
        let project = facts.and_then(|facts| facts.upstream().map(|(project, _)| Scope::Project(project)));
        self.holds(&Scope::Hub)
            || (is_namespace && self.holds(&Scope::Discovery))
            || project.is_some_and(|project| self.holds(&project))
    }

    /// Has the hub's deletions wait where they must.
    pub(super) fn guard_hub(self: &Arc<Self>, hub: &Arc<HubCache>) {
        let (losses, cache): (Arc<Self>, Weak<HubCache>) = (Arc::clone(self), Arc::downgrade(hub));
        hub.plane.hold_deletions(move |object| cache.upgrade().is_some_and(|hub| losses.holds_on_hub(&hub, object)));
    }

    /// Has a project's deletions wait where they must.
    pub(super) fn guard_project(self: &Arc<Self>, plane: &ControlPlane<Project>, name: &ProjectName) {
        let (losses, scope) = (Arc::clone(self), Scope::Project(name.clone()));
        plane.hold_deletions(move |_| losses.holds(&Scope::Hub) || losses.holds(&scope));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Scope, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells of pauses, and ends them.
pub(super) struct LossWatch {
    pub(super) losses: Arc<Losses>,
    pub(super) hub: Arc<HubCache>,
    pub(super) projects: Arc<ProjectRegistry>,
    pub(super) triggers: Arc<Triggers>,
    /// How long deletions wait at most.
    pub(super) patience: Duration,
    pub(super) metrics: Metrics,
}

impl LossWatch {
    /// Looks at them until `stop`.
    pub(super) async fn run(&self, stop: &CancellationToken) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let scopes: Vec<Scope> = self.losses.lock().keys().cloned().collect();
            for scope in &scopes {
                self.look(scope, Now::read()).await;
            }
            if !scopes.is_empty() {
                self.count();
            }
        }
    }

    /// Tells of one pause that is new, and ends one that is over.
    async fn look(&self, scope: &Scope, now: Now) {
        let Some((what, token, lasted, told)) = self.losses.lock().get_mut(scope).map(|waiting| {
            let what = waiting.look();
            let lasted = now.instant.saturating_duration_since(waiting.since);
            (what, waiting.token.clone(), lasted, std::mem::replace(&mut waiting.told, true))
        }) else {
            return;
        };
        if let Some(what) = what.as_ref().filter(|_| !told) {
            let place = self.place(scope);
            tracing::warn!(place, what, "deletions wait");
            match scope {
                Scope::Project(name) => {
                    if let Some(project) = self.projects.get(name) {
                        let event = losses::paused(what, &place, &token, self.patience, now.time);
                        let _ = send::<Project>(&project.plane, &event, &self.metrics).await; // a lost Event is no error
                    }
                }
                Scope::Hub | Scope::Discovery => {
                    let event = losses::paused(what, &place, &token, self.patience, now.time);
                    let _ = send::<Hub>(&self.hub.plane, &event, &self.metrics).await;
                }
            }
        }
        let confirmed = self.is_confirmed(scope, &token).await;
        let pause = Pause { missing: what.is_some(), lasted, patience: self.patience, confirmed };
        if let Some(end) = losses::end(&pause) {
            self.resume(scope, end, told, now).await;
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

    async fn resume(&self, scope: &Scope, end: End, told: bool, now: Now) {
        self.losses.lock().remove(scope);
        let place = self.place(scope);
        tracing::warn!(place, why = end.as_str(), "deletions go on");
        if told {
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
        self.triggers.everything_again();
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
pub(super) fn reporter(losses: &Arc<Losses>, scope: Scope) -> crate::controllers::OnListed {
    let losses = Arc::downgrade(losses);
    Arc::new(move |kind: &str, listed: &Listed, is_there: IsThere| {
        with(&losses, |losses| losses.note(&scope, kind, listed, is_there, Now::read()));
    })
}
