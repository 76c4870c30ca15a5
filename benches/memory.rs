//! How much memory the manager takes beside many objects that are none of its business, and while it copies.
//!
//! `cargo bench --bench memory [-- <unrelated objects>]` prints one line per situation: resident memory (and its peak)
//! of the same manager, on real API servers, beside so many unrelated ConfigMaps and Secrets of 1 KiB each in the project
//! and on the hub (100,000 unless said otherwise, half of each kind).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{fs, path::Path, time::Duration};

use futures::{StreamExt, stream};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::{Value, json};
use testbed::{Options, Testbed, operator::Operator};
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "shop";
/// Deployments of the last situation, and Secrets of 64 KiB that each refers to.
const DEPLOYMENTS: usize = 100;
const SECRETS: usize = 10;

#[tokio::main]
async fn main() {
    let unrelated = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(100_000);
    let bed = Testbed::start(Options { cells: vec!["dfw".into()], provider: false, ..Options::default() }, &|text| {
        eprintln!("{text}");
    })
    .await
    .unwrap();
    let (project, hub) = (bed.project.client().await.unwrap(), bed.hub.client().await.unwrap());
    create(&project, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })).await;
    // One deployment that refers to a Secret: so that sources are watched at all.
    create(&project, secret("first", 1 << 10)).await;
    create(&project, deployment("first", &["first".into()])).await;
    println!("{:<58} {:>9} {:>9}", "", "resident", "peak");

    let manager = start(&bed).await;
    companions(&hub, 1).await;
    settle(&manager, "alone").await;
    drop(manager);

    eprintln!("creating {unrelated} unrelated objects in the project, and as many on the hub");
    let began = Instant::now();
    for client in [&project, &hub] {
        create(client, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "unrelated" } })).await;
        stream::iter(0..unrelated).for_each_concurrent(32, |n| create(client, noise(n))).await;
    }
    eprintln!("done after {:.0} s", began.elapsed().as_secs_f64());
    let manager = start(&bed).await;
    sleep(Duration::from_secs(20)).await; // sources are listed in pages; nothing tells from outside when that is done
    settle(&manager, &format!("beside {unrelated} unrelated objects on each of both")).await;

    let began = Instant::now();
    for n in 0..DEPLOYMENTS {
        let names: Vec<String> = (0..SECRETS).map(|m| format!("data-{n}-{m}")).collect();
        stream::iter(&names).for_each_concurrent(8, |name| create(&project, secret(name, 64 << 10))).await;
        create(&project, deployment(&format!("wd-{n}"), &names)).await;
    }
    companions(&hub, 1 + DEPLOYMENTS * SECRETS).await;
    eprintln!("copied after {:.1} s", began.elapsed().as_secs_f64());
    settle(&manager, &format!("and {} companions of 64 KiB, copied", DEPLOYMENTS * SECRETS)).await;
    drop(manager);
    let manager = start(&bed).await;
    sleep(Duration::from_secs(20)).await;
    settle(&manager, "the same, started anew").await;
}

async fn start(bed: &Testbed) -> Operator {
    let binary = Path::new(env!("CARGO_BIN_EXE_compute-operator"));
    let mut manager = Operator::management(bed, binary, "operator-management", &["--zap-log-level=info"]).unwrap();
    manager.wait_ready().await.unwrap();
    manager
}

/// Waits until the manager's memory stays as it is, and prints it.
async fn settle(manager: &Operator, what: &str) {
    let mut before = 0;
    for _ in 0..60 {
        sleep(Duration::from_secs(2)).await;
        let now = memory(manager, "VmRSS");
        if now == before {
            break;
        }
        before = now;
    }
    let mib = |field| format!("{:.1} MiB", f64::from(memory(manager, field)) / 1024.0);
    println!("{what:<58} {:>9} {:>9}", mib("VmRSS"), mib("VmHWM"));
}

fn memory(manager: &Operator, field: &str) -> u32 {
    let status = fs::read_to_string(format!("/proc/{}/status", manager.process.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Waits until the hub has this many companions.
async fn companions(hub: &Client, count: usize) {
    let api: Api<DynamicObject> = Api::all_with(hub.clone(), &resource("Secret"));
    let ours = ListParams::default().labels("compute.datumapis.com/referenced-data=true");
    let deadline = Instant::now() + Duration::from_mins(5);
    while api.list_metadata(&ours).await.unwrap().items.len() < count {
        assert!(Instant::now() < deadline, "{count} companions: not within 5 minutes");
        sleep(Duration::from_millis(200)).await;
    }
}

fn noise(n: usize) -> Value {
    let kind = if n.is_multiple_of(2) { "ConfigMap" } else { "Secret" };
    let field = if kind == "Secret" { "stringData" } else { "data" };
    json!({
        "apiVersion": "v1", "kind": kind, "metadata": { "namespace": "unrelated", "name": format!("noise-{n}") },
        field: { "key": "x".repeat(1 << 10) },
    })
}

fn secret(name: &str, size: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": NAMESPACE, "name": name },
        "stringData": { "key": "x".repeat(size) },
    })
}

fn deployment(name: &str, secrets: &[String]) -> Value {
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

fn resource(kind: &str) -> ApiResource {
    let (group, version) = if kind == "WorkloadDeployment" { ("compute.datumapis.com", "v1alpha") } else { ("", "v1") };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

async fn create(client: &Client, object: Value) {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource(&kind)),
        None => Api::all_with(client.clone(), &resource(&kind)),
    };
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}
