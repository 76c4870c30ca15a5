//! One ConfigMap, one Secret and one pull secret, shared by deployments in ten cities.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::collections::BTreeMap;

use common::{RUNTIME, World, apply, copies, delete, eventually, ready, template, workload};
use serde_json::json;
use testbed::Options;

const CITIES: [&str; 10] = ["dfw", "ord", "lhr", "fra", "ams", "sin", "syd", "nrt", "gru", "jnb"];

#[test]
fn data_shared_by_ten_cities_reaches_all_and_leaves_those_that_stop_needing_it() {
    RUNTIME.block_on(async {
        let cities = CITIES.map(str::to_owned).into();
        let world = World::start_with(Options { cells: cities, ..Options::default() }).await;
        let mut cells = Vec::new();
        for city in CITIES {
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
        apply(&world.project, web(&CITIES)).await;
        ready(&world, &ns, "web", 10).await;
        let mut before = Vec::new();
        for cell in &cells {
            before.push(copies(cell, &hub).await);
        }
        for (city, copies) in CITIES.iter().zip(&before) {
            let expected = ["ConfigMap/settings", "Secret/db", "Secret/registry"];
            assert_eq!(copies.keys().collect::<Vec<_>>(), expected, "{city}");
        }
        // Five cities are left: the others' copies go, theirs are the same objects.
        apply(&world.project, web(&CITIES[..5])).await;
        for (n, cell) in cells.iter().enumerate() {
            eventually(&format!("{} has what it needs", CITIES[n]), || async {
                let now = copies(cell, &hub).await;
                let wanted = if n < 5 { before[n].clone() } else { BTreeMap::new() };
                if now == wanted { Ok(()) } else { Err(format!("{now:?}")) }
            })
            .await;
        }
        ready(&world, &ns, "web", 5).await;
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
    });
}
