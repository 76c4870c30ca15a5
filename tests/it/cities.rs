//! One ConfigMap, one Secret and one pull secret, shared by deployments in every city. The test uses the three cities of the
//! shared bed. With `CITIES=10` it uses ten cities on a separate bed.

use std::collections::BTreeMap;

use crate::common::{
    RUNTIME, World, apply,
    beds::{CITIES, shared},
    copies, delete, eventually, ready, template, workload,
};
use serde_json::json;
use testbed::Options;

const MANY: [&str; 10] = ["dfw", "ord", "ams", "fra", "lhr", "sin", "syd", "nrt", "gru", "jnb"];

#[test]
fn data_shared_by_many_cities_reaches_all_and_leaves_unused_ones() {
    RUNTIME.block_on(async {
        let many = std::env::var("CITIES").ok().map(|count| &MANY[..count.parse().unwrap()]);
        let Some(cities) = many else { return shared_by(&*shared().await, &CITIES).await };
        let cells = cities.iter().map(|&city| city.to_owned()).collect();
        shared_by(&World::start_with(Options { cells, ..Options::default() }).await, cities).await;
    });
}

async fn shared_by(world: &World, cities: &[&str]) {
    let stay = cities.len() / 2;
    let mut cells = Vec::new();
    for city in cities {
        cells.push(world.bed.cell(city).unwrap().client().await.unwrap());
    }
    let (ns, hub) = world.namespace("ten").await;
    let object = |kind: &str, name: &str| {
        json!({
            "apiVersion": "v1", "kind": kind, "metadata": { "namespace": ns, "name": name },
        })
    };
    for (kind, name) in [("ConfigMap", "settings"), ("Secret", "db"), ("Secret", "registry")] {
        apply(&world.project, object(kind, name)).await;
    }
    let mut using = template("docker.io/library/nginx:1");
    let sandbox = &mut using["spec"]["runtime"]["sandbox"];
    sandbox["containers"][0]["envFrom"] =
        json!([{ "configMapRef": { "name": "settings" } }, { "secretRef": { "name": "db" } }]);
    sandbox["imagePullSecrets"] = json!([{ "name": "registry" }]);
    let web = |cities: &[&str]| {
        let mut object = workload(&ns, "web", cities, 1);
        object["spec"]["template"] = using.clone();
        object
    };
    apply(&world.project, web(cities)).await;
    ready(world, &ns, "web", cities.len() as u64).await;
    let mut before = Vec::new();
    for cell in &cells {
        before.push(copies(cell, &hub).await);
    }
    for (city, copies) in cities.iter().zip(&before) {
        let expected = ["ConfigMap/settings", "Secret/db", "Secret/registry"];
        assert_eq!(copies.keys().collect::<Vec<_>>(), expected, "{city}");
    }
    // Half of the cities leave. Their copies are deleted, and the others keep the same objects.
    apply(&world.project, web(&cities[..stay])).await;
    for (n, cell) in cells.iter().enumerate() {
        eventually(&format!("{} has exactly the required data", cities[n]), || async {
            let now = copies(cell, &hub).await;
            let wanted = if n < stay { before[n].clone() } else { BTreeMap::new() };
            if now == wanted { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    }
    ready(world, &ns, "web", stay as u64).await;
    delete(&world.project, "Workload", &ns, "web").await;
    eventually("nothing is left", || async {
        for client in cells.iter().chain([&world.hub]) {
            let left = copies(client, &hub).await;
            if !left.is_empty() {
                return Err(format!("{left:?}"));
            }
        }
        Ok(())
    })
    .await;
}
