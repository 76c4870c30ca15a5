//! Manager and cell stay within the memory of the manifests while a tenant and a cell make everything as large as possible. Both
//! stay ready, the Leases stay with them, and another project continues.
//!
//! A container is killed when its own memory exceeds its limit. A real limit needs a cgroup and root, so the test samples
//! `RssAnon` in `/proc/<pid>/status` many times a second. That leaves out pages of the binary, which the kernel can drop.
//! `RELEASE=FILE` tests a release binary. A debug binary needs about the same heap and stacks, and more time.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use compute_operator::api::meta::label;
use futures::{StreamExt, stream};
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};
use testbed::{Options, bed::bind_location, control_plane, operator::Operator, pki::User};
use tokio::time::Instant;

use crate::common::{
    RUNTIME, World, api, binary, eventually, get, list, path,
    projects::{PERIODS, client, served},
    promised, workload,
};

/// A city without a cell, where all work is management's.
const NOWHERE: &str = "lhr";

/// Returns the memory limit of a container of the manager, in KiB.
fn limit_kib() -> u64 {
    let manifest = std::fs::read_to_string(path("config/base/manager/manager.yaml")).unwrap();
    let limits = manifest.split("limits:").nth(1).unwrap();
    let memory = limits.lines().find_map(|line| line.trim().strip_prefix("memory: ")).unwrap();
    memory.strip_suffix("Mi").unwrap().parse::<u64>().unwrap() << 10
}

/// Samples the private memory of a process until it is dropped.
struct Meter {
    peak: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Meter {
    fn of(pid: u32) -> Self {
        let meter = Self { peak: Arc::default(), ended: Arc::default() };
        let (peak, ended) = (meter.peak.clone(), meter.ended.clone());
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return };
                let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
                let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
                peak.fetch_max(kib, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        meter
    }

    fn peak_kib(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Returns this many variables of about 60 bytes each.
fn settings(count: usize, of: usize) -> Value {
    let one = |n: usize| json!({ "name": format!("SETTING_{n:05}_OF_THE_APPLICATION"), "value": format!("value-{of}-{n:05}") });
    (0..count).map(one).collect()
}

fn with_env(mut of: Value, env: Value) -> Value {
    of["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["env"] = env;
    of
}

/// A manager and a cell with a Lease each, and the meters of their memory.
struct Bed {
    world: World,
    meters: Vec<Meter>,
    holders: Vec<Value>,
    beta: Client,
    workloads: usize,
}

impl Bed {
    async fn start() -> Self {
        let projects = ["alpha", "beta"].map(String::from).into();
        let options =
            Options { cells: vec!["dfw".into()], projects, management: PERIODS.to_owned(), ..Options::default() };
        let mut world = World::bare(options).await;
        let binary = std::env::var_os("RELEASE").map_or_else(|| binary().to_owned(), PathBuf::from);
        let flags = ["--leader-elect"];
        let mut operators = vec![
            Operator::management(&world.bed, &binary, "operator-management", &flags).unwrap(),
            Operator::cell(&world.bed, &binary, "dfw", &flags).unwrap(),
        ];
        for operator in &mut operators {
            operator.wait_ready().await.unwrap();
        }
        world.operators = operators;
        let beta = client(&world, "beta").await;
        world.namespace_in(&beta, "calm").await;
        let meters = world.operators.iter().map(|operator| Meter::of(operator.process.pid())).collect();
        let mut bed = Self { world, meters, holders: Vec::new(), beta, workloads: 0 };
        bed.goes_on("at the start").await;
        bed.holders = bed.holders().await;
        bed
    }

    async fn holders(&self) -> Vec<Value> {
        let mut holders = Vec::new();
        for plane in [&self.world.project, &self.world.dfw] {
            let leases =
                kube::Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(plane.clone(), "compute-system");
            let all = leases.list(&kube::api::ListParams::default()).await.unwrap().items;
            holders.extend(
                all.into_iter()
                    .filter_map(|lease| lease.spec)
                    .map(|spec| json!([spec.holder_identity, spec.lease_transitions])),
            );
        }
        holders
    }

    /// Asserts that another project's Workload runs within seconds, and that both processes are ready, lead and stay within their
    /// memory.
    async fn goes_on(&mut self, when: &str) {
        self.workloads += 1;
        let (name, began) = (format!("web-{}", self.workloads), Instant::now());
        crate::common::apply(&self.beta, workload("calm", &name, &["dfw"], 1)).await;
        served(&self.beta, "calm", &format!("{name}-p-dfw")).await;
        let took = began.elapsed();
        for (operator, meter) in self.world.operators.iter().zip(&self.meters) {
            let name = operator.process.name();
            let (code, body) = operator.probe("/readyz").await.unwrap();
            assert_eq!(code, 200, "{name} {when}: {body}");
            let peak = meter.peak_kib();
            eprintln!("{when}: {name} has had {peak} KiB at most; another project's Workload took {took:.1?}");
            assert!(peak < limit_kib(), "{name} {when}: {peak} KiB, {} is the limit", limit_kib());
        }
        assert!(took < promised(Duration::from_secs(10)), "{when}: another project's Workload took {took:?}");
        if !self.holders.is_empty() {
            assert_eq!(self.holders().await, self.holders, "{when}: a Lease has changed hands");
        }
    }

    /// Returns the Instance of beta's first Workload as the cell wrote it on the hub, to be recreated under other names.
    async fn write_back(&self) -> DynamicObject {
        let all = eventually("it is written back", || async {
            let all = list(&self.world.hub, "Instance", "").await;
            all.into_iter().find(|one| one.name_any().starts_with("web-1-")).ok_or_else(String::new)
        });
        let mut object = all.await;
        let metadata = std::mem::take(&mut object.metadata);
        object.metadata.namespace = metadata.namespace;
        object.metadata.labels = metadata.labels;
        object.metadata.owner_references = metadata.owner_references;
        object.data.as_object_mut().unwrap().remove("status");
        object
    }
}

#[test]
fn hostile_tenant_and_cell_keep_operators_within_the_memory_limit() {
    RUNTIME.block_on(async {
        let mut bed = Bed::start().await;
        let alpha = client(&bed.world, "alpha").await;
        bed.world.namespace_in(&alpha, "large").await;
        bind_location(&alpha, NOWHERE).await.unwrap();

        over_the_limits(&mut bed, &alpha).await;
        one_workload_within_the_limits(&mut bed, &alpha).await;
        many_workloads(&mut bed, &alpha).await;
        pushed_by_a_cell(&mut bed).await;

        // Both processes restart, and load everything at once.
        for operator in 0..bed.world.operators.len() {
            bed.world.operators[operator].process.kill();
            bed.world.operators[operator].start_again().await.unwrap();
            bed.meters[operator] = Meter::of(bed.world.operators[operator].process.pid());
        }
        bed.holders.clear();
        bed.goes_on("restarted with all objects present").await;
        assert!(get(&alpha, "Workload", "large", "wide").await.is_some());
    });
}

/// Returns this many placements in one city.
fn placements(count: usize, city: &str) -> Value {
    let one = |n| json!({ "name": format!("p{n:03}"), "cityCodes": [city], "scaleSettings": { "minReplicas": 1 } });
    (0..count).map(one).collect()
}

/// Returns one variable of this many KiB.
fn long_value(of: usize, kib: usize) -> Value {
    json!([{ "name": "A", "value": format!("{of}{}", "y".repeat(kib << 10)) }])
}

/// Creates Workloads beyond the limits, without webhooks that would refuse them.
async fn over_the_limits(bed: &mut Bed, alpha: &Client) {
    let mut wide = with_env(workload("large", "wide", &[NOWHERE], 1), long_value(0, 256));
    wide["spec"]["placements"] = placements(256, NOWHERE);
    create(alpha, wide).await;
    bed.goes_on("with 256 placements of 256 KiB").await;
    let refers =
        |n| json!({ "name": format!("V{n}"), "valueFrom": { "secretKeyRef": { "name": "absent", "key": "k" } } });
    create(alpha, with_env(workload("large", "refers", &[NOWHERE], 1), (0..3000).map(refers).collect())).await;
    bed.goes_on("with 3,000 variables of one absent Secret").await;
}

/// Creates and changes the most deployments that one city allows, with 127 variables each. For a change, Karmada compares all of
/// it with the running objects. Without a pace, another project's Workload took 30 s on two shared cores.
async fn one_workload_within_the_limits(bed: &mut Bed, alpha: &Client) {
    let of_size = |n| json!({ "name": format!("SETTING_{n:05}"), "value": "v".repeat(190) });
    let mut most = with_env(workload("large", "most", &["dfw"], 1), (0..127).map(of_size).collect());
    most["spec"]["placements"] = placements(32, "dfw");
    create(alpha, most.clone()).await;
    for nth in 1..4 {
        bed.goes_on(&format!("{nth}. with 32 deployments of 127 variables")).await;
    }
    most["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["image"] = json!("changed");
    crate::common::apply(alpha, most).await;
    for nth in 1..4 {
        bed.goes_on(&format!("{nth}. with a change of 32 deployments of 127 variables")).await;
    }
}

/// Creates ten Workloads with 32 deployments of 120 KiB each, and ten with 500 variables on the cell. Ten more have 1 MiB and
/// exceed the limit.
async fn many_workloads(bed: &mut Bed, alpha: &Client) {
    for n in 0..10 {
        let mut full = with_env(workload("large", &format!("full-{n}"), &[NOWHERE], 1), long_value(n, 120));
        full["spec"]["placements"] = placements(32, NOWHERE);
        create(alpha, full).await;
        create(alpha, with_env(workload("large", &format!("many-{n}"), &["dfw"], 1), settings(500, n))).await;
        create(alpha, with_env(workload("large", &format!("huge-{n}"), &["dfw"], 1), long_value(n, 1 << 10))).await;
    }
    bed.goes_on("with 30 large Workloads").await;
}

/// Creates Instances with the credentials of a cell, as large as the policy allows.
async fn pushed_by_a_cell(bed: &mut Bed) {
    let own = bed.write_back().await;
    let file = bed.world.bed.hub.kubeconfig(&User::Cell("dfw".into()));
    let as_cell = api(&control_plane::client(&file).await.unwrap(), "Instance", &own.namespace().unwrap());
    let push = |n: usize| {
        let (mut pushed, as_cell) = (own.clone(), as_cell.clone());
        let deployment = pushed.labels()[label::WORKLOAD_DEPLOYMENT_NAME].clone();
        pushed.metadata.name = Some(format!("{deployment}-{n}"));
        pushed.labels_mut().insert(label::INSTANCE_INDEX.to_owned(), n.to_string());
        pushed.data["spec"]["runtime"]["sandbox"]["containers"][0]["env"] = long_value(n, 200);
        async move { drop(as_cell.create(&PostParams::default(), &pushed).await.unwrap()) }
    };
    stream::iter(100..400).for_each_concurrent(4, push).await;
    bed.goes_on("with 300 Instances of 200 KiB that a cell pushed").await;
}

async fn create(project: &Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api(project, "Workload", "large").create(&PostParams::default(), &object).await.unwrap();
}
