use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::label,
        referenced::{DataRef, SourceKind},
    },
    controllers::{
        Reconciler,
        management::{
            Options, Parts,
            queues::{CompanionKey, ProjectKey},
        },
    },
    io::{clients::Connection, clock::Now, health::Health, packed::PackedDeployment, store::Incoming},
    metrics::Metrics,
    plan::Next,
};

/// Servers that do not answer: whatever is asked of them is seen as an error.
fn nobody() -> Connection {
    Connection::new(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap()
}

fn namespace(name: &str, uid: &str, labels: &[(&str, &str)]) -> Incoming<NamespaceFacts> {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let facts = NamespaceFacts { uid: uid.into(), labels, ..NamespaceFacts::default() };
    Incoming { key: ObjectKey::new("", name), uid: uid.into(), version: 1, value: Some(facts) }
}

fn deployment(namespace: &str, name: &str) -> Incoming<PackedDeployment> {
    let deployment: WorkloadDeployment = serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1",
            "labels": { label::UPSTREAM_NAMESPACE: "web" },
        },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw",
            "template": { "spec": {
                "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [
                    { "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "db" } }] },
                ] } },
                "networkInterfaces": [],
            } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap();
    Incoming::new(&deployment.clone(), Some(PackedDeployment::of(deployment)))
}

/// A project whose namespace `web` has the uid `u`, with a deployment that refers to a Secret.
fn project(name: &str) -> Arc<ProjectCache> {
    let plane = ControlPlane::new(name, nobody());
    let project = ProjectCache::new(&ProjectName::new(name), plane, false, Some(name), CancellationToken::new());
    project.workloads.replace(Vec::new(), 1);
    project.deployments.replace(vec![deployment("web", "api")], 1);
    project.namespaces.replace(vec![namespace("web", "u", &[])], 1);
    Arc::new(project)
}

/// Two projects with a namespace of one uid, and a hub namespace that names the first, with copies of `api` and of `gone`.
fn parts() -> Parts {
    let parts = Parts::new(nobody(), Options::of_tests(), Health::default(), Metrics::default());
    let (plane, projects) = (ControlPlane::new("discovery", nobody()), Arc::new(Store::new(|_, _| Vec::new())));
    parts.projects.discover(Discovered { plane, kind: Kind::Namespace, projects });
    for name in ["shop", "shop-restored"] {
        parts.projects.insert(project(name));
    }
    let hub = &parts.hub;
    let named = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "web")];
    hub.namespaces.replace(vec![namespace("ns-u", "h", &named)], 1);
    hub.copies.replace(vec![deployment("ns-u", "api"), deployment("ns-u", "gone")], 1);
    hub.policies.replace(Vec::new(), 1);
    hub.bindings.replace(Vec::new(), 1);
    hub.clusters.replace(Vec::new(), 1);
    for kind in SourceKind::ALL {
        hub.companions(kind).replace(Vec::new(), 1);
    }
    parts
}

/// Found by reading: where one project's control plane was restored as another's, each took what the other had on the hub
/// for its own, Secrets included.
#[tokio::test]
async fn what_is_on_the_hub_is_touched_for_the_project_alone_that_it_names() {
    let parts = parts();
    let watches = Arc::new(parts.watches(&CancellationToken::new()));
    let (companion, federator) = (parts.companion(&watches), parts.federator());
    for (name, touches) in [("shop", true), ("shop-restored", false)] {
        let project = ProjectName::new(name);
        let key = CompanionKey { project: project.clone(), namespace: "web".into(), data_ref: DataRef::secret("db") };
        let secret = companion.reconcile(&key, Now::read()).await;
        assert_eq!(secret.is_err(), touches, "the Secret of {name}: {secret:?}");
        for (deployment, what) in [("api", "deployment"), ("gone", "copy whose deployment is gone")] {
            let looked = federator.reconcile(&ProjectKey::new(&project, "web", deployment), Now::read()).await;
            assert_eq!(looked.is_err(), touches, "{what} of {name}: {looked:?}");
        }
        let secret_waits = touches || matches!(secret, Ok(Next::Await));
        assert!(secret_waits, "{secret:?}");
    }
}
