//! A stored Workload that violates a newer rule of the definition stays editable. A new violation is refused.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{root, served::Server};

const CRD: &str = "crd/workloads.compute.datumapis.com";

fn definition(plural: &str) -> Value {
    let file = root().join(format!("crds/compute.datumapis.com_{plural}.yaml"));
    serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// Returns the earlier definition of Workloads, with the template that WorkloadDeployments still accept.
fn earlier() -> Value {
    let template = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/template";
    let mut earlier = definition("workloads");
    *earlier.pointer_mut(template).unwrap() = definition("workloaddeployments").pointer(template).unwrap().clone();
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
    for (field, object) in bad() {
        kubectl(&DRY, &object).unwrap_or_else(|why| panic!("{field} was accepted before: {why}"));
    }

    must(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &definition("workloads"));
    let deadline = Instant::now() + Duration::from_secs(30);
    for (field, object) in bad() {
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
