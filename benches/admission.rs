//! Measures an admission request that needs twenty access reviews, against one such review.
//!
//! `cargo bench --bench admission [-- <requests>]` (default 300) sends ten requests a second to real API servers. In the same
//! run, within each tenth of a second, it measures in turn:
//! - one review
//! - the same twenty reviews at once, as any client can send them
//! - the webhook called directly, as an API server calls it, about twenty new names
//! - the same about twenty known names
//! - the creation (dry run) of a Workload with new names, through both
//!
//! It fails if p99 of the direct call about new names is more than four times that of one review. The additional time of the API
//! server for creating a Workload is outside the operator's control. It is only printed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{NAMESPACE, create, manager, namespace};
use futures::future::join_all;
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use testbed::{
    Options, Testbed,
    admission::{Webhooks, role, rule},
    bed::bind_location,
    pki::User,
};
use tokio::time::{Instant, interval};

const REFERENCES: usize = 20;
/// Highest ratio between p99 of the webhook with twenty reviews and p99 of one review.
const MOST: f64 = 4.0;
const DIRECTLY: &str = "the webhook, asked directly, twenty new references";
const REVIEW: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const WEBHOOK: &str = "/validate-compute-datumapis-com-v1alpha-workload";

#[tokio::main]
async fn main() {
    let requests = std::env::args().skip(1).find_map(|arg| arg.parse::<usize>().ok()).unwrap_or(300);
    let options = Options { cells: Vec::new(), provider: false, ..Options::default() };
    let mut bed = Testbed::start(options, &|text| eprintln!("{text}")).await.unwrap();
    let admin = bed.project.client().await.unwrap();
    create(&admin, namespace(NAMESPACE)).await;
    bind_location(&admin, "dfw").await.unwrap();
    rights(&admin).await;
    let webhooks = Webhooks::new(&bed).unwrap();
    bed.options_mut().management = webhooks.config();
    let manager = manager(&bed).await;
    common::wait("admission is ready", || async { manager.probe("/readyz/admission").await.unwrap().0 == 200 }).await;
    webhooks.ask_from(&admin).await.unwrap();

    let operator = client(&bed, &User::Operator, None).await;
    let webhook = client(&bed, &User::Operator, Some(&format!("https://127.0.0.1:{}", webhooks.port()))).await;
    let tenant = client(&bed, &User::Tenant, None).await;
    let workloads: Api<DynamicObject> = Api::namespaced_with(tenant, NAMESPACE, &resource());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let of_one = review(0);
    let [mut one, mut twenty, mut asked, mut again, mut created] = [const { Vec::new() }; 5];
    let mut ticks = interval(Duration::from_millis(100));
    for n in 0..requests + 10 {
        ticks.tick().await;
        let began = Instant::now();
        post(&operator, REVIEW, &of_one).await;
        let first = began.elapsed();
        let began = Instant::now();
        join_all((0..REFERENCES).map(|n| {
            let operator = operator.clone();
            async move { post(&operator, REVIEW, &review(n)).await }
        }))
        .await;
        let all = began.elapsed();
        let direct = ask(&webhook, &format!("direct-{n}")).await;
        let known = ask(&webhook, "settings").await;
        let began = Instant::now();
        workloads.create(&dry, &serde_json::from_value(workload(&format!("created-{n}"))).unwrap()).await.unwrap();
        // The first requests open connections.
        if n >= 10 {
            one.push(first);
            twenty.push(all);
            asked.push(direct);
            again.push(known);
            created.push(began.elapsed());
        }
    }
    println!("{:<58} {:>9} {:>9} {:>9}", format!("{requests} requests, ten a second"), "median", "p99", "of one");
    let base = quantile(&mut one, 99);
    for (what, times) in [
        ("one review by itself", &mut one),
        ("twenty reviews at once", &mut twenty),
        (DIRECTLY, &mut asked),
        ("the same with what was granted a moment ago", &mut again),
        ("a Workload through both, twenty new references", &mut created),
    ] {
        let (median, p99) = (quantile(times, 50), quantile(times, 99));
        let ratio = p99.as_secs_f64() / base.as_secs_f64();
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        println!("{what:<58} {:>9} {:>9} {ratio:>8.1}x", ms(median), ms(p99));
        assert!(what != DIRECTLY || ratio <= MOST, "p99 of {what} is more than {MOST} times that of one review");
    }
}

/// Grants the tenant everything on Workloads, and reads of each ConfigMap.
async fn rights(admin: &Client) {
    let rules = json!([
        rule("compute.datumapis.com", &["workloads"], &["*"], &[]),
        rule("networking.datumapis.com", &["networks"], &["use"], &[]),
        rule("", &["configmaps"], &["get"], &[]),
    ]);
    for object in role(&User::Tenant.name(), NAMESPACE, &rules) {
        testbed::manifests::apply_value(admin, object).await.unwrap();
    }
}

async fn client(bed: &Testbed, user: &User, url: Option<&str>) -> Client {
    let mut config = config(bed, user).await;
    if let Some(url) = url {
        config.cluster_url = url.parse().unwrap();
    }
    Client::try_from(config).unwrap()
}

async fn config(bed: &Testbed, user: &User) -> Config {
    let file = Kubeconfig::read_from(bed.project.kubeconfig(user)).unwrap();
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap()
}

async fn post(client: &Client, path: &str, body: &Value) -> Value {
    let request = http::Request::post(path).header("content-type", "application/json");
    client.request(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap()
}

fn review(n: usize) -> Value {
    json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": "ada", "groups": ["system:authenticated"],
        "resourceAttributes": { "verb": "get", "resource": "configmaps", "namespace": NAMESPACE, "name": format!("settings-{n}") },
    } })
}

/// Returns the time of the webhook for a Workload that refers to twenty ConfigMaps with this prefix.
async fn ask(webhook: &Client, prefix: &str) -> Duration {
    let question = question(prefix);
    let began = Instant::now();
    let answer = post(webhook, WEBHOOK, &question).await;
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    began.elapsed()
}

fn question(prefix: &str) -> Value {
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "00000000-0000-0000-0000-000000000001", "operation": "CREATE", "namespace": NAMESPACE,
        "kind": { "group": "compute.datumapis.com", "version": "v1alpha", "kind": "Workload" },
        "userInfo": { "username": "ada", "groups": ["system:authenticated"] }, "object": workload(prefix),
    } })
}

fn workload(prefix: &str) -> Value {
    let of = |n| json!({ "configMapRef": { "name": format!("{prefix}-{n}") } });
    let references: Vec<Value> = (0..REFERENCES).map(of).collect();
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload",
        "metadata": { "generateName": "web-", "namespace": NAMESPACE },
        "spec": {
            "template": { "spec": {
                "runtime": { "resources": { "instanceType": "datumcloud/d1-standard-2" }, "sandbox": { "containers": [
                    { "name": "web", "image": "docker.io/library/nginx:1", "envFrom": references },
                ] } },
                "networkInterfaces": [{ "network": { "name": "default" } }],
            } },
            "placements": [{ "name": "p", "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 1 } }],
        },
    })
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("compute.datumapis.com", "v1alpha", "Workload"))
}

fn quantile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}
