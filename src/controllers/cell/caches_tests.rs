use serde_json::json;

use super::*;
use crate::io::{clients::Connection, store::Incoming};

fn caches() -> Caches {
    let cell = Connection::new(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
    Caches::new(ControlPlane::new("cell", cell), Features::default())
}

fn deployment(replicas: i32) -> WorkloadDeployment {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "ns-1", "uid": "d1", "resourceVersion": "1" },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw", "replicas": replicas,
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

fn instance(namespace: &str, name: &str, owner: &str) -> Incoming<Instance> {
    let instance: Instance = serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "resourceVersion": "1",
            "ownerReferences": [{
                "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "name": "web", "uid": owner,
                "controller": true,
            }],
        },
        "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] },
    }))
    .unwrap();
    Incoming::new(&instance, Some(instance.clone()))
}

/// Every name that the deployment could ever use was looked up.
#[tokio::test]
async fn blocking_instances_are_found_among_existing_names() {
    let caches = caches();
    let all = [
        ("ns-1", "web-0", "d1"),
        ("ns-1", "web-1", "d0"),
        ("ns-1", "web-00", "d0"),
        ("ns-1", "web-2147483646", "d0"),
        ("ns-1", "web-2147483647", "d0"),
        ("ns-1", "web-main-1", "d0"),
        ("ns-1", "web", "d0"),
        ("ns-2", "web-1", "d0"),
    ];
    caches
        .instances
        .replace(all.into_iter().map(|(namespace, name, owner)| instance(namespace, name, owner)).collect(), 1);
    for (replicas, expected) in [(0, &[][..]), (1, &[]), (2, &["web-1"]), (i32::MAX, &["web-1", "web-2147483646"])] {
        let mut found: Vec<String> =
            caches.in_the_way_of(&deployment(replicas)).map(|instance| instance.name_any()).collect();
        found.sort();
        assert_eq!(found, expected, "{replicas}");
    }
}
