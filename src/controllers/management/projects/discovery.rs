//! Projects come and go: each that is ready is engaged, and let go when it is gone.

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

/// First wait before a project that could not be connected is tried again.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Longest wait between two attempts.
const RETRY_LONGEST: Duration = Duration::from_mins(1);

/// Watches projects and engages them, over `projects`, until `stop`.
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
    management.projects.discover(Discovered { plane: plane.clone(), kind, projects: store.clone() });
    tokio::spawn(identify(Arc::downgrade(&management.projects), plane.clone(), stop.clone()));
    let watches = Watches {
        plane: &plane,
        health,
        metrics: &management.metrics,
        timing: management.timing,
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

/// Reads which control plane this is, until it answers: from a namespace that every one has from its first to its last day.
/// Until then no hub namespace is said to be kept from here, and none is judged that is kept from anywhere.
async fn identify(projects: Weak<ProjectRegistry>, plane: ControlPlane<Discovery>, stop: CancellationToken) {
    let namespace = Object::named::<Namespace>("", "kube-system");
    let mut failures = 0;
    loop {
        let problem = match plane.read_metadata(&namespace).await {
            Ok(Some(found)) => {
                return with(&projects, |projects| projects.identify(found.uid.unwrap_or_default()));
            }
            Ok(None) => "there is no such namespace".to_owned(),
            Err(error) => error.to_string(),
        };
        if failures == 0 {
            tracing::warn!(
                error = problem,
                "nobody knows which management plane this is: hub namespaces have no keeper"
            );
        }
        failures += 1;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(backoff(failures, RETRY_FIRST, RETRY_LONGEST)) => {}
        }
    }
}

/// Engages projects, and lets them go.
struct Engagements {
    watches: Weak<ManagementWatches>,
    projects: Projects,
    health: Health,
    stop: CancellationToken,
    /// Projects that cannot be connected and are tried again.
    retried: Mutex<BTreeSet<ProjectName>>,
}

impl Engagements {
    fn on_project(self: &Arc<Self>, change: &Change<'_, ProjectFacts>) {
        self.look(&ProjectName::new(&change.key.name), change.new.map(AsRef::as_ref));
    }

    /// Does what a project's state asks for. One that cannot be connected is tried again until it can, or is gone.
    fn look(self: &Arc<Self>, name: &ProjectName, facts: Option<&ProjectFacts>) {
        with(&self.watches, |watches| match decide(&watches.projects, name, facts) {
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

    /// Tries again, with growing patience, and has `/readyz` say why until then.
    fn retry(self: &Arc<Self>, name: &ProjectName, mut problem: String) {
        if !self.retried().insert(name.clone()) {
            return; // at it already
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
                match this.again(&name) {
                    Some(Err(still)) => problem = still,
                    Some(Ok(())) | None => break,
                }
            }
            this.retried().remove(&name);
        });
    }

    /// Another attempt; nothing when the project is engaged, or is not to be.
    fn again(&self, name: &ProjectName) -> Option<Result<(), String>> {
        let watches = self.watches.upgrade()?;
        let facts = watches.projects.discovered()?.projects.get(&ObjectKey::new("", name.as_str()));
        let uid = facts.as_deref().map(|facts| facts.uid.clone()).unwrap_or_default();
        let engage = decide(&watches.projects, name, facts.as_deref()) == Decision::Engage;
        engage.then(|| self.engage(&watches, name, &uid))
    }

    fn retried(&self) -> MutexGuard<'_, BTreeSet<ProjectName>> {
        self.retried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of a project that says this.
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

    /// Found by reading: it was logged once, and not tried again before its Project changed.
    #[tokio::test(start_paused = true)]
    async fn a_project_that_cannot_be_connected_is_reported_and_tried_until_it_is_gone() {
        let config = || kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let (health, stop) = (Health::default(), CancellationToken::new());
        let hub = Connection::new(config()).unwrap();
        let watches =
            ManagementControllers::start(hub, Options::of_tests(), &health, &Metrics::default(), &stop).watches;
        let projects = Arc::new(Store::new(|_, _: &ProjectFacts| Vec::<String>::new()));
        let plane = ControlPlane::new("discovery", Connection::new(config()).unwrap());
        watches.projects.discover(Discovered { plane, kind: Kind::Project, projects: projects.clone() });
        let engagements = Arc::new(Engagements {
            watches: Arc::downgrade(&watches),
            projects: Projects::new(config()),
            health: health.clone(),
            stop: stop.clone(),
            retried: Mutex::default(),
        });
        let listener = engagements.clone();
        projects.listen(move |change| listener.on_project(change));
        // No address can carry this name.
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
        assert!(reported() && !watches.projects.is_engaged(&ProjectName::new("no..name")));
        projects.forget(&ObjectKey::new("", "no..name"), "u");
        tokio::time::sleep(RETRY_LONGEST).await;
        assert!(!reported() && engagements.retried().is_empty(), "{:?}", health.noted());
        stop.cancel();
    }
}
