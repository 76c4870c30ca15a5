use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    api::{
        meta::{finalizer, gate, label},
        names::ProjectName,
    },
    io::{
        clients::{Connection, ControlPlane, Projects},
        health::Health,
        stub_server::{StubServer, not_found},
    },
    plan::{
        NamespaceFacts,
        cell::{Features, RESOURCES, claim::Names},
    },
};

/// Returns the controller of a cell that does not answer, with one engaged project. It has no namespace and no Instance.
fn controller() -> (QuotaController, ProjectName) {
    controller_of("http://127.0.0.1:9")
}

/// Returns the same for a cell and a project at this address.
fn controller_of(url: &str) -> (QuotaController, ProjectName) {
    let config = || kube::Config::new(url.parse().unwrap());
    let features = Features { networks: false, quota: true, abandon_claims: false, data: false };
    let caches = Arc::new(Caches::new(ControlPlane::new("cell", Connection::new(config()).unwrap()), features));
    caches.uid.set("uid-of-dfw".into()).unwrap();
    caches.namespaces.replace(Vec::new(), 1);
    caches.deployments.replace(Vec::new(), 1);
    caches.instances.replace(Vec::new(), 1);
    let (health, metrics, timing) = (Health::default(), Metrics::default(), Timing::default());
    let names = Names { current: "dfw".into(), former: [].into() };
    let stop = CancellationToken::new();
    let projects = Projects::new(config());
    let backends = QuotaBackends::new(caches.clone(), (names, projects), &health, (&metrics, timing), &stop);
    let project = ProjectName::new("shop");
    let backends = Arc::new(backends);
    backends.backend(&project, std::time::Instant::now()).unwrap();
    let contests = Contests::new(QuotaController::NAME, timing.takeover_pause, &metrics);
    (QuotaController { caches, contests, backends, timing, metrics }, project)
}

/// Adds a claim for Instance `ns-gone/web-0` that the cell with this uid created.
fn left_behind(controller: &QuotaController, project: &ProjectName, cell: &str, version: u64) {
    let claim: ResourceClaim = serde_json::from_value(json!({
        "metadata": {
            "name": names::resource_claim_name("web-0"), "namespace": "default", "uid": cell,
            "resourceVersion": version.to_string(),
            "labels": { label::SOURCE_CLUSTER: "dfw", label::CELL_UID: cell, label::INSTANCE_NAMESPACE: "ns-gone" },
        },
        "spec": { "consumerRef": { "apiGroup": "g", "kind": "Project", "name": "shop" }, "requests": [] },
    }))
    .unwrap();
    let backend = controller.backends.known(project).unwrap();
    backend.claims.replace(vec![Incoming::new(&claim.clone(), Some(claim))], version);
}

fn key(project: Option<&ProjectName>) -> QuotaKey {
    QuotaKey { project: project.cloned(), instance: ObjectKey::new("ns-gone", "web-0") }
}

/// If an Instance's namespace was deleted before its claim was released, the project was unknown and the claim stayed.
#[tokio::test]
async fn claim_of_deleted_namespace_is_released_after_live_read_of_instance() {
    let (controller, project) = controller();
    left_behind(&controller, &project, "uid-of-dfw", 9);
    let error = controller.reconcile(&key(Some(&project)), Now::read(), Duration::ZERO).await.unwrap_err().to_string();
    assert!(error.contains("get Instance ns-gone/web-0 in cell"), "it asks the cell first: {error}");
    assert_eq!(
        controller.reconcile(&key(None), Now::read(), Duration::ZERO).await.unwrap(),
        Next::Await,
        "its owner is unknown"
    );
    left_behind(&controller, &project, "uid-of-ord", 10);
    assert_eq!(
        controller.reconcile(&key(Some(&project)), Now::read(), Duration::ZERO).await.unwrap(),
        Next::Await,
        "another cell's"
    );
}

#[tokio::test]
async fn quota_key_with_existing_namespace_moves_to_its_own_lane() {
    let (controller, project) = controller();
    left_behind(&controller, &project, "uid-of-dfw", 9);
    let namespace = Incoming {
        key: ObjectKey::new("", "ns-gone"),
        uid: "n".into(),
        version: 2,
        value: Some(NamespaceFacts::default().into()),
    };
    controller.caches.namespaces.observe(namespace);
    assert_eq!(controller.reconcile(&key(Some(&project)), Now::read(), Duration::ZERO).await.unwrap(), Next::Await);
}

/// The API server's RBAC message was reported on the Instance, and so reached the tenant.
#[test]
fn quota_message_for_tenants_names_no_account() {
    let denied = |code: u16| {
        let message = r#"resourceclaims is forbidden: User "cell-dfw" cannot create resource"#;
        let status = kube::core::Status::failure(message, "").with_code(code).boxed();
        trouble(&Error::Api { call: "create".into(), source: Box::new(kube::Error::Api(status)) })
    };
    for code in [401, 403] {
        let Trouble { cause, message } = denied(code);
        assert!(cause == Cause::Misconfigured && !message.contains("cell-dfw"), "{message}");
    }
}

/// The watch of a project was retried without end after its control plane was deleted.
#[tokio::test]
async fn quota_backend_of_deleted_project_is_removed_after_last_claim() {
    let (controller, project) = controller();
    let known = || controller.backends.known(&project);
    controller.backends.retire_unused("ns-gone");
    assert!(known().is_some(), "it may merely be away");
    known().unwrap().give_up();
    let instance = Instance::new("web-0", crate::api::compute::InstanceSpec::default());
    let mut held = instance.clone();
    held.metadata.namespace = Some("ns-here".into());
    let labels = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "web")];
    let facts = NamespaceFacts {
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..NamespaceFacts::default()
    };
    let here = Incoming { key: ObjectKey::new("", "ns-here"), uid: "n".into(), version: 2, value: Some(facts.into()) };
    controller.caches.namespaces.observe(here);
    controller.caches.instances.replace(vec![Incoming::new(&held.clone(), Some(held))], 2);
    controller.backends.retire_unused("ns-here");
    assert!(known().is_some(), "another Instance of it is here");
    controller.caches.instances.replace(Vec::new(), 3);
    controller.backends.retire_unused("ns-here");
    assert!(known().is_none());
}

/// The recent deletion of a granted claim was an error, and the Instance waited for a retry.
#[tokio::test]
async fn granted_claim_just_deleted_is_recreated_in_same_reconcile() {
    let server = StubServer::start(None, |request| match request.line.split_once(' ') {
        Some(("GET", _)) => not_found("resourceclaims", "web-0"),
        _ => (201, serde_json::from_str(&request.body).unwrap_or_default()),
    });
    let server = server.await;
    let (controller, project) = controller_of(&server.url);
    let deployment: crate::api::compute::WorkloadDeployment = serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "ns-1", "uid": "d1", "resourceVersion": "1" },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw", "replicas": 1,
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap();
    let instance: Instance = serde_json::from_value(json!({
        "metadata": {
            "name": "web-0", "namespace": "ns-1", "uid": "i1", "resourceVersion": "1",
            "creationTimestamp": "2026-05-01T12:00:00Z", "finalizers": [finalizer::QUOTA],
            "ownerReferences": [{
                "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "name": "web", "uid": "d1",
                "controller": true,
            }],
        },
        "spec": {
            "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [],
            "controller": { "templateHash": "h", "schedulingGates": [{ "name": gate::QUOTA }] },
        },
    }))
    .unwrap();
    let labels = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "web")];
    let facts = NamespaceFacts {
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..NamespaceFacts::default()
    };
    let caches = &controller.caches;
    let namespace = ObjectKey::new("", "ns-1");
    caches.namespaces.observe(Incoming { key: namespace, uid: "n".into(), version: 2, value: Some(facts.into()) });
    caches.deployments.replace(vec![Incoming::new(&deployment.clone(), Some(deployment))], 2);
    caches.instances.replace(vec![Incoming::new(&instance.clone(), Some(instance.clone()))], 2);
    let backend = controller.backends.known(&project).unwrap();
    let claim: ResourceClaim = serde_json::from_value(json!({
        "metadata": {
            "name": names::resource_claim_name("web-0"), "namespace": "web", "uid": "c1", "resourceVersion": "3",
            "creationTimestamp": "2026-05-01T12:00:01Z",
            "labels": {
                label::SOURCE_CLUSTER: "dfw", label::CELL_UID: "uid-of-dfw", label::INSTANCE_NAMESPACE: "ns-1",
            },
        },
        "spec": { "consumerRef": { "apiGroup": "g", "kind": "Project", "name": "shop" }, "requests": [{ "resourceType": RESOURCES[0], "amount": 1 }] },
        "status": { "conditions": [{
            "type": "Granted", "status": "True", "reason": "QuotaAvailable", "message": "",
            "lastTransitionTime": "2026-05-01T12:00:02Z",
        }] },
    }))
    .unwrap();
    backend.claims.replace(vec![Incoming::new(&claim.clone(), Some(claim))], 3);
    let key = QuotaKey { project: Some(project), instance: ObjectKey::new("ns-1", "web-0") };
    let done = controller.reconcile(&key, Now::read(), Duration::ZERO).await;
    let lines: Vec<String> = server.seen().into_iter().map(|request| request.line).collect();
    assert!(done.is_ok(), "{done:?} {lines:?}");
    let first = lines.iter().position(|line| line.starts_with("GET") && line.contains("/resourceclaims/"));
    let then = lines.iter().position(|line| line.starts_with("POST") && line.ends_with("/resourceclaims"));
    assert!(first.is_some() && first < then, "{lines:?}");
}
