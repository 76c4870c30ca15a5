//! Assertions of the Go operator's tests that no other test here covers. `row_N` is the number of the assertion.

use crate::common::{
    RUNTIME, apply,
    beds::{Wish, alone, shared},
    condition, delete, eventually, get, list, ready, template, workload,
};
use serde_json::json;
use testbed::{neighbours::grant, operator::Operator};

/// Denied quota keeps the Instance's `Ready` and the deployment's `ReplicasReady` false. Both report the concrete reason, where
/// the Go operator reports `PendingQuota` and `QuotaNotGranted`.
#[test]
fn row_4_denied_quota_is_reported_on_instance_and_deployment() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("row-4").await;
        apply(&world.project, grant(&ns, 0)).await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        eventually("the denial is reported", || async {
            let instance = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.ok_or("no instance")?;
            let wd = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.ok_or("no deployment")?;
            let said =
                [condition(&instance, "QuotaGranted"), condition(&instance, "Ready"), condition(&wd, "ReplicasReady")];
            let denied = said.iter().all(|c| c["status"] == "False" && c["reason"] == "QuotaExceeded");
            let gates = instance.data["spec"]["controller"]["schedulingGates"].as_array().map_or(0, Vec::len);
            if denied && gates > 0 { Ok(()) } else { Err(format!("{said:?}, {gates} gates")) }
        })
        .await;
        apply(&world.project, grant(&ns, 1)).await;
        ready(world, &ns, "web", 1).await;
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

/// Until a source is looked up, its condition is `Unknown`, and so is the `Ready` that waits for it.
#[test]
fn row_13_reference_being_resolved_is_unknown() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        // The deployment is only on the cell, as Karmada would deliver it. Nothing resolves its references.
        let hub = crate::common::hub_namespace();
        apply(&world.dfw, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": hub } })).await;
        let mut object = crate::common::deployment(&hub, "wd", "dfw");
        object["metadata"]["labels"] = json!({ "meta.datumapis.com/upstream-namespace": "whatever" });
        object["metadata"]["annotations"] = json!({ "compute.datumapis.com/source-generation": "1" });
        object["spec"]["template"] = template("docker.io/library/nginx:1");
        object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
            json!([{ "secretRef": { "name": "db" } }]);
        apply(&world.dfw, object).await;
        eventually("the state is unknown", || async {
            let instance = get(&world.dfw, "Instance", &hub, "wd-0").await.ok_or("no instance")?;
            let said = [condition(&instance, "ReferencedDataReady"), condition(&instance, "Ready")];
            let unknown = said.iter().all(|c| c["status"] == "Unknown" && c["reason"] == "Resolving");
            if unknown { Ok(()) } else { Err(format!("{said:?}")) }
        })
        .await;
        delete(&world.dfw, "WorkloadDeployment", &hub, "wd").await;
    });
}

/// A cell without its manager blocks nothing on the hub or in the project, not even the deletion of a whole namespace. The cell
/// is cleaned up when its manager returns.
#[test]
fn row_15_project_and_hub_without_the_cell_manager_are_cleaned_up() {
    RUNTIME.block_on(async {
        let mut world = alone(Wish { networks_and_quota: true, ..Wish::default() }).await;
        let (ns, hub) = world.namespace("row-15").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 2)).await;
        ready(&world, &ns, "web", 2).await;
        let of_dfw = world.of_cell("dfw");
        world.operators[of_dfw].process.kill();
        delete(&world.project, "Namespace", "", &ns).await;
        eventually("the namespace and its hub objects are deleted", || async {
            let namespace = get(&world.project, "Namespace", "", &ns).await;
            let mut left: Vec<String> =
                namespace.map(|namespace| namespace.data["status"].to_string()).into_iter().collect();
            for kind in ["WorkloadDeployment", "Instance", "PropagationPolicy", "ResourceBinding"] {
                left.extend(list(&world.hub, kind, &hub).await.iter().map(|_| kind.to_owned()));
            }
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        })
        .await;
        world.operators[of_dfw] = Operator::cell(&world.bed, crate::common::binary(), "dfw", &[]).unwrap();
        world.operators[of_dfw].wait_ready().await.unwrap();
        eventually("the cell is clean", || async {
            let left = list(&world.dfw, "Instance", &hub).await;
            if left.is_empty() { Ok(()) } else { Err(format!("{} Instances", left.len())) }
        })
        .await;
    });
}
