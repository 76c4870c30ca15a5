use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::{annotation, finalizer},
        names::ProjectName,
        referenced::SourceKind,
    },
    controllers::{
        Reconciler,
        compact::PackedDeployment,
        management::{
            Context, federator::Federator, fixtures, projects::project_cache::ProjectCache, wiring::queues::ProjectKey,
        },
    },
    io::{
        clients::{Connection, ControlPlane},
        clock::Now,
        feed::Feed,
        queue::Outcome,
        store::Incoming,
        stub_server::{Seen, StubServer},
        watch::Guarded,
    },
    plan::{Kind, Next},
};

/// A deployment whose city is invalid, so that its federator writes only statuses.
fn deployment() -> Value {
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": {
            "name": "api", "namespace": "web", "uid": "api", "resourceVersion": "1", "generation": 1,
            "finalizers": [finalizer::FEDERATOR], "annotations": { annotation::FEDERATION_NAMESPACE: "ns-u" },
        },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "a/b",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    })
}

/// A federator with one deployment. The answers of the project's server go into the cache, and enqueue keys as in the operator.
struct World {
    ctx: Arc<Context>,
    project: Arc<ProjectCache>,
    federator: Federator,
    key: ProjectKey,
    server: StubServer,
    /// The deployment on the server.
    stored: Arc<Mutex<Value>>,
    /// Field of the status that another client sets at each write.
    also_set: Arc<Mutex<Option<&'static str>>>,
}

impl World {
    async fn new() -> Self {
        let (stored, also_set) = (Arc::new(Mutex::new(deployment())), Arc::new(Mutex::new(None)));
        let server = StubServer::start(None, {
            let (stored, also_set) = (stored.clone(), also_set.clone());
            move |request| {
                let body: Value = serde_json::from_str(&request.body).unwrap();
                if !is_report(request) {
                    return (200, body);
                }
                let mut status = body["status"].clone();
                if let Some(field) = *also_set.lock().unwrap() {
                    status[field] = json!(7);
                }
                (200, store(&stored, status))
            }
        })
        .await;
        let ctx = Context::of_tests();
        let connection = Connection::new(kube::Config::new(server.url.parse().unwrap())).unwrap();
        let plane = ControlPlane::new("alpha", connection);
        let project = ProjectCache::new(&ProjectName::new("alpha"), plane, false, None, CancellationToken::new());
        let project = Arc::new(project);
        project.namespaces.replace(vec![fixtures::namespace("web", "u", &[])], 1);
        project.workloads.replace(Vec::new(), 1);
        project.deployments.replace(vec![incoming(deployment())], 1);
        ctx.hub.namespaces.replace(Vec::new(), 1);
        ctx.hub.policies.replace(Vec::new(), 1);
        ctx.hub.copies.replace(Vec::new(), 1);
        for kind in SourceKind::ALL {
            ctx.hub.companions(kind).replace(Vec::new(), 1);
        }
        let feed = Feed::<Guarded<WorkloadDeployment>, _, _> {
            keep: PackedDeployment::of,
            about: |_| true,
            store: project.deployments.clone(),
        };
        project.plane.feed(Kind::WorkloadDeployment, Arc::new(feed));
        ctx.projects.insert(project.clone());
        ctx.triggers.listen_to_project(&project);
        let (federator, key) = (ctx.federator(), ProjectKey::new(&project.name, "web", "api"));
        Self { ctx, project, federator, key, server, stored, also_set }
    }

    /// Looks at the deployment. Returns the number of statuses that it wrote, and true if another look follows.
    async fn look(&self, time: Timestamp) -> (usize, bool) {
        let before = self.reports();
        self.federator.reconcile(&self.key, Now { time, ..Now::read() }, Duration::ZERO).await.unwrap();
        (self.reports() - before, self.is_enqueued().await)
    }

    /// True if the deployment is in the federator's queue. Takes it out.
    async fn is_enqueued(&self) -> bool {
        let queue = &self.ctx.queues.federator;
        let is_enqueued = queue.depth() > 0;
        if is_enqueued {
            let key = queue.next().await;
            queue.finish_with_rest(key, Outcome::Done, Duration::ZERO);
        }
        is_enqueued
    }

    /// Another client sets the status.
    fn set(&self, status: Value) {
        self.project.deployments.observe(incoming(store(&self.stored, status)));
    }

    fn status(&self) -> Value {
        self.stored.lock().unwrap()["status"].clone()
    }

    fn reports(&self) -> usize {
        self.server.seen().iter().filter(|request| is_report(request)).count()
    }
}

fn is_report(request: &Seen) -> bool {
    request.line.ends_with("/workloaddeployments/api/status")
}

/// Stores a status under the next version. Returns the deployment.
fn store(stored: &Mutex<Value>, status: Value) -> Value {
    let mut stored = stored.lock().unwrap();
    let version: u64 = stored["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    stored["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    stored["status"] = status;
    stored.clone()
}

fn incoming(deployment: Value) -> Incoming<PackedDeployment> {
    let deployment: WorkloadDeployment = serde_json::from_value(deployment).unwrap();
    Incoming::new(&deployment.clone(), Some(PackedDeployment::of(deployment)))
}

fn after(minutes: i64) -> Timestamp {
    "2026-11-22T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes)
}

/// The second status is final, because the tenant's grace is over.
#[tokio::test]
async fn look_follows_an_own_status_only_if_it_is_not_final_or_stored_otherwise() {
    for (also_set, follows) in [(None, false), (Some("readyReplicas"), true)] {
        let world = World::new().await;
        assert_eq!(world.look(after(0)).await, (1, true), "the status changes when the grace is over");
        assert_eq!(world.look(after(0)).await, (0, false));
        *world.also_set.lock().unwrap() = also_set;
        assert_eq!(world.look(after(1)).await, (1, follows), "{also_set:?}");
    }
}

#[tokio::test]
async fn look_follows_a_final_status_while_a_contest_is_on() {
    let world = World::new().await;
    world.look(after(0)).await;
    let theirs = world.status();
    for nth in 0.. {
        assert!(nth < 9, "no contest is noticed");
        let (written, follows) = world.look(after(1)).await;
        let is_contested = world.federator.contests.are_about(&world.key);
        assert!(is_contested || written == 1 && !follows, "before the contest, the status is written at once");
        if is_contested {
            break;
        }
        world.set(theirs.clone());
        assert!(world.is_enqueued().await, "the status is not the one that was written");
    }
    assert_eq!(
        world.look(after(10)).await,
        (1, true),
        "a look with nothing to write has to find the end of the contest"
    );
    let now = Now { time: after(10), ..Now::read() };
    let next = world.federator.reconcile(&world.key, now, Duration::ZERO).await.unwrap();
    let Next::After(left) = next else { panic!("the contest is never over: {next:?}") };
    assert_eq!(world.look(after(10) + left).await, (0, false));
    assert!(!world.federator.contests.are_about(&world.key), "it is over");
}
