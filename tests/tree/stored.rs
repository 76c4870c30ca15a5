//! A stored Workload that violates a newer rule of the definition stays editable. A new violation is refused.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{root, served::Server, skipping::skipped};

const CRD: &str = "crd/workloads.compute.datumapis.com";

fn definition(plural: &str) -> Value {
    let file = root().join(format!("crds/compute.datumapis.com_{plural}.yaml"));
    serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// Returns the earlier definition of Workloads. It has the template that WorkloadDeployments still accept, no rules of
/// placements, and optional fields that may be null.
fn earlier() -> Value {
    fn relaxed(schema: &mut Value) {
        let Some(parts) = schema.as_object_mut() else { return };
        for rule in ["maxItems", "maxLength", "x-kubernetes-list-type", "x-kubernetes-validations"] {
            parts.remove(rule);
        }
        parts.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten().for_each(|(_, p)| relaxed(p));
        parts.get_mut("items").into_iter().for_each(relaxed);
    }
    fn nullable(schema: &mut Value) {
        let Some(parts) = schema.as_object_mut() else { return };
        let required = parts.get("required").cloned().unwrap_or_default();
        let is_required = |name: &String| required.as_array().is_some_and(|all| all.contains(&json!(name)));
        for (name, part) in parts.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
            nullable(part);
            if !is_required(name) && part["default"].is_null() {
                part["nullable"] = json!(true);
            }
        }
        parts.get_mut("items").into_iter().for_each(nullable);
    }
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let mut earlier = definition("workloads");
    let template = definition("workloaddeployments").pointer(spec).unwrap()["properties"]["template"].clone();
    relaxed(&mut earlier.pointer_mut(spec).unwrap()["properties"]["placements"]);
    earlier.pointer_mut(spec).unwrap()["properties"]["template"] = template;
    nullable(earlier.pointer_mut(spec).unwrap());
    earlier
}

fn workload(name: &str, container: &Value, policy: &Value) -> Value {
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "template": { "spec": {
                "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [container] } },
                "networkInterfaces": [{ "network": { "name": "default" }, "networkPolicy": policy }],
            } },
            "placements": [{ "name": "main", "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 1 } }],
        },
    })
}

fn container(image: &str, env: &Value) -> Value {
    json!({ "name": "web", "image": image, "env": env })
}

/// Objects that violate one rule each, with the name of the field in the error.
fn bad() -> Vec<(&'static str, Value)> {
    let secret = json!({ "name": "db", "key": "p" });
    let of = |env: Value| workload("new", &container("nginx", &json!([env])), &json!({}));
    let port =
        |port: Value| workload("new", &container("nginx", &json!([])), &json!({ "ingress": [{ "ports": [port] }] }));
    let peer =
        |peer: Value| workload("new", &container("nginx", &json!([])), &json!({ "ingress": [{ "from": [peer] }] }));
    vec![
        ("image", workload("new", &container("nginx\n", &json!([])), &json!({}))),
        ("env[0].name", of(json!({ "name": "A=B" }))),
        ("env[0].name", of(json!({ "name": "" }))),
        ("env[0]", of(json!({ "name": "A", "value": "x", "valueFrom": { "secretKeyRef": secret } }))),
        ("env[0].valueFrom", of(json!({ "name": "A", "valueFrom": {} }))),
        (
            "env[0].valueFrom",
            of(json!({ "name": "A", "valueFrom": { "secretKeyRef": secret, "configMapKeyRef": secret } })),
        ),
        (
            "secretKeyRef.key",
            of(json!({ "name": "A", "valueFrom": { "secretKeyRef": { "name": "db", "key": "a b" } } })),
        ),
        ("ports[0].protocol", port(json!({ "protocol": "tcp" }))),
        ("ports[0].port", port(json!({ "port": 3_000_000_000_u32 }))),
        ("ports[0].port", port(json!({ "port": 0 }))),
        ("ports[0].port", port(json!({ "port": "443" }))),
        ("ports[0].endPort", port(json!({ "port": 443, "endPort": 70000 }))),
        ("from[0]", peer(json!({}))),
        ("ipBlock.cidr", peer(json!({ "ipBlock": { "cidr": "10.0.0.0/33" } }))),
        ("ipBlock.cidr", peer(json!({ "ipBlock": { "cidr": "10.0.0.1" } }))),
        ("except[0]", peer(json!({ "ipBlock": { "cidr": "10.0.0.0/16", "except": ["nowhere"] } }))),
    ]
}

fn good() -> Value {
    let env = json!([
        { "name": "A.B-c:d@e |1", "value": "several\nlines" },
        { "name": "E", "value": "", "valueFrom": { "secretKeyRef": { "name": "db", "key": ".a_b-c" } } },
    ]);
    let ports = json!([{}, { "protocol": "UDP", "port": 9000, "endPort": 9010 }, { "port": "http" }]);
    let from =
        json!([{ "ipBlock": { "cidr": "10.0.0.0/16", "except": ["10.0.1.0/24"] } }, { "ipBlock": { "cidr": "::/0" } }]);
    workload(
        "new",
        &container("[2001:db8::1]:5000/nginx:1", &env),
        &json!({ "ingress": [{ "ports": ports, "from": from }, {}] }),
    )
}

/// Returns a Workload with these fields changed, by their pointers below `spec`.
fn changed(name: &str, changes: &[(&str, Value)]) -> Value {
    let mut object = workload(name, &container("nginx", &json!([])), &json!({}));
    for (at, value) in changes {
        let (parent, field) = at.rsplit_once('/').unwrap();
        object["spec"].pointer_mut(parent).unwrap()[field] = value.clone();
    }
    object
}

const CONTAINER: &str = "/template/spec/runtime/sandbox/containers/0";

/// Objects that violate one rule about several fields each, with words of the error.
fn bad_together() -> Vec<(&'static str, Value)> {
    let placement = |name: &str| json!({ "name": name, "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 1 } });
    let scale = "/placements/0/scaleSettings";
    let target = |target: Value| json!([{ "resource": { "name": "cpu", "target": target } }]);
    let machine = json!({ "volumeAttachments": [{ "name": "data" }] });
    let both = json!({ "configMapRef": { "name": "a" }, "secretRef": { "name": "a" } });
    let of = |at: &str, value: Value| changed("new", &[(at, value)]);
    vec![
        ("each placement needs a name of its own", of("/placements", json!([placement("a"), placement("a")]))),
        ("name at least one city", of("/placements/0/cityCodes", json!([]))),
        ("spec.placements[0].cityCodes[1]: Duplicate value", of("/placements/0/cityCodes", json!(["dfw", "dfw"]))),
        ("maxReplicas must not be below", of(&format!("{scale}/maxReplicas"), json!(0))),
        ("give each metric exactly one of", of(&format!("{scale}/metrics"), target(json!({})))),
        (
            "give each metric exactly one of",
            of(&format!("{scale}/metrics"), target(json!({ "value": "1", "averageUtilization": 5 }))),
        ),
        ("leave out controller", of("/template/spec/controller", json!({ "templateHash": "h" }))),
        ("leave out location", of("/template/spec/location", json!({ "name": "dfw" }))),
        ("exactly one of sandbox and virtualMachine", of("/template/spec/runtime/virtualMachine", machine)),
        ("exactly one of disk, configMap and secret", of("/template/spec/volumes", json!([{ "name": "a" }]))),
        ("exactly one of configMapRef and secretRef", of(&format!("{CONTAINER}/envFrom"), json!([{}]))),
        ("exactly one of configMapRef and secretRef", of(&format!("{CONTAINER}/envFrom"), json!([both]))),
    ]
}

const DRY: [&str; 4] = ["create", "--dry-run=server", "-f", "-"];

#[tokio::test]
async fn stored_workload_violating_a_newer_definition_stays_editable() {
    let server = Server::start().await;
    let kubectl = |args: &[&str], input: &Value| server.kubectl(args, &input.to_string());
    let must = |args: &[&str], input: &Value| kubectl(args, input).unwrap_or_else(|why| panic!("{args:?}: {why}"));
    must(&["apply", "--server-side", "-f", "-"], &earlier());
    must(&["wait", "--for=condition=Established", CRD], &Value::Null);
    let env = json!([{ "name": "A=B", "value": "x" }, { "name": "B" }]);
    let policy = json!({ "ingress": [{ "ports": [{ "protocol": "tcp", "port": 3_000_000_000_u32 }] }] });
    must(&["create", "-f", "-"], &workload("stored", &container("nginx:1\n", &env), &policy));
    for (field, object) in bad().into_iter().chain(bad_together()) {
        kubectl(&DRY, &object).unwrap_or_else(|why| panic!("{field} was accepted before: {why}"));
    }

    must(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &definition("workloads"));
    let deadline = Instant::now() + Duration::from_secs(30);
    for (field, object) in bad().into_iter().chain(bad_together()) {
        loop {
            match kubectl(&DRY, &object) {
                Err(why) => {
                    assert!(why.contains(field), "{field}: {why}");
                    break;
                }
                Ok(_) => assert!(Instant::now() < deadline, "{field} is accepted: {object}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    must(&DRY, &good());

    let patch = |kind: &str, patch: Value, more: &[&str]| {
        let (kind, patch) = (format!("--type={kind}"), patch.to_string());
        let args = [&["patch", "workload", "stored", &*kind, "-p", &*patch], more].concat();
        kubectl(&args, &Value::Null)
    };
    let container = "/spec/template/spec/runtime/sandbox/containers/0";
    patch("merge", json!({ "metadata": { "finalizers": ["example.com/a"] } }), &[]).unwrap();
    patch("merge", json!({ "status": { "replicas": 1, "deployments": 1 } }), &["--subresource=status"]).unwrap();
    let replaced = |path: &str, value: Value| json!([{ "op": "replace", "path": path, "value": value }]);
    patch("json", replaced("/spec/placements/0/scaleSettings/minReplicas", json!(2)), &[]).unwrap();
    patch("json", replaced(&format!("{container}/image"), json!("nginx:2")), &[]).unwrap();
    patch("json", replaced(&format!("{container}/env/1/value"), json!("y")), &[]).unwrap_or_else(|_| {
        patch("json", json!([{ "op": "add", "path": format!("{container}/env/1/value"), "value": "y" }]), &[]).unwrap()
    });
    let worse = json!([{ "op": "add", "path": format!("{container}/env/-"), "value": { "name": "C=D" } }]);
    let why = patch("json", worse, &[]).unwrap_err();
    assert!(why.contains("env[2].name"), "{why}");
    patch("merge", json!({ "metadata": { "finalizers": null } }), &[]).unwrap();
    must(&["delete", "workload", "stored"], &Value::Null);
}

/// Returns a Workload that violates every rule about several fields.
fn stored_with_all() -> Value {
    let placement = json!({ "name": "a", "cityCodes": ["dfw", "dfw"], "scaleSettings": {
        "minReplicas": 3, "maxReplicas": 2, "metrics": [{ "resource": { "name": "cpu", "target": {} } }],
    } });
    let nowhere = json!({ "name": "a", "cityCodes": [], "scaleSettings": { "minReplicas": 1 } });
    changed(
        "together",
        &[
            ("/placements", json!([placement, nowhere])),
            ("/template/spec/controller", json!({ "templateHash": "h" })),
            ("/template/spec/location", json!({ "name": "dfw" })),
            ("/template/spec/runtime/virtualMachine", json!({ "volumeAttachments": [{ "name": "data" }] })),
            ("/template/spec/volumes", json!([{ "name": "data" }])),
            (&format!("{CONTAINER}/envFrom"), json!([{}])),
            (&format!("{CONTAINER}/command"), Value::Null),
            ("/template/metadata", Value::Null),
        ],
    )
}

/// A Go federation without webhooks stores such objects. Their status, finalizers and other fields must remain writable.
#[tokio::test]
async fn stored_workload_violating_newer_choices_stays_editable() {
    let server = Server::start().await;
    let kubectl = |args: &[&str], input: &Value| server.kubectl(args, &input.to_string());
    let must = |args: &[&str], input: &Value| kubectl(args, input).unwrap_or_else(|why| panic!("{args:?}: {why}"));
    must(&["apply", "--server-side", "-f", "-"], &earlier());
    must(&["wait", "--for=condition=Established", CRD], &Value::Null);
    must(&["create", "-f", "-"], &stored_with_all());
    let shown =
        || -> Value { serde_json::from_str(&must(&["get", "cwl", "together", "-o", "json"], &Value::Null)).unwrap() };
    let nulls = |shown: &Value| {
        let spec = &shown["spec"];
        [(CONTAINER, "command"), ("/template", "metadata")]
            .map(|(at, field)| spec.pointer(at).unwrap().get(field).cloned())
    };
    assert_eq!(nulls(&shown()), [Some(Value::Null), Some(Value::Null)], "nulls are stored");

    must(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &definition("workloads"));
    let deadline = Instant::now() + Duration::from_secs(30);
    while nulls(&shown()) != [None, None] {
        assert!(Instant::now() < deadline, "the nulls are still shown: {}", shown());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(shown()["status"]["observedGeneration"], -1, "nothing is observed");
    let (twice, _) = bad_together().swap_remove(0);
    let patch = |kind: &str, patch: Value, more: &[&str]| {
        let (kind, patch) = (format!("--type={kind}"), patch.to_string());
        kubectl(&[&["patch", "cwl", "together", &*kind, "-p", &*patch], more].concat(), &Value::Null)
    };
    let replaced =
        |path: &str, value: Value| json!([{ "op": "replace", "path": format!("/spec{path}"), "value": value }]);
    let applied = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload",
        "metadata": { "name": "together", "namespace": "default" }, "status": { "replicas": 1, "observedGeneration": 1 },
    });
    must(&["apply", "--server-side", "--subresource=status", "-f", "-"], &applied);
    assert_eq!((&shown()["status"]["observedGeneration"], &shown()["status"]["deployments"]), (&json!(1), &json!(0)));
    patch("merge", json!({ "metadata": { "finalizers": ["example.com/a"] } }), &[]).unwrap();
    patch("json", replaced(&format!("{CONTAINER}/image"), json!("nginx:2")), &[]).unwrap();
    patch("merge", json!({ "spec": { "template": { "spec": { "controller": { "templateHash": "i" } } } } }), &[])
        .unwrap();
    must(&["replace", "-f", "-"], &shown());
    // A list without keys is judged as a whole once it changes.
    for list in ["/placements/1/scaleSettings/minReplicas", "/placements/1/name"] {
        let value = if list.ends_with("name") { json!("b") } else { json!(2) };
        let why = patch("json", replaced(list, value), &[]).unwrap_err();
        assert!(why.contains("maxReplicas must not be below minReplicas"), "{why}");
    }
    // What an update adds is refused.
    let worse = json!([{ "op": "add", "path": "/spec/template/spec/volumes/-", "value": { "name": "b" } }]);
    let why = patch("json", worse, &[]).unwrap_err();
    assert!(why.contains("exactly one of disk, configMap and secret"), "{why}");
    let other = |name: &str| json!({ "name": name, "cityCodes": ["ord"], "scaleSettings": { "minReplicas": 1 } });
    let worse = ["b", "b"].map(|name| json!({ "op": "add", "path": "/spec/placements/-", "value": other(name) }));
    let why = patch("json", json!(worse), &[]).unwrap_err();
    assert!(why.contains(twice), "{why}");
    patch("merge", json!({ "metadata": { "finalizers": null } }), &[]).unwrap();
    must(&["delete", "cwl", "together"], &Value::Null);
}

/// Returns the command with which a page finds the stored Workloads that the definition refuses.
fn command_of_the_page() -> String {
    let page = fs::read_to_string(root().join("docs/admission.md")).unwrap();
    let mut lines =
        page.lines().filter_map(|line| line.strip_prefix("    kubectl --context PROJECT get cwl -A -o json |"));
    format!("kubectl get cwl -A -o json |{}", lines.next().expect("the page has it").replace("--context PROJECT ", ""))
}

#[tokio::test]
async fn command_of_the_page_names_stored_workloads_that_the_definition_refuses() {
    if std::process::Command::new("jq").arg("--version").output().is_err() {
        skipped("jq is not on the PATH");
        return;
    }
    let server = Server::start().await;
    let must = |args: &[&str], input: &Value| {
        server.kubectl(args, &input.to_string()).unwrap_or_else(|why| panic!("{args:?}: {why}"))
    };
    must(&["apply", "--server-side", "-f", "-"], &earlier());
    must(&["wait", "--for=condition=Established", CRD], &Value::Null);
    must(&["create", "-f", "-"], &stored_with_all());
    let mut fine = good();
    fine["metadata"]["name"] = json!("fine");
    must(&["create", "-f", "-"], &fine);
    let refusals = || {
        let out = server.shell(&command_of_the_page());
        (out.status.success(), String::from_utf8(out.stderr).unwrap())
    };
    assert_eq!(refusals(), (true, String::new()), "the earlier definition refuses none");

    must(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &definition("workloads"));
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (well, text) = refusals();
        if !well {
            assert!(text.contains("Workload \"together-"), "{text}");
            assert!(text.contains("maxReplicas must not be below minReplicas") && !text.contains("fine-"), "{text}");
            break;
        }
        assert!(Instant::now() < deadline, "none is refused");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let stored = must(&["get", "cwl", "-o", "name"], &Value::Null);
    assert_eq!(stored.lines().count(), 2, "nothing is created: {stored}");
}
