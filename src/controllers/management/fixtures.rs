//! Objects and projects for the tests of this module.

use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::projects::project_cache::ProjectCache;
use crate::{
    api::{compute::WorkloadDeployment, meta::label, names::ProjectName},
    controllers::compact::PackedDeployment,
    io::{
        clients::{Connection, ControlPlane},
        store::{Incoming, ObjectKey},
    },
    plan::NamespaceFacts,
};

/// Returns a connection to a server that does not answer. Every request fails.
pub(super) fn nobody() -> Connection {
    Connection::new(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap()
}

pub(super) fn namespace(name: &str, uid: &str, labels: &[(&str, &str)]) -> Incoming<NamespaceFacts> {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let facts = NamespaceFacts { uid: uid.into(), labels, ..NamespaceFacts::default() };
    Incoming { key: ObjectKey::new("", name), uid: uid.into(), version: 1, value: Some(Arc::new(facts)) }
}

pub(super) fn deployment(namespace: &str, name: &str) -> Incoming<PackedDeployment> {
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

/// Returns a project with a namespace `web` of uid `u`, and a deployment there that refers to a Secret.
pub(super) fn project(name: &str) -> Arc<ProjectCache> {
    let plane = ControlPlane::new(name, nobody());
    let project = ProjectCache::new(&ProjectName::new(name), plane, false, Some(name), CancellationToken::new());
    project.workloads.replace(Vec::new(), 1);
    project.deployments.replace(vec![deployment("web", "api")], 1);
    project.namespaces.replace(vec![namespace("web", "u", &[])], 1);
    Arc::new(project)
}
