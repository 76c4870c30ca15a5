//! Faults between the project and the city: labels, taints, policies, dependencies, clusters.

use kube::{Client, ResourceExt};
use kubectl_compute::exit::Exit;
use serde_json::{Value, json};
use testbed::bed::bind_location;
use tokio::time::Instant;

use super::{NAMED_WITHIN, Stage};
use crate::common::{
    RUNTIME, apply, beds::Wish, condition, delete, eventually, get, list, merge, promised, ready, skipped,
};

/// A deployment of the project.
fn wd(name: &str) -> (&'static str, &str) {
    ("WorkloadDeployment", name)
}

#[test]
fn delivery_faults_are_named_in_time_and_mended() {
    RUNTIME.block_on(async {
        let wish = Wish { management: "timing:\n  arrivalSeconds: 8\n".to_owned(), ..Wish::default() };
        let mut stage = Box::pin(Stage::set(wish)).await;
        bind_location(&stage.world.project, "lhr").await.unwrap();
        no_cluster(&stage).await;
        label_spelt_otherwise(&stage).await;
        not_scheduled(&stage).await;
        not_applied(&stage).await;
        claimed_by_another(&stage).await;
        claimed_by_a_cluster_policy(&stage).await;
        companion_claimed_too(&stage).await;
        interpreter_missing(&stage).await;
        feature_off(&stage).await;
        binding_missing(&stage).await;
        drain_waits(&stage).await;
        definition_missing_on_a_cell(&stage).await;
        cluster_away(&mut stage).await;
    });
}

async fn label(hub: &Client, cluster: &str, city: &str) {
    merge(hub, "Cluster", "", cluster, json!({ "metadata": { "labels": { "topology.datum.net/city-code": city } } }))
        .await;
}

/// Fact 29.
async fn no_cluster(stage: &Stage) {
    if !Stage::plants("no cluster has the label") {
        return;
    }
    let name = stage.start("city", "lhr").await;
    let told = stage.federated(&name, "NoClusterForCity").await;
    assert!(told.contains("topology.datum.net/city-code=lhr"), "{told}");
    let waits = stage.says(wd(&name), "ReferencedDataReady", "AwaitingPropagation").await;
    assert!(waits.contains("NoClusterForCity") && waits.contains(&told), "{waits}");
    eventually("it is reported once as an Event, and on the Workload", || async {
        let events = stage.events(&name).await;
        let workload = get(&stage.world.project, "Workload", &stage.ns, "city").await.ok_or("no workload")?;
        let told = condition(&workload, "Available");
        if events == ["NoClusterForCity"] && told["reason"] == "NoClusterForCity" {
            Ok(())
        } else {
            Err(format!("{events:?} {told}"))
        }
    })
    .await;
    stage.named(wd(&name), "NoClusterForCity").await;
    stage.named(("Workload", "city"), "NoClusterForCity").await;
    stage.follow("NoClusterForCity", 1, &[]).await;
    // It has a label already, and keeps it without --overwrite.
    let bare = json!({ "metadata": { "labels": { "topology.datum.net/city-code": null } } });
    merge(&stage.world.hub, "Cluster", "", "cell-ord", bare).await;
    stage.follow("NoClusterForCity", 2, &[("CLUSTER", "cell-ord"), ("CITY", "lhr")]).await;
    stage.mended("city").await;
    label(&stage.world.hub, "cell-ord", "ord").await;
}

/// A new city has no cluster. A city that runs keeps its cluster, and new deployments follow it.
async fn label_spelt_otherwise(stage: &Stage) {
    if !Stage::plants("the label is spelt otherwise") {
        return;
    }
    label(&stage.world.hub, "cell-ord", "0rd").await;
    let name = stage.start("spelt", "ord").await;
    let told = stage.federated(&name, "NoClusterForCity").await;
    assert!(told.contains("=ord"), "{told}");
    stage.named(wd(&name), "NoClusterForCity").await;
    stage.follow("CityLabelLost", 1, &[("CLUSTER", "cell-ord"), ("CITY", "ord")]).await;
    stage.says(("Workload", "spelt"), "Ready", "ReplicasAvailable").await;
    label(&stage.world.hub, "cell-ord", "0rd").await;
    stage.federated(&name, "CityLabelLost").await;
    stage.says(("Workload", "spelt"), "Ready", "ReplicasAvailable").await;
    if let Some(prometheus) = &stage.prometheus {
        eventually("the alert names the Cluster", || async {
            let all = prometheus.ask("ALERTS{alertname=\"ComputeClusterMislabelled\",cluster=\"cell-ord\"}").await?;
            if all.len() == 1 { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
    }
    stage.follow("CityLabelLost", 1, &[("CLUSTER", "cell-ord"), ("CITY", "ord")]).await;
    stage.federated(&name, "Propagated").await;
    stage.mended("spelt").await;
}

/// The taint of `karmadactl cordon`. The condition quotes Karmada's message.
async fn not_scheduled(stage: &Stage) {
    if !Stage::plants("the cluster is cordoned") {
        return;
    }
    let taint = json!({ "key": "node.karmada.io/unschedulable", "effect": "NoSchedule" });
    merge(&stage.world.hub, "Cluster", "", "cell-ord", json!({ "spec": { "taints": [taint] } })).await;
    let name = stage.start("tainted", "ord").await;
    let told = stage.federated(&name, "NotScheduled").await;
    assert!(told.contains("untolerated taint"), "{told}");
    stage.named(wd(&name), "NotScheduled").await;
    stage.follow("NotScheduled", 1, &[("CLUSTER", "cell-ord")]).await;
    // `karmadactl uncordon` removes the taint.
    merge(&stage.world.hub, "Cluster", "", "cell-ord", json!({ "spec": { "taints": null } })).await;
    stage.mended("tainted").await;
}

/// Fact 33, for a companion.
async fn not_applied(stage: &Stage) {
    if !Stage::plants("the name of a companion is taken on the cell") {
        return;
    }
    let theirs = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": stage.hub, "name": "refused-data" },
    });
    apply(&stage.world.dfw, theirs).await;
    let name = stage.start("refused", "dfw").await;
    let told = stage.federated(&name, "NotApplied").await;
    // The cluster's words may quote a value, so they stand only in the binding.
    assert!(told.contains("Secret") && told.contains("refused-data-secret") && !told.contains("already"), "{told}");
    assert!(stage.says(wd(&name), "ReferencedDataReady", "AwaitingPropagation").await.contains("NotApplied"));
    stage.named(wd(&name), "NotApplied").await;
    stage.follow("NotApplied", 1, &[]).await;
    delete(&stage.world.dfw, "Secret", &stage.hub, "refused-data").await;
    stage.mended("refused").await;
}

/// Creates a foreign policy that claims this object. Karmada has loaded the policy once it claims a witness.
async fn foreign_policy(stage: &Stage, policy_kind: &str, api_version: &str, kind: &str, name: &str) {
    let witness = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": stage.hub, "name": format!("witness-of-{name}") },
    });
    apply(&stage.world.hub, witness.clone()).await;
    let selector = |api_version: &Value, kind: &Value, name: &Value| json!({ "apiVersion": api_version, "kind": kind, "namespace": stage.hub, "name": name });
    let mut policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": policy_kind, "metadata": { "name": "a-theirs" },
        "spec": {
            "resourceSelectors": [
                selector(&json!(api_version), &json!(kind), &json!(name)),
                selector(&witness["apiVersion"], &witness["kind"], &witness["metadata"]["name"]),
            ],
            "placement": { "clusterAffinity": { "clusterNames": ["cell-ord"] } },
        },
    });
    if policy_kind == "PropagationPolicy" {
        policy["metadata"]["namespace"] = json!(stage.hub);
    }
    apply(&stage.world.hub, policy).await;
    let label = format!("{}.karmada.io/permanent-id", policy_kind.to_lowercase());
    eventually("the other policy is known", || async {
        let name = witness["metadata"]["name"].as_str().unwrap();
        let witness = get(&stage.world.hub, "ConfigMap", &stage.hub, name).await.ok_or("no witness")?;
        if witness.labels().contains_key(&label) { Ok(()) } else { Err("not claimed".to_owned()) }
    })
    .await;
}

/// Fact 34.
async fn claimed_by_another(stage: &Stage) {
    if !Stage::plants("claimed by a policy") {
        return;
    }
    foreign_policy(stage, "PropagationPolicy", "compute.datumapis.com/v1alpha", "WorkloadDeployment", "claimed-p-dfw")
        .await;
    let name = stage.start("claimed", "dfw").await;
    let told = stage.federated(&name, "ClaimedByAnotherPolicy").await;
    assert!(told.contains("a-theirs"), "{told}");
    stage.named(wd(&name), "ClaimedByAnotherPolicy").await;
    stage.follow("ClaimedByAnotherPolicy", 1, &[]).await;
    delete(&stage.world.hub, "PropagationPolicy", &stage.hub, "a-theirs").await;
    stage.mended("claimed").await;
}

/// Fact 67.
async fn claimed_by_a_cluster_policy(stage: &Stage) {
    if !Stage::plants("claimed by a cluster policy") {
        return;
    }
    let (group, kind) = ("compute.datumapis.com/v1alpha", "WorkloadDeployment");
    // It has to come first: the namespace's own policy keeps its claim too.
    foreign_policy(stage, "ClusterPropagationPolicy", group, kind, "widely-p-lhr").await;
    label(&stage.world.hub, "cell-dfw", "lhr").await;
    let name = stage.start("widely", "lhr").await;
    let told = stage.federated(&name, "ClaimedByAnotherPolicy").await;
    assert!(told.contains("a-theirs"), "{told}");
    stage.named(wd(&name), "ClaimedByAnotherPolicy").await;
    delete(&stage.world.hub, "ClusterPropagationPolicy", "", "a-theirs").await;
    stage.mended("widely").await;
    label(&stage.world.hub, "cell-dfw", "dfw").await;
}

/// Fact 35. The Secret is delivered anyway, so nothing waits.
async fn companion_claimed_too(stage: &Stage) {
    if !Stage::plants("a companion is claimed too") {
        return;
    }
    foreign_policy(stage, "PropagationPolicy", "v1", "Secret", "excess-data").await;
    let name = stage.start("excess", "dfw").await;
    let told = stage.federated(&name, "ClaimedByAnotherPolicy").await;
    assert!(told.contains("Secret excess-data is also claimed by PropagationPolicy a-theirs"), "{told}");
    stage.says(wd(&name), "ReferencedDataReady", "Ready").await;
    ready(&stage.world, &stage.ns, "excess", 1).await;
    delete(&stage.world.hub, "PropagationPolicy", &stage.hub, "a-theirs").await;
    stage.federated(&name, "Propagated").await;
    stage.end("excess").await;
}

/// Fact 38. A restored script changes nothing for a waiting deployment until its template changes. After a while the operator touches
/// the template.
async fn interpreter_missing(stage: &Stage) {
    if !Stage::plants("the interpreter is missing") {
        return;
    }
    delete(&stage.world.hub, "ResourceInterpreterCustomization", "", "workloaddeployment").await;
    let name = stage.start("script", "dfw").await;
    let told = stage.federated(&name, "DependenciesNotPropagated").await;
    assert!(told.contains("ResourceInterpreterCustomization workloaddeployment"), "{told}");
    stage.named(wd(&name), "DependenciesNotPropagated").await;
    stage.follow("DependenciesNotPropagated", 1, &[]).await;
    stage.follow("DependenciesNotPropagated", 2, &[]).await;
    stage.mended("script").await;
}

/// Fact 37.
async fn feature_off(stage: &Stage) {
    let Some(karmada) = stage.world.bed.stand_in() else {
        skipped("the feature gate off: a flag of Karmada's own processes");
        return;
    };
    if !Stage::plants("the feature gate is off") {
        return;
    }
    karmada.propagate_deps(false);
    let name = stage.start("feature", "dfw").await;
    let told = stage.federated(&name, "DependenciesNotPropagated").await;
    assert!(told.contains("feature gate PropagateDeps"), "{told}");
    eventually("the Instance on the cell reports it too", || async {
        let instance =
            get(&stage.world.dfw, "Instance", &stage.hub, &format!("{name}-0")).await.ok_or("it is not there")?;
        let waits = condition(&instance, "ReferencedDataReady");
        let told = waits["message"].as_str().unwrap_or_default().contains("feature gate PropagateDeps");
        if waits["reason"] == "AwaitingPropagation" && told { Ok(()) } else { Err(waits.to_string()) }
    })
    .await;
    stage.named(wd(&name), "DependenciesNotPropagated").await;
    karmada.propagate_deps(true);
    stage.mended("feature").await;
}

/// Facts 49 and 50. The repair is immediate, so the test reads the reports from the Events.
async fn binding_missing(stage: &Stage) {
    if !Stage::plants("a binding is missing") {
        return;
    }
    let name = stage.start("lost", "dfw").await;
    ready(&stage.world, &stage.ns, "lost", 1).await;
    for binding in ["lost-p-dfw-workloaddeployment", "lost-data-secret"] {
        delete(&stage.world.hub, "ResourceBinding", &stage.hub, binding).await;
        let began = Instant::now();
        eventually(&format!("{binding} is reported missing and recreated"), || async {
            let events = list(&stage.world.project, "Event", &stage.ns).await;
            let told = |reason: &str, text: &str| {
                let note =
                    |event: &kube::api::DynamicObject| event.data["note"].as_str().unwrap_or_default().to_owned();
                events.iter().any(|event| event.data["reason"] == reason && note(event).contains(text))
            };
            let back = get(&stage.world.hub, "ResourceBinding", &stage.hub, binding).await.is_some();
            // Karmada recreates the binding at any touch. The operator's touch is certain to come.
            if told("BindingMissing", binding) && back {
                Ok(())
            } else {
                Err(format!("{:?}, back: {back}", stage.events(&name).await))
            }
        })
        .await;
        assert!(began.elapsed() < promised(NAMED_WITHIN), "{:?}", began.elapsed());
        stage.federated(&name, "Propagated").await;
    }
    stage.mended("lost").await;
}

/// No other Cluster has the city's label. The deployment runs on, so nothing waits.
async fn drain_waits(stage: &Stage) {
    if !Stage::plants("a drain waits") {
        return;
    }
    let name = stage.start("drained", "ord").await;
    ready(&stage.world, &stage.ns, "drained", 1).await;
    let (exit, text) = stage.asker.ask(&stage.ns, &["cell", "drain", "cell-ord"]).await;
    assert!(exit == Exit::Platform && text.contains("no other Cluster has the label of ord"), "{text}");
    let told = stage.federated(&name, "DrainWaiting").await;
    assert!(told.contains("cell-ord"), "{told}");
    stage.says(("Workload", "drained"), "Ready", "ReplicasAvailable").await;
    if let Some(prometheus) = &stage.prometheus {
        eventually("the alerts name it", || async {
            let blocked =
                prometheus.ask("ALERTS{alertname=\"ComputeDeploymentsBlocked\",reason=\"DrainWaiting\"}").await?;
            let stuck = prometheus.ask("ALERTS{alertname=\"ComputeDrainStuck\",cluster=\"cell-ord\"}").await?;
            if blocked.len() == 1 && stuck.len() == 1 { Ok(()) } else { Err(format!("{blocked:?} {stuck:?}")) }
        })
        .await;
    }
    stage.follow("DrainWaiting", 1, &[("CLUSTER", "cell-ord")]).await;
    stage.follow("DrainWaiting", 4, &[("CLUSTER", "cell-ord")]).await;
    stage.federated(&name, "Propagated").await;
    stage.mended("drained").await;
}

/// Fact 66.
async fn definition_missing_on_a_cell(stage: &Stage) {
    if !Stage::plants("a definition is missing on a cell") {
        return;
    }
    let definition = "workloaddeployments.compute.datumapis.com";
    delete(&stage.world.ord, "CustomResourceDefinition", "", definition).await;
    eventually("Karmada has noticed it", || async {
        let cluster = get(&stage.world.hub, "Cluster", "", "cell-ord").await.ok_or("no Cluster")?;
        let served = cluster.data["status"]["apiEnablements"].to_string().contains("WorkloadDeployment");
        if served { Err("it counts as served".to_owned()) } else { Ok(()) }
    })
    .await;
    let name = stage.start("kindless", "ord").await;
    let told = stage.federated(&name, "NotScheduled").await;
    stage.named(wd(&name), "NotScheduled").await;
    eprintln!("  {told}");
    let cell = stage.world.bed.cell("ord").unwrap().name().to_owned();
    stage.follow("NotScheduled", 3, &[("CELL", &cell)]).await;
    eventually("Karmada has noticed that too", || async {
        let cluster = get(&stage.world.hub, "Cluster", "", "cell-ord").await.ok_or("no Cluster")?;
        let served = cluster.data["status"]["apiEnablements"].to_string().contains("WorkloadDeployment");
        if served { Ok(()) } else { Err("it does not count as served".to_owned()) }
    })
    .await;
    stage.mended("kindless").await;
}

/// Facts 30 and 31.
async fn cluster_away(stage: &mut Stage) {
    if !Stage::plants("the cluster is away") {
        return;
    }
    let running = stage.start("running", "ord").await;
    ready(&stage.world, &stage.ns, "running", 1).await;
    stage.world.bed.cells.get_mut("ord").unwrap().stop_api_server();
    let told = stage.federated(&running, "ClusterNotReady").await;
    assert!(told.contains("cell-ord") && told.contains("all was delivered before"), "{told}");
    let new = stage.start("new", "ord").await;
    let told = stage.federated(&new, "ClusterNotReady").await;
    assert!(told.contains("Cluster cell-ord of city ord"), "{told}");
    stage.named(wd(&running), "ClusterNotReady").await;
    stage.named(wd(&new), "ClusterNotReady").await;
    let unready = "compute_federation_unready_clusters{cluster=\"cell-ord\",city=\"ord\"} 1";
    let counted = stage.asker.metrics().await.unwrap();
    assert!(counted.lines().any(|line| line == unready), "{counted}");
    stage.follow("ClusterNotReady", 1, &[("CLUSTER", "cell-ord")]).await;
    let ord = stage.world.bed.cells.get_mut("ord").unwrap();
    ord.start_api_server().unwrap();
    ord.wait_ready().await.unwrap();
    stage.federated(&running, "Propagated").await;
    stage.mended("new").await;
}
