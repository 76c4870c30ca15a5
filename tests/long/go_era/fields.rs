//! Every field of a Workload from the Go operator can be changed, added and removed, and the change arrives in the cell.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::Place;

use crate::common::{World, api, apply, eventually, get, list, network, path, ready};

/// Returns a template with every field of a sandbox, each with another value than the Go program has written.
fn sandbox(ns: &str) -> Value {
    json!({
        "metadata": {
            "name": "ignored", "namespace": ns, "labels": { "app": "web", "tier": "front" },
            "annotations": { "example.com/note": "second" }, "finalizers": ["example.com/ignored"],
        },
        "spec": {
            "runtime": {
                "class": "fast",
                "resources": { "instanceType": "datumcloud/d1-standard-2", "requests": { "cpu": "2", "memory": "1Gi" } },
                "sandbox": {
                    "imagePullSecrets": [{ "name": "app-secret" }],
                    "containers": [container()],
                },
            },
            "networkInterfaces": [{
                "name": "eth1", "network": { "name": "second", "namespace": ns }, "ipFamilies": ["IPv4", "IPv6"],
                "addresses": [{ "class": "public-ipv4" }], "reclaimPolicy": "Retain",
                "networkPolicy": { "ingress": [{
                    "ports": [{ "protocol": "TCP", "port": 80, "endPort": 90 }],
                    "from": [{ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"] } }],
                }] },
            }],
            "volumes": [
                { "name": "files", "configMap": {
                    "name": "app-config", "optional": true, "defaultMode": 420, "defaultUser": 7,
                    "items": [{ "key": "greeting", "path": "g", "mode": 256, "user": 8 }],
                } },
                { "name": "keys", "secret": {
                    "secretName": "app-secret", "optional": true, "defaultMode": 256, "defaultUser": 7,
                    "items": [{ "key": "k", "path": "k", "mode": 256, "user": 8 }],
                } },
            ],
        },
    })
}

fn container() -> Value {
    let from = |field: &str, value: Value| json!({ "name": field, "valueFrom": { field: value } });
    json!({
        "name": "c", "image": "docker.io/library/nginx:2", "command": ["nginx-debug"], "args": ["-q"],
        "env": [
            { "name": "MODE", "value": "second" },
            from("configMapKeyRef", json!({ "name": "app-config", "key": "greeting", "optional": true })),
            from("secretKeyRef", json!({ "name": "app-secret", "key": "k", "optional": true })),
            from("fieldRef", json!({ "apiVersion": "v1", "fieldPath": "metadata.name" })),
            from("fileKeyRef", json!({ "volumeName": "files", "path": "g", "key": "k", "optional": true })),
            from("resourceFieldRef", json!({ "containerName": "c", "resource": "limits.cpu", "divisor": "1m" })),
        ],
        "envFrom": [
            { "prefix": "A_", "configMapRef": { "name": "app-config", "optional": true } },
            { "secretRef": { "name": "app-secret", "optional": true } },
        ],
        "resources": { "limits": { "cpu": "1", "memory": "512Mi" }, "requests": { "cpu": "1" } },
        "volumeAttachments": [{ "name": "files", "mountPath": "/etc/other" }, { "name": "keys", "mountPath": "/keys" }],
        "ports": [{ "name": "http", "port": 8081, "protocol": "UDP" }],
        "securityContext": {
            "capabilities": { "add": ["SYS_TIME"], "drop": ["CHOWN"] }, "allowPrivilegeEscalation": true,
            "seccompProfile": { "type": "Unconfined" },
        },
    })
}

/// Returns a template with every field of a virtual machine.
fn machine() -> Value {
    let size = |storage: &str| json!({ "requests": { "storage": storage } });
    json!({
        "metadata": { "annotations": { "compute.datumapis.com/ssh-keys": "ada:ssh-ed25519 AAAAother" } },
        "spec": {
            "runtime": {
                "resources": { "instanceType": "datumcloud/d1-standard-2" },
                "virtualMachine": {
                    "volumeAttachments": [{ "name": "boot", "mountPath": "/" }, { "name": "data", "mountPath": "/data" }],
                    "ports": [{ "name": "ssh", "port": 2222, "protocol": "TCP" }],
                },
            },
            "networkInterfaces": [{ "network": { "name": "default" } }],
            "volumes": [
                { "name": "boot", "disk": { "deviceName": "first", "template": { "spec": {
                    "type": "pd-standard", "resources": size("40Gi"), "populator": { "image": { "name": "another" } },
                } } } },
                { "name": "data", "disk": { "template": {
                    "metadata": {
                        "name": "d", "namespace": "n", "labels": { "a": "b" }, "annotations": { "c": "d" },
                        "finalizers": ["example.com/ignored"],
                    },
                    "spec": { "type": "pd-standard", "populator": { "filesystem": { "type": "ext4" } } },
                } } },
            ],
        },
    })
}

/// Returns a template with required fields only.
fn bare(runtime: &str) -> Value {
    let part = match runtime {
        "sandbox" => json!({ "containers": [{ "name": "c", "image": "docker.io/library/nginx:3" }] }),
        _ => json!({ "volumeAttachments": [{ "name": "boot" }] }),
    };
    let mut spec = json!({
        "runtime": { "resources": { "instanceType": "datumcloud/d1-standard-2" }, runtime: part },
        "networkInterfaces": [{ "network": { "name": "default" } }],
    });
    if runtime != "sandbox" {
        spec["volumes"] = json!([{ "name": "boot", "disk": { "template": { "spec": { "type": "pd-standard" } } } }]);
    }
    json!({ "spec": spec })
}

/// Collects the paths of all leaves of a value.
fn leaves(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| leaves(value, &format!("{at}.{key}"), found)),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, &format!("{at}[]"), found)),
        _ => drop(found.insert(at.to_owned())),
    }
}

/// Collects the paths of all leaves that a schema allows. A map with free keys counts as one leaf.
fn of_schema(schema: &Value, at: &str, found: &mut BTreeSet<String>) {
    if let Some(fields) = schema["properties"].as_object() {
        fields.iter().for_each(|(key, schema)| of_schema(schema, &format!("{at}.{key}"), found));
    } else if schema["type"] == "array" {
        of_schema(&schema["items"], &format!("{at}[]"), found);
    } else {
        found.insert(at.to_owned());
    }
}

/// Fails if a field of the definition is in none of these templates.
fn assert_has_every_field(templates: &[Value]) {
    let text = std::fs::read_to_string(path("crds/compute.datumapis.com_workloads.yaml")).unwrap();
    let definition = testbed::manifests::documents(&text).unwrap().remove(0);
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    let (mut wanted, mut there) = (BTreeSet::new(), BTreeSet::new());
    of_schema(&schema["template"], "", &mut wanted);
    // Controllers write these fields into Instances.
    wanted.retain(|path| !path.starts_with(".spec.controller") && !path.starts_with(".spec.location"));
    for template in templates {
        leaves(template, "", &mut there);
    }
    let has = |path: &String| there.iter().any(|leaf| leaf == path || leaf.starts_with(&format!("{path}.")));
    let missing: Vec<&String> = wanted.iter().filter(|path| !has(path)).collect();
    assert!(!wanted.is_empty() && missing.is_empty(), "{missing:?}");
}

/// The next template and placement of a Workload.
struct Wanted {
    name: &'static str,
    template: Value,
    placement: Value,
    replicas: u64,
}

/// Replaces the whole Workload, as a tenant's editor does.
async fn edit(world: &World, ns: &str, wanted: &Wanted) {
    let workloads = api(&world.project, "Workload", ns);
    eventually(&format!("{} is edited", wanted.name), || async {
        let mut live = workloads.get(wanted.name).await.map_err(|e| e.to_string())?;
        live.data["spec"] = json!({ "template": wanted.template, "placements": [wanted.placement] });
        workloads
            .replace(wanted.name, &kube::api::PostParams::default(), &live)
            .await
            .map(drop)
            .map_err(|e| e.to_string())
    })
    .await;
}

/// Returns a value without its empty parts, which count as absent. Go writes them, and they stay.
fn whole(value: &Value) -> Value {
    let is_empty = |value: &Value| {
        value.is_null()
            || value.as_object().is_some_and(serde_json::Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty)
    };
    match value {
        Value::Object(fields) => {
            let members = fields.iter().map(|(key, value)| (key.clone(), whole(value)));
            Value::Object(members.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => items.iter().map(whole).collect(),
        other => other.clone(),
    }
}

/// Waits until each city's deployment and its Instances have exactly the Workload's template.
async fn arrives(world: &World, place: &Place, wanted: &Wanted) {
    let tenants = ready(world, &place.ns, wanted.name, wanted.replicas).await;
    let template = whole(&tenants.data["spec"]["template"]);
    for city in wanted.placement["cityCodes"].as_array().unwrap() {
        let city = city.as_str().unwrap();
        let cell = if city == "dfw" { &world.dfw } else { &world.ord };
        let name = format!("{}-p-{city}", wanted.name);
        let deployment = get(cell, "WorkloadDeployment", &place.hub, &name).await.unwrap();
        assert_eq!(whole(&deployment.data["spec"]["template"]), template, "{name}");
        let mut settings = wanted.placement["scaleSettings"].clone();
        settings["instanceManagementPolicy"] = json!("OrderedReady");
        assert_eq!(deployment.data["spec"]["scaleSettings"], settings, "{name}");
        for mut instance in list(cell, "Instance", &place.hub).await {
            if instance.labels().get("compute.datumapis.com/workload-deployment-name") == Some(&name) {
                let spec = instance.data["spec"].as_object_mut().unwrap();
                spec.remove("controller");
                spec.remove("location");
                assert_eq!(whole(&instance.data["spec"]), template["spec"], "{name}");
            }
        }
    }
}

/// Changes and adds every field, then removes all optional ones. Asserts each time that everything arrives.
pub async fn follow(world: &World, place: &Place) {
    let all = [sandbox(&place.ns), machine()];
    assert_has_every_field(&all);
    apply(&world.project, network(&place.ns, "second")).await;
    let placement =
        |cities: &[&str], settings: Value| json!({ "name": "p", "cityCodes": cities, "scaleSettings": settings });
    let scaled = |most: u32| {
        let target = json!({ "averageUtilization": 70 });
        json!({ "minReplicas": 1, "maxReplicas": most, "metrics": [{ "resource": { "name": "cpu", "target": target } }] })
    };
    let [sandbox, machine] = all;
    let (plain, one) = (json!({ "minReplicas": 3 }), json!({ "minReplicas": 1 }));
    let more = [
        Wanted { name: "web", template: sandbox.clone(), placement: placement(&["dfw", "ord"], plain), replicas: 6 },
        Wanted { name: "vm", template: machine, placement: placement(&["dfw"], scaled(4)), replicas: 1 },
        // The operator keeps the autoscaler's number while the tenant requests autoscaling.
        Wanted { name: "late", template: sandbox, placement: placement(&["ord"], scaled(5)), replicas: 2 },
    ];
    let less = [
        Wanted { name: "web", template: bare("sandbox"), placement: placement(&["dfw"], one.clone()), replicas: 1 },
        Wanted {
            name: "vm",
            template: bare("virtualMachine"),
            placement: placement(&["dfw"], one.clone()),
            replicas: 1,
        },
        Wanted { name: "late", template: bare("sandbox"), placement: placement(&["ord"], one), replicas: 1 },
    ];
    for step in [more, less] {
        for wanted in &step {
            edit(world, &place.ns, wanted).await;
        }
        for wanted in &step {
            arrives(world, place, wanted).await;
        }
    }
}
