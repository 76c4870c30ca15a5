//! Faults of control planes: roles that are too small, webhooks that do not answer, a hub that is away, namespaces that end.

use kube::api::DeleteParams;
use serde_json::json;

use super::Stage;
use crate::common::{
    RUNTIME, api, apply, beds::Wish, condition, deployment, eventually, get, merge, ready, refusal::WebhookAway,
    template,
};

const GROUP: &str = "compute.datumapis.com";

#[test]
fn faults_of_control_planes_are_named_in_time_and_mended() {
    RUNTIME.block_on(async {
        let mut stage = Box::pin(Stage::set(Wish::default())).await;
        hub_role_too_small(&stage).await;
        webhook_away_in_the_project(&stage).await;
        webhook_away_on_the_hub(&stage).await;
        webhook_away_on_a_cell(&stage).await;
        hub_namespace_terminating(&stage).await;
        hub_away(&mut stage).await;
    });
}

async fn hub_role_too_small(stage: &Stage) {
    if !Stage::plants("the role on the hub is too small") {
        return;
    }
    let role = get(&stage.world.hub, "ClusterRole", "", "compute-manager").await.unwrap();
    let mut rules = role.data["rules"].clone();
    for rule in rules.as_array_mut().unwrap() {
        if rule["resources"] == json!(["workloaddeployments"]) {
            rule["verbs"] = json!(["get", "list", "watch", "delete"]);
        }
    }
    assert_ne!(rules, role.data["rules"]);
    merge(&stage.world.hub, "ClusterRole", "", "compute-manager", json!({ "rules": rules })).await;
    let name = stage.start("rights", "dfw").await;
    let told = stage.named(("WorkloadDeployment", &name), "HubRefused").await;
    assert!(told.contains("lacks the permission"), "{told}");
    stage.follow("HubRefused", 1, &[]).await;
    stage.mended("rights").await;
}

async fn webhook_away_in_the_project(stage: &Stage) {
    if !Stage::plants("a webhook of the project is away") {
        return;
    }
    let webhook = WebhookAway { name: &stage.ns, kind: (GROUP, "workloaddeployments"), namespace: &stage.ns };
    webhook.begin(&stage.world.project, &deployment(&stage.ns, "probe", "dfw")).await;
    stage.start("webhook", "dfw").await;
    let told = stage.named(("Workload", "webhook"), "ProjectRefused").await;
    assert!(told.contains("failed calling webhook"), "{told}");
    stage.follow("ProjectRefused", 2, &[]).await;
    webhook.end(&stage.world.project).await;
    stage.mended("webhook").await;
}

async fn webhook_away_on_the_hub(stage: &Stage) {
    if !Stage::plants("a webhook of the hub is away") {
        return;
    }
    let webhook = WebhookAway { name: &stage.hub, kind: (GROUP, "workloaddeployments"), namespace: &stage.hub };
    webhook.begin(&stage.world.hub, &deployment(&stage.hub, "probe", "dfw")).await;
    let name = stage.start("hooked", "dfw").await;
    let told = stage.named(("WorkloadDeployment", &name), "HubRefused").await;
    assert!(told.contains("failed calling webhook"), "{told}");
    webhook.end(&stage.world.hub).await;
    stage.mended("hooked").await;
}

async fn webhook_away_on_a_cell(stage: &Stage) {
    if !Stage::plants("a webhook of a cell is away") {
        return;
    }
    let probe = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": { "name": "probe", "namespace": stage.hub }, "spec": template("i")["spec"],
    });
    let webhook = WebhookAway { name: &stage.hub, kind: (GROUP, "instances"), namespace: &stage.hub };
    webhook.begin(&stage.world.dfw, &probe).await;
    let name = stage.start("celled", "dfw").await;
    let told = stage.named(("WorkloadDeployment", &name), "InstanceRefused").await;
    assert!(told.contains("failed calling webhook"), "{told}");
    let cell = stage.world.bed.cell("dfw").unwrap().name().to_owned();
    stage.follow("InstanceRefused", 1, &[("CELL", &cell), ("NAME", &name)]).await;
    webhook.end(&stage.world.dfw).await;
    stage.mended("celled").await;
}

/// An object in it blocks the deletion.
async fn hub_namespace_terminating(stage: &Stage) {
    if !Stage::plants("the namespace on the hub is terminating") {
        return;
    }
    let name = stage.start("terminating", "dfw").await;
    ready(&stage.world, &stage.ns, "terminating", 1).await;
    let thing = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": stage.hub, "name": "thing", "finalizers": ["example.com/hold"] },
    });
    apply(&stage.world.hub, thing).await;
    eventually("the namespace is deleted", || async {
        let label = json!({ "metadata": { "labels": { "resourcetemplate.karmada.io/deletion-protected": null } } });
        merge(&stage.world.hub, "Namespace", "", &stage.hub, label).await;
        let _ = api(&stage.world.hub, "Namespace", "").delete(&stage.hub, &DeleteParams::default()).await; // the label may be back
        let namespace = get(&stage.world.hub, "Namespace", "", &stage.hub).await.ok_or("gone")?;
        if namespace.metadata.deletion_timestamp.is_some() { Ok(()) } else { Err("protected".to_owned()) }
    })
    .await;
    stage.named(("WorkloadDeployment", &name), "HubNamespaceTerminating").await;
    // The namespace says it a moment later, and is asked once a minute.
    eventually("the message names what holds it", || async {
        let found = get(&stage.world.project, "WorkloadDeployment", &stage.ns, &name).await.ok_or("gone")?;
        let told = condition(&found, "Ready");
        if told["message"].to_string().contains("example.com/hold") { Ok(()) } else { Err(told.to_string()) }
    })
    .await;
    stage.follow("HubNamespaceTerminating", 1, &[]).await;
    merge(&stage.world.hub, "ConfigMap", &stage.hub, "thing", json!({ "metadata": { "finalizers": null } })).await;
    stage.mended("terminating").await;
}

async fn hub_away(stage: &mut Stage) {
    if !Stage::plants("the hub is away") {
        return;
    }
    stage.world.bed.hub.stop_api_server();
    let name = stage.start("hubless", "dfw").await;
    stage.named(("WorkloadDeployment", &name), "HubUnavailable").await;
    stage.world.bed.hub.start_api_server().unwrap();
    stage.world.bed.hub.wait_ready().await.unwrap();
    stage.follow("HubUnavailable", 1, &[]).await;
    stage.mended("hubless").await;
}
