use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimePrinter};
use serde_json::json;

use super::*;
use crate::{
    api::meta::{label, manager},
    io::{
        clients::{Connection, ControlPlane},
        store::Incoming,
        stub_server::StubServer,
    },
    plan::cell::Features,
};

const NAMESPACE: &str = "ns-0b9c3f7e-8d3a-4c1b-9a55-0f6f6c1e2d3a";

/// Returns the controller of a cell at this address, with one deployment.
fn controller(url: &str, deployment: WorkloadDeployment) -> DeploymentController {
    let connection = Connection::new(kube::Config::new(url.parse().unwrap())).unwrap();
    let features = Features { networks: false, quota: false, abandon_claims: false, data: false };
    let caches = Arc::new(Caches::new(ControlPlane::new("cell", connection), features));
    caches.uid.set("uid-of-dfw".into()).unwrap();
    caches.namespaces.replace(Vec::new(), 1);
    caches.instances.replace(Vec::new(), 1);
    caches.deployments.replace(vec![Incoming::new(&deployment.clone(), Some(deployment))], 1);
    let (metrics, timing) = (Metrics::default(), Timing::default());
    let contests = Contests::new(DeploymentController::NAME, timing.takeover_pause, &metrics);
    DeploymentController { caches, contests, timing, metrics }
}

/// The pause between two take-overs is a minute. A manager with a clock an hour behind waited an hour.
#[tokio::test]
async fn deployment_manager_clock_behind_uses_server_time_for_take_over() {
    let ours = Timestamp::now();
    let servers = ours + SignedDuration::from_hours(1);
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&servers).unwrap();
    let written = |seconds: i64| (servers - SignedDuration::from_secs(seconds)).to_string();
    let entry = |manager: &str, operation: &str, seconds: i64| {
        json!({
            "manager": manager, "operation": operation, "subresource": "status", "time": written(seconds),
            "apiVersion": "compute.datumapis.com/v1alpha", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:status": { "f:desiredReplicas": {} } },
        })
    };
    let object = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": {
            "name": "web", "namespace": NAMESPACE, "uid": "d1", "resourceVersion": "1",
            "labels": { label::UPSTREAM_NAMESPACE: "shop" },
            "managedFields": [entry("compute-manager", "Update", 90), entry(manager::DEPLOYMENT, "Apply", 80)],
        },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw", "replicas": 1,
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    });
    let deployment = serde_json::from_value(object.clone()).unwrap();
    let server = StubServer::start(Some(date), move |_| (200, object.clone())).await;
    let controller = controller(&server.url, deployment);
    let key = ObjectKey::new(NAMESPACE, "web");
    let takes_over = || server.seen().iter().filter(|request| request.body.contains("managedFields")).count();
    let look = || async {
        let now = controller.by_server(&key, Now { time: ours, ..Now::read() });
        let _ = controller.reconcile(&key, now, Duration::ZERO).await;
    };
    look().await;
    assert_eq!(takes_over(), 0, "the server's clock is not known yet, and by ours both have just written");
    assert!(!server.seen().is_empty(), "but it writes");
    look().await;
    assert_eq!(takes_over(), 1, "{:?}", server.seen());
}
