//! Workloads that nothing is wrong with, and generated ones with which much is. The tests on servers have them, too, so
//! that nothing here is of this crate.

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

const SSH_KEYS: &str = "compute.datumapis.com/ssh-keys";

pub const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1vmw8eC7iFsS1rKzBBkOuXrhWPDNlD1cHLWS7lHEYf";

/// A Workload of containers that nothing is wrong with.
pub fn containers() -> Value {
    json!({
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "template": {
                "metadata": { "labels": { "app": "web" }, "annotations": { "example.com/note": "any text" } },
                "spec": {
                    "runtime": { "resources": { "instanceType": "datumcloud/d1-standard-2" }, "sandbox": {
                        "containers": [{
                            "name": "web", "image": "docker.io/library/nginx:1",
                            "env": [{ "name": "P", "valueFrom": { "secretKeyRef": { "name": "db", "key": "p" } } }],
                            "envFrom": [{ "prefix": "S_", "configMapRef": { "name": "settings" } }],
                            "volumeAttachments": [
                                { "name": "files", "mountPath": "/files" },
                                { "name": "data", "mountPath": "/data" },
                            ],
                            "ports": [{ "name": "http", "port": 80 }],
                        }],
                        "imagePullSecrets": [{ "name": "registry" }],
                    } },
                    "networkInterfaces": [{ "network": { "name": "default" } }],
                    "volumes": [
                        { "name": "files", "configMap": { "name": "files", "defaultMode": 0o644,
                            "items": [{ "key": "a", "path": "a/b", "mode": 0o600 }] } },
                        { "name": "data", "disk": { "template": { "spec": {
                            "type": "pd-standard", "resources": { "requests": { "storage": "10Gi" } },
                            "populator": { "filesystem": { "type": "ext4" } } } } } },
                    ],
                },
            },
            "placements": [{ "name": "main", "cityCodes": ["DFW"], "scaleSettings": {
                "minReplicas": 2, "maxReplicas": 3,
                "metrics": [{ "resource": { "name": "cpu", "target": { "averageUtilization": 80 } } }],
            } }],
        },
    })
}

/// A virtual machine that nothing is wrong with.
pub fn machine() -> Value {
    let mut workload = containers();
    let template = &mut workload["spec"]["template"];
    template["metadata"]["annotations"] = json!({ SSH_KEYS: format!("me:{KEY}\n\nyou:{KEY} you@home\n") });
    template["spec"]["runtime"] = json!({
        "resources": { "instanceType": "datumcloud/d1-standard-2" },
        "virtualMachine": { "volumeAttachments": [{ "name": "boot" }], "ports": [{ "name": "ssh", "port": 22 }] },
    });
    template["spec"]["volumes"] = json!([
        { "name": "boot", "disk": { "template": { "spec": { "type": "pd-standard",
            "populator": { "image": { "name": "datumcloud/ubuntu-2204-lts" } } } } } },
    ]);
    workload
}

/// `path` in dots, with numbers for items; `null` takes away.
pub fn set(mut workload: Value, path: &str, value: Value) -> Value {
    let mut at = &mut workload;
    for part in path.split('.') {
        at = match part.parse::<usize>() {
            Ok(index) => {
                let list = at.as_array_mut().unwrap();
                if index == list.len() {
                    list.push(Value::Null);
                }
                &mut list[index]
            }
            Err(_) => &mut at[part],
        };
    }
    *at = value;
    workload
}

/// Fields that somebody may have got wrong, each with what he may have written there.
const FIELDS: [&str; 17] = [
    "metadata.name",
    "metadata.namespace",
    "spec.placements.0.name",
    "spec.placements.0.cityCodes",
    "spec.placements.1",
    "spec.placements.0.scaleSettings",
    "spec.template.metadata.labels",
    "spec.template.metadata.annotations",
    "spec.template.spec.networkInterfaces.0.network.name",
    "spec.template.spec.networkInterfaces.0.network.namespace",
    "spec.template.spec.runtime.resources.instanceType",
    "spec.template.spec.runtime.sandbox.containers.0.image",
    "spec.template.spec.runtime.sandbox.containers.0.env.0.valueFrom.secretKeyRef.name",
    "spec.template.spec.runtime.sandbox.imagePullSecrets",
    "spec.template.spec.volumes.0.configMap.name",
    "spec.template.spec.volumes.0.name",
    "spec.template.spec.volumes.1.disk.template.spec.resources",
];

fn text() -> impl Strategy<Value = String> {
    let long = (1_usize..300).prop_map(|length| "x".repeat(length));
    let good = [
        "web",
        "default",
        "dfw",
        "DFW",
        "shop",
        "a-b",
        "a.b",
        "10Gi",
        "settings",
        "San Jose",
        "datumcloud/d1-standard-2",
    ];
    prop_oneof![3 => select(good.to_vec()).prop_map(str::to_owned), 1 => ".{0,12}", 1 => long]
}

fn value() -> impl Strategy<Value = Value> {
    let placement = (text(), prop::collection::vec(text(), 0..3), -2..1003_i32, prop::option::of(-2..5_i32)).prop_map(
        |(name, cities, min, max)| {
            json!({ "name": name, "cityCodes": cities, "scaleSettings": { "minReplicas": min, "maxReplicas": max } })
        },
    );
    prop_oneof![
        4 => text().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => prop::collection::vec(text(), 0..4).prop_map(Value::from),
        1 => prop::collection::vec(text(), 0..3).prop_map(|names| names.into_iter().map(|name| json!({ "name": name })).collect()),
        1 => prop::collection::btree_map(text(), text(), 0..3).prop_map(|map| json!(map)),
        1 => (-1..1002_i32).prop_map(|replicas| json!({ "minReplicas": replicas })),
        1 => text().prop_map(|amount| json!({ "requests": { "storage": amount } })),
        2 => placement,
    ]
}

/// Workloads of which a few fields are other than they should be.
pub fn workload() -> impl Strategy<Value = Value> {
    let edits = prop::collection::vec((select(FIELDS.to_vec()), value()), 0..4);
    (any::<bool>(), edits).prop_map(|(is_machine, edits)| {
        let base = if is_machine { machine() } else { containers() };
        let edited = edits.into_iter().filter(|(path, _)| {
            !is_machine || !path.contains("sandbox") && !path.contains("configMap") && !path.contains("volumes.1")
        });
        edited.fold(base, |workload, (path, value)| set(workload, path, value))
    })
}
