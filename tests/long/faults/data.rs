//! Faults that a tenant causes, or has to know: missing, large, refused and forbidden data, taken names, limits.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::Stage;
use crate::common::{RUNTIME, api, apply, beds::Wish, delete, deployment, get, merge, path, workload};

#[test]
fn data_faults_are_named_in_time_and_mended() {
    RUNTIME.block_on(async {
        let stage = Box::pin(Stage::set(Wish::default())).await;
        missing(&stage).await;
        too_large(&stage).await;
        refused(&stage).await;
        forbidden(&stage).await;
        name_taken_on_the_hub(&stage).await;
        name_of_a_deployment_taken(&stage).await;
        over_a_limit(&stage).await;
    });
}

/// Deploys a Workload that uses a Secret, and asserts that this reason is named.
async fn named_with(stage: &Stage, name: &str, secret: Option<Value>, reason: &str) {
    if let Some(secret) = secret {
        apply(&stage.world.project, secret).await;
    }
    apply(&stage.world.project, stage.using(name, "dfw", &format!("{name}-data"))).await;
    let deployment = format!("{name}-p-dfw");
    stage.named(("WorkloadDeployment", &deployment), reason).await;
    stage.named(("Workload", name), reason).await;
}

async fn missing(stage: &Stage) {
    if !Stage::plants("a source is missing") {
        return;
    }
    named_with(stage, "missing", None, "SourceNotFound").await;
    stage.follow("SourceNotFound", 1, &[]).await;
    apply(&stage.world.project, stage.secret("missing-data", "v")).await;
    stage.mended("missing").await;
}

async fn too_large(stage: &Stage) {
    if !Stage::plants("a source is too large") {
        return;
    }
    let large = stage.secret("large-data", &"x".repeat(300 << 10));
    named_with(stage, "large", Some(large), "SourceTooLarge").await;
    stage.follow("SourceTooLarge", 1, &[("NAME", "large-p-dfw")]).await;
    apply(&stage.world.project, stage.secret("large-data", "small")).await;
    stage.mended("large").await;
}

/// The copy names no service account, and every API server refuses such a token.
async fn refused(stage: &Stage) {
    if !Stage::plants("a source is refused") {
        return;
    }
    let mut token = stage.secret("refused-data", "t");
    token["type"] = json!("kubernetes.io/service-account-token");
    token["metadata"]["annotations"] = json!({ "kubernetes.io/service-account.name": "default" });
    named_with(stage, "refused", Some(token), "SourceRefused").await;
    delete(&stage.world.project, "Secret", &stage.ns, "refused-data").await;
    apply(&stage.world.project, stage.secret("refused-data", "v")).await;
    stage.mended("refused").await;
}

async fn forbidden(stage: &Stage) {
    if !Stage::plants("a source is forbidden") {
        return;
    }
    let role = get(&stage.world.project, "ClusterRole", "", "compute").await.unwrap();
    let mut rules = role.data["rules"].clone();
    for rule in rules.as_array_mut().unwrap() {
        if rule["resources"] == json!(["configmaps", "secrets"]) {
            rule["verbs"] = json!(["list", "watch"]);
        }
    }
    merge(&stage.world.project, "ClusterRole", "", "compute", json!({ "rules": rules })).await;
    named_with(stage, "forbidden", Some(stage.secret("forbidden-data", "v")), "SourceUnauthorized").await;
    stage.follow("SourceUnauthorized", 1, &[("NAME", "forbidden-p-dfw")]).await;
    let role = std::fs::read_to_string(path("config/components/controller_rbac/role.yaml")).unwrap();
    testbed::manifests::apply(&stage.world.project, &role).await.unwrap();
    stage.mended("forbidden").await;
}

async fn name_taken_on_the_hub(stage: &Stage) {
    if !Stage::plants("the name of a copy is taken on the hub") {
        return;
    }
    let theirs =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": stage.hub, "name": "taken-data" } });
    apply(&stage.world.hub, theirs).await;
    named_with(stage, "taken", Some(stage.secret("taken-data", "v")), "SourceNameTaken").await;
    delete(&stage.world.hub, "Secret", &stage.hub, "taken-data").await;
    stage.mended("taken").await;
}

async fn name_of_a_deployment_taken(stage: &Stage) {
    if !Stage::plants("the name of a deployment is taken") {
        return;
    }
    apply(&stage.world.project, deployment(&stage.ns, "double-p-dfw", "ord")).await;
    apply(&stage.world.project, workload(&stage.ns, "double", &["dfw"], 1)).await;
    stage.named(("Workload", "double"), "DeploymentNameTaken").await;
    stage.follow("DeploymentNameTaken", 1, &[("NAME", "double-p-dfw")]).await;
    delete(&stage.world.project, "WorkloadDeployment", &stage.ns, "double-p-dfw").await;
    stage.mended("double").await;
}

async fn over_a_limit(stage: &Stage) {
    if !Stage::plants("a limit is exceeded") {
        return;
    }
    let mut object = workload(&stage.ns, "over", &["dfw"], 1);
    let many: Vec<Value> = (0..33)
        .map(|n| json!({ "name": format!("p{n}"), "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 0 } }))
        .collect();
    object["spec"]["placements"] = json!(many);
    apply(&stage.world.project, object).await;
    stage.named(("Workload", "over"), "LimitExceeded").await;
    stage.follow("LimitExceeded", 1, &[("NAME", "over")]).await;
    let one = json!({ "spec": { "placements": [{ "name": "p", "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 1 } }] } });
    let workloads = api(&stage.world.project, "Workload", &stage.ns);
    workloads.patch("over", &PatchParams::default(), &Patch::Merge(one)).await.unwrap();
    stage.mended("over").await;
}
