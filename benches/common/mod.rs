//! Objects of the benchmarks, and their reads of a testbed.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod made;
pub mod measure;

use std::{fs, path::Path, time::Duration};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::{Value, json};
use testbed::{Testbed, operator::Operator};
use tokio::time::{Instant, sleep};

/// The project's namespace.
pub const NAMESPACE: &str = "shop";

/// Starts the manager alone, at the log level of production, and waits until it is ready.
pub async fn manager(bed: &Testbed) -> Operator {
    manager_of(bed, Path::new(env!("CARGO_BIN_EXE_compute-operator"))).await
}

/// The same with another build of the operator.
pub async fn manager_of(bed: &Testbed, binary: &Path) -> Operator {
    let mut manager = Operator::management(bed, binary, "operator-management", &["--zap-log-level=info"]).unwrap();
    manager.wait_ready().await.unwrap();
    manager
}

/// Returns a field of the manager's `/proc/<pid>/status`, in KiB.
pub fn memory(manager: &Operator, field: &str) -> u32 {
    let status = fs::read_to_string(format!("/proc/{}/status", manager.process.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Waits for a condition.
pub async fn wait<F: Future<Output = bool>>(what: &str, check: impl Fn() -> F) {
    let deadline = Instant::now() + Duration::from_mins(30);
    while !check().await {
        assert!(Instant::now() < deadline, "{what}: not within 30 minutes");
        sleep(Duration::from_millis(500)).await;
    }
}

/// Returns the number of objects of a kind. Of Secrets, counts only those that the operator copied.
pub async fn count(client: &Client, kind: &str) -> usize {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
    if kind == "Secret" {
        let ours = ListParams::default().labels("compute.datumapis.com/referenced-data=true");
        return api.list_metadata(&ours).await.unwrap().items.len();
    }
    // To list ten thousand objects twice a second would be most of the servers' work.
    let page = api.list_metadata(&ListParams::default().limit(1)).await.unwrap();
    page.items.len() + page.metadata.remaining_item_count.map_or(0, |more| usize::try_from(more).unwrap())
}

/// Creates one object.
pub async fn create(client: &Client, object: Value) {
    created(client, object).await;
}

/// Creates one object, and returns it.
pub async fn created(client: &Client, object: Value) -> DynamicObject {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource(&kind)),
        None => Api::all_with(client.clone(), &resource(&kind)),
    };
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

pub fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// Returns a Secret of this many bytes.
pub fn secret(name: &str, size: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": NAMESPACE, "name": name },
        "stringData": { "key": "x".repeat(size) },
    })
}

/// Returns a deployment that refers to these Secrets.
pub fn deployment(name: &str, secrets: &[String]) -> Value {
    let sources: Vec<Value> = secrets.iter().map(|name| json!({ "secretRef": { "name": name } })).collect();
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "workloadRef": { "name": "bench", "uid": "00000000-0000-0000-0000-000000000001" },
            "placementName": "p", "cityCode": "dfw", "scaleSettings": { "minReplicas": 1 },
            "template": { "spec": {
                "runtime": {
                    "resources": { "instanceType": "datumcloud/d1-standard-2" },
                    "sandbox": { "containers": [{ "name": "c", "image": "i", "envFrom": sources }] },
                },
                "networkInterfaces": [{ "network": { "name": "default" } }],
            }},
        },
    })
}

/// Returns a deployment with several settings, of the template and the Workload with this number.
pub fn detailed_deployment(name: &str, template: usize) -> Value {
    let env: Vec<Value> = (0..12)
        .map(|n| json!({ "name": format!("SETTING_{n}"), "value": format!("https://settings-{n}.example.com/{template}") }))
        .collect();
    let mut of = deployment(name, &[]);
    let workload = format!("00000000-0000-0000-0000-{template:012}");
    of["spec"]["workloadRef"]["uid"] = json!(workload);
    of["metadata"]["labels"] = json!({
        "compute.datumapis.com/workload-uid": workload,
        "compute.datumapis.com/placement-name": "p", "app.kubernetes.io/name": name,
    });
    of["spec"]["template"]["metadata"] = json!({ "labels": { "app.kubernetes.io/part-of": "storefront" } });
    let sandbox = &mut of["spec"]["template"]["spec"]["runtime"]["sandbox"];
    sandbox["containers"][0]["env"] = json!(env);
    sandbox["containers"][0]["ports"] = json!([{ "name": "http", "port": 8080 }, { "name": "metrics", "port": 9090 }]);
    of
}

/// Returns the status that a cell reports for a running deployment.
pub fn report() -> Value {
    let says = |type_: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "2026-11-22T12:00:00Z", "observedGeneration": 1,
        })
    };
    json!({
        "conditions": [
            says("Available", "StableInstanceFound", "2/2 instances are ready"),
            says("ReplicasReady", "ReplicasReady", "2/2 instances are ready"),
            says("NetworkProvisioning", "NetworkReady", "All networks are ready"),
            says("InstancesProvisioning", "InstancesProvisioned", "All instances are provisioned"),
        ],
        "replicas": 2, "currentReplicas": 2, "desiredReplicas": 2, "readyReplicas": 2, "updatedReplicas": 2,
        "observedGeneration": 1, "observedSourceGeneration": 1,
    })
}

pub fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "WorkloadDeployment" | "Instance" => ("compute.datumapis.com", "v1alpha"),
        "NetworkBinding" | "NetworkContext" | "Subnet" | "SubnetClaim" => ("networking.datumapis.com", "v1alpha"),
        "ResourceClaim" => ("quota.miloapis.com", "v1alpha1"),
        "ResourceBinding" => ("work.karmada.io", "v1alpha2"),
        "Cluster" => ("cluster.karmada.io", "v1alpha1"),
        _ => ("", "v1"),
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
