//! Least privilege: every right that `config/` gives is used by somebody, and nobody lacks one.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::common::{
    RUNTIME, World, apply,
    beds::{Wish, alone},
    delete, eventually,
    example_app::SWEEPS,
    get, merge, network, path, ready,
    rights::{Role, SELDOM, UNLOGGED},
    workload,
};

/// A Workload that uses a Secret and a ConfigMap.
fn using(ns: &str, cities: &[&str], replicas: u32, image: &str) -> Value {
    let mut object = workload(ns, "web", cities, replicas);
    let container = &mut object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0];
    container["image"] = json!(image);
    container["envFrom"] = json!([{ "secretRef": { "name": "db" } }, { "configMapRef": { "name": "settings" } }]);
    object
}

/// Somebody makes an Instance that has no place among those of its deployment.
async fn makes_a_stray(world: &World, hub: &str) {
    let first = get(&world.dfw, "Instance", hub, "web-p-dfw-0").await.unwrap();
    let stray = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": {
            "namespace": hub, "name": "stray", "labels": first.labels(), "ownerReferences": first.owner_references(),
        },
        "spec": first.data["spec"],
    });
    apply(&world.dfw, stray).await;
    eventually("the stray is gone", || async {
        let left = get(&world.dfw, "Instance", hub, "stray").await;
        if left.is_none() { Ok(()) } else { Err("still there".to_owned()) }
    })
    .await;
}

/// A life with everything in it that happens often, and a little of what does not.
async fn a_life(world: &World) {
    let (ns, hub) = world.namespace("rights").await;
    for (kind, name) in [("Secret", "db"), ("ConfigMap", "settings")] {
        apply(&world.project, json!({
            "apiVersion": "v1", "kind": kind, "metadata": { "namespace": ns, "name": name }, "data": { "a": "YQ==" },
        }))
        .await;
    }
    // A network that the template names no more afterwards.
    apply(&world.project, network(&ns, "second")).await;
    let mut first = using(&ns, &["dfw", "ord"], 2, "docker.io/library/nginx:1");
    let interface = |name: &str| json!({ "network": { "name": name } });
    first["spec"]["template"]["spec"]["networkInterfaces"] = json!([interface("default"), interface("second")]);
    apply(&world.project, first).await;
    ready(world, &ns, "web", 4).await;
    makes_a_stray(world, &hub).await;
    for (kind, name) in [("Secret", "db"), ("ConfigMap", "settings")] {
        merge(&world.project, kind, &ns, name, json!({ "data": { "a": "Yg==" } })).await;
    }
    apply(&world.project, using(&ns, &["dfw"], 1, "docker.io/library/nginx:2")).await;
    ready(world, &ns, "web", 1).await;
    // Left behind by whom nobody knows.
    apply(
        &world.hub,
        json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "namespace": hub, "name": "lost-configmap",
                "annotations": { "propagationpolicy.karmada.io/name": "city-dfw" },
            },
            "spec": { "resource": { "apiVersion": "v1", "kind": "ConfigMap", "namespace": hub, "name": "lost" } },
        }),
    )
    .await;
    eventually("the lost binding is gone", || async {
        let left = get(&world.hub, "ResourceBinding", &hub, "lost-configmap").await;
        if left.is_none() { Ok(()) } else { Err("still there".to_owned()) }
    })
    .await;
    delete(&world.project, "Workload", &ns, "web").await;
    eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
}

#[test]
fn every_right_of_the_roles_is_used_and_none_is_missing() {
    RUNTIME.block_on(async {
        let wish = Wish { management: SWEEPS.into(), networks_and_quota: true, ..Wish::default() };
        let mut world = alone(wish).await;
        a_life(&world).await;
        // A watch is in the log once it has ended.
        world.operators.clear();
        eventually("the audit logs show every right", || async {
            let mut wrong = Vec::new();
            for role in Role::ALL {
                let (used, lacked) = role.used(&world, world.since());
                let seldom = SELDOM.iter().filter(|row| row.0 == role).map(|row| row.1);
                let elsewhere: BTreeSet<String> = seldom
                    .chain(UNLOGGED.iter().filter(|row| row.0 == role).map(|row| row.1))
                    .map(str::to_owned)
                    .collect();
                let rights = role.rights();
                let unused: Vec<_> =
                    rights.iter().filter(|right| !used.contains(*right) && !elsewhere.contains(*right)).collect();
                let unknown: Vec<_> = elsewhere.difference(&rights).collect();
                for (what, found) in [
                    ("is used by nobody", unused),
                    ("is no right of it", unknown),
                    ("is lacked", lacked.iter().collect()),
                ] {
                    wrong.extend(found.iter().map(|right| format!("{role:?}: {right} {what}")));
                }
            }
            if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
        })
        .await;
    });
}

#[test]
fn what_is_used_seldom_is_shown_by_a_test_of_that_name() {
    let (mut texts, mut folders) = (Vec::new(), vec![path("tests/it"), path("tests/long")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            if file.is_dir() { folders.push(file) } else { texts.push(std::fs::read_to_string(file).unwrap()) }
        }
    }
    for (role, right, test) in SELDOM {
        let home = texts.iter().find(|text| text.contains(&format!("fn {test}()")));
        let home = home.unwrap_or_else(|| panic!("{role:?}: {right}: there is no test {test}"));
        let shows = home.contains("rights::shown(") && home.contains(&format!("\"{test}\""));
        assert!(shows, "{test} does not show it");
    }
}
