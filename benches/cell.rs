//! Measures a cell: Instances that pass the gates of network, quota and data, their write-back, processor time, requests, memory,
//! restart and clean-up.
//!
//! `cargo bench --bench cell [-- <paced Instances> <deployments of the burst>]` (defaults 300 and 100) prints a table, and then the
//! same as JSON. At the steady rate, each deployment has one Instance. In the burst, each has ten.
//!
//! No Karmada and no management controllers run. The benchmark brings the deployments to the hub and the cell, grants each claim at
//! once, and reports each network as ready and each Instance without gates as available. So the servers' time is that of the cell's own
//! writes and of these.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_precision_loss)] // thousands of objects

mod common;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use common::{
    count, create, created, deployment,
    measure::{Column, cpu, handled, latency, looks, paced, print, quiet, raw_limit, requests, resident, watch},
    namespace, resource, wait,
};
use compute_operator::api::meta::{annotation, label};
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{
    Options, Testbed, audit::Audit, control_plane::ControlPlane, karmada::Flavour, manifests, operator::Operator,
};
use tokio::time::{Instant, sleep};

/// Deployments created each second at the steady rate.
const RATE: u64 = 20;
/// Instances of each deployment of the burst.
const INSTANCES: usize = 10;
/// Objects that the benchmark answers at a time.
const AT_ONCE: usize = 16;
/// Namespaces of the project that the deployments are in.
const NAMESPACES: usize = 10;

/// Times of each Instance: its deployment was created, its last gate was opened, it was available, and the hub showed that.
#[derive(Default)]
struct Times {
    asked: BTreeMap<String, Instant>,
    open: BTreeMap<String, Instant>,
    available: BTreeMap<String, Instant>,
    written: BTreeMap<String, Instant>,
}

/// The shared record of a run.
type Record = Arc<Mutex<Times>>;

/// The clients of the control planes.
struct Planes {
    project: Client,
    hub: Client,
    cell: Client,
}

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let (steady, burst) = (numbers.next().unwrap_or(300), numbers.next().unwrap_or(100));
    let options = Options {
        cells: vec!["dfw".into()],
        provider: false,
        networks: Some(Duration::ZERO),
        quota: true,
        karmada: Flavour::StandIn,
        ..Options::default()
    };
    let mut bed = Testbed::start(options, &|text| eprintln!("{text}")).await.unwrap();
    bed.stop_stand_in();
    bed.stop_neighbours();
    let dfw = bed.cell("dfw").unwrap();
    let planes = Planes {
        project: bed.project.client().await.unwrap(),
        hub: bed.hub.client().await.unwrap(),
        cell: dfw.client().await.unwrap(),
    };
    let mut rows = Column::new();
    let mut row = |name: &str, value: f64| rows.push((name.to_owned(), value));
    row("raw limit of the API server: deployments created per second", raw_limit(&planes.cell).await);
    create_namespaces(&planes).await;
    let record = Record::default();
    grant(&planes.project).await;
    connect(&planes.cell).await;
    run_instances(&planes.cell, &record).await;
    follow(&planes.hub, &record).await;
    let binary = Path::new(env!("CARGO_BIN_EXE_compute-operator"));
    let mut operator = Operator::cell(&bed, binary, "dfw", &["--zap-log-level=info"]).unwrap();
    operator.wait_ready().await.unwrap();
    sleep(Duration::from_secs(5)).await;

    let servers = [&bed.project, &bed.hub, dfw];
    // The first deployment of each namespace brings the networks. It is not counted.
    load(&planes, &record, "first", NAMESPACES, 1, None).await;
    for (what, prefix, deployments, instances, rate) in
        [("20 a second", "paced", steady, 1, Some(RATE)), ("a burst", "burst", burst, INSTANCES, None)]
    {
        quiet(&servers).await;
        let marks = servers.map(Audit::mark);
        let (used, before) = (cpu(operator.process.pid()), looks(&operator).await);
        let began = Instant::now();
        let took = load(&planes, &record, prefix, deployments, instances, rate).await.duration_since(began);
        quiet(&servers).await;
        let number = (deployments * instances) as f64;
        let used = cpu(operator.process.pid()) - used;
        row(&format!("{what}: milliseconds of processor time per Instance"), used * 1e3 / number);
        if rate.is_none() {
            row(&format!("{what}: Instances per second"), number / took.as_secs_f64());
        }
        {
            let times = record.lock().unwrap();
            let name = format!("{what}: latency to the last gate");
            latency(&name, prefix, &times.asked, &times.open, &mut row);
            let name = format!("{what}: latency of a report to the hub");
            latency(&name, prefix, &times.available, &times.written, &mut row);
        }
        let kinds = requests(["project", "hub", "cell"].into_iter().zip(&marks));
        row(&format!("{what}: requests per Instance"), kinds.values().sum::<usize>() as f64 / number);
        for (kind, times) in kinds.iter().filter(|(_, times)| **times > deployments / 2) {
            row(&format!("{what}: {kind} per Instance"), *times as f64 / number);
        }
        for (controller, after) in looks(&operator).await {
            let before = before.get(&controller).copied().unwrap_or_default();
            row(&format!("{what}: looks of {controller} per Instance"), (after - before) / number);
        }
    }
    row("resident memory after both, MiB", resident(operator.process.pid()));
    restart(&mut operator, &servers, &mut row).await;
    let (used, number) = (cpu(operator.process.pid()), (NAMESPACES + steady + burst * INSTANCES) as f64);
    row("clean-up: seconds", clean_up(&planes).await.as_secs_f64());
    quiet(&servers).await;
    row("clean-up: milliseconds of processor time per Instance", (cpu(operator.process.pid()) - used) * 1e3 / number);
    print(&[("here", rows)]);
}

/// Creates the namespaces of the project, and what they are on the hub and on the cell.
async fn create_namespaces(planes: &Planes) {
    for n in 0..NAMESPACES {
        let mut of_hub = namespace(&hub_namespace(n));
        of_hub["metadata"]["labels"] = json!({
            label::UPSTREAM_CLUSTER: "cluster-single", label::UPSTREAM_NAMESPACE: format!("shop-{n}"),
        });
        create(&planes.project, namespace(&format!("shop-{n}"))).await;
        create(&planes.hub, of_hub.clone()).await;
        create(&planes.cell, of_hub).await;
    }
}

/// Measures a restart beside all Instances.
async fn restart(operator: &mut Operator, servers: &[&ControlPlane; 3], row: &mut impl FnMut(&str, f64)) {
    let marks = servers.map(Audit::mark);
    let began = Instant::now();
    operator.process.kill();
    operator.start_again().await.unwrap();
    row("restart: seconds until it is ready", began.elapsed().as_secs_f64());
    sleep(Duration::from_secs(10)).await;
    row("restart: seconds of processor time in the first ten", cpu(operator.process.pid()));
    let all = requests(["project", "hub", "cell"].into_iter().zip(&marks));
    let writes = all.iter().filter(|(kind, _)| !kind.contains(" get ") && !kind.contains(" list "));
    row("restart: writes", writes.map(|(_, times)| *times).sum::<usize>() as f64);
    row("restart: resident memory, MiB", resident(operator.process.pid()));
}

/// Returns the name that the n-th namespace of the project has on the hub and on the cell.
fn hub_namespace(n: usize) -> String {
    format!("ns-00000000-0000-4000-8000-{n:012}")
}

/// Brings deployments to the hub and to the cell, at this rate or as fast as they are taken. Returns the time at which the last
/// Instance was shown as available on the hub.
async fn load(
    planes: &Planes,
    record: &Record,
    prefix: &str,
    deployments: usize,
    instances: usize,
    rate: Option<u64>,
) -> Instant {
    paced(deployments, rate)
        .for_each_concurrent(16, |n| async move {
            let name = format!("{prefix}-{n:06}");
            let mut object = deployment(&name, &[]);
            object["metadata"]["namespace"] = json!(hub_namespace(n % NAMESPACES));
            object["metadata"]["labels"] = json!({ label::UPSTREAM_NAMESPACE: format!("shop-{}", n % NAMESPACES) });
            object["spec"]["scaleSettings"]["minReplicas"] = json!(instances);
            let on_hub = created(&planes.hub, object.clone()).await;
            object["metadata"]["annotations"] = json!({ annotation::TEMPLATE_UID: on_hub.uid() });
            for ordinal in 0..instances {
                record.lock().unwrap().asked.insert(format!("{name}-{ordinal}"), Instant::now());
            }
            create(&planes.cell, object).await;
        })
        .await;
    wait("all are written back", || async {
        let times = record.lock().unwrap();
        times.written.keys().filter(|name| name.starts_with(prefix)).count() == deployments * instances
    })
    .await;
    let times = record.lock().unwrap();
    let written = times.written.iter().filter(|(name, _)| name.starts_with(prefix));
    written.map(|(_, at)| *at).max().unwrap()
}

/// Calls `handle` for each object of a kind that is created on a plane from now on.
async fn answer<F: Future<Output = ()> + Send + 'static>(
    plane: &Client,
    kind: &str,
    handle: impl Fn(Client, DynamicObject) -> F + Send + 'static,
) {
    let client = plane.clone();
    let send = handled(AT_ONCE, move |object| handle(client.clone(), object));
    watch(plane, kind, move |object, is_new| {
        if is_new {
            let _ = send.send(object);
        }
    })
    .await;
}

/// Writes the status of an object, as another controller. The object may be gone by now.
async fn report(plane: &Client, kind: &str, object: &DynamicObject, status: Value) {
    let resource = resource(kind);
    let all: Api<DynamicObject> = Api::namespaced_with(plane.clone(), &object.namespace().unwrap(), &resource);
    let body = json!({
        "apiVersion": resource.api_version, "kind": kind, "metadata": { "name": object.name_any() }, "status": status,
    });
    let _ = all.patch_status(&object.name_any(), &PatchParams::apply("bench").force(), &Patch::Apply(body)).await;
}

/// Returns a condition of an object that is true.
fn condition(object: &DynamicObject, type_: &str, reason: &str) -> Value {
    json!({
        "type": type_, "status": "True", "reason": reason, "message": "",
        "observedGeneration": object.metadata.generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// Grants each claim.
async fn grant(project: &Client) {
    answer(project, "ResourceClaim", |plane, claim| async move {
        let status = json!({ "conditions": [condition(&claim, "Granted", "QuotaAvailable")] });
        report(&plane, "ResourceClaim", &claim, status).await;
    })
    .await;
}

/// Gives each binding a context, and each claim a subnet. All bindings of a namespace have the same context.
async fn connect(cell: &Client) {
    answer(cell, "NetworkBinding", |plane, binding| async move {
        let name = binding.data["spec"]["network"]["name"].as_str().unwrap().to_owned();
        let spec = json!({ "network": { "name": name }, "location": binding.data["spec"]["location"] });
        ready(&plane, "NetworkContext", &name, &binding, spec).await;
        let reference = json!({ "namespace": binding.namespace(), "name": name });
        let conditions = [condition(&binding, "Ready", "NetworkContextReady")];
        let status = json!({ "conditions": conditions, "networkContextRef": reference });
        report(&plane, "NetworkBinding", &binding, status).await;
    })
    .await;
    answer(cell, "SubnetClaim", |plane, claim| async move {
        let context = &claim.data["spec"]["networkContext"];
        let spec = json!({ "networkContext": context, "startAddress": "10.0.0.0", "prefixLength": 24 });
        ready(&plane, "Subnet", &claim.name_any(), &claim, spec).await;
        let status = json!({
            "conditions": [condition(&claim, "Ready", "Ready")], "subnetRef": { "name": claim.name_any() },
        });
        report(&plane, "SubnetClaim", &claim, status).await;
    })
    .await;
}

/// Creates an object of a network beside another one, unless it exists, and reports it as ready.
async fn ready(plane: &Client, kind: &str, name: &str, beside: &DynamicObject, spec: Value) {
    let object = json!({
        "apiVersion": resource(kind).api_version, "kind": kind,
        "metadata": { "namespace": beside.namespace(), "name": name }, "spec": spec,
    });
    let object = manifests::apply_value(plane, object).await.unwrap();
    report(plane, kind, &object, json!({ "conditions": [condition(&object, "Ready", "Ready")] })).await;
}

/// Reports each Instance without gates as available.
async fn run_instances(cell: &Client, record: &Record) {
    let (plane, times) = (cell.clone(), record.clone());
    let send = handled(AT_ONCE, move |instance| {
        let (plane, times) = (plane.clone(), times.clone());
        async move {
            times.lock().unwrap().available.insert(instance.name_any(), Instant::now());
            let status = json!({
                "conditions": [
                    condition(&instance, "Programmed", "Programmed"), condition(&instance, "Available", "Available"),
                ],
                "controller": { "observedTemplateHash": instance.data["spec"]["controller"]["templateHash"] },
            });
            report(&plane, "Instance", &instance, status).await;
        }
    });
    let record = record.clone();
    watch(cell, "Instance", move |instance, _| {
        let controller = &instance.data["spec"]["controller"];
        let has_gates = controller["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
        let name = instance.name_any();
        if !has_gates && record.lock().unwrap().open.insert(name, Instant::now()).is_none() {
            let _ = send.send(instance);
        }
    })
    .await;
}

/// Notes when the hub shows an Instance as available.
async fn follow(hub: &Client, record: &Record) {
    let record = record.clone();
    watch(hub, "Instance", move |instance, _| {
        let conditions = instance.data["status"]["conditions"].as_array();
        if conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Available" && one["status"] == "True")) {
            record.lock().unwrap().written.entry(instance.name_any()).or_insert_with(Instant::now);
        }
    })
    .await;
}

/// Deletes all deployments of the cell. Returns the time until no Instance, copy and claim is left.
async fn clean_up(planes: &Planes) -> Duration {
    let began = Instant::now();
    for n in 0..NAMESPACES {
        let all: Api<DynamicObject> =
            Api::namespaced_with(planes.cell.clone(), &hub_namespace(n), &resource("WorkloadDeployment"));
        all.delete_collection(&DeleteParams::background(), &ListParams::default()).await.unwrap();
    }
    wait("nothing is left", || async {
        let left = [(&planes.cell, "Instance"), (&planes.hub, "Instance"), (&planes.project, "ResourceClaim")];
        let mut all = 0;
        for (plane, kind) in left {
            all += count(plane, kind).await;
        }
        all == 0
    })
    .await;
    began.elapsed()
}
