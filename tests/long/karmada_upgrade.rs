//! Upgrades real Karmada from one version to another under a running federation. Nothing is recreated.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use crate::common::{RUNTIME, World, apply, delete, eventually, get, list, merge, never_within, ready, skip};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use testbed::{Options, karmada::Flavour};

/// Time for which the test watches the new version once it works. Its initial sync is over by then.
const WATCHED: Duration = Duration::from_secs(30);

/// Returns two folders of one version: binaries, and source with the definitions.
fn folders(bin: &str, crds: &str) -> Option<(PathBuf, PathBuf)> {
    let folder = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    Some((folder(bin)?, folder(crds)?))
}

/// Returns a Workload in two cities with two ConfigMaps and a Secret.
fn using(ns: &str, name: &str) -> Value {
    let mut object = crate::common::workload(ns, name, &["dfw", "ord"], 1);
    object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] = json!([
        { "configMapRef": { "name": "one" } }, { "configMapRef": { "name": "two" } }, { "secretRef": { "name": "key" } },
    ]);
    object
}

async fn sources(world: &World, ns: &str) {
    for (kind, name) in [("ConfigMap", "one"), ("ConfigMap", "two"), ("Secret", "key")] {
        let field = if kind == "Secret" { "stringData" } else { "data" };
        let metadata = json!({ "namespace": ns, "name": name });
        apply(&world.project, json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, field: { "k": "1" } }))
            .await;
    }
}

/// Returns the uids of the operator's objects in one namespace, on project, hub and cells.
async fn uids(world: &World, ns: &str, hub: &str) -> BTreeMap<String, String> {
    const OF_HUB: &[&str] =
        &["WorkloadDeployment", "ConfigMap", "Secret", "ResourceBinding", "PropagationPolicy", "Instance"];
    const OF_CELL: &[&str] = &["WorkloadDeployment", "ConfigMap", "Secret", "Instance"];
    let places: [(&str, &Client, &str, &[&str]); 4] = [
        ("project", &world.project, ns, &["WorkloadDeployment", "Instance"]),
        ("hub", &world.hub, hub, OF_HUB),
        ("dfw", &world.dfw, hub, OF_CELL),
        ("ord", &world.ord, hub, OF_CELL),
    ];
    let mut found = BTreeMap::new();
    for (place, client, namespace, kinds) in places {
        for kind in kinds {
            for object in list(client, kind, namespace).await {
                found.insert(format!("{place}: {kind}/{}", object.name_any()), object.uid().unwrap());
            }
        }
    }
    found
}

/// Waits until the ConfigMap has this value in both cells.
async fn arrived(world: &World, hub: &str, name: &str, value: &str) {
    for (city, cell) in [("dfw", &world.dfw), ("ord", &world.ord)] {
        eventually(&format!("{name} is {value} in {city}"), || async {
            let copy = get(cell, "ConfigMap", hub, name).await.ok_or("not there")?;
            if copy.data["data"]["k"] == value { Ok(()) } else { Err(copy.data["data"].to_string()) }
        })
        .await;
    }
}

#[test]
fn karmada_upgrade_changes_no_uid() {
    RUNTIME.block_on(async {
        let before = folders("KARMADA_BIN_BEFORE", "KARMADA_CRDS_BEFORE");
        let (Some((bin, crds)), Some((new_bin, new_crds))) = (before, folders("KARMADA_BIN", "KARMADA_CRDS")) else {
            skip!("it needs two versions of real Karmada: KARMADA_BIN_BEFORE, KARMADA_CRDS_BEFORE and the new one's");
        };
        let options = Options { karmada: Flavour::Real { bin, crds }, ..Options::default() };
        let mut world = World::start_with(options).await;
        let (ns, hub) = world.namespace("upgrade").await;
        sources(&world, &ns).await;
        apply(&world.project, using(&ns, "web")).await;
        ready(&world, &ns, "web", 2).await;
        arrived(&world, &hub, "two", "1").await;
        let before = uids(&world, &ns, &hub).await;
        assert!(before.len() >= 2 + 2 + 2 + 3 + 5 + 2 + 2 * 5, "{before:?}");

        world.bed.upgrade_karmada(&new_bin, &new_crds).await.unwrap();
        // The new version works: new objects and changes are delivered, also for the second dependency of a kind.
        merge(&world.project, "ConfigMap", &ns, "two", json!({ "data": { "k": "2" } })).await;
        arrived(&world, &hub, "two", "2").await;
        let (other, other_hub) = world.namespace("upgraded").await;
        sources(&world, &other).await;
        apply(&world.project, using(&other, "web")).await;
        ready(&world, &other, "web", 2).await;
        arrived(&world, &other_hub, "two", "1").await;
        never_within(WATCHED, "an object is recreated, deleted or added", || async {
            let now = uids(&world, &ns, &hub).await;
            (now != before).then(|| {
                let is_new = |(what, uid): &(&String, &String)| before.get(*what) != Some(*uid);
                let gone: Vec<&String> = before.keys().filter(|what| !now.contains_key(*what)).collect();
                format!("new {:?}, gone {gone:?}", now.iter().filter(is_new).collect::<Vec<_>>())
            })
        })
        .await;
        for wd in list(&world.project, "WorkloadDeployment", &ns).await {
            let told = crate::common::condition(&wd, "Federated");
            assert_eq!((&told["status"], &told["reason"]), (&json!("True"), &json!("Propagated")), "{told}");
        }
        // The new version deletes the objects of the old one.
        for ns in [&ns, &other] {
            delete(&world.project, "Workload", ns, "web").await;
        }
        for (ns, hub) in [(&ns, &hub), (&other, &other_hub)] {
            eventually("all objects are deleted", || world.is_clean(ns, hub)).await;
        }
    });
}
