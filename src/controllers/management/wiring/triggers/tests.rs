use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    api::{compute::WorkloadDeploymentStatus, meta::label},
    controllers::{
        Reconciler,
        compact::PackedDeployment,
        management::{Context, fixtures},
    },
    io::{
        clients::{Connection, ControlPlane},
        clock::Now,
        queue::Outcome,
        store::Incoming,
    },
    plan::{
        Delta, Next,
        management::{collector::table::Sweep, federator::federate::Signal},
    },
};

fn deployment(metadata: &serde_json::Value) -> WorkloadDeployment {
    serde_json::from_value(json!({
        "metadata": metadata,
        "spec": {
            "workloadRef": { "name": "web", "uid": "w" }, "placementName": "p", "cityCode": "dfw",
            "scaleSettings": { "minReplicas": 1 },
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
        },
    }))
    .unwrap()
}

/// A project with these deployments in its cache. No event has enqueued them.
fn project(deployments: &[serde_json::Value]) -> Arc<ProjectCache> {
    let connection = Connection::new(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
    let plane = ControlPlane::new("project", connection);
    let project = ProjectCache::new(&ProjectName::single(), plane, false, None, CancellationToken::new());
    for metadata in deployments {
        let deployment = deployment(metadata);
        project.deployments.observe(Incoming::new(&deployment, Some(PackedDeployment::of(deployment.clone()))));
    }
    Arc::new(project)
}

#[tokio::test(start_paused = true)]
async fn terminating_deployment_without_an_event_is_enqueued_in_each_sweep() {
    let ctx = Context::of_tests();
    let project = project(&[
        json!({ "name": "stays", "namespace": "shop", "uid": "a", "resourceVersion": "1" }),
        json!({
            "name": "goes", "namespace": "shop", "uid": "b", "resourceVersion": "2",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/held"],
        }),
    ]);
    ctx.projects.insert(project.clone());
    let queue = ctx.queues.federator.clone();
    let looks = async {
        for sweep in 1..=3 {
            let key = queue.next().await;
            assert_eq!(key, ProjectKey::new(&project.name, "shop", "goes"), "in sweep {sweep}");
            queue.finish(key, Outcome::Done);
        }
    };
    let (sweeper, stop) = (ctx.collector(), CancellationToken::new());
    // The test's clock advances whenever all tasks wait.
    tokio::select! {
        () = sweeper.run(&stop) => panic!("it ended without a stop"),
        done = timeout(Sweep::default().interval * 5, looks) => assert!(done.is_ok(), "it was not looked at in each sweep"),
    }
}

/// Each status that the federator wrote made it look at the deployment once more, and find nothing.
#[tokio::test]
async fn status_that_the_federator_writes_does_not_enqueue_it() {
    let metadata =
        |version: &str| json!({ "name": "web", "namespace": "shop", "uid": "a", "resourceVersion": version });
    let status = |replicas| WorkloadDeploymentStatus { replicas, ..WorkloadDeploymentStatus::default() };
    let theirs = || Some([("theirs".to_owned(), "1".to_owned())].into());
    for (written, annotations, expected) in [
        (Some(status(1)), None, (0, 1)),
        (Some(status(1)), theirs(), (1, 1)),
        (Some(status(2)), None, (1, 1)),
        (None, None, (1, 1)),
    ] {
        for is_answer in [true, false] {
            let (ctx, project) = (Context::of_tests(), project(&[metadata("1")]));
            ctx.triggers.listen_to_project(&project);
            let key = ProjectKey::new(&project.name, "shop", "web");
            let report = written.clone().map(|status| ctx.reports.write(&key, status));
            let mut changed = deployment(&metadata("2"));
            changed.status = Some(status(1));
            changed.metadata.annotations = annotations.clone();
            let object = Incoming::new(&changed.clone(), Some(PackedDeployment::of(changed)));
            if is_answer {
                project.deployments.wrote(object);
            } else {
                project.deployments.observe(object);
            }
            let queues = &ctx.queues;
            let depths = (queues.federator.depth(), queues.workload.depth());
            assert_eq!(depths, expected, "{written:?}, {annotations:?}, answer: {is_answer}");
            drop(report);
            assert!(!ctx.reports.has(&key, Some(&status(1))), "it is written");
        }
    }
}

/// A new user of a shared companion enqueues itself and the companion, but not the other users.
#[tokio::test]
async fn shared_companion_with_many_new_users_is_enqueued_once() {
    for users in [100, 1_000, 10_000] {
        let (ctx, project) = (Context::of_tests(), project(&[]));
        ctx.projects.insert(project.clone());
        for n in 0..users {
            let name = format!("web-{n}");
            let mut new =
                deployment(&json!({ "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1" }));
            new.spec.template.spec.runtime.sandbox = serde_json::from_value(json!({ "containers": [
                { "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "db" } }] },
            ] }))
            .unwrap();
            let delta = Delta { namespace: "shop", name: &name, old: None, new: Some(&new) };
            ctx.queues.add(ctx.triggers.after_deployment(&project, &delta));
        }
        let queues = &ctx.queues;
        assert_eq!((queues.federator.depth(), queues.companion.depth(), queues.workload.depth()), (users, 1, 1));
    }
}

/// A reconcile that ended after its project was disengaged recorded a blocked deployment, which was counted forever.
#[tokio::test]
async fn blocked_deployment_of_a_disengaged_project_is_forgotten() {
    let ctx = Context::of_tests();
    let key = ProjectKey::new(&ProjectName::new("beta"), "shop", "web");
    let signal = Signal::Blocked { reason: "NotApplied".into(), silence: None };
    ctx.blocked.note(&key, &[signal], Now::read().instant);
    assert!(ctx.blocked.keys().contains(&key));
    let next = ctx.federator().reconcile(&key, Now::read(), Duration::ZERO).await;
    assert!(matches!(next, Ok(Next::Await)), "{next:?}");
    assert!(ctx.blocked.keys().is_empty(), "the next look finds no project, and forgets it");
}

/// An Instance that was deleted during its reconcile stayed in quarantine.
#[tokio::test]
async fn quarantined_instance_that_is_deleted_is_forgotten() {
    let ctx = Context::of_tests();
    let mut instance = Instance::new("web-0", crate::api::compute::InstanceSpec::default());
    instance.metadata.namespace = Some("ns-u".into());
    ctx.quarantine.put(&instance, projection::Quarantine::Refused, Now::read().instant);
    ctx.triggers.enqueue_quarantined();
    assert_eq!(ctx.quarantine.keys().len(), 1, "the cache is not filled");
    ctx.hub.instances.replace(Vec::new(), 1);
    ctx.triggers.enqueue_quarantined();
    assert!(ctx.quarantine.keys().is_empty());
}

/// The start of each copy of another management plane was remembered, although this one never reconciles that copy.
#[tokio::test]
async fn latency_of_copies_of_another_management_plane_is_not_measured() {
    let ctx = Context::of_tests();
    ctx.latency.begin();
    ctx.projects.insert(fixtures::project("ours"));
    let named = |project: &'static str| [(label::UPSTREAM_CLUSTER, project), (label::UPSTREAM_NAMESPACE, "web")];
    let namespaces = [("ns-u", "cluster-_ours"), ("ns-v", "cluster-_theirs")];
    let namespaces = namespaces.map(|(name, project)| fixtures::namespace(name, name, &named(project)));
    ctx.hub.namespaces.replace(namespaces.into(), 1);
    let old = deployment(&json!({ "name": "api", "uid": "c", "resourceVersion": "1" }));
    let mut new = old.clone();
    new.status = Some(WorkloadDeploymentStatus { observed_generation: Some(1), ..WorkloadDeploymentStatus::default() });
    for (namespace, under_way) in [("ns-v", 0), ("ns-u", 1)] {
        let delta = Delta { namespace, name: "api", old: Some(&old), new: Some(&new) };
        ctx.triggers.measure_report(&delta);
        assert_eq!(ctx.latency.under_way(), under_way, "{namespace}");
    }
}
