//! Measurements of a running operator, and the table of the results.
#![allow(clippy::cast_precision_loss)] // thousands of objects

use std::{collections::BTreeMap, fs, time::Duration};

use futures::{Stream, StreamExt, stream};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use testbed::{audit::Audit, control_plane::ControlPlane, operator::Operator};
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{Instant, interval, sleep},
};

use super::{count, create, deployment, namespace, resource, wait};

/// Objects for the raw limit of an API server, and requests at a time.
const RAW: (usize, usize) = (500, 32);
/// Ticks of a process's time in a second. Linux has told programs 100 since 2.6.
const TICKS: f64 = 100.0;

/// The named results of one run.
pub type Column = Vec<(String, f64)>;

/// Prints the results as a table, and then as JSON. The first column names the rows.
pub fn print(columns: &[(&str, Column)]) {
    print!("{:<64}", "");
    for (name, _) in columns {
        print!("{name:>12}");
    }
    println!();
    for (row, _) in &columns[0].1 {
        print!("{row:<64}");
        for (_, column) in columns {
            let value = column.iter().find(|(other, _)| other == row).map(|(_, value)| value);
            print!("{:>12}", value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")));
        }
        println!();
    }
    let object = |rows: &Column| -> Value { rows.iter().map(|(row, value)| (row.clone(), json!(value))).collect() };
    let all: Value = columns.iter().map(|(name, rows)| ((*name).to_owned(), object(rows))).collect();
    println!("{all}");
}

/// Returns the processor time of a process, in seconds.
pub fn cpu(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let ticks: u64 = after_name.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    ticks as f64 / TICKS
}

/// Returns the resident memory of a process, in MiB.
pub fn resident(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Returns how many times each controller has looked at an object.
pub async fn looks(operator: &Operator) -> BTreeMap<String, f64> {
    let text = operator.metrics().await.unwrap();
    let mut looks = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("controller_runtime_reconcile_total{")) {
        let controller = line.split("controller=\"").nth(1).unwrap().split('"').next().unwrap();
        let number: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        *looks.entry(controller.to_owned()).or_insert(0.0) += number;
    }
    looks
}

/// Returns the requests of the operator since these marks, by plane, verb and resource.
pub fn requests<'a>(marks: impl Iterator<Item = (&'a str, &'a Audit)>) -> BTreeMap<String, usize> {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for (plane, mark) in marks {
        for request in mark.requests().unwrap() {
            *kinds.entry(format!("{plane} {} {}", request.verb, request.resource)).or_default() += 1;
        }
    }
    kinds
}

/// Returns the numbers below `number`, this many in a second, or as fast as they are taken.
pub fn paced(number: usize, rate: Option<u64>) -> impl Stream<Item = usize> {
    let ticks = rate.map(|rate| interval(Duration::from_secs(1) / u32::try_from(rate).unwrap()));
    stream::unfold((0, ticks), move |(n, mut ticks)| async move {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        (n < number).then_some((n, (n + 1, ticks)))
    })
}

/// Adds median and 99th percentile of the time between two events, over all names with this prefix.
pub fn latency(
    what: &str,
    prefix: &str,
    from: &BTreeMap<String, Instant>,
    to: &BTreeMap<String, Instant>,
    row: &mut impl FnMut(&str, f64),
) {
    let of_prefix = to.iter().filter(|(name, _)| name.starts_with(prefix));
    let mut all: Vec<f64> = of_prefix.map(|(name, at)| at.duration_since(from[name]).as_secs_f64() * 1e3).collect();
    all.sort_by(f64::total_cmp);
    for (name, percent) in [("p50", 50), ("p99", 99)] {
        row(&format!("{what}, {name}, milliseconds"), all[all.len() * percent / 100]);
    }
}

/// Returns how many deployments an API server creates per second while nothing else runs.
pub async fn raw_limit(plane: &Client) -> f64 {
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

/// Waits until the operator has asked nothing for some seconds.
pub async fn quiet(planes: &[&ControlPlane]) {
    wait("it is quiet", || async {
        let marks: Vec<Audit> = planes.iter().map(|plane| Audit::mark(plane)).collect();
        sleep(Duration::from_secs(7)).await;
        marks.iter().all(|mark| mark.requests().unwrap().is_empty())
    })
    .await;
}

/// Calls `seen` for each object of a kind that a plane shows from now on, with true if it is new.
pub async fn watch(plane: &Client, kind: &str, mut seen: impl FnMut(DynamicObject, bool) + Send + 'static) {
    let all: Api<DynamicObject> = Api::all_with(plane.clone(), &resource(kind));
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

/// Calls `handle` for each object that is sent, this many at a time.
pub fn handled<F: Future<Output = ()> + Send + 'static>(
    at_once: usize,
    handle: impl Fn(DynamicObject) -> F + Send + 'static,
) -> UnboundedSender<DynamicObject> {
    let (send, receive) = unbounded_channel::<DynamicObject>();
    let objects = stream::unfold(receive, async |mut receive| Some((receive.recv().await?, receive)));
    tokio::spawn(async move { objects.for_each_concurrent(at_once, handle).await });
    send
}
