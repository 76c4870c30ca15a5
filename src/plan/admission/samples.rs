//! Valid Workloads, and generated ones with many violations. Tests on servers include this file too, so it uses nothing of this
//! crate.

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

const SSH_KEYS: &str = "compute.datumapis.com/ssh-keys";

pub const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1vmw8eC7iFsS1rKzBBkOuXrhWPDNlD1cHLWS7lHEYf";

/// A valid Workload of containers.
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

/// A valid virtual machine.
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

/// Sets the value at `path`, which has dots and item numbers; `null` removes it.
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

/// Fields that a generated Workload may have wrong.
const FIELDS: [&str; 30] = [
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
    "spec.placements.0.scaleSettings.metrics.0.resource.target.averageUtilization",
    "spec.placements.0.scaleSettings.metrics.0.resource.target.value",
    "spec.template.spec.networkInterfaces.0.name",
    "spec.template.spec.networkInterfaces.0.addresses",
    "spec.template.spec.networkInterfaces.0.ipFamilies",
    "spec.template.spec.runtime.class",
    "spec.template.spec.networkInterfaces.0.networkPolicy",
    "spec.template.spec.runtime.sandbox.containers.0.env.0.name",
    "spec.template.spec.runtime.sandbox.containers.0.env.0.value",
    "spec.template.spec.runtime.sandbox.containers.0.env.0.valueFrom.secretKeyRef.key",
    "spec.template.spec.runtime.sandbox.containers.0.ports.0.protocol",
    "spec.template.spec.volumes.0.configMap.items.0.path",
    "spec.template.spec.runtime.sandbox.containers.0.securityContext",
];

/// Lists in which a generated Workload may repeat an item.
const LISTS: [&str; 7] = [
    "spec.placements",
    "spec.template.spec.networkInterfaces",
    "spec.template.spec.volumes",
    "spec.template.spec.runtime.sandbox.containers",
    "spec.template.spec.runtime.sandbox.containers.0.env",
    "spec.template.spec.runtime.sandbox.containers.0.ports",
    "spec.template.spec.runtime.sandbox.imagePullSecrets",
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
        " 25Gi",
        "settings",
        "San Jose",
        "datumcloud/d1-standard-2",
        "TCP",
        "tcp",
        "A=B",
        "..data",
        "nginx:1\n",
        "10.0.0.0/16",
        "10.0.0.0/33",
    ];
    prop_oneof![3 => select(good.to_vec()).prop_map(str::to_owned), 1 => ".{0,12}", 1 => long]
}

/// A random ingress policy; its ports and ranges may be invalid.
fn policy() -> impl Strategy<Value = Value> {
    let number = prop_oneof![Just(0_u32), Just(80), Just(65535), Just(65536), Just(3_000_000_000)];
    let port = prop_oneof![2 => number.prop_map(Value::from), 1 => text().prop_map(Value::from)];
    let protocol = prop::option::of(select(vec!["TCP", "UDP", "SCTP", "tcp", "ICMP"]));
    let except = prop::collection::vec(select(vec!["10.0.1.0/24", "10.0.0.0/16", "192.168.0.0/24", "x"]), 0..2);
    let range = select(vec!["10.0.0.0/16", "2001:db8::/64", "10.0.0.1", "::ffff:10.0.0.0/120", ""]);
    let rule = (protocol, prop::option::of(port), prop::option::of(0..70_000_i32), range, except);
    rule.prop_map(|(protocol, port, end, range, except)| {
        let mut ports = json!({ "protocol": protocol, "port": port, "endPort": end });
        ports.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        json!({ "ingress": [{ "ports": [ports], "from": [{ "ipBlock": { "cidr": range, "except": except } }] }] })
    })
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
        1 => prop::collection::vec(text(), 0..3).prop_map(|added| json!({ "capabilities": { "add": added } })),
        1 => (-1..4_i32).prop_map(Value::from),
        2 => policy(),
        2 => placement,
    ]
}

/// Returns the Workload with this field changed, if the field's parent exists.
fn edited(workload: Value, path: &str, value: Value) -> Value {
    let parent = path.rsplit_once('.').map(|(parent, _)| format!("/{}", parent.replace('.', "/")));
    let is_there =
        parent.and_then(|parent| workload.pointer(&parent).map(|parent| parent.is_object() || parent.is_array()));
    if is_there == Some(true) { set(workload, path, value) } else { workload }
}

/// True if only a Workload of containers has this field.
fn is_of_containers(path: &str) -> bool {
    ["sandbox", "configMap", "volumes.1"].iter().any(|part| path.contains(part))
}

/// Returns the Workload with the first item of a list repeated at its end. A value that is no list is left unchanged.
fn twice(mut workload: Value, path: &str) -> Value {
    let list = workload.pointer_mut(&format!("/{}", path.replace('.', "/"))).and_then(Value::as_array_mut);
    if let Some(list) = list {
        list.extend(list.first().cloned());
    }
    workload
}

/// Random Workloads with a few wrong fields.
pub fn workload() -> impl Strategy<Value = Value> {
    let edits = prop::collection::vec((select(FIELDS.to_vec()), value()), 0..4);
    let repeated = prop_oneof![3 => Just(None), 1 => select(LISTS.to_vec()).prop_map(Some)];
    (any::<bool>(), edits, repeated).prop_map(|(is_machine, edits, repeated)| {
        let base = if is_machine { machine() } else { containers() };
        let edits = edits.into_iter().filter(|(path, _)| !is_machine || !is_of_containers(path));
        let workload = edits.fold(base, |workload, (path, value)| edited(workload, path, value));
        match repeated {
            Some(path) => twice(workload, path),
            None => workload,
        }
    })
}
