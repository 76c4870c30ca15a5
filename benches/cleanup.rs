//! Measures the time and the requests until many deployments that share companions are deleted everywhere.
//!
//! `cargo bench --bench cleanup [-- <deployments> <companions>]` (defaults 2,000 and 500) uses real API servers. With more
//! companions than deployments (`-- 100 10000`) it measures a sweep of an idle hub instead, and deletes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{collections::BTreeMap, time::Duration};

use common::{NAMESPACE, count, create, deployment, manager, memory, namespace, resource, secret, wait};
use futures::{StreamExt, stream};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams},
};
use testbed::{
    Options, Testbed,
    audit::{Audit, Request},
    operator::Operator,
};
use tokio::time::{Instant, sleep};

/// Returns the number of requests of each kind.
fn by_kind(requests: &[Request]) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for request in requests {
        *kinds.entry(format!("{} {}", request.verb, request.resource)).or_insert(0) += 1;
    }
    kinds
}

/// Prints the requests of a sweep of an idle hub, and the memory of the manager.
async fn look_at_idle(bed: &Testbed, operator: &Operator) {
    let mark = Audit::mark(&bed.hub);
    sleep(Duration::from_secs(21)).await;
    let requests = mark.requests().unwrap();
    println!("one sweep of the idle hub: {} requests: {:?}", requests.len(), by_kind(&requests));
    for write in requests.iter().filter(|request| request.verb != "list") {
        println!("not idle: {write:?}");
    }
    // Nothing was lost, so nothing must be repaired, even if the delivery took long.
    let text = operator.metrics().await.unwrap();
    let repairs = text.lines().find(|line| line.starts_with("compute_federation_repairs_total"));
    println!("{}", repairs.unwrap_or("no repairs are counted"));
    let mib = |field| f64::from(memory(operator, field)) / 1024.0;
    println!("the manager has {:.1} MiB resident, {:.1} at its peak", mib("VmRSS"), mib("VmHWM"));
}

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
    let operator = manager(&bed).await;

    create(&project, namespace(NAMESPACE)).await;
    let data = |n: usize| format!("data-{}", n % companions);
    stream::iter(0..companions).for_each_concurrent(32, |n| create(&project, secret(&data(n), 100))).await;
    let began = Instant::now();
    let each = companions.div_ceil(deployments).max(2);
    let using = |n: usize| (0..each).map(|m| data(n * each + m)).collect::<Vec<_>>();
    stream::iter(0..deployments)
        .for_each_concurrent(32, |n| create(&project, deployment(&format!("wd-{n}"), &using(n))))
        .await;
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

    look_at_idle(&bed, &operator).await;
    if companions > deployments {
        return;
    }
    let marks = [Audit::mark(&bed.project), Audit::mark(&bed.hub)];
    let began = Instant::now();
    let all: Api<DynamicObject> = Api::namespaced_with(project.clone(), NAMESPACE, &resource("WorkloadDeployment"));
    // A busy server may close the connection after a minute, with some objects deleted. The next request continues with the rest.
    wait("the deletion is taken", || async {
        all.delete_collection(&DeleteParams::background(), &ListParams::default())
            .await
            .inspect_err(|error| println!("asked again: {error}"))
            .is_ok()
    })
    .await;
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
        let kinds = by_kind(&requests);
        let each = requests.len() * 100 / (deployments + companions);
        let (all, whole, part) = (requests.len(), each / 100, each % 100);
        println!("{name}: {all} requests, {whole}.{part:02} for each deployment or companion: {kinds:?}");
    }
}
