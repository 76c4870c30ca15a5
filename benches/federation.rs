//! Measures federation: rate, latency, processor time, requests, memory, restart and clean-up, beside another operator if one is named.
//!
//! `cargo bench --bench federation [-- <paced deployments> <deployments of the burst>]` (defaults 600 and 1,000) prints a table, and
//! then the same as JSON. `PEER=<binary>` names a rival that federates the same objects, and is started as
//! `<binary> --project <kubeconfig> --hub <kubeconfig> --workers 10`. Each has API servers of its own, one after the other, and the
//! table shows what those servers accept without an operator.
//!
//! No Karmada runs. The benchmark answers each copy on the hub at once: with a scheduled and applied binding, and with the report of a
//! cell. So the servers' time is that of the operator's own writes and of these three.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_precision_loss)] // thousands of objects

mod common;

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use common::{count, create, deployment, manager, namespace, report, resource, wait};
use compute_operator::api::names::deployment_binding;
use futures::{StreamExt, stream};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use testbed::{Options, Testbed, audit::Audit, karmada::Flavour, operator::Operator, pki::User, process::Process};
use tokio::time::{Instant, interval, sleep};

/// Deployments created each second at the steady rate.
const RATE: u64 = 20;
/// Namespaces of the project that the deployments are in.
const NAMESPACES: usize = 20;
/// Objects for the raw limit of the API servers, and requests at a time.
const RAW: (usize, usize) = (500, 32);
/// Ticks of a process's time in a second. Linux has told programs 100 since 2.6.
const TICKS: f64 = 100.0;
/// Label that the rival reads the city from.
const CITY: &str = "topology.datum.net/city-code";

/// An operator that is measured.
enum Rival {
    Ours(Box<Operator>),
    Peer(PathBuf, Process),
}

impl Rival {
    async fn start(bed: &Testbed, peer: Option<&PathBuf>) -> Self {
        match peer {
            None => Self::Ours(Box::new(manager(bed).await)),
            Some(binary) => Self::Peer(binary.clone(), process(bed, binary)),
        }
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
            Self::Peer(binary, running) => {
                running.kill();
                *running = process(bed, binary);
                None
            }
        }
    }

    fn pid(&self) -> u32 {
        match self {
            Self::Ours(operator) => operator.process.pid(),
            Self::Peer(_, process) => process.pid(),
        }
    }

    /// Returns the processor time of its process, in seconds.
    fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let after_name = stat.rsplit_once(") ").unwrap().1;
        let ticks: u64 = after_name.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
        ticks as f64 / TICKS
    }

    /// Returns its resident memory, in MiB.
    fn resident(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    }

    /// Returns how many times each controller has looked at an object. Empty for a rival.
    async fn looks(&self) -> BTreeMap<String, f64> {
        let Self::Ours(operator) = self else { return BTreeMap::new() };
        let text = operator.metrics().await.unwrap();
        let mut looks = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("controller_runtime_reconcile_total{")) {
            let controller = line.split("controller=\"").nth(1).unwrap().split('"').next().unwrap();
            let number: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            *looks.entry(controller.to_owned()).or_insert(0.0) += number;
        }
        looks
    }
}

fn process(bed: &Testbed, binary: &PathBuf) -> Process {
    let mut command = Command::new(binary);
    let file = |plane: &testbed::control_plane::ControlPlane| plane.kubeconfig(&User::Operator).display().to_string();
    command.args(["--project", &file(&bed.project), "--hub", &file(&bed.hub), "--workers", "10"]);
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

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let (paced, burst) = (numbers.next().unwrap_or(600), numbers.next().unwrap_or(1000));
    let peer = std::env::var_os("PEER").map(PathBuf::from);
    let mut columns = vec![("here", run(None, paced, burst).await)];
    if let Some(peer) = &peer {
        columns.push(("peer", run(Some(peer), paced, burst).await));
    }
    print!("{:<62}", "");
    for (name, _) in &columns {
        print!("{name:>12}");
    }
    println!();
    for (row, _) in &columns[0].1 {
        print!("{row:<62}");
        for (_, column) in &columns {
            let value = column.iter().find(|(other, _)| other == row).map(|(_, value)| value);
            print!("{:>12}", value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")));
        }
        println!();
    }
    let all: serde_json::Map<String, Value> = columns
        .into_iter()
        .map(|(name, rows)| (name.to_owned(), rows.into_iter().map(|(row, value)| (row, json!(value))).collect()))
        .collect();
    println!("{}", Value::Object(all));
}

/// Measures one operator on API servers of its own. Returns the rows of its column.
async fn run(peer: Option<&PathBuf>, paced: usize, burst: usize) -> Vec<(String, f64)> {
    let options =
        Options { cells: vec!["dfw".into()], provider: false, karmada: Flavour::StandIn, ..Options::default() };
    let mut bed = Testbed::start(options, &|text| eprintln!("{text}")).await.unwrap();
    bed.stop_stand_in();
    let (project, hub) = (bed.project.client().await.unwrap(), bed.hub.client().await.unwrap());
    let mut rows = Vec::new();
    let mut row = |name: &str, value: f64| rows.push((name.to_owned(), value));
    row("raw limit of the API server: deployments created per second", raw_limit(&hub).await);
    if peer.is_some() {
        may_do_everything(&[&project, &hub]).await;
    }
    for n in 0..NAMESPACES {
        create(&project, namespace(&format!("shop-{n}"))).await;
    }
    let record = Record::default();
    answer(&hub, &record).await;
    follow(&project, &record).await;
    let mut rival = Rival::start(&bed, peer).await;
    sleep(Duration::from_secs(5)).await;

    // The first deployment of each namespace brings its hub namespace and its policy. They are not counted.
    load(&project, &record, "first", NAMESPACES, None).await;
    for (what, prefix, number, rate) in [("20 a second", "paced", paced, Some(RATE)), ("a burst", "burst", burst, None)]
    {
        quiet(&bed).await;
        let (marks, cpu, looks) =
            ([Audit::mark(&bed.project), Audit::mark(&bed.hub)], rival.cpu(), rival.looks().await);
        let began = Instant::now();
        let took = load(&project, &record, prefix, number, rate).await.duration_since(began);
        quiet(&bed).await;
        let each = |value: f64| value / number as f64;
        row(&format!("{what}: milliseconds of processor time per deployment"), each(rival.cpu() - cpu) * 1e3);
        if rate.is_none() {
            row(&format!("{what}: deployments per second"), number as f64 / took.as_secs_f64());
        }
        latencies(&record, prefix, what, &mut row);
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for (plane, mark) in ["project", "hub"].iter().zip(&marks) {
            for request in mark.requests().unwrap() {
                *kinds.entry(format!("{plane} {} {}", request.verb, request.resource)).or_default() += 1;
            }
        }
        row(&format!("{what}: requests per deployment"), each(kinds.values().sum::<usize>() as f64));
        eprintln!("{what}: requests: {kinds:?}");
        for (controller, number_after) in rival.looks().await {
            let before = looks.get(&controller).copied().unwrap_or_default();
            row(&format!("{what}: looks of {controller} per deployment"), each(number_after - before));
        }
    }
    row("resident memory after both, MiB", rival.resident());
    let marks = [Audit::mark(&bed.project), Audit::mark(&bed.hub)];
    if let Some(ready) = rival.restart(&bed).await {
        row("restart: seconds until it is ready", ready.as_secs_f64());
    }
    sleep(Duration::from_secs(10)).await;
    row("restart: seconds of processor time in the first ten", rival.cpu());
    let writes = |audit: &Audit| {
        let all = audit.requests().unwrap();
        all.into_iter().filter(|request| !["get", "list"].contains(&&*request.verb)).count()
    };
    row("restart: writes", marks.iter().map(writes).sum::<usize>() as f64);
    row("restart: resident memory, MiB", rival.resident());
    let cpu = rival.cpu();
    row("clean-up: seconds", clean_up(&project, &hub).await.as_secs_f64());
    row("clean-up: milliseconds of processor time per deployment", {
        quiet(&bed).await;
        (rival.cpu() - cpu) * 1e3 / (NAMESPACES + paced + burst) as f64
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

/// Returns how many deployments an API server creates per second while nothing else runs.
async fn raw_limit(plane: &Client) -> f64 {
    let (number, at_once) = RAW;
    create(plane, namespace("raw")).await;
    let began = Instant::now();
    let made = |n: usize| {
        let mut object = deployment(&format!("raw-{n}"), &[]);
        object["metadata"]["namespace"] = json!("raw");
        object
    };
    stream::iter(0..number).for_each_concurrent(at_once, |n| create(plane, made(n))).await;
    let took = began.elapsed();
    let all: Api<DynamicObject> = Api::namespaced_with(plane.clone(), "raw", &resource("WorkloadDeployment"));
    all.delete_collection(&DeleteParams::background(), &ListParams::default()).await.unwrap();
    wait("the raw objects are gone", || async { count(plane, "WorkloadDeployment").await == 0 }).await;
    number as f64 / took.as_secs_f64()
}

/// Creates deployments, at this rate or as fast as they are taken. Returns the time at which the last one arrived on the hub.
async fn load(project: &Client, record: &Record, prefix: &str, number: usize, rate: Option<u64>) -> Instant {
    let ticks = rate.map(|rate| interval(Duration::from_secs(1) / u32::try_from(rate).unwrap()));
    let all = stream::unfold((0, ticks), async |(n, mut ticks)| {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        (n < number).then_some((n, (n + 1, ticks)))
    });
    all.for_each_concurrent(16, |n| async move {
        let name = format!("{prefix}-{n:06}");
        let mut object = deployment(&name, &[]);
        object["metadata"]["namespace"] = json!(format!("shop-{}", n % NAMESPACES));
        object["metadata"]["labels"] = json!({ CITY: "dfw" });
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
    let between = |from: &BTreeMap<String, Instant>, to: &BTreeMap<String, Instant>| {
        let of_prefix = to.iter().filter(|(name, _)| name.starts_with(prefix));
        let mut all: Vec<f64> = of_prefix.map(|(name, at)| at.duration_since(from[name]).as_secs_f64() * 1e3).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    for (way, all) in [
        ("to the hub", between(&times.created, &times.arrived)),
        ("of a report to the project", between(&times.answered, &times.reported)),
    ] {
        for (name, percent) in [("p50", 50), ("p99", 99)] {
            row(&format!("{what}: latency {way}, {name}, milliseconds"), all[all.len() * percent / 100]);
        }
    }
}

/// Waits until the operator has asked nothing for some seconds.
async fn quiet(bed: &Testbed) {
    wait("it is quiet", || async {
        let marks = [Audit::mark(&bed.project), Audit::mark(&bed.hub)];
        sleep(Duration::from_secs(7)).await;
        marks.iter().all(|mark| mark.requests().unwrap().is_empty())
    })
    .await;
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

/// Calls `seen` for each deployment that a plane shows from now on, with true if it is new.
async fn watch(plane: &Client, mut seen: impl FnMut(DynamicObject, bool) + Send + 'static) {
    let all: Api<DynamicObject> = Api::all_with(plane.clone(), &resource("WorkloadDeployment"));
    let from = all.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    tokio::spawn(async move {
        let mut from = from;
        loop {
            let Ok(events) = all.watch(&WatchParams::default(), &from).await else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let mut events = Box::pin(events);
            while let Some(Ok(event)) = events.next().await {
                let (object, is_new) = match event {
                    WatchEvent::Added(object) => (object, true),
                    WatchEvent::Modified(object) => (object, false),
                    _ => continue,
                };
                from = object.resource_version().unwrap();
                seen(object, is_new);
            }
        }
    });
}

/// Answers each copy as Karmada and a cell do.
async fn answer(hub: &Client, record: &Record) {
    let (send, copies) = answers(hub.clone(), record.clone());
    let record = record.clone();
    watch(hub, move |copy, is_new| {
        if is_new {
            record.lock().unwrap().arrived.insert(copy.name_any(), Instant::now());
            let _ = send.send(copy);
        }
    })
    .await;
    tokio::spawn(copies);
}

/// Returns a channel, and the task that answers the copies in it, eight at a time.
fn answers(
    hub: Client,
    record: Record,
) -> (tokio::sync::mpsc::UnboundedSender<DynamicObject>, impl Future<Output = ()>) {
    let (send, receive) = tokio::sync::mpsc::unbounded_channel::<DynamicObject>();
    let copies = stream::unfold(receive, async |mut receive| Some((receive.recv().await?, receive)));
    let answer = copies.for_each_concurrent(8, move |copy| {
        let (hub, record) = (hub.clone(), record.clone());
        async move {
            deliver(&hub, &copy).await;
            record.lock().unwrap().answered.insert(copy.name_any(), Instant::now());
            let all: Api<DynamicObject> =
                Api::namespaced_with(hub, &copy.namespace().unwrap(), &resource("WorkloadDeployment"));
            let patch = Patch::Merge(json!({ "status": report() }));
            all.patch_status(&copy.name_any(), &PatchParams::default(), &patch).await.unwrap();
        }
    });
    (send, answer)
}

/// Writes the binding of a copy, as Karmada shows it after the delivery.
async fn deliver(hub: &Client, copy: &DynamicObject) {
    let (space, name) = (copy.namespace().unwrap(), copy.name_any());
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
                "annotations": { "propagationpolicy.karmada.io/name": "city-dfw" },
                },
            "spec": { "propagateDeps": true, "resource": resource_of, "clusters": [{ "name": "cell-dfw" }] },
        }),
    )
    .await;
    let all: Api<DynamicObject> = Api::namespaced_with(hub.clone(), &space, &resource("ResourceBinding"));
    let status = json!({
        "conditions": [{
            "type": "Scheduled", "status": "True", "reason": "Success", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "aggregatedStatus": [{ "clusterName": "cell-dfw", "applied": true, "health": "Healthy", "status": report() }],
    });
    let patch = Patch::Merge(json!({ "status": status }));
    all.patch_status(&binding, &PatchParams::default(), &patch).await.unwrap();
}

/// Notes when the project shows the report of a deployment's cell.
async fn follow(project: &Client, record: &Record) {
    let record = record.clone();
    watch(project, move |deployment, _| {
        if deployment.data["status"]["readyReplicas"] == 2 {
            record.lock().unwrap().reported.entry(deployment.name_any()).or_insert_with(Instant::now);
        }
    })
    .await;
}
