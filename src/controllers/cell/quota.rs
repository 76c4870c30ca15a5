//! Instances -> ResourceClaims in their projects' control planes, and what came of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant as Clock},
};

use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

use super::State;
use crate::{
    api::{
        compute::Instance,
        meta::label,
        names::{self, ProjectName},
        neighbours::ResourceClaim,
    },
    controllers::{End, Reconciler, Stopped, Watches, carry_out, send, with},
    io::{
        Class, Error,
        clients::{ControlPlane, Projects},
        clock::Now,
        health::Health,
        queue::{Key, Queue},
        store::{Change, Incoming, ObjectKey, Store},
    },
    plan::{
        self, Next, Step,
        cell::{
            claim::{Holder, Identity},
            quota::{self, Address, Cause, Claim, Decision, Observed, Trouble},
        },
    },
};

/// How long a fresh watch may take to fill before claims are read one by one.
const PROJECT_WATCH_PATIENCE: Duration = Duration::from_secs(2);
/// Lane of Instances whose project is not known.
const UNRESOLVED_LANE: &str = "";

/// The quota of every project that has Instances on this cell.
pub(super) struct Quota {
    /// `discovery.clusterName`.
    cluster: String,
    projects: Projects,
    backends: Mutex<BTreeMap<ProjectName, Arc<Backend>>>,
    pub(super) queue: Arc<Queue>,
    health: Health,
    stop: CancellationToken,
}

/// One project's control plane, as far as quota goes.
struct Backend {
    plane: ControlPlane<plan::Project>,
    /// Claims of every cell of this name; the watch cannot ask for those of this one, as Go's carry no uid.
    claims: Arc<Store<ResourceClaim>>,
    since: Clock,
    stop: CancellationToken,
}

impl Quota {
    pub(super) fn new(cluster: String, projects: Projects, health: &Health, stop: &CancellationToken) -> Self {
        Self {
            cluster,
            projects,
            backends: Mutex::default(),
            queue: Arc::default(),
            health: health.clone(),
            stop: stop.clone(),
        }
    }

    /// This cell on its claims; nothing until its uid is known.
    fn identity<'a>(&'a self, state: &'a State) -> Option<Identity<'a>> {
        Some(Identity { uid: state.uid.get()?, cluster: &self.cluster })
    }

    fn backends(&self) -> MutexGuard<'_, BTreeMap<ProjectName, Arc<Backend>>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The project's backend; the first call starts its watch.
    fn backend(&self, state: &Arc<State>, project: &ProjectName) -> Result<Arc<Backend>, Trouble> {
        let mut backends = self.backends();
        if let Some(backend) = backends.get(project) {
            return Ok(backend.clone());
        }
        let connection =
            self.projects.connect(project).map_err(|message| Trouble { cause: Cause::Misconfigured, message })?;
        let backend = Arc::new(Backend {
            plane: ControlPlane::new(&format!("project {project}"), connection),
            claims: Arc::new(Store::new(|_, _| Vec::new())),
            since: Clock::now(),
            stop: self.stop.child_token(),
        });
        let weak = Arc::downgrade(state);
        let lane = project.clone();
        backend.claims.listen(move |change| {
            with(&weak, |state| wake_claimant(state, &lane, change));
        });
        let (weak, of) = (Arc::downgrade(state), project.clone());
        let watches = Watches {
            plane: &backend.plane,
            health: &self.health,
            metrics: &state.metrics,
            timing: state.timing,
            stop: &backend.stop,
            tenant: true,
            on_fresh: Arc::new(move || with(&weak, |state| state.quota_again(&of))),
        };
        let selector = format!("{}={}", label::SOURCE_CLUSTER, self.cluster);
        watches.written::<ResourceClaim, _>(&selector, |claim| claim, &backend.claims);
        backends.insert(project.clone(), backend.clone());
        tracing::info!(%project, "quota engaged");
        Ok(backend)
    }

    /// Lets a project go that has no Instance here any more.
    pub(super) fn retire(&self, project: &ProjectName) {
        if let Some(backend) = self.backends().remove(project) {
            backend.stop.cancel();
            tracing::info!(%project, "quota disengaged");
        }
    }
}

/// Wakes the Instance that a claim is for.
fn wake_claimant(state: &State, lane: &ProjectName, change: &Change<'_, ResourceClaim>) {
    let (Some(quota), Some(claim)) = (&state.quota, change.any()) else { return };
    if quota.identity(state).is_some_and(|cell| !cell.concerns(claim)) {
        return;
    }
    let namespace = claim.labels().get(label::INSTANCE_NAMESPACE);
    let name = change.key.name.strip_prefix("instance-");
    if let (Some(namespace), Some(name)) = (namespace, name) {
        quota.queue.add(Key::new(lane.as_str(), namespace, name));
    }
}

/// The key of an Instance's quota: its project is the lane, so that one whose quota is away delays no other.
pub(super) fn key(state: &State, instance: &ObjectKey) -> Key {
    let facts = state.namespaces.get(&ObjectKey::new("", &instance.namespace));
    let project = facts.and_then(|facts| facts.upstream().map(|(project, _)| project));
    let lane = project.as_ref().map_or(UNRESOLVED_LANE, ProjectName::as_str);
    Key::new(lane, &instance.namespace, &instance.name)
}

/// See the module.
pub(super) struct QuotaController(pub(super) Arc<State>);

impl Reconciler for QuotaController {
    const NAME: &'static str = "quota";

    async fn reconcile(&self, key: &Key, now: Now) -> Result<Next, Error> {
        let state = &self.0;
        let Some(quota) = &state.quota else { return Ok(Next::Await) };
        let Some(cell) = quota.identity(state) else { return Ok(Next::Await) }; // learning it brings every key back
        if !state.is_synced() || state.instances.has_unreadable(&key.namespace) {
            return Ok(Next::Await); // a fresh cache brings every key back
        }
        // One lane has the Instance: two would make its claim side by side.
        let lane = self::key(state, &ObjectKey::new(&key.namespace, &key.name));
        if lane != *key {
            quota.queue.add(lane);
            return Ok(Next::Await);
        }
        let facts = state.namespaces.get(&ObjectKey::new("", &key.namespace));
        let address = Address::from_labels(&facts.map(|facts| facts.labels.clone()).unwrap_or_default());
        let Some(instance) = state.instances.get(&ObjectKey::new(&key.namespace, &key.name)) else {
            return self.reclaim(quota, cell, key, address.ok()).await;
        };
        // One that goes may have lost its owner already, and still has a claim to let go of.
        if instance.metadata.deletion_timestamp.is_none() && state.owner(&instance).is_none() {
            return Ok(Next::Await);
        }
        let look = match &address {
            Err(why) => Err(Trouble { cause: Cause::Unresolvable, message: why.clone() }),
            Ok(address) => quota.backend(state, &address.project).map(|backend| (address, backend)),
        };
        let (address, backend) = match look {
            Ok(found) => found,
            Err(trouble) => return self.report(cell, &instance, trouble, now).await,
        };
        if !backend.claims.is_synced() && backend.since.elapsed() < PROJECT_WATCH_PATIENCE {
            return Ok(Next::After(PROJECT_WATCH_PATIENCE / 4));
        }
        self.work(cell, &instance, address, &backend, now).await
    }
}

impl QuotaController {
    /// Judges and acts; whatever the backend does not answer becomes the Instance's reason.
    async fn work(
        &self,
        cell: Identity<'_>,
        instance: &Instance,
        address: &Address,
        backend: &Backend,
        now: Now,
    ) -> Result<Next, Error> {
        let name = names::resource_claim_name(&instance.name_any());
        let cached = || backend.claims.get(&ObjectKey::new(&address.namespace, &name));
        // While the watch works, it knows. While it does not, each look is a call of its own.
        let mut watched = backend.claims.is_live();
        let mut seen = if watched { Ok(cached()) } else { self.read(cell, instance, backend, address).await };
        let mut retried = false;
        loop {
            let (claim, failed) = match seen {
                Ok(Some(claim)) => (Claim::Present(claim), None),
                Ok(None) => (Claim::Absent, None),
                Err(error) => (Claim::Unknown(trouble(&error)), Some(error)),
            };
            let observed = Observed { instance, address: Some(address), claim, watched, cell };
            let decision = self.decide(&observed, now);
            let done = carry_out(&self.0.plane, &backend.plane, &decision.plan, &self.0.metrics).await;
            match (done, failed) {
                // Reported; and the next attempt waits as failures do, longer and longer.
                (Ok(Next::After(_)), Some(error)) => return Err(error),
                (Err(Stopped { at: End::Remote, error }), None) if !retried => {
                    retried = true;
                    seen = if error.class() == Class::Conflict {
                        // Somebody's claim of this name, that our watch does not show or has not shown yet.
                        watched = false;
                        self.read(cell, instance, backend, address).await
                    } else {
                        Err(error)
                    };
                }
                (done, _) => return Ok(done?),
            }
        }
    }

    /// A live read of a claim. The cache takes it over when the watch has it under its selector: whoever looks next must
    /// not think that it is absent, and make it once more.
    async fn read(
        &self,
        cell: Identity<'_>,
        instance: &Instance,
        backend: &Backend,
        address: &Address,
    ) -> Result<Option<Arc<ResourceClaim>>, Error> {
        let name = names::resource_claim_name(&instance.name_any());
        let found = backend.plane.read::<ResourceClaim>(&address.namespace, &name).await?;
        let Some(claim) = found else { return Ok(None) };
        let namespace = instance.namespace().unwrap_or_default();
        let shown = claim.labels().get(label::SOURCE_CLUSTER).is_some_and(|name| name == cell.cluster);
        if shown && cell.holder(&claim, &namespace) != Holder::Other {
            backend.claims.wrote(Incoming::new(&claim, Some(claim.clone())));
        }
        Ok(Some(Arc::new(claim)))
    }

    /// Plans, and counts what the plan is to be counted for.
    fn decide(&self, observed: &Observed<'_>, now: Now) -> Decision {
        let decision = quota::plan(observed, now.time);
        if let Some(reason) = decision.failure {
            self.0.metrics.quota_failed(reason);
        }
        if decision.orphans {
            self.0.metrics.quota_orphaned();
        }
        decision
    }

    /// Says on the Instance why quota cannot even be asked.
    async fn report(&self, cell: Identity<'_>, instance: &Instance, trouble: Trouble, now: Now) -> Result<Next, Error> {
        let observed = Observed { instance, address: None, claim: Claim::Unknown(trouble), watched: false, cell };
        let decision = self.decide(&observed, now);
        let next = decision.plan.next;
        for step in decision.plan.steps {
            if let Step::Local(write) = step {
                send(&self.0.plane, &write, &self.0.metrics).await?;
            }
        }
        // The namespace's labels bring us back, and patience that ends.
        Ok(next)
    }

    /// A claim whose Instance is gone, left behind when its backend was away for too long.
    async fn reclaim(
        &self,
        quota: &Quota,
        cell: Identity<'_>,
        key: &Key,
        address: Option<Address>,
    ) -> Result<Next, Error> {
        let Some(address) = address else { return Ok(Next::Await) };
        let Some(backend) = quota.backends().get(&address.project).cloned() else { return Ok(Next::Await) };
        let name = names::resource_claim_name(&key.name);
        let Some(claim) = backend.claims.get(&ObjectKey::new(&address.namespace, &name)) else {
            return Ok(Next::Await);
        };
        let plan = quota::reclaim(&claim, cell, &key.namespace, &key.name);
        Ok(carry_out(&self.0.plane, &backend.plane, &plan, &self.0.metrics).await?)
    }
}

/// What a failed call means for the Instance that waits.
fn trouble(error: &Error) -> Trouble {
    let cause = match (error.missing(), error.class()) {
        (Some("projects"), _) => Cause::NoProject,
        (Some("namespaces"), _) => Cause::NoNamespace,
        (Some(_), _) | (None, Class::Forbidden | Class::Invalid) => Cause::Misconfigured,
        _ => Cause::Unavailable,
    };
    Trouble { cause, message: error.to_string() }
}
