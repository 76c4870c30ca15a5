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
        management::{Parts, fixtures},
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

/// A project with these deployments, of which no event has been heard.
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
async fn a_deployment_on_its_way_out_whose_event_was_lost_is_looked_at_in_each_sweep() {
    let parts = Parts::of_tests();
    let project = project(&[
        json!({ "name": "stays", "namespace": "shop", "uid": "a", "resourceVersion": "1" }),
        json!({
            "name": "goes", "namespace": "shop", "uid": "b", "resourceVersion": "2",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/held"],
        }),
    ]);
    parts.projects.insert(project.clone());
    let queue = parts.queues.federator.clone();
    let looks = async {
        for sweep in 1..=3 {
            let key = queue.next().await;
            assert_eq!(key, ProjectKey::new(&project.name, "shop", "goes"), "in sweep {sweep}");
            queue.finish(key, Outcome::Done);
        }
    };
    let (sweeper, stop) = (parts.collector(), CancellationToken::new());
    // Time is the test's own: it goes on whenever everybody waits.
    tokio::select! {
        () = sweeper.run(&stop) => panic!("nobody has stopped it"),
        done = timeout(Sweep::default().interval * 5, looks) => assert!(done.is_ok(), "it was not looked at in each sweep"),
    }
}

/// Whoever comes to a companion that others use already brings up itself, and what all of them share once.
#[tokio::test]
async fn of_many_users_who_come_each_is_worked_on_once_and_what_they_share_once() {
    for users in [100, 1_000, 10_000] {
        let (parts, project) = (Parts::of_tests(), project(&[]));
        parts.projects.insert(project.clone());
        for n in 0..users {
            let name = format!("web-{n}");
            let mut new =
                deployment(&json!({ "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1" }));
            new.spec.template.spec.runtime.sandbox = serde_json::from_value(json!({ "containers": [
                { "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "db" } }] },
            ] }))
            .unwrap();
            let delta = Delta { namespace: "shop", name: &name, old: None, new: Some(&new) };
            parts.queues.add(parts.triggers.after_deployment(&project, &delta));
        }
        let queues = &parts.queues;
        assert_eq!((queues.federator.depth(), queues.companion.depth(), queues.workload.depth()), (users, 1, 1));
    }
}

/// Found by reading: a look that ended after its project was let go left what it had noted, and it was counted for ever.
#[tokio::test]
async fn of_a_deployment_whose_project_is_let_go_nothing_stays_noted() {
    let parts = Parts::of_tests();
    let key = ProjectKey::new(&ProjectName::new("beta"), "shop", "web");
    let signal = Signal::Blocked { reason: "NotApplied".into(), silent: false };
    parts.blocked.note(&key, &[signal], Now::read().instant);
    assert!(parts.blocked.keys().contains(&key));
    let next = parts.federator().reconcile(&key, Now::read(), Duration::ZERO).await;
    assert!(matches!(next, Ok(Next::Await)), "{next:?}");
    assert!(parts.blocked.keys().is_empty(), "the next look finds no project, and forgets it");
}

/// Found by reading: an Instance that went while it was looked at stayed among those that cannot be shown.
#[tokio::test]
async fn an_instance_that_is_gone_does_not_stay_in_quarantine() {
    let parts = Parts::of_tests();
    let mut instance = Instance::new("web-0", crate::api::compute::InstanceSpec::default());
    instance.metadata.namespace = Some("ns-u".into());
    parts.quarantine.put(&instance, projection::Quarantine::Refused, Now::read().instant);
    parts.triggers.enqueue_quarantined();
    assert_eq!(parts.quarantine.keys().len(), 1, "nobody knows yet what there is");
    parts.hub.instances.replace(Vec::new(), 1);
    parts.triggers.enqueue_quarantined();
    assert!(parts.quarantine.keys().is_empty());
}

/// Found by reading: of each copy that another management plane kept on the hub it was remembered since when it was under way,
/// and nobody here ever looked at it.
#[tokio::test]
async fn how_long_others_take_is_not_measured() {
    let parts = Parts::of_tests();
    parts.latency.begin();
    parts.projects.insert(fixtures::project("ours"));
    let named = |project: &'static str| [(label::UPSTREAM_CLUSTER, project), (label::UPSTREAM_NAMESPACE, "web")];
    let namespaces = [("ns-u", "cluster-_ours"), ("ns-v", "cluster-_theirs")];
    let namespaces = namespaces.map(|(name, project)| fixtures::namespace(name, name, &named(project)));
    parts.hub.namespaces.replace(namespaces.into(), 1);
    let old = deployment(&json!({ "name": "api", "uid": "c", "resourceVersion": "1" }));
    let mut new = old.clone();
    new.status = Some(WorkloadDeploymentStatus { observed_generation: Some(1), ..WorkloadDeploymentStatus::default() });
    for (namespace, under_way) in [("ns-v", 0), ("ns-u", 1)] {
        let delta = Delta { namespace, name: "api", old: Some(&old), new: Some(&new) };
        parts.triggers.measure_report(&delta);
        assert_eq!(parts.latency.under_way(), under_way, "{namespace}");
    }
}
