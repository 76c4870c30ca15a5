//! Faults in a cell and at its gates: no manager, no network, no quota, a provider that cannot start an Instance.

use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::{
    neighbours::{Reach, grant},
    operator::Operator,
};

use super::Stage;
use crate::common::{RUNTIME, api, apply, beds::Wish, binary, eventually, get, network, template, workload};

#[test]
fn faults_in_cells_are_named_in_time_and_mended() {
    RUNTIME.block_on(async {
        let mut stage = Box::pin(Stage::set(Wish { networks_and_quota: true, ..Wish::default() })).await;
        no_network(&stage).await;
        quota_used_up(&stage).await;
        quota_away(&stage).await;
        project_unknown(&stage).await;
        image_wrong(&stage).await;
        crash_loop(&mut stage).await;
        cluster_full(&mut stage).await;
        no_manager(&mut stage).await;
    });
}

async fn no_network(stage: &Stage) {
    if !Stage::plants("a network is missing") {
        return;
    }
    let mut object = workload(&stage.ns, "net", &["dfw"], 1);
    object["spec"]["template"]["spec"]["networkInterfaces"] = json!([{ "network": { "name": "later" } }]);
    apply(&stage.world.project, object).await;
    stage.named(("Workload", "net"), "NetworkNotFound").await;
    apply(&stage.world.project, network(&stage.ns, "later")).await;
    stage.mended("net").await;
}

async fn quota_used_up(stage: &Stage) {
    if !Stage::plants("the quota is used up") {
        return;
    }
    // The first Workload uses it.
    apply(&stage.world.project, grant(&stage.ns, 1)).await;
    let name = stage.start("quota", "dfw").await;
    stage.named(("WorkloadDeployment", &name), "QuotaExceeded").await;
    stage.follow("QuotaExceeded", 1, &[]).await;
    apply(&stage.world.project, grant(&stage.ns, 1000)).await;
    stage.mended("quota").await;
}

async fn quota_away(stage: &Stage) {
    if !Stage::plants("the quota backend is away") {
        return;
    }
    let milo = stage.world.bed.milo.as_ref().unwrap();
    milo.set("single", Reach::Away);
    let name = stage.start("unasked", "dfw").await;
    stage.named(("WorkloadDeployment", &name), "QuotaBackendUnavailable").await;
    milo.set("single", Reach::Served);
    stage.mended("unasked").await;
}

async fn project_unknown(stage: &Stage) {
    if !Stage::plants("the project is unknown") {
        return;
    }
    let milo = stage.world.bed.milo.as_ref().unwrap();
    milo.set("single", Reach::Absent);
    let name = stage.start("unknown", "dfw").await;
    stage.named(("WorkloadDeployment", &name), "QuotaProjectNotFound").await;
    let cell = stage.world.bed.cell("dfw").unwrap().name().to_owned();
    stage.follow("QuotaProjectNotFound", 1, &[("CELL", &cell)]).await;
    milo.set("single", Reach::Served);
    stage.mended("unknown").await;
}

async fn image_wrong(stage: &Stage) {
    if !Stage::plants("the image is wrong") {
        return;
    }
    let mut object = workload(&stage.ns, "image", &["dfw"], 1);
    object["spec"]["template"] = template("docker.io/library/broken:2");
    apply(&stage.world.project, object.clone()).await;
    stage.named(("WorkloadDeployment", "image-p-dfw"), "ImageUnavailable").await;
    stage.named(("Workload", "image"), "ImageUnavailable").await;
    stage.follow("ImageUnavailable", 1, &[("NAME", "image-p-dfw-0")]).await;
    object["spec"]["template"] = template("docker.io/library/nginx:1");
    apply(&stage.world.project, object).await;
    stage.mended("image").await;
}

/// Deploys a Workload in ord, and reports in the name of its provider that the Instance does not run.
async fn reported_by_the_provider(stage: &mut Stage, name: &str, reason: &str) -> String {
    stage.world.bed.serve_instances_of("ord", false).await.unwrap();
    let deployment = stage.start(name, "ord").await;
    let instance = format!("{deployment}-0");
    eventually("the gates of the Instance are open", || async {
        let found = get(&stage.world.ord, "Instance", &stage.hub, &instance).await.ok_or("it is not there")?;
        let gates = &found.data["spec"]["controller"]["schedulingGates"];
        if gates.as_array().is_none_or(Vec::is_empty) { Ok(()) } else { Err(gates.to_string()) }
    })
    .await;
    let found = get(&stage.world.ord, "Instance", &stage.hub, &instance).await.unwrap();
    let says = |type_: &str, reason: &str| {
        json!({
            "type": type_, "status": "Unknown", "reason": reason, "message": "by the provider",
            "observedGeneration": found.metadata.generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let status = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance", "metadata": { "name": instance },
        "status": {
            "conditions": [says("Programmed", "ProgrammingInProgress"), says("Available", reason)],
            "controller": { "observedTemplateHash": found.data["spec"]["controller"]["templateHash"] },
        },
    });
    let params = PatchParams::apply("provider-stand-in").force();
    api(&stage.world.ord, "Instance", &stage.hub)
        .patch_status(&instance, &params, &Patch::Apply(status))
        .await
        .unwrap();
    deployment
}

async fn crash_loop(stage: &mut Stage) {
    if !Stage::plants("an Instance crashes") {
        return;
    }
    let name = reported_by_the_provider(stage, "crash", "InstanceCrashing").await;
    let told = stage.named(("WorkloadDeployment", &name), "InstanceCrashing").await;
    assert!(told.contains("by the provider"), "{told}");
    stage.follow("InstanceCrashing", 1, &[("NAME", &format!("{name}-0"))]).await;
    stage.world.bed.serve_instances_of("ord", true).await.unwrap();
    let mut object = stage.using("crash", "ord", "crash-data");
    object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["image"] =
        json!("docker.io/library/nginx:2");
    apply(&stage.world.project, object).await;
    stage.mended("crash").await;
}

/// Karmada duplicates the deployment whatever room the cluster has, so only the provider notices. Its own reasons have no rank. The
/// trace shows them with its words.
async fn cluster_full(stage: &mut Stage) {
    if !Stage::plants("the cluster is full") {
        return;
    }
    let name = reported_by_the_provider(stage, "full", "InsufficientCapacity").await;
    stage.named(("WorkloadDeployment", &name), "InstancesProvisioning").await;
    let object = format!("wd/{name}");
    eventually("the trace shows the provider's words", || async {
        let traces = [
            stage.asker.ask(&stage.ns, &["trace", &object]).await,
            stage.asker.ask_as_tenant(&stage.ns, &["trace", &object]).await,
        ];
        let shows = traces.iter().all(|(_, text)| text.contains("InsufficientCapacity: by the provider"));
        if shows { Ok(()) } else { Err(format!("{traces:?}")) }
    })
    .await;
    stage.world.bed.serve_instances_of("ord", true).await.unwrap();
    stage.mended("full").await;
}

async fn no_manager(stage: &mut Stage) {
    if !Stage::plants("the cell has no manager") {
        return;
    }
    let at = stage.world.of_cell("ord");
    stage.world.operators[at].process.kill();
    let name = stage.start("silent", "ord").await;
    let deployment = ("WorkloadDeployment", &*name);
    stage.says(deployment, "Federated", "Propagated").await;
    let told = stage.named(deployment, "CellNotReporting").await;
    assert!(told.contains("has not reported"), "{told}");
    let cell = stage.world.bed.cell("ord").unwrap().name().to_owned();
    stage.follow("CellNotReporting", 4, &[("CELL", &cell), ("NAME", &name)]).await;
    stage.world.operators[at] = Operator::cell(&stage.world.bed, binary(), "ord", &[]).unwrap();
    stage.world.operators[at].wait_ready().await.unwrap();
    stage.scrape();
    stage.mended("silent").await;
}
