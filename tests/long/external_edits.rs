//! External edits on the hub: clusters lose their city's label, and bindings, Works, policies and copies are deleted. Running
//! deployments stay in place, and deleted objects return.

use std::{collections::BTreeMap, time::Duration};

use crate::common::{
    RUNTIME, World, api,
    beds::{Wish, alone},
    condition, delete, eventually,
    example_app::deploy,
    get, list, merge, never, promised, ready,
};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

const CITY: &str = "topology.datum.net/city-code";

/// Deploys a Workload that uses a Secret, with one instance in each of these cities.
async fn start(world: &World, ns: &str, cities: &[&str]) {
    deploy(world, ns, cities).await;
    ready(world, ns, "web", cities.len() as u64).await;
}

/// Returns the operator's objects in a cell's namespace, with their uids.
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
    eventually(&format!("{wd} reports Federated {reason}"), || async {
        let object = get(&world.project, "WorkloadDeployment", ns, wd).await.ok_or("no deployment")?;
        let condition = condition(&object, "Federated");
        if condition["reason"] == reason {
            Ok(condition["message"].as_str().unwrap().to_owned())
        } else {
            Err(condition.to_string())
        }
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
fn guarded_city_with_a_changed_label_stays() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish::default()).await;
        let (ns, hub) = world.namespace("guard").await;
        start(&world, &ns, &["dfw", "ord"]).await;
        guarded(&world, &hub, "dfw", &["cell-dfw"]).await;
        guarded(&world, &hub, "ord", &["cell-ord"]).await;
        let before = (uids(&world.dfw, &hub).await, uids(&world.ord, &hub).await);
        assert_eq!(before.0.len(), 3, "{before:?}");

        label(&world.hub, "cell-dfw", None).await;
        let message = says(&world, &ns, "web-p-dfw", "CityLabelLost").await;
        assert!(message.contains("Cluster cell-dfw has it") && message.contains("is missing"), "{message}");
        eventually("it is reported on the Cluster, and counted", || async {
            let events = list(&world.hub, "Event", "default").await;
            let on = |event: &kube::api::DynamicObject| {
                event.data["regarding"]["name"] == "cell-dfw" && event.data["reason"] == "CityLabelLost"
            };
            let counted = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
            let line = "compute_federation_mislabelled_clusters{cluster=\"cell-dfw\",city=\"dfw\"} 1";
            if events.iter().any(on) && counted.contains(line) {
                Ok(())
            } else {
                Err(format!("{} events", events.len()))
            }
        })
        .await;
        label(&world.hub, "cell-dfw", Some("lhr")).await;
        eventually("the wrong label is reported", || async {
            let message = says(&world, &ns, "web-p-dfw", "CityLabelLost").await;
            if message.contains("is lhr") { Ok(()) } else { Err(message) }
        })
        .await;
        // The labels of two clusters are swapped.
        label(&world.hub, "cell-ord", Some("dfw")).await;
        label(&world.hub, "cell-dfw", Some("ord")).await;
        says(&world, &ns, "web-p-ord", "CityLabelLost").await;
        assert_eq!((uids(&world.dfw, &hub).await, uids(&world.ord, &hub).await), before);
        // The labels are restored, and then removed while the manager is down.
        label(&world.hub, "cell-ord", Some("ord")).await;
        label(&world.hub, "cell-dfw", Some("dfw")).await;
        says(&world, &ns, "web-p-dfw", "Propagated").await;
        says(&world, &ns, "web-p-ord", "Propagated").await;
        world.operators[0].process.kill();
        label(&world.hub, "cell-dfw", None).await;
        world.restart_manager(&[]).await;
        says(&world, &ns, "web-p-dfw", "CityLabelLost").await;
        label(&world.hub, "cell-dfw", Some("dfw")).await;
        says(&world, &ns, "web-p-dfw", "Propagated").await;
        assert_eq!((uids(&world.dfw, &hub).await, uids(&world.ord, &hub).await), before);

        // Drained: the city moves as soon as another cluster has its label, and leaves nothing behind.
        let drain = json!({ "metadata": { "annotations": { "compute.datumapis.com/drain": "true" } } });
        merge(&world.hub, "Cluster", "", "cell-dfw", drain).await;
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("the other city's deployments are gone", || world.is_clean(&ns, &hub)).await;
        start(&world, &ns, &["dfw"]).await;
        guarded(&world, &hub, "dfw", &["cell-dfw"]).await; // no other cluster could take it
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
fn unguarded_city_with_a_lost_label_loses_everything() {
    RUNTIME.block_on(async {
        let world = alone(Wish { management: "cityGuard: false\n".into(), ..Wish::default() }).await;
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

/// An external edit and its expected effect.
struct Edit {
    fact: u32,
    /// Kinds of the objects that are recreated in the cell. All others stay the same. With `may_renew_data` the Secret may do either,
    /// because the timing decides if Karmada removes it before it is needed again.
    renewed: &'static [&'static str],
    may_renew_data: bool,
    /// True if Karmada only recovers after a touch of the operator.
    is_repaired: bool,
}

const EDITS: [Edit; 9] = [
    Edit { fact: 49, renewed: &["WorkloadDeployment", "Instance"], may_renew_data: true, is_repaired: true },
    Edit { fact: 50, renewed: &["Secret"], may_renew_data: false, is_repaired: true },
    Edit { fact: 51, renewed: &[], may_renew_data: false, is_repaired: false },
    Edit { fact: 52, renewed: &[], may_renew_data: false, is_repaired: false },
    Edit { fact: 53, renewed: &[], may_renew_data: false, is_repaired: false },
    Edit { fact: 54, renewed: &["Secret"], may_renew_data: false, is_repaired: false },
    Edit { fact: 55, renewed: &["WorkloadDeployment", "Instance"], may_renew_data: true, is_repaired: true },
    Edit { fact: 56, renewed: &[], may_renew_data: false, is_repaired: false },
    Edit {
        fact: 57,
        renewed: &["WorkloadDeployment", "Instance", "Secret"],
        may_renew_data: false,
        is_repaired: false,
    },
];

/// Time within which everything is restored.
const MENDED: Duration = Duration::from_secs(17);

/// An object that the test has deleted.
struct Removed {
    client: Client,
    kind: &'static str,
    namespace: String,
    name: String,
    uid: Option<String>,
}

impl Removed {
    /// Fails unless another object has taken its place.
    async fn is_back(&self) -> Result<(), String> {
        let what = format!("{} {}/{}", self.kind, self.namespace, self.name);
        match get(&self.client, self.kind, &self.namespace, &self.name).await {
            None => Err(format!("{what} is not back")),
            Some(now) if now.uid() == self.uid => Err(format!("{what} was never away")),
            Some(_) => Ok(()),
        }
    }
}

/// Deletes the object if it exists. With random edits it may be missing.
async fn take(client: &Client, kind: &'static str, namespace: &str, name: &str) -> Vec<Removed> {
    let found = get(client, kind, namespace, name).await;
    let Some(object) = found.filter(|object| object.metadata.deletion_timestamp.is_none()) else { return Vec::new() };
    let deleted = api(client, kind, namespace).delete(name, &DeleteParams::background()).await;
    if matches!(&deleted, Err(kube::Error::Api(status)) if status.code == 404) {
        return Vec::new();
    }
    deleted.unwrap();
    let (client, namespace, name) = (client.clone(), namespace.to_owned(), name.to_owned());
    vec![Removed { client, kind, namespace, name, uid: object.uid() }]
}

/// Makes an edit. Returns the deleted objects.
async fn make(world: &mut World, hub: &str, fact: u32) -> Vec<Removed> {
    let (at, dfw) = (world.hub.clone(), world.dfw.clone());
    match fact {
        49 => return take(&at, "ResourceBinding", hub, "web-p-dfw-workloaddeployment").await,
        50 => return take(&at, "ResourceBinding", hub, "db-secret").await,
        51 => return take(&at, "PropagationPolicy", hub, "city-dfw").await,
        52 => {
            let moved = json!({ "metadata": { "labels": { CITY: "ord" } } });
            let api = api(&at, "WorkloadDeployment", hub);
            let moved = api.patch("web-p-dfw", &PatchParams::default(), &Patch::Merge(moved)).await.unwrap();
            assert_eq!(moved.labels()[CITY], "ord");
        }
        53 => {
            let refused = api(&at, "Namespace", "").delete(hub, &DeleteParams::default()).await;
            assert!(refused.unwrap_err().to_string().contains("protected"), "fact 53");
        }
        54 => return take(&dfw, "Secret", hub, "db").await,
        55 => {
            let mut removed = Vec::new();
            for work in list(&at, "Work", "karmada-es-cell-dfw").await {
                let manifest: &Value = &work.data["spec"]["workload"]["manifests"][0];
                if manifest["kind"] == "WorkloadDeployment" && manifest["metadata"]["namespace"] == json!(hub) {
                    removed.extend(take(&at, "Work", "karmada-es-cell-dfw", &work.name_any()).await);
                }
            }
            return removed;
        }
        56 => world.bed.restart_stand_in().await.unwrap(),
        57 => return take(&dfw, "Namespace", "", hub).await,
        _ => unreachable!(),
    }
    Vec::new()
}

/// Returns the edits that are possible here. A test cannot restart the processes of real Karmada.
fn edits(world: &World) -> Vec<&'static Edit> {
    EDITS.iter().filter(|edit| edit.fact != 56 || world.bed.stand_in().is_some()).collect()
}

/// Returns the manager's counter of repairs.
async fn repairs(world: &World) -> u32 {
    let text = world.operators[0].metrics().await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("compute_federation_repairs_total "));
    line.map_or(0, |value| value.parse().unwrap())
}

/// Waits until Karmada stops writing bindings, so that the edit does not coincide with one of its writes.
async fn at_rest(world: &World, hub: &str) {
    let versions = || async {
        let bindings = list(&world.hub, "ResourceBinding", hub).await;
        bindings.iter().map(|binding| (binding.name_any(), binding.resource_version())).collect::<Vec<_>>()
    };
    eventually("Karmada is at rest", || async {
        let before = versions().await;
        tokio::time::sleep(Duration::from_secs(1)).await; // no write in this time counts as settled
        if versions().await == before { Ok(()) } else { Err(format!("it wrote after {before:?}")) }
    })
    .await;
}

#[test]
fn externally_deleted_objects_return_and_others_are_untouched() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish::default()).await;
        let (ns, hub) = world.namespace("edits").await;
        start(&world, &ns, &["dfw", "ord"]).await;
        guarded(&world, &hub, "dfw", &["cell-dfw"]).await;
        let elsewhere = uids(&world.ord, &hub).await;
        let mut before = uids(&world.dfw, &hub).await;
        assert_eq!(before.len(), 3, "{before:?}");
        for Edit { fact, renewed, may_renew_data, is_repaired } in edits(&world) {
            at_rest(&world, &hub).await;
            assert_eq!(uids(&world.dfw, &hub).await, before, "something was touched late, before fact {fact}");
            let repaired = repairs(&world).await;
            let removed = make(&mut world, &hub, *fact).await;
            let began = Instant::now();
            assert_eq!(removed.is_empty(), [52, 53, 56].contains(fact), "fact {fact}: the edit did nothing");
            let after = eventually(&format!("fact {fact}: all is as it was"), || async {
                for removed in &removed {
                    removed.is_back().await?;
                }
                let copy = get(&world.hub, "WorkloadDeployment", &hub, "web-p-dfw").await.ok_or("no copy")?;
                let now = uids(&world.dfw, &hub).await;
                let is_new = |name: &str| renewed.iter().any(|kind| name.starts_with(kind));
                let right = now.len() == 3
                    && now.iter().all(|(name, uid)| {
                        // Real Karmada may recreate an attached binding before it removes the Secret.
                        let is_raced = *fact == 50 && world.bed.stand_in().is_none();
                        let may = (*may_renew_data || is_raced) && name.starts_with("Secret");
                        may || (before.get(name) != Some(uid)) == is_new(name)
                    })
                    && copy.labels()[CITY] == "dfw";
                if right { Ok(now) } else { Err(format!("before {before:?}, now {now:?}")) }
            })
            .await;
            says(&world, &ns, "web-p-dfw", "Propagated").await;
            ready(&world, &ns, "web", 2).await;
            assert!(began.elapsed() < promised(MENDED), "fact {fact}: {:?}", began.elapsed());
            // Real Karmada recreates a binding by itself if a status of its template arrives at that moment.
            if *is_repaired && world.bed.stand_in().is_some() {
                assert!(repairs(&world).await > repaired, "fact {fact}: the repair was not counted");
            }
            before = after;
        }
        never("something was touched late", || async {
            let now = uids(&world.dfw, &hub).await;
            (now != before).then_some(now)
        })
        .await;
        // Random edits, some of them at once. `EDITS=500` continues for minutes.
        let count = std::env::var("EDITS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
        let choice = edits(&world);
        let mut taken = 0;
        for _ in 0..count {
            let fact = choice[fastrand::usize(..choice.len())].fact;
            // An object that an earlier edit deleted may not be back yet.
            let there = get(&world.hub, "WorkloadDeployment", &hub, "web-p-dfw").await.is_some();
            if fact != 52 || there {
                taken += make(&mut world, &hub, fact).await.len();
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(..1500))).await;
        }
        assert!(taken > 0, "none of {count} edits removed an object");
        let began = Instant::now();
        ready(&world, &ns, "web", 2).await;
        says(&world, &ns, "web-p-dfw", "Propagated").await;
        eventually("the cell is whole", || async {
            let now = uids(&world.dfw, &hub).await;
            if now.len() == 3 { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
        assert!(began.elapsed() < promised(MENDED), "{:?}", began.elapsed());
        for (name, uid) in uids(&world.ord, &hub).await {
            // The cities share the binding of the Secret.
            assert!(name.starts_with("Secret") || elsewhere[&name] == uid, "{name} of the other city was not touched");
        }
    });
}
