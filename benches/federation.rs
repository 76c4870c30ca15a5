//! Measures federation: rate, latency, processor time, requests, memory, restart and clean-up, beside another operator if one is named.
//!
//! `cargo bench --bench federation [-- <paced deployments> <deployments of the burst>]` (defaults 600 and 1,000) prints a table, and
//! then the same as JSON. `PEER=<binary>` names a rival that federates the same objects, and is started as
//! `<binary> --project <kubeconfig> --hub <kubeconfig> --workers 10`. `BEFORE=<binary>` names an earlier build of this operator.
//! `FLOOR=1` adds a program that only watches and writes (`common/floor.rs`). Each has API servers of its own, one after the other,
//! and the table shows what those servers accept without an operator. `CITIES=50` spreads the deployments over 50 cities instead of
//! one.
//!
//! No Karmada runs. The benchmark answers each copy on the hub at once: with a scheduled and applied binding, and with the report of a
//! cell. So the servers' time is that of the operator's own writes and of these three.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_precision_loss)] // thousands of objects

mod common;
#[path = "common/floor.rs"]
mod floor;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use common::{
    count, create, deployment, manager, manager_of,
    measure::{Column, cpu, handled, latency, looks, paced, print, quiet, raw_limit, requests, resident, watch},
    namespace, report, resource, wait,
};
use compute_operator::api::names::deployment_binding;
use futures::{StreamExt, stream};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{Options, Testbed, audit::Audit, karmada::Flavour, operator::Operator, pki::User, process::Process};
use tokio::time::{Instant, sleep};

/// Deployments created each second at the steady rate.
const RATE: u64 = 20;
/// Copies that the benchmark answers at a time.
const AT_ONCE: usize = 8;
/// Namespaces of the project that the deployments are in.
const NAMESPACES: usize = 20;
/// Label that the rival reads the city from.
const CITY: &str = "topology.datum.net/city-code";

/// The operator to measure.
enum Which {
    /// The build of this benchmark.
    Ours,
    /// Another build.
    Before(PathBuf),
    /// Another program.
    Peer(PathBuf),
    /// This program, as [`floor`].
    Floor,
}

/// Names the role of this program as [`floor`].
const FLOOR: &str = "floor-of-federation";

/// An operator that is measured.
enum Rival {
    Ours(Box<Operator>),
    Program(PathBuf, &'static [&'static str], Process),
}

impl Rival {
    async fn start(bed: &Testbed, which: &Which) -> Self {
        match which {
            Which::Ours => Self::Ours(Box::new(manager(bed).await)),
            Which::Before(binary) => Self::Ours(Box::new(manager_of(bed, binary).await)),
            Which::Peer(binary) => Self::program(bed, binary.clone(), &[]),
            Which::Floor => Self::program(bed, std::env::current_exe().unwrap(), &[FLOOR]),
        }
    }

    fn program(bed: &Testbed, binary: PathBuf, args: &'static [&'static str]) -> Self {
        let process = process(bed, &binary, args);
        Self::Program(binary, args, process)
    }

    /// Ends the process and starts it again. Returns the time until it is ready, where it says so.
    async fn restart(&mut self, bed: &Testbed) -> Option<Duration> {
        let began = Instant::now();
        match self {
            Self::Ours(operator) => {
                operator.process.kill();
                operator.start_again().await.unwrap();
                Some(began.elapsed())
            }
            Self::Program(binary, args, running) => {
                running.kill();
                *running = process(bed, binary, args);
                None
            }
        }
    }

    /// Returns the id of its process.
    fn pid(&self) -> u32 {
        match self {
            Self::Ours(operator) => operator.process.pid(),
            Self::Program(_, _, process) => process.pid(),
        }
    }

    /// Returns the looks of its controllers. Empty for a rival.
    async fn looks(&self) -> BTreeMap<String, f64> {
        let Self::Ours(operator) = self else { return BTreeMap::new() };
        looks(operator).await
    }
}

fn process(bed: &Testbed, binary: &Path, args: &[&str]) -> Process {
    let mut command = Command::new(binary);
    let file = |plane: &testbed::control_plane::ControlPlane| plane.kubeconfig(&User::Operator).display().to_string();
    command.args(args).args(["--project", &file(&bed.project), "--hub", &file(&bed.hub), "--workers", "10"]);
    Process::spawn(bed.dir(), "peer", &mut command).unwrap()
}

/// When each deployment was created, arrived on the hub, and showed its cell's report in the project.
#[derive(Default)]
struct Times {
    created: BTreeMap<String, Instant>,
    arrived: BTreeMap<String, Instant>,
    answered: BTreeMap<String, Instant>,
    reported: BTreeMap<String, Instant>,
}

/// The shared record of a run.
type Record = Arc<Mutex<Times>>;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [FLOOR, "--project", project, "--hub", hub, ..] = args.iter().map(|arg| &**arg).collect::<Vec<_>>()[..] {
        return floor::run(Path::new(project), Path::new(hub));
    }
    tokio::runtime::Runtime::new().unwrap().block_on(measure());
}

async fn measure() {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let numbers = (numbers.next().unwrap_or(600), numbers.next().unwrap_or(1000));
    let mut columns = vec![("here", run(&Which::Ours, numbers).await)];
    if let Some(before) = std::env::var_os("BEFORE") {
        columns.push(("before", run(&Which::Before(before.into()), numbers).await));
    }
    if let Some(peer) = std::env::var_os("PEER") {
        columns.push(("peer", run(&Which::Peer(peer.into()), numbers).await));
    }
    if std::env::var_os("FLOOR").is_some() {
        columns.push(("floor", run(&Which::Floor, numbers).await));
    }
    print(&columns);
}

/// Measures one operator on API servers of its own. Returns the rows of its column.
async fn run(which: &Which, (steady, burst): (usize, usize)) -> Column {
    let options =
        Options { cells: vec!["dfw".into()], provider: false, karmada: Flavour::StandIn, ..Options::default() };
    let mut bed = Testbed::start(options, &|text| eprintln!("{text}")).await.unwrap();
    bed.stop_stand_in();
    let (project, hub) = (bed.project.client().await.unwrap(), bed.hub.client().await.unwrap());
    let mut rows = Column::new();
    let mut row = |name: &str, value: f64| rows.push((name.to_owned(), value));
    row("raw limit of the API server: deployments created per second", raw_limit(&hub).await);
    if matches!(which, Which::Peer(_) | Which::Floor) {
        may_do_everything(&[&project, &hub]).await;
    }
    for n in 0..NAMESPACES {
        create(&project, namespace(&format!("shop-{n}"))).await;
    }
    let record = Record::default();
    answer(&hub, &record).await;
    follow(&project, &record).await;
    let cities = cities();
    add_clusters(&hub, &cities[1..]).await;
    let mut rival = Rival::start(&bed, which).await;
    sleep(Duration::from_secs(5)).await;

    // The first deployment of each namespace brings its hub namespace, and the first one of each city its policy. They are not counted.
    let first = NAMESPACES * cities.len();
    load(&project, &record, &cities, "first", first, None).await;
    for (what, prefix, number, rate) in
        [("20 a second", "paced", steady, Some(RATE)), ("a burst", "burst", burst, None)]
    {
        quiet(&[&bed.project, &bed.hub]).await;
        let (marks, used, looks) =
            ([Audit::mark(&bed.project), Audit::mark(&bed.hub)], cpu(rival.pid()), rival.looks().await);
        let began = Instant::now();
        let took = load(&project, &record, &cities, prefix, number, rate).await.duration_since(began);
        quiet(&[&bed.project, &bed.hub]).await;
        let each = |value: f64| value / number as f64;
        row(&format!("{what}: milliseconds of processor time per deployment"), each(cpu(rival.pid()) - used) * 1e3);
        if rate.is_none() {
            row(&format!("{what}: deployments per second"), number as f64 / took.as_secs_f64());
        }
        latencies(&record, prefix, what, &mut row);
        let kinds = requests(["project", "hub"].into_iter().zip(&marks));
        row(&format!("{what}: requests per deployment"), each(kinds.values().sum::<usize>() as f64));
        eprintln!("{what}: requests: {kinds:?}");
        for (controller, number_after) in rival.looks().await {
            let before = looks.get(&controller).copied().unwrap_or_default();
            row(&format!("{what}: looks of {controller} per deployment"), each(number_after - before));
        }
    }
    row("resident memory after both, MiB", resident(rival.pid()));
    let marks = [Audit::mark(&bed.project), Audit::mark(&bed.hub)];
    if let Some(ready) = rival.restart(&bed).await {
        row("restart: seconds until it is ready", ready.as_secs_f64());
    }
    sleep(Duration::from_secs(10)).await;
    row("restart: seconds of processor time in the first ten", cpu(rival.pid()));
    let writes = |audit: &Audit| {
        let all = audit.requests().unwrap();
        all.into_iter().filter(|request| !["get", "list"].contains(&&*request.verb)).count()
    };
    row("restart: writes", marks.iter().map(writes).sum::<usize>() as f64);
    row("restart: resident memory, MiB", resident(rival.pid()));
    let used = cpu(rival.pid());
    row("clean-up: seconds", clean_up(&project, &hub).await.as_secs_f64());
    row("clean-up: milliseconds of processor time per deployment", {
        quiet(&[&bed.project, &bed.hub]).await;
        (cpu(rival.pid()) - used) * 1e3 / (first + steady + burst) as f64
    });
    rows
}

/// Lets the operator's user do everything there. The roles of this project lack what a rival may need.
async fn may_do_everything(planes: &[&Client]) {
    for plane in planes {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "rival" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": User::Operator.name() }],
        });
        let request = http::Request::post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&binding).unwrap())
            .unwrap();
        plane.request::<Value>(request).await.unwrap();
    }
}

/// Returns the cities of the deployments.
fn cities() -> Vec<String> {
    let number = std::env::var("CITIES").ok().and_then(|number| number.parse().ok()).unwrap_or(1);
    (0..number).map(|n| if n == 0 { "dfw".to_owned() } else { format!("x{n:02}") }).collect()
}

/// Adds a Cluster for each of these cities to the hub, as ready as that of the first city.
async fn add_clusters(hub: &Client, cities: &[String]) {
    let all: Api<DynamicObject> = Api::all_with(hub.clone(), &resource("Cluster"));
    let known = all.get("cell-dfw").await.unwrap();
    for city in cities {
        let mut spec = known.data["spec"].clone();
        spec["id"] = json!(format!("uid-{city}"));
        let name = format!("cell-{city}");
        let (api_version, labels) = ("cluster.karmada.io/v1alpha1", json!({ CITY: city }));
        let metadata = json!({ "name": name, "labels": labels });
        create(hub, json!({ "apiVersion": api_version, "kind": "Cluster", "metadata": metadata, "spec": spec })).await;
        let patch = Patch::Merge(json!({ "status": known.data["status"] }));
        all.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Creates deployments, at this rate or as fast as they are taken. Returns the time at which the last one arrived on the hub.
async fn load(
    project: &Client,
    record: &Record,
    cities: &[String],
    prefix: &str,
    number: usize,
    rate: Option<u64>,
) -> Instant {
    paced(number, rate)
        .for_each_concurrent(16, |n| async move {
            let name = format!("{prefix}-{n:06}");
            let mut object = deployment(&name, &[]);
            object["metadata"]["namespace"] = json!(format!("shop-{}", n % NAMESPACES));
            let city = &cities[n / NAMESPACES % cities.len()];
            object["metadata"]["labels"] = json!({ CITY: city });
            object["spec"]["cityCode"] = json!(city);
            record.lock().unwrap().created.insert(name, Instant::now());
            create(project, object).await;
        })
        .await;
    let of_prefix = |times: &BTreeMap<String, Instant>| times.keys().filter(|name| name.starts_with(prefix)).count();
    wait("all have reported", || async {
        let times = record.lock().unwrap();
        of_prefix(&times.arrived) == number && of_prefix(&times.reported) == number
    })
    .await;
    let times = record.lock().unwrap();
    let arrived = times.arrived.iter().filter(|(name, _)| name.starts_with(prefix));
    arrived.map(|(_, at)| *at).max().unwrap()
}

/// Adds the latencies of a phase: to the hub, and of the report back to the project.
fn latencies(record: &Record, prefix: &str, what: &str, row: &mut impl FnMut(&str, f64)) {
    let times = record.lock().unwrap();
    for (way, from, to) in [
        ("to the hub", &times.created, &times.arrived),
        ("of a report to the project", &times.answered, &times.reported),
    ] {
        latency(&format!("{what}: latency {way}"), prefix, from, to, row);
    }
}

/// Deletes all deployments of the project. Returns the time until both planes are clean.
async fn clean_up(project: &Client, hub: &Client) -> Duration {
    let began = Instant::now();
    stream::iter(0..NAMESPACES)
        .for_each_concurrent(NAMESPACES, |n| async move {
            let all: Api<DynamicObject> =
                Api::namespaced_with(project.clone(), &format!("shop-{n}"), &resource("WorkloadDeployment"));
            all.delete_collection(&DeleteParams::background(), &ListParams::default()).await.unwrap();
        })
        .await;
    wait("both planes are clean", || async {
        count(project, "WorkloadDeployment").await + count(hub, "WorkloadDeployment").await == 0
    })
    .await;
    began.elapsed()
}

/// Answers each copy as Karmada and a cell do.
async fn answer(hub: &Client, record: &Record) {
    let (plane, times) = (hub.clone(), record.clone());
    let send = handled(AT_ONCE, move |copy| {
        let (hub, record) = (plane.clone(), times.clone());
        async move {
            deliver(&hub, &copy).await;
            record.lock().unwrap().answered.insert(copy.name_any(), Instant::now());
            let all: Api<DynamicObject> =
                Api::namespaced_with(hub, &copy.namespace().unwrap(), &resource("WorkloadDeployment"));
            let patch = Patch::Merge(json!({ "status": report() }));
            all.patch_status(&copy.name_any(), &PatchParams::default(), &patch).await.unwrap();
        }
    });
    let record = record.clone();
    watch(hub, "WorkloadDeployment", move |copy, is_new| {
        if is_new {
            record.lock().unwrap().arrived.insert(copy.name_any(), Instant::now());
            let _ = send.send(copy);
        }
    })
    .await;
}

/// Writes the binding of a copy, as Karmada shows it after the delivery.
async fn deliver(hub: &Client, copy: &DynamicObject) {
    let (space, name) = (copy.namespace().unwrap(), copy.name_any());
    let city = copy.data["spec"]["cityCode"].as_str().unwrap();
    let cluster = format!("cell-{city}");
    let binding = deployment_binding(&name);
    let owner = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "name": name, "uid": copy.uid(),
    });
    let mut resource_of = owner.clone();
    resource_of["namespace"] = json!(space);
    resource_of["resourceVersion"] = json!(copy.resource_version());
    create(
        hub,
        json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "namespace": space, "name": binding, "ownerReferences": [owner],
                "annotations": { "propagationpolicy.karmada.io/name": format!("city-{city}") },
                },
            "spec": { "propagateDeps": true, "resource": resource_of, "clusters": [{ "name": cluster }] },
        }),
    )
    .await;
    let all: Api<DynamicObject> = Api::namespaced_with(hub.clone(), &space, &resource("ResourceBinding"));
    let status = json!({
        "conditions": [{
            "type": "Scheduled", "status": "True", "reason": "Success", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "aggregatedStatus": [{ "clusterName": cluster, "applied": true, "health": "Healthy", "status": report() }],
    });
    let patch = Patch::Merge(json!({ "status": status }));
    all.patch_status(&binding, &PatchParams::default(), &patch).await.unwrap();
}

/// Notes when the project shows the report of a deployment's cell.
async fn follow(project: &Client, record: &Record) {
    let record = record.clone();
    watch(project, "WorkloadDeployment", move |deployment, _| {
        if deployment.data["status"]["readyReplicas"] == 2 {
            record.lock().unwrap().reported.entry(deployment.name_any()).or_insert_with(Instant::now);
        }
    })
    .await;
}
