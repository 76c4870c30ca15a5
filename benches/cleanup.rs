//! How long it takes, and what it costs, until nothing is left of many deployments that share companions.
//!
//! `cargo bench --bench cleanup [-- <deployments> <companions>]` (2,000 and 500 unless said otherwise), on real API servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{path::Path, time::Duration};

use futures::{StreamExt, stream};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::{Value, json};
use testbed::{Options, Testbed, audit::Audit, operator::Operator};
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "shop";
/// Companions that each deployment uses.
const EACH: usize = 2;

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let (deployments, companions) = (numbers.next().unwrap_or(2000), numbers.next().unwrap_or(500));
    let options = Options {
        cells: vec!["dfw".into()],
        provider: false,
        management: "cleanup:\n  sweepIntervalSeconds: 20\n".into(),
        ..Options::default()
    };
    let bed = Testbed::start(options, &|text| eprintln!("{text}")).await.unwrap();
    let (project, hub) = (bed.project.client().await.unwrap(), bed.hub.client().await.unwrap());
    let cell = bed.cell("dfw").unwrap().client().await.unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_compute-operator"));
    let mut manager = Operator::management(&bed, binary, "operator-management", &["--zap-log-level=info"]).unwrap();
    manager.wait_ready().await.unwrap();

    create(&project, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })).await;
    stream::iter(0..companions).for_each_concurrent(32, |n| create(&project, secret(n))).await;
    let began = Instant::now();
    stream::iter(0..deployments).for_each_concurrent(32, |n| create(&project, deployment(n, companions))).await;
    wait("all is on the cell", || async {
        count(&cell, "WorkloadDeployment").await == deployments && count(&cell, "Secret").await == companions
    })
    .await;
    println!(
        "{deployments} deployments and {companions} companions on the cell after {:.1} s",
        began.elapsed().as_secs_f64()
    );
    wait("it is quiet", || async {
        let mark = Audit::mark(&bed.hub);
        sleep(Duration::from_secs(3)).await;
        mark.requests().unwrap().iter().all(|request| request.verb == "list")
    })
    .await;

    // What a sweep of an idle hub asks for.
    let mark = Audit::mark(&bed.hub);
    sleep(Duration::from_secs(21)).await;
    let lists: Vec<String> =
        mark.requests().unwrap().iter().map(|request| format!("{} {}", request.verb, request.resource)).collect();
    println!("one sweep of the idle hub: {}", lists.join(", "));

    let marks = [Audit::mark(&bed.project), Audit::mark(&bed.hub)];
    let began = Instant::now();
    let all: Api<DynamicObject> = Api::namespaced_with(project.clone(), NAMESPACE, &resource("WorkloadDeployment"));
    all.delete_collection(&DeleteParams::background(), &ListParams::default()).await.unwrap();
    wait("the project is clean", || async { count(&project, "WorkloadDeployment").await == 0 }).await;
    println!("project clean after {:.1} s", began.elapsed().as_secs_f64());
    wait("the hub is clean", || async {
        count(&hub, "WorkloadDeployment").await + count(&hub, "Secret").await + count(&hub, "ResourceBinding").await
            == 0
    })
    .await;
    println!("hub clean after {:.1} s", began.elapsed().as_secs_f64());
    wait("the cell is clean", || async {
        count(&cell, "WorkloadDeployment").await + count(&cell, "Secret").await == 0
    })
    .await;
    println!("cell clean after {:.1} s", began.elapsed().as_secs_f64());
    for (name, mark) in ["project", "hub"].into_iter().zip(&marks) {
        let requests = mark.requests().unwrap();
        let mut kinds = std::collections::BTreeMap::new();
        for request in &requests {
            *kinds.entry(format!("{} {}", request.verb, request.resource)).or_insert(0) += 1;
        }
        let each = requests.len() * 100 / (deployments + companions);
        let (all, whole, part) = (requests.len(), each / 100, each % 100);
        println!("{name}: {all} requests, {whole}.{part:02} for each deployment or companion: {kinds:?}");
    }
}

async fn wait<F: Future<Output = bool>>(what: &str, check: impl Fn() -> F) {
    let deadline = Instant::now() + Duration::from_mins(8);
    while !check().await {
        assert!(Instant::now() < deadline, "{what}: not within 8 minutes");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Objects of ours: those that the operator brought, where others may be.
async fn count(client: &Client, kind: &str) -> usize {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
    let ours = if kind == "Secret" { "compute.datumapis.com/referenced-data=true" } else { "" };
    api.list_metadata(&ListParams::default().labels(ours)).await.unwrap().items.len()
}

fn secret(n: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": NAMESPACE, "name": format!("data-{n}") },
        "stringData": { "key": "x".repeat(100) },
    })
}

fn deployment(n: usize, companions: usize) -> Value {
    let uses: Vec<Value> = (0..EACH)
        .map(|m| json!({ "secretRef": { "name": format!("data-{}", (n * EACH + m) % companions) } }))
        .collect();
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": { "name": format!("wd-{n}"), "namespace": NAMESPACE },
        "spec": {
            "workloadRef": { "name": "bench", "uid": "00000000-0000-0000-0000-000000000001" },
            "placementName": "p", "cityCode": "dfw", "scaleSettings": { "minReplicas": 1 },
            "template": { "spec": {
                "runtime": {
                    "resources": { "instanceType": "datumcloud/d1-standard-2" },
                    "sandbox": { "containers": [{ "name": "c", "image": "i", "envFrom": uses }] },
                },
                "networkInterfaces": [{ "network": { "name": "default" } }],
            }},
        },
    })
}

fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "WorkloadDeployment" => ("compute.datumapis.com", "v1alpha"),
        "ResourceBinding" => ("work.karmada.io", "v1alpha2"),
        _ => ("", "v1"),
    };
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
