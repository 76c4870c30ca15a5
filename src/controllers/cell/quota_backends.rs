//! Quota in the control planes of the projects that have Instances on a cell.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use tokio_util::sync::CancellationToken;

use super::caches::Caches;
use crate::{
    api::{names::ProjectName, neighbours::ResourceClaim},
    controllers::{Watches, delta, with},
    io::{
        clients::{ControlPlane, Projects},
        health::Health,
        queue::{Key, Queue},
        store::{Change, ObjectKey, Store},
    },
    metrics::Metrics,
    plan::{
        self,
        cell::{
            claim::{self, Identity, Names},
            quota::{Cause, Trouble},
            triggers,
        },
    },
    timing::Timing,
};

/// Key of an Instance. Its project is the lane, so that an outage of one project's quota delays no other project.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QuotaKey {
    /// The project that provides the Instance's quota. `None` while it is unknown.
    pub(super) project: Option<ProjectName>,
    pub(super) instance: ObjectKey,
}

impl QuotaKey {
    fn new(project: &ProjectName, instance: ObjectKey) -> Self {
        Self { project: Some(project.clone()), instance }
    }
}

impl fmt::Display for QuotaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.project.as_ref().map_or("", ProjectName::as_str), self.instance)
    }
}

impl Key for QuotaKey {
    type Lane = Option<ProjectName>;

    fn lane(&self) -> Option<ProjectName> {
        self.project.clone()
    }
}

/// The quota backends of all projects with Instances on this cell.
pub(super) struct QuotaBackends {
    caches: Arc<Caches>,
    /// The names of the cell on its claims.
    names: Names,
    projects: Projects,
    backends: Mutex<BTreeMap<ProjectName, Arc<Backend>>>,
    pub(super) queue: Arc<Queue<QuotaKey>>,
    health: Health,
    metrics: Metrics,
    timing: Timing,
    stop: CancellationToken,
}

/// The quota backend of one project.
pub(super) struct Backend {
    pub(super) plane: ControlPlane<plan::Project>,
    /// Claims of all cells of this name. The watch cannot select by this cell's uid, because claims of the Go operator have none.
    pub(super) claims: Arc<Store<ResourceClaim>>,
    /// The time when its watch started.
    pub(super) since: Instant,
    /// True if a claim was left behind because the project does not exist any more.
    gone: AtomicBool,
    stop: CancellationToken,
}

impl Backend {
    /// Marks the project as deleted, after a claim was left behind. Its watch cannot report that.
    pub(super) fn give_up(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Returns the claim that this cell created for an Instance, in any namespace of the project.
    pub(super) fn claim_for(&self, cell: &Identity, instance: &ObjectKey) -> Option<Arc<ResourceClaim>> {
        let is_for = |claim: &ResourceClaim| {
            let of = claim::instance_of(claim).filter(|_| cell.has_made(claim));
            of.is_some_and(|(namespace, name)| *namespace == *instance.namespace && *name == *instance.name)
        };
        self.claims.values().into_iter().find(|claim| is_for(claim))
    }
}

impl QuotaBackends {
    pub(super) fn new(
        caches: Arc<Caches>,
        (names, projects): (Names, Projects),
        health: &Health,
        (metrics, timing): (&Metrics, Timing),
        stop: &CancellationToken,
    ) -> Self {
        Self {
            caches,
            names,
            projects,
            backends: Mutex::default(),
            queue: Arc::default(),
            health: health.clone(),
            metrics: metrics.clone(),
            timing,
            stop: stop.clone(),
        }
    }

    /// Returns this cell's identity on its claims. `None` until its uid is known.
    pub(super) fn identity(&self) -> Option<Identity> {
        Some(Identity { uid: self.caches.uid.get()?.clone(), names: self.names.clone() })
    }

    fn backends(&self) -> MutexGuard<'_, BTreeMap<ProjectName, Arc<Backend>>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the backend of a project if it exists.
    pub(super) fn known(&self, project: &ProjectName) -> Option<Arc<Backend>> {
        self.backends().get(project).cloned()
    }

    /// Returns the project's backend. The first call starts its watch, at `now`.
    pub(super) fn backend(self: &Arc<Self>, project: &ProjectName, now: Instant) -> Result<Arc<Backend>, Trouble> {
        let mut backends = self.backends();
        if let Some(backend) = backends.get(project) {
            return Ok(backend.clone());
        }
        let connection =
            self.projects.connect(project).map_err(|message| Trouble { cause: Cause::Misconfigured, message })?;
        let backend = Arc::new(Backend {
            plane: ControlPlane::new(&format!("project {project}"), connection),
            claims: Arc::new(Store::new(|_, _| Vec::new())),
            since: now,
            gone: AtomicBool::new(false),
            stop: self.stop.child_token(),
        });
        let (weak, of) = (Arc::downgrade(self), project.clone());
        backend.claims.listen(move |change| with(&weak, |quota| quota.on_claim(&of, change)));
        let (weak, of) = (Arc::downgrade(self), project.clone());
        let watches = Watches {
            plane: &backend.plane,
            health: &self.health,
            metrics: &self.metrics,
            timing: self.timing.watches(),
            stop: &backend.stop,
            tenant: true,
            on_fresh: Arc::new(move || with(&weak, |quota| quota.enqueue_project(&of))),
        };
        watches.written::<ResourceClaim, _>(&self.names.selector(), |claim| claim, &backend.claims);
        backends.insert(project.clone(), backend.clone());
        tracing::info!(%project, "quota engaged");
        Ok(backend)
    }

    /// Removes the backend of the project that a namespace mirrors, if it has no Instance on this cell and no claim of this cell.
    /// If the project of the namespace is unknown, all backends are checked, and their left-behind claims are released first.
    pub(super) fn retire_unused(&self, namespace: &str) {
        let facts = self.caches.namespaces.get(&ObjectKey::new("", namespace));
        if let Some((project, _)) = facts.as_ref().and_then(|facts| facts.upstream()) {
            return self.retire(&project);
        }
        // The project of the namespace is unknown. The namespace may have been deleted before its Instances.
        let all: Vec<ProjectName> = self.backends().keys().cloned().collect();
        for project in &all {
            self.enqueue_claims(project, |of| of == namespace);
            self.retire(project);
        }
    }

    fn retire(&self, project: &ProjectName) {
        let used = |namespace: &ObjectKey| !self.caches.instances_in(&namespace.name).is_empty();
        if self.caches.namespaces_of(project).iter().any(used) {
            return;
        }
        let Some(cell) = self.identity() else { return };
        let mut backends = self.backends();
        let is_done = |backend: &Arc<Backend>| {
            if backend.claims.is_live() {
                return !backend.claims.values().iter().any(|claim| cell.has_made(claim));
            }
            // If the control plane was deleted with its project, no watch will ever work, and no claim is left to release.
            backend.gone.load(Ordering::Relaxed)
        };
        if !backends.get(project).is_some_and(is_done) {
            return;
        }
        if let Some(backend) = backends.remove(project) {
            backend.stop.cancel();
            tracing::info!(%project, "quota disengaged");
        }
    }

    /// Returns the key of an Instance.
    pub(super) fn key(&self, instance: &ObjectKey) -> QuotaKey {
        let facts = self.caches.namespaces.get(&ObjectKey::new("", &instance.namespace));
        let project = facts.and_then(|facts| facts.upstream().map(|(project, _)| project));
        QuotaKey { project, instance: instance.clone() }
    }

    /// Enqueues an Instance.
    pub(super) fn enqueue(&self, instance: &ObjectKey) {
        self.queue.add(self.key(instance));
    }

    /// Enqueues the Instances of a project after its quota answers again.
    fn enqueue_project(&self, project: &ProjectName) {
        if let Some(backend) = self.known(project) {
            backend.gone.store(false, Ordering::Relaxed); // the project exists after all
        }
        self.queue.retry_now(&Some(project.clone()));
        for namespace in self.caches.namespaces_of(project) {
            for instance in self.caches.instances_in(&namespace.name) {
                self.queue.add(QuotaKey::new(project, instance));
            }
            self.enqueue_claims_for(&namespace.name);
        }
        self.enqueue_claims(project, |of| !self.caches.namespaces.contains(&ObjectKey::new("", of)));
        self.retire(project);
    }

    /// Enqueues each claim for an Instance of this namespace. The Instance may no longer exist.
    pub(super) fn enqueue_claims_for(&self, namespace: &str) {
        let facts = self.caches.namespaces.get(&ObjectKey::new("", namespace));
        let Some((project, _)) = facts.as_ref().and_then(|facts| facts.upstream()) else { return };
        self.enqueue_claims(&project, |of| of == namespace);
    }

    /// Enqueues each claim in a project that may be this cell's, if its Instance is or was in one of these namespaces.
    fn enqueue_claims(&self, project: &ProjectName, namespaces: impl Fn(&str) -> bool) {
        let Some(backend) = self.known(project) else { return };
        let cell = self.identity();
        let claims = backend.claims.values();
        let claims = claims.iter().filter(|claim| cell.as_ref().is_none_or(|cell| cell.concerns(claim)));
        for (namespace, name) in claims.filter_map(|claim| claim::instance_of(claim)).filter(|(of, _)| namespaces(of)) {
            self.queue.add(QuotaKey::new(project, ObjectKey::new(&namespace, &name)));
        }
    }

    /// Enqueues the Instance of a changed claim.
    fn on_claim(&self, project: &ProjectName, change: &Change<'_, ResourceClaim>) {
        let concerned = triggers::after_quota_claim(self.identity().as_ref(), &delta(change));
        if let Some((namespace, name)) = concerned {
            self.queue.add(QuotaKey::new(project, ObjectKey::new(&namespace, &name)));
            if change.new.is_none() {
                self.retire(project);
            }
        }
    }
}
