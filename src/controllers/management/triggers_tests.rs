use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    controllers::management::Parts,
    io::{
        clients::{Connection, ControlPlane},
        packed::PackedDeployment,
        queue::Outcome,
        store::Incoming,
    },
    plan::{Delta, management::sweep::Sweep},
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
    let (sweeper, stop) = (parts.sweeper(), CancellationToken::new());
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
            parts.triggers.after_project(&project, &ProjectChange::Deployment(delta));
        }
        let queues = &parts.queues;
        assert_eq!((queues.federator.depth(), queues.companion.depth(), queues.workload.depth()), (users, 1, 1));
    }
}
