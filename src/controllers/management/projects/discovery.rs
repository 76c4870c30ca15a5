//! Discovery of projects: engages each project that is ready, and disengages it when it is gone.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use k8s_openapi::api::core::v1::Namespace;
use tokio_util::sync::CancellationToken;

use crate::controllers::management::{
    projects::registry::{Discovered, ProjectRegistry},
    wiring::watches::ManagementWatches,
};
use crate::{
    api::{
        names::ProjectName,
        neighbours::{Project, ProjectControlPlane},
    },
    controllers::{Watches, with},
    io::{
        clients::{Connection, ControlPlane, Projects},
        health::Health,
        queue::backoff,
        store::{Change, ObjectKey, Store},
    },
    plan::{
        Discovery, Kind, Object,
        management::projects::engagement::{self, Decision, Observed, ProjectFacts},
    },
};

/// First back-off after a failed connection to a project.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Maximum back-off between two attempts.
const RETRY_LONGEST: Duration = Duration::from_mins(1);

/// Watches projects until `stop`, and engages them over the connections of `projects`.
pub(crate) fn start(
    management: &Arc<ManagementWatches>,
    discovery: Connection,
    projects: Projects,
    internal: bool,
    health: &Health,
    stop: &CancellationToken,
) {
    let store: Arc<Store<ProjectFacts>> = Arc::new(Store::new(|_, _| Vec::new()));
    let engagements = Arc::new(Engagements {
        watches: Arc::downgrade(management),
        projects,
        health: health.clone(),
        stop: stop.clone(),
        retried: Mutex::default(),
    });
    store.listen(move |change| engagements.on_project(change));
    let plane = ControlPlane::new("discovery", discovery);
    let kind = if internal { Kind::ProjectControlPlane } else { Kind::Project };
    management.ctx.projects.discover(Discovered { plane: plane.clone(), kind, projects: store.clone() });
    tokio::spawn(identify(Arc::downgrade(&management.ctx.projects), plane.clone(), stop.clone()));
    let watches = Watches {
        plane: &plane,
        health,
        metrics: &management.ctx.metrics,
        timing: management.ctx.options.timing.watches(),
        stop,
        tenant: false,
        on_fresh: Arc::new(|| ()),
    };
    if internal {
        let keep = |p: ProjectControlPlane| ProjectFacts {
            uid: p.metadata.uid.clone().unwrap_or_default(),
            ready: p.is_ready(),
            terminating: p.metadata.deletion_timestamp.is_some(),
        };
        watches.objects::<ProjectControlPlane, _>("", keep, &store);
    } else {
        let keep = |p: Project| ProjectFacts {
            uid: p.metadata.uid.clone().unwrap_or_default(),
            ready: p.is_ready(),
            terminating: p.metadata.deletion_timestamp.is_some(),
        };
        watches.objects::<Project, _>("", keep, &store);
    }
}

/// Reads the identity of the management control plane, with retries until it answers. The identity is the uid of a namespace that
/// every control plane has permanently. Until it is known, no hub namespace gets a keeper, and none that has a keeper is judged.
async fn identify(projects: Weak<ProjectRegistry>, plane: ControlPlane<Discovery>, stop: CancellationToken) {
    let namespace = Object::named::<Namespace>("", "kube-system");
    let mut failures = 0;
    loop {
        let problem = match plane.read_metadata(&namespace).await {
            Ok(Some(found)) => {
                return with(&projects, |projects| projects.identify(found.uid.unwrap_or_default()));
            }
            Ok(None) => "the namespace does not exist".to_owned(),
            Err(error) => error.to_string(),
        };
        if failures == 0 {
            tracing::warn!(
                error = problem,
                "the identity of this management plane is unknown: new hub namespaces get no keeper"
            );
        }
        failures += 1;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(backoff(failures, RETRY_FIRST, RETRY_LONGEST)) => {}
        }
    }
}

/// Engages and disengages projects.
struct Engagements {
    watches: Weak<ManagementWatches>,
    projects: Projects,
    health: Health,
    stop: CancellationToken,
    /// Projects with a failed connection that is being retried.
    retried: Mutex<BTreeSet<ProjectName>>,
}

impl Engagements {
    fn on_project(self: &Arc<Self>, change: &Change<'_, ProjectFacts>) {
        self.reconcile(&ProjectName::new(&change.key.name), change.new.map(AsRef::as_ref));
    }

    /// Engages or disengages a project by its state. A failed connection is retried until it works or the project is gone.
    fn reconcile(self: &Arc<Self>, name: &ProjectName, facts: Option<&ProjectFacts>) {
        with(&self.watches, |watches| match decide(&watches.ctx.projects, name, facts) {
            Decision::Disengage => watches.disengage(name),
            decision @ (Decision::Engage | Decision::Replace) => {
                if decision == Decision::Replace {
                    watches.disengage(name);
                }
                let uid = facts.map(|facts| &*facts.uid).unwrap_or_default();
                if let Err(problem) = self.engage(watches, name, uid) {
                    self.retry(name, problem);
                }
            }
            Decision::Stay => {}
        });
    }

    fn engage(&self, watches: &ManagementWatches, name: &ProjectName, uid: &str) -> Result<(), String> {
        let connection = self.projects.connect(name)?;
        let plane = ControlPlane::new(&format!("project {name}"), connection);
        watches.engage(name, plane, Some(uid));
        Ok(())
    }

    /// Retries with back-off. Until it succeeds, `/readyz` reports the problem.
    fn retry(self: &Arc<Self>, name: &ProjectName, mut problem: String) {
        if !self.retried().insert(name.clone()) {
            return; // a retry runs already
        }
        let (this, name) = (self.clone(), name.clone());
        tokio::spawn(async move {
            let entry = this.health.tenant_watch(format!("connection to project {name}"));
            let mut failures = 0;
            loop {
                if entry.failed(&problem) {
                    tracing::error!(project = %name, error = problem, "project cannot be engaged");
                }
                failures += 1;
                tokio::select! {
                    () = this.stop.cancelled() => break,
                    () = tokio::time::sleep(backoff(failures, RETRY_FIRST, RETRY_LONGEST)) => {}
                }
                entry.trying();
                match this.attempt(&name) {
                    Some(Err(still)) => problem = still,
                    Some(Ok(())) | None => break,
                }
            }
            this.retried().remove(&name);
        });
    }

    /// Makes another attempt. `None` if the project is engaged, or is not to be engaged.
    fn attempt(&self, name: &ProjectName) -> Option<Result<(), String>> {
        let watches = self.watches.upgrade()?;
        let facts = watches.ctx.projects.discovered()?.projects.get(&ObjectKey::new("", name.as_str()));
        let uid = facts.as_deref().map(|facts| facts.uid.clone()).unwrap_or_default();
        let engage = decide(&watches.ctx.projects, name, facts.as_deref()) == Decision::Engage;
        engage.then(|| self.engage(&watches, name, &uid))
    }

    fn retried(&self) -> MutexGuard<'_, BTreeSet<ProjectName>> {
        self.retried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides about a project with these facts.
fn decide(projects: &ProjectRegistry, name: &ProjectName, facts: Option<&ProjectFacts>) -> Decision {
    let key = ObjectKey::new("", name.as_str());
    let is_there = projects.discovered().is_some_and(|discovered| discovered.projects.contains(&key));
    let engaged = projects.get(name).map(|project| project.uid.clone());
    engagement::decide(&Observed { facts: facts.cloned(), is_there, engaged })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        controllers::management::{ManagementControllers, Options},
        io::store::Incoming,
        metrics::Metrics,
    };

    /// A failed connection was logged once, and not retried before the Project changed.
    #[tokio::test(start_paused = true)]
    async fn project_without_connection_is_reported_and_retried_until_it_is_gone() {
        let config = || kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let (health, stop) = (Health::default(), CancellationToken::new());
        let hub = Connection::new(config()).unwrap();
        let watches =
            ManagementControllers::start(hub, Options::of_tests(), &health, &Metrics::default(), &stop).watches;
        let projects = Arc::new(Store::new(|_, _: &ProjectFacts| Vec::<String>::new()));
        let plane = ControlPlane::new("discovery", Connection::new(config()).unwrap());
        watches.ctx.projects.discover(Discovered { plane, kind: Kind::Project, projects: projects.clone() });
        let engagements = Arc::new(Engagements {
            watches: Arc::downgrade(&watches),
            projects: Projects::new(config()),
            health: health.clone(),
            stop: stop.clone(),
            retried: Mutex::default(),
        });
        let listener = engagements.clone();
        projects.listen(move |change| listener.on_project(change));
        // No address can contain this name.
        let project = |ready| Incoming {
            key: ObjectKey::new("", "no..name"),
            uid: "u".into(),
            version: 1 + u64::from(ready),
            value: Some(Arc::new(ProjectFacts { uid: "u".into(), ready, terminating: false })),
        };
        projects.observe(project(false));
        projects.observe(project(true));
        let reported = || health.noted().iter().any(|line| line.contains("connection to project no..name"));
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(reported() && !watches.ctx.projects.is_engaged(&ProjectName::new("no..name")));
        projects.forget(&ObjectKey::new("", "no..name"), "u");
        tokio::time::sleep(RETRY_LONGEST).await;
        assert!(!reported() && engagements.retried().is_empty(), "{:?}", health.noted());
        stop.cancel();
    }
}
