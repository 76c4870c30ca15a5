//! Prometheus scrapes the operators of the testbed. In one test, applications come, change and go, with one short failure. In
//! another, the chainsaw suites run repeatedly. Each lasts `MINUTES` minutes (default two). `PROMETHEUS` names the program, or it
//! is on the `PATH`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use serde_json::{Value, json};
use testbed::{control_plane::free_port, operator::Operator, pki::User};
use tokio::time::Instant;

use crate::common::{
    RUNTIME, World, apply,
    beds::{Lent, Wish, alone},
    binary, delete, eventually,
    example_app::{SWEEPS, secret, using},
    get, merge, path,
    readers::{account, allow},
    ready, skipped, workload,
};
use crate::{
    elsewhere::ELSEWHERE,
    scraping::{JOB, Pace, Prometheus, as_the_service_monitor_says, program},
};

/// Metrics without data on the dashboard after the suites. The suites stop managers before the first sweep, no server was
/// unavailable, and metrics of a namespace end with its last deployment.
const NOT_BY_SUITES: [&str; 5] = [
    "compute_sweeps_total",
    "compute_sweep_last_end_timestamp_seconds",
    "compute_watch_failures_total",
    "compute_referenced_data_companions_expected",
    "compute_referenced_data_companions_present",
];
/// Number of namespaces that the applications use in turn.
const NAMESPACES: usize = 3;
/// Length of the single hub outage. It is too short for an alert.
const AWAY: Duration = Duration::from_secs(15);

/// Applications that come and go, each with a new name.
struct Load {
    world: Lent<World>,
    namespaces: Vec<(String, String)>,
    rounds: usize,
}

impl Load {
    /// Creates, changes and deletes an application.
    async fn round(&mut self) {
        let (world, (ns, hub)) = (&self.world, &self.namespaces[self.rounds % NAMESPACES]);
        self.rounds += 1;
        let name = format!("web-{}", self.rounds);
        let mut app = using(ns, &["dfw", "ord"]);
        app["metadata"]["name"] = json!(name);
        apply(&world.project, app.clone()).await;
        ready(world, ns, &name, 2).await;
        app["spec"]["placements"][0]["scaleSettings"]["minReplicas"] = json!(2);
        apply(&world.project, app).await;
        ready(world, ns, &name, 4).await;
        delete(&world.project, "Workload", ns, &name).await;
        for (client, namespace, kind, name) in [
            (&world.project, ns, "Workload", name.clone()),
            (&world.hub, hub, "WorkloadDeployment", format!("{name}-p-dfw")),
        ] {
            eventually(&format!("{kind} {name} is deleted"), || async {
                get(client, kind, namespace, &name).await.map_or(Ok(()), |_| Err("still there".into()))
            })
            .await;
        }
    }

    /// Causes a short failure, once.
    async fn trouble(&mut self) {
        let (ns, hub) = self.namespaces[0].clone();
        let world = &mut *self.world;
        apply(&world.project, using(&ns, &["dfw"])).await;
        ready(world, &ns, "web", 1).await;
        delete(&world.hub, "ResourceBinding", &hub, "db-secret").await;
        // An unbound city only waits. A bound city without a Cluster blocks.
        testbed::bed::bind_location(&world.project, "lhr").await.unwrap();
        apply(&world.project, workload(&ns, "nowhere", &["lhr"], 1)).await;
        eventually("one is kept from its city", || async {
            let text = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
            let told = text.lines().any(|line| line.starts_with("compute_federation_blocked_") && line.ends_with(" 1"));
            if told { Ok(()) } else { Err("not exported".to_owned()) }
        })
        .await;
        delete(&world.project, "Workload", &ns, "nowhere").await;
        world.bed.hub.stop_api_server();
        let change = json!({ "spec": { "template": { "metadata": { "annotations": { "change": "1" } } } } });
        merge(&world.project, "Workload", &ns, "web", change).await;
        // Length of the outage.
        tokio::time::sleep(AWAY).await;
        world.bed.hub.start_api_server().unwrap();
        world.bed.hub.wait_ready().await.unwrap();
        world.operators[0].wait_ready().await.unwrap();
        delete(&world.project, "Workload", &ns, "web").await;
    }
}

/// Returns the metrics of the page with the names that Prometheus uses.
fn documented() -> Vec<String> {
    let page = fs::read_to_string(path("docs/metrics.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut columns = row.split('|').map(str::trim).skip(1);
        let (name, kind) = (columns.next().unwrap().trim_matches('`'), columns.next().unwrap());
        format!("{name}{}", if kind == "histogram" { "_count" } else { "" })
    })
    .collect()
}

#[test]
fn prometheus_during_load_sees_every_metric_without_growth() {
    let Some(program) = program() else {
        skipped("prometheus is not on the PATH and not in PROMETHEUS; .ci/tools installs it");
        return;
    };
    let minutes = std::env::var("MINUTES").map_or(2, |minutes| minutes.parse().unwrap());
    RUNTIME.block_on(async {
        let wish = Wish { networks_and_quota: true, management: SWEEPS.into(), ..Wish::default() };
        let world = alone(wish).await;
        let prometheus = Prometheus::scraping(&program, &world, &Pace::default()).await;
        let mut load = Load { world, namespaces: Vec::new(), rounds: 0 };
        for _ in 0..NAMESPACES {
            let (ns, hub) = load.world.namespace("scraped").await;
            apply(&load.world.project, secret(&ns)).await;
            load.namespaces.push((ns, hub));
        }
        let (began, lasts) = (Instant::now(), Duration::from_mins(minutes));
        load.trouble().await;
        // Each namespace is used once before the comparison.
        while began.elapsed() < lasts / 2 || load.rounds < NAMESPACES {
            load.round().await;
        }
        let (half, before) = (load.rounds, prometheus.series().await);
        while began.elapsed() < lasts || load.rounds < half + 5 {
            load.round().await;
        }
        let (rounds, after) = (load.rounds - half, prometheus.series().await);
        eprintln!("{} applications came and went in {:.0} s", load.rounds, began.elapsed().as_secs_f64());
        eprintln!(
            "series: {} at half time, {} in the end",
            before.values().sum::<usize>(),
            after.values().sum::<usize>()
        );
        let grew = grown(&before, &after, rounds / 2);
        assert!(grew.is_empty(), "with {rounds} applications grew {grew:?}");
        let run = format!("{}s", began.elapsed().as_secs() + 60);
        assert_all_panels_have_data(&prometheus, &run).await;
        panels_have_data(&prometheus, &run, &[]).await;
        assert_no_alert_fires(&prometheus, &run).await;
        drop(prometheus);
    });
}

/// By default, metrics use TLS and the API server's authorization. The other tests here switch that off.
#[test]
fn prometheus_with_the_service_monitor_settings_scrapes() {
    let Some(program) = program() else {
        skipped("prometheus is not on the PATH and not in PROMETHEUS; .ci/tools installs it");
        return;
    };
    RUNTIME.block_on(async {
        let mut world = alone(Wish::default()).await;
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        let config = format!("metricsServer:\n  bindAddress: {address}\n");
        let project = format!("--kubeconfig={}", world.bed.project.kubeconfig(&User::Operator).display());
        let hub = format!("--federation-kubeconfig={}", world.bed.hub.kubeconfig(&User::Operator).display());
        let flags = ["--enable-management-controllers=true", &project, &hub];
        world.operators[0].process.kill();
        world.operators[0] =
            Operator::with_config(world.bed.dir(), binary(), "operator-management", &config, &flags).unwrap();
        world.operators[0].wait_ready().await.unwrap();
        let token = world.bed.dir().join("prometheus-token");
        fs::write(&token, account(&world.project, "prometheus").await).unwrap();
        let pace = Pace { ask: as_the_service_monitor_says(&token), ..Pace::default() };
        let prometheus = Prometheus::start(&program, &world, &pace);
        prometheus.ask_at([("operator-management", address)]);
        for (up, why) in [("0", "its account has no right"), ("1", "it has the right now")] {
            eventually(why, || async {
                let told = prometheus.ask(&format!("up{{{JOB}}}")).await?;
                let is = told.first().is_some_and(|of| of["value"][1] == up);
                if is { Ok(()) } else { Err(format!("{told:?}")) }
            })
            .await;
            allow(&world.project, "prometheus").await;
        }
        let told = prometheus.ask(&format!("leader_election_master_status{{{JOB}}}")).await.unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        drop(prometheus);
    });
}

/// The suites provoke all that a tenant or an operator can meet, one after the other, each in its own namespace.
#[test]
fn prometheus_during_the_suites_sees_no_growth() {
    let (Some(program), Some(chainsaw)) = (program(), testbed::chainsaw::find()) else {
        skipped("prometheus or chainsaw is not on the PATH, and PROMETHEUS and CHAINSAW do not name them");
        return;
    };
    let minutes = std::env::var("MINUTES").map_or(2, |minutes| minutes.parse().unwrap());
    RUNTIME.block_on(async {
        // The Deployments set this flag.
        let flags = vec!["--leader-elect".to_owned()];
        let mut lent = alone(Wish { provider: false, flags, ..Wish::default() }).await;
        let world = &mut *lent;
        let prometheus = Prometheus::scraping(&program, world, &Pace::default()).await;
        let (began, lasts) = (Instant::now(), Duration::from_mins(minutes));
        let suites = testbed::chainsaw::Run { program: chainsaw, gated: false, more: &[], shown: false };
        let mut run_suites = async || {
            suites.on(&world.bed, &mut world.operators).await.unwrap();
        };
        run_suites().await;
        let (mut passes, first) = (1, prometheus.series().await);
        while passes < 2 || began.elapsed() < lasts {
            run_suites().await;
            passes += 1;
        }
        let last = prometheus.series().await;
        eprintln!("the suites passed {passes} times in {:.0} s", began.elapsed().as_secs_f64());
        eprintln!(
            "series: {} after the first, {} in the end",
            first.values().sum::<usize>(),
            last.values().sum::<usize>()
        );
        // Each pass creates a namespace for each suite, seven of them with data. Series for each namespace would grow by that
        // number.
        let grew = grown(&first, &last, 2 * (passes - 1) + 4);
        assert!(grew.is_empty(), "with {passes} passes grew {grew:?}");
        let run = format!("{}s", began.elapsed().as_secs() + 60);
        panels_have_data(&prometheus, &run, &NOT_BY_SUITES).await;
        assert_no_alert_fires(&prometheus, &run).await;
        drop(prometheus);
    });
}

/// Returns the metrics with more than `allowed` additional series.
fn grown(before: &BTreeMap<String, usize>, after: &BTreeMap<String, usize>, allowed: usize) -> BTreeMap<String, usize> {
    let more = after.iter().map(|(name, now)| (name, now.saturating_sub(before.get(name).copied().unwrap_or(0))));
    more.filter(|(_, more)| *more > allowed).map(|(name, more)| (name.clone(), more)).collect()
}

/// Asserts that no alert has fired, because no lasting failure was provoked. Prints the duration of scrapes.
async fn assert_no_alert_fires(prometheus: &Prometheus, run: &str) {
    let fired = prometheus.ask(&format!("max_over_time(ALERTS{{alertstate=\"firing\"}}[{run}])")).await.unwrap();
    assert!(fired.is_empty(), "nothing was provoked that lasts: {fired:#?}");
    let slow = format!("max_over_time(scrape_duration_seconds{{{JOB}}}[{run}])");
    for scrape in prometheus.ask(&slow).await.unwrap() {
        eprintln!("longest scrape of {}: {} s", scrape["metric"]["pod"], scrape["value"][1]);
    }
}

async fn assert_all_panels_have_data(prometheus: &Prometheus, run: &str) {
    let mut missing = BTreeSet::new();
    let documented = documented();
    for (name, _, _) in ELSEWHERE {
        assert!(documented.iter().any(|known| known == name), "{name} is not documented");
    }
    for name in documented {
        let told = prometheus.ask(&format!("last_over_time({name}{{{JOB}}}[{run}])")).await.unwrap();
        if told.is_empty() && !ELSEWHERE.iter().any(|(known, _, _)| **known == name) {
            missing.insert(name);
        }
    }
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

/// Asserts that every panel of the dashboard has data, except for metrics that other tests provoke.
async fn panels_have_data(prometheus: &Prometheus, run: &str, more_elsewhere: &[&str]) {
    let elsewhere: Vec<&str> =
        ELSEWHERE.iter().map(|(name, _, _)| *name).chain(more_elsewhere.iter().copied()).collect();
    let board: Value = serde_json::from_str(&testbed::dashboard::text()).unwrap();
    let (mut asked, mut empty) = (0, BTreeSet::new());
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let of_elsewhere = elsewhere.iter().any(|name| query.contains(name));
            let query = ["$job", "$namespace", "$pod"].iter().fold(query.to_owned(), |q, name| q.replace(name, ".+"));
            // Counters are queried over the whole run. So are metrics that exist only while a namespace has deployments.
            let query = query.replace("$__rate_interval", run);
            let found = prometheus.ask(&format!("last_over_time(({query})[{run}:5s])")).await.unwrap();
            asked += 1;
            if found.is_empty() && !of_elsewhere {
                empty.insert(query);
            }
        }
    }
    eprintln!("{asked} queries of the board were asked");
    assert!(asked > 30 && empty.is_empty(), "without data: {empty:#?}");
}
