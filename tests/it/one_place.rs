//! A city is on one cluster, even with foreign policies, several clusters with its label, or another spelling of its code.

use std::collections::BTreeMap;

use crate::common::{
    ABSENT, RUNTIME, World, api, apply,
    beds::{Wish, alone},
    condition, delete, eventually, get, list, merge, ready, template, workload,
};
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

const CITY: &str = "topology.datum.net/city-code";

/// Creates a Workload of one instance in each of these cities.
pub async fn start(world: &World, ns: &str, name: &str, cities: &[&str]) {
    let mut object = workload(ns, name, cities, 1);
    object["spec"]["template"] = template("docker.io/library/nginx:1");
    apply(&world.project, object).await;
}

pub async fn label(hub: &Client, cluster: &str, city: Option<&str>) {
    merge(hub, "Cluster", "", cluster, json!({ "metadata": { "labels": { CITY: city } } })).await;
}

/// Returns the deployments and Instances in a cell, with their uids.
pub async fn uids(cell: &Client, hub: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for kind in ["WorkloadDeployment", "Instance"] {
        for object in list(cell, kind, hub).await {
            found.insert(format!("{kind}/{}", object.name_any()), object.uid().unwrap());
        }
    }
    found
}

/// Waits until a city's policy guards exactly this cluster, and Karmada has applied it. Until its scheduler has observed the
/// second group, only the label counts.
pub async fn guarded(world: &World, hub: &str, cluster: &str) {
    eventually(&format!("dfw is guarded on {cluster}"), || async {
        let policy = get(&world.hub, "PropagationPolicy", hub, "city-dfw").await.ok_or("no policy")?;
        let guards = |placement: &Value| {
            let names = |group: usize| placement["clusterAffinities"][group]["clusterNames"] == json!([cluster]);
            if names(0) && names(1) { Ok(()) } else { Err(placement.to_string()) }
        };
        guards(&policy.data["spec"]["placement"])?;
        let bindings = list(&world.hub, "ResourceBinding", hub).await;
        for binding in
            bindings.iter().filter(|binding| binding.data["spec"]["resource"]["kind"] == "WorkloadDeployment")
        {
            let annotation = |key: &str| binding.annotations().get(key);
            if annotation("propagationpolicy.karmada.io/name").is_some_and(|by| by == "city-dfw") {
                let applied = annotation("policy.karmada.io/applied-placement").ok_or("not scheduled")?;
                guards(&serde_json::from_str(applied).map_err(|error| error.to_string())?)?;
            }
        }
        Ok(())
    })
    .await;
}

/// Creates a foreign policy that claims a deployment for cell-ord. Karmada has loaded the policy once it claims a witness.
async fn foreign_policy(world: &World, hub: &str, kind: &str, deployment: &str) {
    let witness =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": hub, "name": "witness" } });
    apply(&world.hub, witness).await;
    let selector = |api_version: &str, kind: &str, name: &str| {
        json!({
            "apiVersion": api_version, "kind": kind, "namespace": hub, "name": name,
        })
    };
    let mut policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": kind, "metadata": { "name": "a-theirs" },
        "spec": {
            "resourceSelectors": [
                selector("compute.datumapis.com/v1alpha", "WorkloadDeployment", deployment),
                selector("v1", "ConfigMap", "witness"),
            ],
            "placement": { "clusterAffinity": { "clusterNames": ["cell-ord"] } },
        },
    });
    if kind == "PropagationPolicy" {
        policy["metadata"]["namespace"] = json!(hub);
    }
    apply(&world.hub, policy).await;
    eventually("the other policy is known", || async {
        let witness = get(&world.hub, "ConfigMap", hub, "witness").await.ok_or("no witness")?;
        let claimed = witness.labels().keys().any(|key| key.ends_with("propagationpolicy.karmada.io/permanent-id"));
        if claimed { Ok(()) } else { Err(format!("{:?}", witness.labels())) }
    })
    .await;
}

#[test]
fn deployment_claimed_by_a_foreign_policy_does_not_pin_the_city() {
    RUNTIME.block_on(async {
        let world = alone(Wish::default()).await;
        for kind in ["PropagationPolicy", "ClusterPropagationPolicy"] {
            let (ns, hub) = world.namespace("pinned").await;
            start(&world, &ns, "first", &["ord"]).await; // this also creates the hub namespace
            ready(&world, &ns, "first", 1).await;
            foreign_policy(&world, &hub, kind, "web-p-dfw").await;
            start(&world, &ns, "web", &["dfw"]).await;
            eventually("the claim is reported", || async {
                let wd = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.ok_or("no deployment")?;
                let condition = condition(&wd, "Federated");
                let names =
                    condition["message"].as_str().is_some_and(|text| text.contains(&format!("{kind} a-theirs")));
                if condition["reason"] == "ClaimedByAnotherPolicy" && names {
                    Ok(())
                } else {
                    Err(condition.to_string())
                }
            })
            .await;
            eventually("it is where that policy sends it", || async {
                let there = uids(&world.ord, &hub).await;
                if there.contains_key("WorkloadDeployment/web-p-dfw") { Ok(()) } else { Err(format!("{there:?}")) }
            })
            .await;
            // The label of that cluster is not the cause.
            let events = list(&world.hub, "Event", "default").await;
            assert!(events.iter().all(|event| event.data["reason"] != "CityLabelLost"), "{events:?}");
            let namespace = if kind == "PropagationPolicy" { hub.as_str() } else { "" };
            delete(&world.hub, kind, namespace, "a-theirs").await;
            start(&world, &ns, "later", &["dfw"]).await;
            eventually("both are in their city", || async {
                let (dfw, ord) = (uids(&world.dfw, &hub).await, uids(&world.ord, &hub).await);
                let here = |name: &str| dfw.contains_key(&format!("WorkloadDeployment/{name}-p-dfw"));
                if here("web") && here("later") && ord.keys().all(|name| name.contains("first")) {
                    Ok(())
                } else {
                    Err(format!("{dfw:?} {ord:?}"))
                }
            })
            .await;
            guarded(&world, &hub, "cell-dfw").await;
            for name in ["first", "web", "later"] {
                ready(&world, &ns, name, 1).await;
                delete(&world.project, "Workload", &ns, name).await;
            }
        }
    });
}

#[test]
fn city_with_two_labelled_clusters_uses_one_in_every_namespace() {
    RUNTIME.block_on(async {
        let world = alone(Wish::default()).await;
        label(&world.hub, "cell-ord", Some("dfw")).await;
        let (first, hub_of_first) = world.namespace("several").await;
        start(&world, &first, "web", &["dfw"]).await;
        ready(&world, &first, "web", 1).await;
        guarded(&world, &hub_of_first, "cell-dfw").await;
        eventually("the choice is reported on the policy", || async {
            let events = list(&world.hub, "Event", &hub_of_first).await;
            let said = events.iter().find(|event| event.data["reason"] == "SeveralClusters");
            let note = said.ok_or("not reported")?.data["note"].to_string();
            if note.contains("Clusters cell-dfw, cell-ord") { Ok(()) } else { Err(note) }
        })
        .await;
        // Another namespace starts on the same cluster, even if that has lost the label.
        label(&world.hub, "cell-dfw", None).await;
        let (second, hub_of_second) = world.namespace("several").await;
        start(&world, &second, "web", &["dfw"]).await;
        ready(&world, &second, "web", 1).await;
        guarded(&world, &hub_of_second, "cell-dfw").await;
        for hub in [&hub_of_first, &hub_of_second] {
            assert_eq!((uids(&world.dfw, hub).await.len(), uids(&world.ord, hub).await.len()), (2, 0));
        }
    });
}

/// A city waited for its first Cluster. Two Clusters that got the label while no manager led received every deployment
/// permanently.
#[test]
fn waiting_city_with_two_newly_labelled_clusters_uses_one() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish::default()).await;
        label(&world.hub, "cell-dfw", None).await;
        let mut places = Vec::new();
        for _ in 0..2 {
            let (ns, hub) = world.namespace("waiting").await;
            start(&world, &ns, "web", &["dfw"]).await;
            places.push((ns, hub));
        }
        for (ns, hub) in &places {
            eventually("the wait is reported, and Karmada's scheduler has run", || async {
                let wd = get(&world.project, "WorkloadDeployment", ns, "web-p-dfw").await.ok_or("no deployment")?;
                let told = condition(&wd, "Federated");
                let binding = get(&world.hub, "ResourceBinding", hub, "web-p-dfw-workloaddeployment").await;
                let scheduled = condition(&binding.ok_or("no binding")?, "Scheduled");
                if told["reason"] == "NoClusterForCity" && scheduled["reason"] == "NoClusterFit" {
                    Ok(())
                } else {
                    Err(format!("{told} {scheduled}"))
                }
            })
            .await;
        }
        world.operators[0].process.kill();
        for cluster in ["cell-dfw", "cell-ord"] {
            label(&world.hub, cluster, Some("dfw")).await;
        }
        tokio::time::sleep(ABSENT).await; // the test checks that nothing happens in this time
        for (_, hub) in &places {
            assert_eq!((uids(&world.dfw, hub).await.len(), uids(&world.ord, hub).await.len()), (0, 0));
        }
        world.restart_manager(&[]).await;
        for (ns, hub) in &places {
            ready(&world, ns, "web", 1).await;
            guarded(&world, hub, "cell-dfw").await;
            assert_eq!((uids(&world.dfw, hub).await.len(), uids(&world.ord, hub).await.len()), (2, 0));
        }
    });
}

#[test]
fn deleted_city_policy_is_recreated_on_the_current_cluster() {
    RUNTIME.block_on(async {
        let world = alone(Wish::default()).await;
        let (ns, hub) = world.namespace("policy").await;
        start(&world, &ns, "web", &["dfw"]).await;
        ready(&world, &ns, "web", 1).await;
        guarded(&world, &hub, "cell-dfw").await;
        let before = uids(&world.dfw, &hub).await;
        // The city's cluster has lost the label, and another one already has it.
        label(&world.hub, "cell-dfw", None).await;
        label(&world.hub, "cell-ord", Some("dfw")).await;
        for _ in 0..3 {
            let policy = get(&world.hub, "PropagationPolicy", &hub, "city-dfw").await.unwrap().uid();
            delete(&world.hub, "PropagationPolicy", &hub, "city-dfw").await;
            eventually("there is another one", || async {
                let now = get(&world.hub, "PropagationPolicy", &hub, "city-dfw").await.ok_or("none")?;
                if now.uid() == policy { Err("the old one".to_owned()) } else { Ok(()) }
            })
            .await;
            guarded(&world, &hub, "cell-dfw").await;
            tokio::time::sleep(ABSENT).await; // the test checks that nothing happens in this time
            assert_eq!(uids(&world.dfw, &hub).await, before);
            assert!(uids(&world.ord, &hub).await.is_empty());
        }
    });
}

/// Writes the policy as the Go operator does: plain, by update, with the spelling of the deployment.
async fn as_go_writes_it(world: &World, hub: &str, spelling: &str) {
    let city = json!({ "matchLabels": { CITY: spelling } });
    let spec = json!({
        "resourceSelectors": [{
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "labelSelector": city,
        }],
        "propagateDeps": true,
        "placement": {
            "clusterAffinity": { "labelSelector": { "matchLabels": { CITY: spelling }, "matchExpressions": null } },
            "clusterAffinities": null,
        },
    });
    let params = PatchParams { field_manager: Some("manager".into()), ..PatchParams::default() };
    let policies = api(&world.hub, "PropagationPolicy", hub);
    policies.patch("city-dfw", &params, &Patch::Merge(json!({ "spec": spec }))).await.unwrap();
}

/// Waits until a policy selects both spellings of Clusters, and Karmada's scheduler has applied it.
async fn both_count(world: &World, hub: &str) {
    eventually("both spellings of the Cluster count", || async {
        let policy = get(&world.hub, "PropagationPolicy", hub, "city-dfw").await.ok_or("no policy")?;
        let mut said = vec![policy.data["spec"]["placement"].to_string()];
        for binding in list(&world.hub, "ResourceBinding", hub).await {
            if binding.name_any().ends_with("-workloaddeployment") {
                let applied = binding.annotations().get("policy.karmada.io/applied-placement");
                said.push(applied.ok_or("not scheduled")?.clone());
            }
        }
        let both = |text: &String| text.contains(r#""DFW""#) && text.contains(r#""dfw""#);
        said.into_iter().find(|text| !both(text)).map_or(Ok(()), Err)
    })
    .await;
}

/// Runs Workloads that spell the city in different ways, each group in its own namespace, on a Cluster with the label `DFW`.
async fn spelt(world: &mut World, guard: bool) {
    label(&world.hub, "cell-dfw", Some("DFW")).await;
    let mut places = Vec::new();
    for spellings in [&["DFW"][..], &["dfw"], &["Dfw", "dfw"]] {
        let (ns, hub) = world.namespace("spelt").await;
        for spelling in spellings {
            let name = format!("web{}", places.len() + usize::from(*spelling == "Dfw"));
            start(world, &ns, &name, &[spelling]).await;
            ready(world, &ns, &name, 1).await;
            let copy = get(&world.hub, "WorkloadDeployment", &hub, &format!("{name}-p-dfw")).await.unwrap();
            assert_eq!(copy.labels()[CITY], *spelling, "the label is the deployment's own spelling");
        }
        places.push((ns, hub, spellings.len()));
    }
    let mut before = Vec::new();
    for (_, hub, deployments) in &places {
        let here = uids(&world.dfw, hub).await;
        assert_eq!((here.len(), uids(&world.ord, hub).await.len()), (2 * deployments, 0), "{here:?}");
        before.push(here);
    }
    eventually("several spellings are reported", || async {
        let events: Vec<DynamicObject> = list(&world.hub, "Event", &places[2].1).await;
        let said = events.iter().filter(|event| event.data["reason"] == "SeveralSpellings");
        let notes: Vec<String> = said.map(|event| event.data["note"].to_string()).collect();
        if notes.iter().any(|note| note.contains("DFW, Dfw, dfw")) { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await;
    // The take-over of a federation of the Go operator moves nothing.
    world.operators[0].process.kill();
    as_go_writes_it(world, &places[0].1, "DFW").await;
    world.restart_manager(&[]).await;
    // The label is respelt at run time. With a guard, the second group keeps everything. Without one, the policies keep the
    // spellings that they already select.
    if guard {
        guarded(world, &places[0].1, "cell-dfw").await;
        label(&world.hub, "cell-dfw", Some("dfw")).await;
        both_count(world, &places[0].1).await;
    } else {
        for (_, hub, _) in &places[1..] {
            both_count(world, hub).await;
        }
        label(&world.hub, "cell-dfw", Some("dfw")).await;
    }
    tokio::time::sleep(ABSENT).await; // the test checks that nothing happens in this time
    // Without a guard, the policy of the first namespace had only one spelling, that of its Cluster. Its deployment is recreated.
    let first_kept = usize::from(!guard);
    for ((_, hub, _), before) in places.iter().zip(&before).skip(first_kept) {
        assert_eq!(uids(&world.dfw, hub).await, *before);
    }
    if !guard {
        ready(world, &places[0].0, "web0", 1).await;
        let now = uids(&world.dfw, &places[0].1).await;
        assert!(now.len() == 2 && now.values().all(|uid| before[0].values().all(|old| old != uid)), "{now:?}");
    }
    for (ns, ..) in &places {
        for workload in list(&world.project, "Workload", ns).await {
            let condition = condition(&workload, "Available");
            assert_eq!(condition["status"], Value::from("True"), "{condition}");
        }
    }
}

#[test]
fn city_spellings_are_the_same_city() {
    RUNTIME.block_on(async {
        spelt(&mut *alone(Wish::default()).await, true).await;
        spelt(&mut *alone(Wish { management: "cityGuard: false\n".into(), ..Wish::default() }).await, false).await;
    });
}
