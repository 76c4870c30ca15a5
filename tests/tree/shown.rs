//! What kubectl shows of the three kinds, against the files in `tests/golden/`. `WRITE_GOLDEN=1 cargo test --test tree shown` writes
//! them.

use std::{fs, time::Duration};

use regex::Regex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{root, served::Server};

/// Compares a text with a golden file.
fn equals(file: &str, text: &str) {
    let path = root().join("tests/golden").join(file);
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let stands = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stands == text,
        "tests/golden/{file}: run `WRITE_GOLDEN=1 cargo test --test tree shown` and commit what it writes:\n{text}"
    );
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// Objects of a Workload in two cities, with their statuses. The second city waits for a cluster.
fn objects() -> Vec<(Value, Value)> {
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": kind,
            "metadata": { "name": name, "namespace": "default", "labels": {
                "compute.datumapis.com/city-code": "dfw", "compute.datumapis.com/workload-name": "hello",
            } },
            "spec": spec,
        })
    };
    let template = json!({ "spec": {
        "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [{ "name": "web", "image": "nginx" }] } },
        "networkInterfaces": [{ "network": { "name": "default" } }],
    } });
    let deployment = |city: &str| {
        object(
            "WorkloadDeployment",
            &format!("hello-edge-{city}"),
            json!({
                "workloadRef": { "name": "hello", "uid": "u" }, "placementName": "edge", "cityCode": city, "template": template,
                "scaleSettings": { "minReplicas": 2 },
            }),
        )
    };
    let waits = "No cluster of the city is ready. Nothing runs there. The platform must add one.";
    let workload = object(
        "Workload",
        "hello",
        json!({ "template": template, "placements": [
        { "name": "edge", "cityCodes": ["dfw", "ord"], "scaleSettings": { "minReplicas": 2 } },
    ] }),
    );
    vec![
        (
            workload,
            json!({
                "conditions": [
                    condition("Available", "True", "AvailablePlacementFound", "1 of 1 placements are available"),
                    condition("Ready", "False", "NotScheduled", waits),
                ],
                "deployments": 2, "replicas": 2, "currentReplicas": 2, "desiredReplicas": 4, "readyReplicas": 2,
                "updatedReplicas": 2, "observedGeneration": 1,
            }),
        ),
        (
            deployment("dfw"),
            json!({
                "conditions": [
                    condition("Available", "True", "StableInstanceFound", "2/2 instances are ready"),
                    condition("Federated", "True", "Propagated", "Applied on dfw"),
                    condition("Ready", "True", "ReplicasAvailable", "All Instances are ready"),
                ],
                "replicas": 2, "currentReplicas": 2, "desiredReplicas": 2, "readyReplicas": 2, "updatedReplicas": 2,
                "observedGeneration": 1, "location": { "name": "dfw-1" },
            }),
        ),
        (
            deployment("ord"),
            json!({
                "conditions": [
                    condition("Federated", "False", "NotScheduled", waits), condition("Ready", "False", "NotScheduled", waits),
                ],
                "replicas": 0, "currentReplicas": 0, "desiredReplicas": 2, "readyReplicas": 0,
            }),
        ),
        (
            object("Instance", "hello-edge-dfw-0", template["spec"].clone()),
            json!({
                "conditions": [
                    condition("Ready", "True", "Available", "The Instance is ready"),
                    condition("QuotaGranted", "True", "QuotaAvailable", "Quota is granted"),
                ],
                "networkInterfaces": [{ "assignments": { "networkIP": "10.0.0.2", "externalIP": "203.0.113.2" } }],
            }),
        ),
    ]
}

/// Commands on new objects, and on objects with a status.
const NEW: [&str; 1] = ["get compute"];
const REPORTED: [&str; 6] = [
    "get compute",
    "get compute -o wide",
    "get cwl,wd,cinst",
    "get computeworkloads",
    "get wd --field-selector spec.cityCode=ord",
    "get wd --field-selector spec.workloadRef.name=another",
];

/// Fields that tenants ask about.
const EXPLAINED: [&str; 9] = [
    "cwl.spec.placements",
    "cwl.spec.placements.scaleSettings",
    "cwl.spec.template.spec.networkInterfaces",
    "cwl.spec.template.spec.runtime",
    "cwl.spec.template.spec.runtime.resources",
    "cwl.spec.template.spec.runtime.sandbox.containers.env.valueFrom",
    "cwl.spec.template.spec.volumes",
    "wd.spec.replicas",
    "wd.status",
];

#[tokio::test]
async fn kubectl_shows_and_explains_the_kinds_as_in_the_golden_files() {
    let server = Server::start().await;
    let kubectl =
        |args: &[&str], input: &str| server.kubectl(args, input).unwrap_or_else(|why| panic!("{args:?}: {why}"));
    kubectl(&["apply", "-f", "crds/"], "");
    let kinds =
        ["workloads", "workloaddeployments", "instances"].map(|kind| format!("crd/{kind}.compute.datumapis.com"));
    let established: Vec<&str> = kinds.iter().map(String::as_str).collect();
    kubectl(&[&["wait", "--for=condition=Established"], &established[..]].concat(), "");
    let age = Regex::new(r"(?m)[0-9]+s$").unwrap();
    let run = |command: &str| {
        let shown = kubectl(&command.split(' ').collect::<Vec<_>>(), "");
        // The age is the last column, so its width moves nothing.
        format!("$ kubectl {command}\n{}\n", age.replace_all(&shown, "5s"))
    };
    for (object, _) in objects() {
        kubectl(&["create", "-f", "-"], &object.to_string());
    }
    let mut shown: String = NEW.map(run).concat();
    for (object, status) in objects() {
        let name = format!("{}/{}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let name = name.replace("Workload/", "cwl/");
        let patch = format!("--patch={}", json!({ "status": status }));
        kubectl(&["patch", &name, "--type=merge", "--subresource=status", &patch], "");
    }
    shown.push_str(&REPORTED.map(run).concat());
    equals("get.txt", &shown);
    // The API server publishes the schemas some seconds after it serves the kinds.
    let deadline = Instant::now() + Duration::from_mins(1);
    while let Err(why) = server.kubectl(&["explain", "wd.spec.replicas"], "") {
        assert!(Instant::now() < deadline, "{why}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    equals("explain.txt", &EXPLAINED.map(|field| run(&format!("explain {field}"))).concat());
}
