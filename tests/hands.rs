//! Other hands on the hub: clusters that lose their city's label, and bindings, Works, policies and copies that somebody
//! removes. What runs stays where it is, and what was taken away comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use std::{collections::BTreeMap, time::Duration};

use common::{
    RUNTIME, World, api, apply, binary, condition, delete, eventually, get, list, merge, ready, template, workload,
};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{Options, operator::Operator};
use tokio::{sync::Mutex, time::Instant};

/// One testbed at a time: each is a dozen processes, and these tests look closely at what happens when.
static ONE: Mutex<()> = Mutex::const_new(());

const CITY: &str = "topology.datum.net/city-code";

/// A Workload that uses a Secret, with one instance in each of these cities.
async fn start(world: &World, ns: &str, cities: &[&str]) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": ns, "name": "db" }, "stringData": { "k": "v" },
    });
    apply(&world.project, secret).await;
    let mut object = workload(ns, "web", cities, 1);
    object["spec"]["template"] = template("docker.io/library/nginx:1");
    object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
        json!([{ "secretRef": { "name": "db" } }]);
    apply(&world.project, object).await;
    ready(world, ns, "web", cities.len() as u64).await;
}

/// Everything of ours in a cell's namespace, with its uid.
async fn uids(cell: &Client, hub: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for kind in ["WorkloadDeployment", "Instance", "Secret"] {
        for object in list(cell, kind, hub).await {
            found.insert(format!("{kind}/{}", object.name_any()), object.uid().unwrap());
        }
    }
    found
}

async fn label(hub: &Client, cluster: &str, city: Option<&str>) {
    merge(hub, "Cluster", "", cluster, json!({ "metadata": { "labels": { CITY: city } } })).await;
}

async fn says(world: &World, ns: &str, wd: &str, reason: &str) -> String {
    eventually(&format!("{wd} says Federated {reason}"), || async {
        let object = get(&world.project, "WorkloadDeployment", ns, wd).await.ok_or("no deployment")?;
        let told = condition(&object, "Federated");
        if told["reason"] == reason { Ok(told["message"].as_str().unwrap().to_owned()) } else { Err(told.to_string()) }
    })
    .await
}

/// Waits until a city's policy guards exactly these clusters.
async fn guarded(world: &World, hub: &str, city: &str, clusters: &[&str]) {
    eventually(&format!("{city} is guarded on {clusters:?}"), || async {
        let policy = get(&world.hub, "PropagationPolicy", hub, &format!("city-{city}")).await.ok_or("no policy")?;
        let placement = &policy.data["spec"]["placement"];
        let names = &placement["clusterAffinities"][1]["clusterNames"];
        if *names == json!(clusters) { Ok(()) } else { Err(placement.to_string()) }
    })
    .await;
}

#[test]
fn a_city_stays_where_it_is_whatever_becomes_of_its_label() {
    RUNTIME.block_on(async {
        let _alone = ONE.lock().await;
        let mut world = World::start().await;
        let (ns, hub) = world.namespace("guard").await;
        start(&world, &ns, &["dfw", "ord"]).await;
        guarded(&world, &hub, "dfw", &["cell-dfw"]).await;
        guarded(&world, &hub, "ord", &["cell-ord"]).await;
        let before = (uids(&world.dfw, &hub).await, uids(&world.ord, &hub).await);
        assert_eq!(before.0.len(), 3, "{before:?}");

        label(&world.hub, "cell-dfw", None).await;
        let told = says(&world, &ns, "web-p-dfw", "CityLabelLost").await;
        assert!(told.contains("Cluster cell-dfw has it") && told.contains("does not carry it"), "{told}");
        eventually("it is told on the Cluster, and counted", || async {
            let events = list(&world.hub, "Event", "default").await;
            let on = |event: &kube::api::DynamicObject| {
                event.data["regarding"]["name"] == "cell-dfw" && event.data["reason"] == "CityLabelLost"
            };
            let counted = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
            if events.iter().any(on) && counted.contains("compute_federation_mislabelled_clusters 1") {
                Ok(())
            } else {
                Err(format!("{} events", events.len()))
            }
        })
        .await;
        label(&world.hub, "cell-dfw", Some("lhr")).await;
        eventually("the wrong label is told", || async {
            let told = says(&world, &ns, "web-p-dfw", "CityLabelLost").await;
            if told.contains("says lhr") { Ok(()) } else { Err(told) }
        })
        .await;
        // Swapped between two clusters.
        label(&world.hub, "cell-ord", Some("dfw")).await;
        label(&world.hub, "cell-dfw", Some("ord")).await;
        says(&world, &ns, "web-p-ord", "CityLabelLost").await;
        assert_eq!((uids(&world.dfw, &hub).await, uids(&world.ord, &hub).await), before);
        // Put back, and removed while the manager is down.
        label(&world.hub, "cell-ord", Some("ord")).await;
        label(&world.hub, "cell-dfw", Some("dfw")).await;
        says(&world, &ns, "web-p-dfw", "Propagated").await;
        says(&world, &ns, "web-p-ord", "Propagated").await;
        world.operators[0].process.kill();
        label(&world.hub, "cell-dfw", None).await;
        world.operators[0] = Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap();
        world.operators[0].wait_ready().await.unwrap();
        says(&world, &ns, "web-p-dfw", "CityLabelLost").await;
        label(&world.hub, "cell-dfw", Some("dfw")).await;
        says(&world, &ns, "web-p-dfw", "Propagated").await;
        assert_eq!((uids(&world.dfw, &hub).await, uids(&world.ord, &hub).await), before);

        // Drained: the city moves when another cluster carries its label, and nothing is left behind.
        let drain = json!({ "metadata": { "annotations": { "compute.datumapis.com/drain": "true" } } });
        merge(&world.hub, "Cluster", "", "cell-dfw", drain).await;
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("the other city's deployments are gone", || world.is_clean(&ns, &hub)).await;
        start(&world, &ns, &["dfw"]).await;
        guarded(&world, &hub, "dfw", &["cell-dfw"]).await; // nobody else could take it
        label(&world.hub, "cell-ord", Some("dfw")).await;
        eventually("it runs on the other cluster", || async {
            let (left, there) = (uids(&world.dfw, &hub).await, uids(&world.ord, &hub).await);
            if left.is_empty() && there.len() == 3 { Ok(()) } else { Err(format!("{left:?} {there:?}")) }
        })
        .await;
        guarded(&world, &hub, "dfw", &["cell-ord"]).await;
        ready(&world, &ns, "web", 1).await;
    });
}

#[test]
fn without_the_guard_a_lost_label_takes_everything_away() {
    RUNTIME.block_on(async {
        let _alone = ONE.lock().await;
        let options =
            Options { cells: vec!["dfw".into()], management: "cityGuard: false\n".into(), ..Options::default() };
        let world = World::start_with(options).await;
        let (ns, hub) = world.namespace("plain").await;
        start(&world, &ns, &["dfw"]).await;
        let policy = get(&world.hub, "PropagationPolicy", &hub, "city-dfw").await.unwrap();
        assert!(policy.data["spec"]["placement"]["clusterAffinities"].is_null(), "the contract's plain policy");
        label(&world.hub, "cell-dfw", None).await;
        eventually("fact 42", || async {
            let left = uids(&world.dfw, &hub).await;
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    });
}

/// What somebody does, and what is expected to be made anew by it.
struct Hand {
    fact: u32,
    touched: &'static [&'static str],
}

const HANDS: [Hand; 9] = [
    Hand { fact: 49, touched: &["WorkloadDeployment", "Instance", "Secret"] },
    Hand { fact: 50, touched: &["Secret"] },
    Hand { fact: 51, touched: &[] },
    Hand { fact: 52, touched: &[] },
    Hand { fact: 53, touched: &[] },
    Hand { fact: 54, touched: &["Secret"] },
    Hand { fact: 55, touched: &["WorkloadDeployment", "Instance", "Secret"] },
    Hand { fact: 56, touched: &[] },
    Hand { fact: 57, touched: &["WorkloadDeployment", "Instance", "Secret"] },
];

/// Deletes what is there; among random hands it may not be.
async fn take(client: &Client, kind: &str, namespace: &str, name: &str) {
    let _ = api(client, kind, namespace).delete(name, &DeleteParams::background()).await;
}

async fn lay(world: &mut World, hub: &str, fact: u32) {
    let (at, dfw) = (world.hub.clone(), world.dfw.clone());
    match fact {
        49 => take(&at, "ResourceBinding", hub, "web-p-dfw-workloaddeployment").await,
        50 => take(&at, "ResourceBinding", hub, "db-secret").await,
        51 => take(&at, "PropagationPolicy", hub, "city-dfw").await,
        52 => {
            let moved = json!({ "metadata": { "labels": { CITY: "ord" } } });
            let api = api(&at, "WorkloadDeployment", hub);
            let _ = api.patch("web-p-dfw", &PatchParams::default(), &Patch::Merge(moved)).await;
        }
        53 => {
            let refused = api(&at, "Namespace", "").delete(hub, &DeleteParams::default()).await;
            assert!(refused.unwrap_err().to_string().contains("protected"), "fact 53");
        }
        54 => take(&dfw, "Secret", hub, "db").await,
        55 => {
            for work in list(&at, "Work", "karmada-es-cell-dfw").await {
                let manifest: &Value = &work.data["spec"]["workload"]["manifests"][0];
                if manifest["kind"] == "WorkloadDeployment" && manifest["metadata"]["namespace"] == json!(hub) {
                    take(&at, "Work", "karmada-es-cell-dfw", &work.name_any()).await;
                }
            }
        }
        56 => world.bed.restart_stand_in().await.unwrap(),
        57 => take(&dfw, "Namespace", "", hub).await,
        _ => unreachable!(),
    }
}

#[test]
fn what_other_hands_take_away_comes_back_and_the_rest_is_not_touched() {
    RUNTIME.block_on(async {
        let _alone = ONE.lock().await;
        let mut world = World::start().await;
        if world.bed.stand_in().is_none() {
            return; // restarting Karmada's own processes is not for this test
        }
        let (ns, hub) = world.namespace("hands").await;
        start(&world, &ns, &["dfw", "ord"]).await;
        guarded(&world, &hub, "dfw", &["cell-dfw"]).await;
        let elsewhere = uids(&world.ord, &hub).await;
        for Hand { fact, touched } in HANDS {
            let before = uids(&world.dfw, &hub).await;
            assert_eq!(before.len(), 3, "{before:?}");
            lay(&mut world, &hub, fact).await;
            let began = Instant::now();
            let mut quiet = Instant::now();
            let mut last = uids(&world.dfw, &hub).await;
            // Whole for two seconds on end: what goes, goes within one.
            while quiet.elapsed() < Duration::from_secs(2) {
                let now = uids(&world.dfw, &hub).await;
                if now.len() < 3 || now != last {
                    quiet = Instant::now();
                }
                last = now;
                assert!(began.elapsed() < Duration::from_secs(17), "fact {fact}: {last:?}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            for (name, uid) in &before {
                let expected = touched.iter().any(|kind| name.starts_with(kind));
                assert!(expected || last.get(name) == Some(uid), "fact {fact}: {name} was not touched");
            }
            says(&world, &ns, "web-p-dfw", "Propagated").await;
            ready(&world, &ns, "web", 2).await;
        }
        // At random, some at once; `HANDS=500` goes on for minutes.
        let hands = std::env::var("HANDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
        for _ in 0..hands {
            let fact = HANDS[fastrand::usize(..HANDS.len())].fact;
            lay(&mut world, &hub, fact).await;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(..1500))).await;
        }
        let began = Instant::now();
        ready(&world, &ns, "web", 2).await;
        says(&world, &ns, "web-p-dfw", "Propagated").await;
        eventually("the cell is whole", || async {
            let now = uids(&world.dfw, &hub).await;
            if now.len() == 3 { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
        assert!(began.elapsed() < Duration::from_secs(17), "{:?}", began.elapsed());
        for (name, uid) in uids(&world.ord, &hub).await {
            // The Secret's binding is shared.
            assert!(name.starts_with("Secret") || elsewhere[&name] == uid, "{name} of the other city was not touched");
        }
    });
}
