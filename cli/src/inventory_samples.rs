//! An inventory for tests.

use serde_json::{Value, json};

use crate::inventory::{Entry, Inventory, Unseen};

/// Returns a Workload in one city that uses a ConfigMap, on all planes. `secret` is in every place where a value can be.
pub fn inventory(secret: &str) -> Inventory {
    let template = json!({
        "metadata": { "annotations": { "compute.datumapis.com/ssh-keys": format!("ada:{secret}"), "other.io/x": secret } },
        "spec": {
            "runtime": {
                "resources": { "instanceType": "t" },
                "sandbox": { "containers": [{
                    "name": "web", "image": "i", "command": [secret], "args": ["--password", secret],
                    "env": [
                        { "name": "PASSWORD", "value": secret },
                        { "name": "FROM", "valueFrom": { "configMapKeyRef": { "name": "hello", "key": "k" } } },
                    ],
                }] },
            },
            "networkInterfaces": [], "laterField": { "deep": [secret] },
        },
    });
    let message = format!("the value {secret} is refused, and so is {secret}.");
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "NotApplied", "message": message,
        "lastTransitionTime": "2026-01-01T11:59:00Z",
    });
    let of = |plane: &str, version: &str, kind: &str, namespace: &str, name: &str, uid: &str, more: Value| {
        let mut object = json!({
            "apiVersion": version, "kind": kind,
            "metadata": {
                "namespace": namespace, "name": name, "uid": uid, "resourceVersion": "812",
                "creationTimestamp": "2026-01-01T11:58:00Z",
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": format!("{{\"x\":\"{secret}\"}}") },
                "managedFields": [
                    { "manager": "kubectl", "operation": "Apply", "time": "2026-01-01T11:58:00Z",
                      "fieldsV1": { "f:spec": { "f:template": { format!("v:\"{secret}\""): {} } } } },
                    { "manager": "compute-operator-deployment", "operation": "Apply", "subresource": "status",
                      "time": "2026-01-01T11:59:00Z", "fieldsV1": { "f:status": { "f:conditions": {}, "f:replicas": {} } } },
                ],
            },
        });
        merge(&mut object, &more);
        Entry { plane: plane.to_owned(), object }
    };
    let compute = "compute.datumapis.com/v1alpha";
    let spec = json!({
        "workloadRef": { "name": "hello", "uid": "w" }, "placementName": "edge", "cityCode": "dfw",
        "template": template, "scaleSettings": { "minReplicas": 1 },
    });
    let deployment = json!({ "spec": spec, "status": { "readyReplicas": 0, "conditions": [condition] } });
    let running = json!({
        "spec": { "runtime": template["spec"]["runtime"], "networkInterfaces": [] },
        "status": { "conditions": [condition] },
    });
    let binding = |kind: &str| {
        json!({
            "spec": { "resource": { "kind": kind }, "clusters": [{ "name": "cell-dfw" }] },
            "status": { "aggregatedStatus": [{ "clusterName": "cell-dfw", "applied": false, "appliedMessage": message }] },
        })
    };
    let work = |binding: &str| {
        json!({
            "metadata": { "annotations": { "resourcebinding.karmada.io/name": binding } },
            "spec": { "workload": { "manifests": [{
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "hello" },
                "data": { "k": secret }, "stringData": { "k": secret },
            }] } },
            "status": { "conditions": [{ "type": "Applied", "status": "True" }] },
        })
    };
    let cell_uid = json!({ "metadata": { "ownerReferences": [{ "uid": "d-cell" }] } });
    let mut network = cell_uid.clone();
    merge(&mut network, &json!({ "status": { "networkContextRef": { "namespace": "ns-1", "name": "ctx" } } }));
    let event = json!({
        "regarding": { "kind": "WorkloadDeployment", "name": "hello-edge-dfw", "uid": "d" }, "reason": "NotApplied",
        "note": message, "reportingController": "compute-operator", "eventTime": "2026-01-01T11:59:30.000000Z",
        "series": { "count": 3, "lastObservedTime": "2026-01-01T11:59:40.000000Z" },
    });
    // A server that sends more than was asked for.
    let leaked = json!({ "data": { "k": secret }, "stringData": { "k": secret }, "binaryData": { "k": secret } });
    let objects = vec![
        of(
            "project",
            compute,
            "Workload",
            "demo",
            "hello",
            "w",
            json!({
                "spec": { "template": template, "placements": [] }, "status": { "conditions": [condition] },
            }),
        ),
        of("project", compute, "WorkloadDeployment", "demo", "hello-edge-dfw", "d", deployment.clone()),
        of("project", compute, "Instance", "demo", "hello-edge-dfw-0", "i", running.clone()),
        of(
            "project",
            "quota.miloapis.com/v1alpha1",
            "ResourceClaim",
            "demo",
            "instance-hello-edge-dfw-0",
            "q",
            json!({
                "status": { "conditions": [{ "type": "Granted", "status": "True" }] },
            }),
        ),
        of("project", "v1", "ConfigMap", "demo", "hello", "s", leaked.clone()),
        of("hub", "v1", "Namespace", "", "ns-1", "n", json!({})),
        of("hub", compute, "WorkloadDeployment", "ns-1", "hello-edge-dfw", "d-hub", deployment.clone()),
        of("hub", "policy.karmada.io/v1alpha1", "PropagationPolicy", "ns-1", "city-dfw", "p", json!({})),
        of(
            "hub",
            "work.karmada.io/v1alpha2",
            "ResourceBinding",
            "ns-1",
            "hello-edge-dfw-workloaddeployment",
            "b",
            binding("WorkloadDeployment"),
        ),
        of(
            "hub",
            "work.karmada.io/v1alpha1",
            "Work",
            "karmada-es-cell-dfw",
            "hello-1",
            "k",
            work("hello-edge-dfw-workloaddeployment"),
        ),
        of("hub", "v1", "ConfigMap", "ns-1", "hello", "s-hub", leaked.clone()),
        of("hub", "work.karmada.io/v1alpha2", "ResourceBinding", "ns-1", "hello-configmap", "b2", binding("ConfigMap")),
        of("hub", "work.karmada.io/v1alpha1", "Work", "karmada-es-cell-dfw", "hello-2", "k2", work("hello-configmap")),
        of(
            "hub",
            "cluster.karmada.io/v1alpha1",
            "Cluster",
            "",
            "cell-dfw",
            "c",
            json!({
                "spec": { "proxyURL": format!("https://ada:{secret}@proxy:1"), "proxyHeader": { "Authorization": secret } },
                "status": { "message": format!("Bearer eyJhbGciOiJub25lIn0.{secret}.x is too old") },
            }),
        ),
        of("hub", compute, "Instance", "ns-1", "gone-edge-dfw-0", "stray", running.clone()),
        of("cell-dfw", compute, "WorkloadDeployment", "ns-1", "hello-edge-dfw", "d-cell", deployment),
        of(
            "cell-dfw",
            "networking.datumapis.com/v1alpha",
            "NetworkBinding",
            "ns-1",
            "hello-edge-dfw-net-0",
            "nb",
            network,
        ),
        of(
            "cell-dfw",
            "networking.datumapis.com/v1alpha",
            "SubnetClaim",
            "ns-1",
            "claim-0",
            "sc",
            json!({
                "spec": { "networkContext": { "name": "ctx" } },
                "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "Pending" }] },
            }),
        ),
        of("cell-dfw", "v1", "ConfigMap", "ns-1", "hello", "s-cell", leaked),
        of("cell-dfw", compute, "Instance", "ns-1", "hello-edge-dfw-0", "i-cell", running),
    ];
    Inventory {
        now: "2026-01-01T12:00:00Z".parse().unwrap(),
        context: "shop".to_owned(),
        namespace: "demo".to_owned(),
        hub_namespace: Some("ns-1".to_owned()),
        objects,
        events: vec![of("project", "events.k8s.io/v1", "Event", "demo", "e", "e", event)],
        unseen: vec![Unseen { plane: "hub".into(), what: "Instances".into(), why: format!("no answer: bad {secret}") }],
    }
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}
