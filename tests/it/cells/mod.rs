//! Cells with networks and quota on real API servers. Each of their reasons appears and disappears. The tests use the shared bed.
//! Each has its own namespaces and, if needed, its own city and project.

mod by_hand;
mod networks;
mod quota;

use crate::common::{
    PATIENCE, RUNTIME, World, api, apply,
    beds::{Wish, alone, shared},
    condition, delete, eventually, eventually_within, get, list, merge, network, ready, template, workload,
};
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{
    audit::Audit,
    neighbours::{Milo, Reach, grant},
};

fn milo(world: &World) -> &Milo {
    world.bed.milo.as_ref().unwrap()
}

async fn set_status(client: &Client, kind: &str, namespace: &str, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    api(client, kind, namespace).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Returns a status with one condition.
fn says(type_: &str, status: &str, reason: &str) -> Value {
    json!({ "conditions": [{
        "type": type_, "status": status, "reason": reason, "message": "by hand", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]})
}

fn gates(instance: &DynamicObject) -> Vec<String> {
    let gates = instance.data["spec"]["controller"]["schedulingGates"].as_array().cloned().unwrap_or_default();
    gates.iter().map(|gate| gate["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until an object's condition has this reason. Returns its message.
async fn reason(client: &Client, kind: &str, namespace: &str, name: &str, type_: &str, reason: &str) -> String {
    eventually(&format!("{kind} {name} reports {type_} {reason}"), || async {
        let object = get(client, kind, namespace, name).await.ok_or("it is not there")?;
        let condition = condition(&object, type_);
        if condition["reason"] == reason {
            Ok(condition["message"].as_str().unwrap().to_owned())
        } else {
            Err(condition.to_string())
        }
    })
    .await
}

#[test]
fn workload_with_networks_and_quota_runs_end_to_end() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("road").await;
        apply(&world.project, grant(&ns, 2)).await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 2)).await;
        ready(world, &ns, "web", 2).await;
        for n in 0..2 {
            let name = format!("web-p-dfw-{n}");
            let instance = get(&world.dfw, "Instance", &hub, &name).await.unwrap();
            assert_eq!(gates(&instance), Vec::<String>::new());
            assert_eq!(instance.data["spec"]["location"]["name"], "dfw-1");
            reason(&world.project, "Instance", &ns, &name, "Ready", "Available").await;
            let claim = get(&world.project, "ResourceClaim", &ns, &format!("instance-{name}")).await.unwrap();
            assert_eq!(claim.labels()["compute.datumapis.com/source-cluster"], "cell-dfw");
            assert_eq!(claim.labels()["compute.datumapis.com/instance-namespace"], hub);
            assert_eq!(claim.data["spec"]["consumerRef"]["name"], "single");
            let amounts: Vec<_> =
                claim.data["spec"]["requests"].as_array().unwrap().iter().map(|r| &r["amount"]).collect();
            assert_eq!(amounts, [1, 1000, 2048]);
        }
        let wd = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.unwrap();
        assert_eq!(wd.data["status"]["location"]["name"], "dfw-1");
        let subnets = list(&world.dfw, "SubnetClaim", &hub).await;
        assert_eq!(
            subnets.iter().map(|c| c.name_any()).collect::<Vec<_>>(),
            ["default-dfw-1-0"],
            "one for the context"
        );
        // A second Workload on the same network needs no second subnet.
        apply(&world.project, grant(&ns, 3)).await;
        apply(&world.project, workload(&ns, "api", &["dfw"], 1)).await;
        ready(world, &ns, "api", 1).await;
        assert_eq!(list(&world.dfw, "SubnetClaim", &hub).await.len(), 1, "an equal one is used again");
        // A new template replaces the Instances one by one. Each has a claim, and the claims never exceed the budget.
        let before = list(&world.project, "ResourceClaim", &ns).await;
        let mut changed = workload(&ns, "web", &["dfw"], 2);
        changed["spec"]["template"] = template("docker.io/library/nginx:2");
        apply(&world.project, changed).await;
        ready(world, &ns, "web", 2).await;
        let after = list(&world.project, "ResourceClaim", &ns).await;
        assert_eq!(after.len(), 3);
        let kept = after.iter().filter(|claim| before.iter().any(|old| old.uid() == claim.uid())).count();
        assert_eq!(kept, 1, "the other Workload's");
        for name in ["web", "api"] {
            delete(&world.project, "Workload", &ns, name).await;
        }
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

/// Creates a deployment on the cell as Karmada would deliver it, in a namespace with these labels. Returns the namespace.
async fn on_cell(world: &World, labels: Value, city: &str) -> String {
    let namespace = crate::common::hub_namespace();
    let object =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace, "labels": labels } });
    apply(&world.dfw, object).await;
    let mut object = crate::common::deployment(&namespace, "wd", city);
    object["metadata"]["labels"] = json!({ "meta.datumapis.com/upstream-namespace": "whatever" });
    apply(&world.dfw, object).await;
    namespace
}

#[test]
fn instance_creation_costs_the_fewest_writes() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("cost").await;
        apply(&world.project, grant(&ns, 9)).await;
        apply(&world.project, workload(&ns, "first", &["dfw"], 1)).await;
        ready(world, &ns, "first", 1).await;
        let planes = [&world.bed.project, &world.bed.hub, world.bed.cell("dfw").unwrap()];
        let marks = planes.map(Audit::mark);
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        reason(&world.project, "Instance", &ns, "web-p-dfw-0", "Ready", "Available").await;
        let costs = marks.map(|mark| -> Vec<String> {
            let ours = |r: &testbed::audit::Request| {
                // Of the deployment itself only reads count: the cell checks the owner of the copy.
                let is_read = r.verb == "get" && r.name == "web-p-dfw";
                let counts = r.name.contains("web-p-dfw-") || is_read;
                [&ns, &hub].contains(&&r.namespace) && counts && !r.resource.ends_with("/status")
            };
            let requests = mark.requests().unwrap().into_iter().filter(ours);
            let mut all: Vec<String> = requests.map(|r| format!("{} {} {}", r.verb, r.resource, r.code)).collect();
            all.sort();
            all
        });
        // The claim is read once, before its grant opens the gate.
        let expected =
            ["create resourceclaims 201", "get resourceclaims 200", "patch instances 200", "patch instances 201"];
        assert_eq!(costs[0], expected, "project");
        // The owner and the target are read once, before the copy is created.
        let expected =
            ["get instances 404", "get workloaddeployments 200", "patch instances 200", "patch instances 201"];
        assert_eq!(costs[1], expected, "hub");
        assert_eq!(costs[2], ["create instances 201", "create networkbindings 201", "patch instances 200"], "cell");
        for name in ["first", "web"] {
            delete(&world.project, "Workload", &ns, name).await;
        }
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}
