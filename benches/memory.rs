//! Measures the memory of the manager with many unrelated objects, and during copying.
//!
//! `cargo bench --bench memory [-- <unrelated objects> <deployments> <projects>]` prints one line per situation, with the resident
//! memory of the manager, its peak, and the part of the resident memory that is the program's file. It uses real API servers. The
//! situations are:
//! - the manager with unrelated ConfigMaps and Secrets of 1 KiB each, in the project and on the hub (default 100,000, half of
//!   each kind)
//! - the manager restarted with deployments with a reported status (default 10,000), with the memory of one deployment, its
//!   copy and its binding, with the start itself beside the time of its lists alone, and with the processor time of one further
//!   deployment
//! - the manager of this many projects without objects (default 0: left out), with its connections and its processor time at rest
//!
//! It also measures scrapes. First it encodes the metrics of a cell with 200 namespaces and 10,000 deployments. Later it measures
//! a scrape of the manager with its deployments, as Prometheus does it, and `kubectl compute trace` of one of them.
//!
//! It ends with code 1 and a message if a value exceeds the limits at the top of this file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_precision_loss)] // thousands of objects

mod common;

use std::{collections::BTreeMap, ffi::OsString, process::ExitCode, time::Duration};

use common::{
    count, create, deployment, detailed_deployment,
    made::Made,
    manager,
    measure::{cpu, paced, quiet, requests},
    memory, namespace, resource, secret, wait,
};
use compute_operator::{io::watch::WHOLE_PAGE_SIZE, metrics::Metrics};
use futures::{StreamExt, future::join_all, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, DynamicObject, ListParams, Request, VersionMatch},
};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use testbed::{
    Options, Testbed, audit::Audit, bed::announce, control_plane::ControlPlane, karmada::Flavour, operator::Operator,
};
use tokio::time::{Instant, sleep};

/// Deployments of the last situation, and the Secrets of 64 KiB that each refers to.
const DEPLOYMENTS: usize = 100;
const SECRETS: usize = 10;
/// Deployments that the operator copies to the hub. Further ones are stored in the same form, see [`multiply`].
const COPIED: usize = 1_000;
/// Deployments of one template.
const OF_TEMPLATE: usize = 10;
/// Deployments that show what a further one takes, and how many of them are created per second.
const FURTHER: (usize, u64) = (200, 20);
/// Number of scrapes for the median.
const SCRAPES: usize = 100;
/// Most memory of one deployment with its copy and its binding, in bytes.
const EACH: usize = 4 << 10;
/// With fewer deployments, the memory of the process itself hides that of one deployment.
const FEW: usize = 1_000;
/// Most memory of the manager with at most this many deployments, in KiB.
const ALL: (usize, usize) = (10_000, 64 << 10);
/// Longest scrape, in milliseconds.
const SCRAPE: f64 = 5.0;

/// Number of traces for the median.
const TRACES: usize = 9;
/// Longest trace, in milliseconds.
const TRACE: f64 = 1000.0;

/// Exceeded limits, one sentence each.
#[derive(Default)]
struct Over(Vec<String>);

impl Over {
    fn add(&mut self, is_over: bool, sentence: impl FnOnce() -> String) {
        self.0.extend(is_over.then(sentence));
    }

    fn scrape(&mut self, what: &str, took: f64) {
        self.add(took >= SCRAPE, || {
            format!("A scrape of {what} takes {took:.1} ms, which is to be less than {SCRAPE} ms.")
        });
    }

    /// Checks the memory of the manager with these deployments: `all` in KiB, and `each` deployment in bytes.
    fn memory(&mut self, deployments: usize, all: usize, each: usize) {
        let (most, limit) = ALL;
        self.add(deployments >= FEW && each > EACH, || {
            format!("A deployment with its copy and its binding takes {each} bytes, which are to be {EACH} at most.")
        });
        self.add(deployments <= most && all > limit, || {
            format!("Beside {deployments} deployments the manager takes {all} KiB, which are to be {limit} at most.")
        });
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut over = Over::default();
    measure(&mut over).await;
    for sentence in &over.0 {
        eprintln!("{sentence}");
    }
    if over.0.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn measure(over: &mut Over) {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let (unrelated, deployments) = (numbers.next().unwrap_or(100_000), numbers.next().unwrap_or(10_000));
    let projects = numbers.next().unwrap_or(0);
    if projects > 0 {
        idle_projects(projects).await;
    }
    if deployments == 0 {
        return;
    }
    over.scrape("a cell with 10,000 deployments", scrape());
    let options =
        Options { cells: vec!["dfw".into()], provider: false, karmada: Flavour::StandIn, ..Options::default() };
    let mut bed = Testbed::start(options, &|text| eprintln!("{text}")).await.unwrap();
    let (project, hub) = (bed.project.client().await.unwrap(), bed.hub.client().await.unwrap());
    create(&project, namespace(common::NAMESPACE)).await;
    // One deployment refers to a Secret, so that the sources are watched.
    create(&project, secret("first", 1 << 10)).await;
    create(&project, deployment("first", &["first".into()])).await;
    println!("{:<58} {:>9} {:>9} {:>9}", "", "resident", "peak", "program");

    let operator = manager(&bed).await;
    wait("one companion", || async { count(&hub, "Secret").await == 1 }).await;
    let alone = settle(&operator, "alone").await;
    wait("the first is delivered", || async { first(&hub).await.is_some() }).await;
    let made = first(&hub).await.unwrap();
    // The benchmark answers for Karmada from here on. The stand-in would take most of an hour for ten thousand.
    bed.stop_stand_in();
    let beside_none = further(&bed, &operator, "early").await;
    track(&bed, operator, &made, deployments).await;
    beside(&bed, deployments, (alone, beside_none), over).await;
    if unrelated == 0 {
        return;
    }

    bed.restart_stand_in().await.unwrap();
    eprintln!("creating {unrelated} unrelated objects in the project, and as many on the hub");
    let began = Instant::now();
    for client in [&project, &hub] {
        create(client, namespace("unrelated")).await;
        stream::iter(0..unrelated).for_each_concurrent(32, |n| create(client, noise(n))).await;
    }
    eprintln!("done after {:.0} s", began.elapsed().as_secs_f64());
    let operator = manager(&bed).await;
    sleep(Duration::from_secs(20)).await; // sources are listed in pages, and the end of that is not visible from outside
    settle(&operator, &format!("beside {unrelated} unrelated objects on each of both")).await;

    let began = Instant::now();
    for n in 0..DEPLOYMENTS {
        let names: Vec<String> = (0..SECRETS).map(|m| format!("data-{n}-{m}")).collect();
        stream::iter(&names).for_each_concurrent(8, |name| create(&project, secret(name, 64 << 10))).await;
        create(&project, deployment(&format!("wd-{n}"), &names)).await;
    }
    wait("all companions", || async { count(&hub, "Secret").await == 1 + DEPLOYMENTS * SECRETS }).await;
    eprintln!("copied after {:.1} s", began.elapsed().as_secs_f64());
    settle(&operator, &format!("and {} companions of 64 KiB, copied", DEPLOYMENTS * SECRETS)).await;
    drop(operator);
    let operator = manager(&bed).await;
    sleep(Duration::from_secs(20)).await;
    settle(&operator, "the same, started anew").await;
}

/// Measures the manager beside this many deployments. The pair: its memory in KiB without any, and what a further deployment took.
async fn beside(bed: &Testbed, deployments: usize, (alone, beside_none): (usize, [f64; 2]), over: &mut Over) {
    lists(bed, 500).await; // the first lists find the servers' caches cold
    for page in [WHOLE_PAGE_SIZE, 500] {
        let raw = lists(bed, page).await;
        println!("raw limit: the API servers answer the three long lists of a start in {raw:.1} s, in pages of {page}");
    }
    let marks = [Audit::mark(&bed.project), Audit::mark(&bed.hub)];
    let began = Instant::now();
    let operator = manager(bed).await;
    let ready = began.elapsed();
    let what = format!("restarted beside {deployments} deployments that are reported on");
    let tracked = settle(&operator, &what).await;
    let kinds = requests(["project", "hub"].into_iter().zip(&marks));
    let is_read = |kind: &str| ["get", "list", "watch"].iter().any(|verb| kind.contains(&format!(" {verb} ")));
    let (asked, written): (BTreeMap<_, _>, BTreeMap<_, _>) = kinds.into_iter().partition(|(kind, _)| is_read(kind));
    let count = |kinds: &BTreeMap<String, usize>| kinds.values().sum::<usize>();
    eprintln!("requests after the start: {asked:?}, {written:?}");
    println!(
        "it is ready after {:.1} s, and has taken {:.1} s of processor time, {} reads and {} writes",
        ready.as_secs_f64(),
        cpu(operator.process.pid()),
        count(&asked),
        count(&written)
    );
    over.add(!written.is_empty(), || format!("After a start it writes, although nothing has changed: {written:?}"));
    let each = tracked.saturating_sub(alone) * 1024 / deployments.max(1);
    println!("that is {each} bytes for each deployment, with its copy and its binding");
    over.memory(deployments, tracked, each);
    let mut scrapes = Vec::new();
    for _ in 0..SCRAPES {
        let began = Instant::now();
        operator.metrics().await.unwrap();
        scrapes.push(began.elapsed());
    }
    let took = median(scrapes);
    println!("and a scrape takes {took:.1} ms");
    over.scrape("the manager", took);
    let beside_all = further(bed, &operator, "late").await;
    for (verb, (few, many)) in ["creating", "deleting"].into_iter().zip(beside_none.into_iter().zip(beside_all)) {
        println!(
            "{verb} one takes {few:.1} ms of processor time beside no other, and {many:.1} ms beside {deployments}"
        );
    }
    let took = trace(bed).await;
    println!("and a trace of one of them takes {took:.1} ms");
    over.add(took >= TRACE, || format!("A trace takes {took:.1} ms, which is to be less than {TRACE} ms."));
}

/// Lists what a start lists of each deployment, all three kinds at once, and decodes no object. Returns the seconds.
async fn lists(bed: &Testbed, page: u32) -> f64 {
    #[derive(serde::Deserialize)]
    struct Page {
        metadata: ListMeta,
        #[serde(rename = "items")]
        _items: Vec<IgnoredAny>,
    }
    let all = [(&bed.project, "WorkloadDeployment"), (&bed.hub, "WorkloadDeployment"), (&bed.hub, "ResourceBinding")];
    let began = Instant::now();
    let lists = all.map(|(plane, kind)| async move {
        let client = plane.client().await.unwrap();
        let all = Request::new(DynamicObject::url_path(&resource(kind), None));
        let mut params = ListParams::default().limit(page);
        loop {
            let page: Page = client.request(all.list(&params).unwrap()).await.unwrap();
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return,
            }
        }
    });
    join_all(lists).await;
    began.elapsed().as_secs_f64()
}

/// Measures the manager of this many projects without objects. All of them are one API server behind the stand-in for Milo.
async fn idle_projects(projects: usize) {
    let options = Options {
        cells: vec!["dfw".into()],
        provider: false,
        karmada: Flavour::StandIn,
        projects: vec!["project-0".into()],
        ..Options::default()
    };
    let bed = Testbed::start(options, &|text| eprintln!("{text}")).await.unwrap();
    let (plane, milo) = (bed.project.client().await.unwrap(), bed.milo.as_ref().unwrap());
    println!("{:<58} {:>9} {:>9} {:>9}", "", "resident", "peak", "program");
    let operator = manager(&bed).await;
    let one = settle(&operator, "one project without objects").await;
    drop(operator);
    for n in 1..projects {
        let name = format!("project-{n}");
        milo.add(&name, &bed.project).await.unwrap();
        announce(&plane, &name).await.unwrap();
    }
    let began = Instant::now();
    let operator = manager(&bed).await;
    let engaged = || async {
        let text = operator.metrics().await.unwrap();
        text.lines().any(|line| line.starts_with("compute_projects_engaged") && line.ends_with(&format!(" {projects}")))
    };
    wait("all projects are served", engaged).await;
    println!("{projects} projects are served {:.1} s after the start", began.elapsed().as_secs_f64());
    let all = settle(&operator, &format!("{projects} projects without objects")).await;
    let pid = operator.process.pid();
    let sockets = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter(|file| {
        let target = file.as_ref().ok().and_then(|file| std::fs::read_link(file.path()).ok());
        target.is_some_and(|target| target.to_string_lossy().starts_with("socket:"))
    });
    println!(
        "that is {} KiB for each project; {} sockets in all",
        (all - one) / (projects - 1).max(1),
        sockets.count()
    );
    let used = cpu(pid);
    sleep(Duration::from_mins(1)).await;
    println!("at rest it takes {:.2} s of processor time in a minute", cpu(pid) - used);
}

/// Prints and returns the time of encoding the metrics of a cell with 200 namespaces of 50 deployments each, in milliseconds.
fn scrape() -> f64 {
    let metrics = Metrics::default();
    let reasons = ["", "Resolving", "AwaitingPropagation", "SourceNotFound", "Ready"];
    for namespace in (0..200).map(|nth| format!("ns-{nth:08x}-1111-2222-3333-444444444444")) {
        metrics.companions(&namespace, 50, 50);
        for milliseconds in (0..50).map(|nth| nth * 37) {
            metrics.waited_for_data(&namespace, Duration::from_millis(milliseconds));
        }
        for (from, to) in reasons.iter().flat_map(|from| reasons[1..].iter().map(move |to| (from, to))) {
            metrics.data_turned(&namespace, from, to);
        }
    }
    let mut took = Vec::new();
    for _ in 0..SCRAPES {
        let began = Instant::now();
        let text = metrics.text();
        took.push(began.elapsed());
        assert!(text.lines().count() > 200 * 35);
    }
    let took = median(took);
    println!("metrics of 200 namespaces with 10,000 deployments: {took:.1} ms");
    took
}

/// Returns the median time of a trace over all planes, in milliseconds.
async fn trace(bed: &Testbed) -> f64 {
    let (kubeconfig, cell) = (bed.contexts().unwrap().display().to_string(), bed.cell("dfw").unwrap().name());
    let (plane, hub) = (format!("cell-dfw={cell}"), bed.hub.name());
    let args = [
        "kubectl-compute",
        "--kubeconfig",
        &kubeconfig,
        "--namespace",
        common::NAMESPACE,
        "--hub-context",
        hub,
        "--cell-context",
        &plane,
        "trace",
        "wd/storefront-0-main-dfw",
    ];
    let args = args.map(OsString::from);
    let mut took = Vec::new();
    for _ in 0..TRACES {
        let args = args.clone();
        let traced = tokio::task::spawn_blocking(move || {
            let (mut out, mut problems) = (Vec::new(), Vec::new());
            let began = Instant::now();
            kubectl_compute::start(args, &mut out, &mut problems);
            let text = String::from_utf8([out, problems].concat()).unwrap();
            assert!(text.contains("✔ cell"), "it reads the cell: {text}");
            began.elapsed()
        });
        took.push(traced.await.unwrap());
    }
    median(took)
}

/// Returns the median in milliseconds.
fn median(mut all: Vec<Duration>) -> f64 {
    all.sort();
    all[all.len() / 2].as_secs_f64() * 1e3
}

/// Returns what Karmada and a cell have written for the first deployment. `None` until it is delivered.
async fn first(hub: &Client) -> Option<Made> {
    let all = Api::<DynamicObject>::all_with(hub.clone(), &resource("WorkloadDeployment"));
    let first = all.list_metadata(&ListParams::default()).await.unwrap().items.pop()?.metadata;
    Made::of(hub, &first.namespace?, &first.name?).await
}

/// Returns the processor time of creating and of deleting one deployment, in milliseconds.
async fn further(bed: &Testbed, operator: &Operator, prefix: &str) -> [f64; 2] {
    let (project, pid, (number, rate)) = (bed.project.client().await.unwrap(), operator.process.pid(), FURTHER);
    let planes: [&ControlPlane; 2] = [&bed.project, &bed.hub];
    let name = |n: usize| format!("{prefix}-{n}-main-dfw");
    let mut took = [0.0; 2];
    let before = cpu(pid);
    let create = |n| create(&project, detailed_deployment(&name(n), 1_000_000 + n));
    paced(number, Some(rate)).for_each_concurrent(16, create).await;
    quiet(&planes).await;
    took[0] = cpu(pid) - before;
    let all =
        Api::<DynamicObject>::namespaced_with(project.clone(), common::NAMESPACE, &resource("WorkloadDeployment"));
    let before = cpu(pid);
    paced(number, Some(rate))
        .for_each_concurrent(16, |n| {
            let (all, name) = (&all, name(n));
            async move { all.delete(&name, &DeleteParams::background()).await.map(drop).unwrap() }
        })
        .await;
    quiet(&planes).await;
    took[1] = cpu(pid) - before;
    assert!(all.get_metadata_opt(&name(number - 1)).await.unwrap().is_none(), "it is deleted");
    took.map(|seconds| seconds * 1e3 / number as f64)
}

/// Puts this number of deployments on the hub, ten of each template, each delivered to a cell and with a status. Stops the
/// operator, which has copied them.
async fn track(bed: &Testbed, operator: Operator, made: &Made, deployments: usize) {
    let (project, hub) = (bed.project.client().await.unwrap(), bed.hub.client().await.unwrap());
    let copied = deployments.min(COPIED);
    let began = Instant::now();
    stream::iter(0..copied)
        .for_each_concurrent(32, |n| create(&project, detailed_deployment(&name(n), n / OF_TEMPLATE)))
        .await;
    wait("all are on the hub", || async { count(&hub, "WorkloadDeployment").await > copied }).await;
    let all = Api::<DynamicObject>::all_with(hub.clone(), &resource("WorkloadDeployment"));
    let found = all.list_metadata(&ListParams::default()).await.unwrap().items.into_iter().map(|copy| copy.metadata);
    let found = found.filter(|copy| copy.name.as_ref().is_some_and(|name| name.starts_with("storefront-")));
    stream::iter(found).for_each_concurrent(16, |copy| made.again(copy)).await;
    wait("all reports are in the project", || async { mirrored(&project).await == copied }).await;
    quiet(&[&bed.project, &bed.hub]).await;
    drop(operator);
    multiply(bed, copied, deployments).await;
    eprintln!("{deployments} deployments are there, and reported on, after {:.0} s", began.elapsed().as_secs_f64());
}

fn name(n: usize) -> String {
    format!("storefront-{n}-main-dfw")
}

/// Stores deployments, copies and bindings like the first ones, under other names, uids and templates, until there are
/// `deployments`.
async fn multiply(bed: &Testbed, copied: usize, deployments: usize) {
    let hub_namespace = {
        let project = bed.project.client().await.unwrap();
        let shop =
            Api::<DynamicObject>::all_with(project, &resource("Namespace")).get(common::NAMESPACE).await.unwrap();
        format!("ns-{}", shop.metadata.uid.unwrap())
    };
    let kind = "compute.datumapis.com/workloaddeployments";
    let places = [
        (&bed.project, format!("{kind}/{}", common::NAMESPACE), ""),
        (&bed.hub, format!("{kind}/{hub_namespace}"), ""),
        (&bed.hub, format!("work.karmada.io/resourcebindings/{hub_namespace}"), "-workloaddeployment"),
    ];
    let mut models = Vec::new();
    for (plane, resource, suffix) in &places {
        let stored = bed.stored(plane, resource).await.unwrap();
        let model = |n| {
            let text = stored[&format!("{resource}/{}{suffix}", name(n))].clone();
            (uid(&text), text)
        };
        models.push((0..copied).map(model).collect::<Vec<_>>());
    }
    for ((plane, resource, suffix), texts) in places.iter().zip(&models) {
        let others = (copied..deployments).map(|other| {
            let n = other % copied;
            let uids = models
                .iter()
                .enumerate()
                .map(|(place, models)| (&models[n].0, format!("{place:08x}-0000-4000-8000-{other:012x}")));
            let (template, new) = (n / OF_TEMPLATE, other / OF_TEMPLATE);
            let text = &texts[n].1;
            let text = text
                .replace(&name(n), &name(other))
                .replace(&format!(".example.com/{template}\""), &format!(".example.com/{new}\""))
                .replace(&format!("-{template:012}\""), &format!("-{new:012}\""));
            let text = uids.fold(text, |text, (old, new)| text.replace(old, &new));
            (format!("{resource}/{}{suffix}", name(other)), text)
        });
        bed.store(plane, others).await.unwrap();
    }
    // An API server answers lists from a cache, which follows etcd. Until it has all objects, a start would find some missing.
    for (plane, kind) in
        [(&bed.project, "WorkloadDeployment"), (&bed.hub, "WorkloadDeployment"), (&bed.hub, "ResourceBinding")]
    {
        let all = Api::<DynamicObject>::all_with(plane.client().await.unwrap(), &resource(kind));
        let one = ListParams::default().limit(1);
        let stored = all.list_metadata(&one).await.unwrap().metadata.resource_version.unwrap();
        // Is refused until the cache is as new as this version. A list of all objects would take gigabytes of the API server.
        wait("the API servers have all of them", || async {
            all.list_metadata(&one.clone().at(&stored).matching(VersionMatch::NotOlderThan)).await.is_ok()
        })
        .await;
    }
}

/// Returns the uid of a stored object.
fn uid(text: &str) -> String {
    let object: DynamicObject = serde_json::from_str(text).unwrap();
    object.metadata.uid.unwrap()
}

/// Returns the number of the project's deployments that show the reported status.
async fn mirrored(project: &Client) -> usize {
    let originals =
        Api::<DynamicObject>::namespaced_with(project.clone(), common::NAMESPACE, &resource("WorkloadDeployment"));
    let (mut mirrored, mut page) = (0, ListParams::default().limit(500));
    loop {
        let list = originals.list(&page).await.unwrap();
        mirrored += list.items.iter().filter(|of| of.data["status"]["readyReplicas"] == 2).count();
        let Some(token) = list.metadata.continue_.filter(|token| !token.is_empty()) else { return mirrored };
        page = page.continue_token(&token);
    }
}

/// Waits until the manager's resident memory has not changed for ten seconds, prints it, and returns it in KiB. The allocator
/// returns freed memory to the system with a delay, and only while the process allocates.
async fn settle(manager: &Operator, what: &str) -> usize {
    let (mut before, mut same) = (0, 0);
    for _ in 0..90 {
        sleep(Duration::from_secs(2)).await;
        let now = memory(manager, "VmRSS");
        same = if now == before { same + 1 } else { 0 };
        if same == 5 {
            break;
        }
        before = now;
    }
    let mib = |field| format!("{:.1} MiB", f64::from(memory(manager, field)) / 1024.0);
    println!("{what:<58} {:>9} {:>9} {:>9}", mib("VmRSS"), mib("VmHWM"), mib("RssFile"));
    memory(manager, "VmRSS") as usize
}

fn noise(n: usize) -> Value {
    let kind = if n.is_multiple_of(2) { "ConfigMap" } else { "Secret" };
    let field = if kind == "Secret" { "stringData" } else { "data" };
    json!({
        "apiVersion": "v1", "kind": kind, "metadata": { "namespace": "unrelated", "name": format!("noise-{n}") },
        field: { "key": "x".repeat(1 << 10) },
    })
}
