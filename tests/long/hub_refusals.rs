//! Refusals and blocked deletions on the hub are reported on the user's objects.

use kube::api::{DeleteParams, DynamicObject};
use serde_json::json;

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Wish, alone},
    condition, delete, deployment, eventually, get, list, merge, ready,
    refusal::Refusal,
    workload,
};

const GROUP: &str = "compute.datumapis.com";

/// Waits until `Federated` of the deployment has this reason and contains these words.
async fn federated(world: &World, ns: &str, name: &str, reason: &str, words: &str) {
    eventually(&format!("{name} reports {reason}: {words}"), || async {
        let wd = get(&world.project, "WorkloadDeployment", ns, name).await.ok_or("gone")?;
        let said = condition(&wd, "Federated");
        let text = said["message"].as_str().unwrap_or_default();
        if said["reason"] == reason && text.contains(words) { Ok(()) } else { Err(said.to_string()) }
    })
    .await;
}

/// Returns the number of Events with this reason on a deployment.
async fn events(world: &World, ns: &str, name: &str, reason: &str) -> usize {
    let all = list(&world.project, "Event", ns).await;
    let of = |event: &&DynamicObject| event.data["reason"] == reason && event.data["regarding"]["name"] == name;
    all.iter().filter(of).count()
}

/// The hub refuses a new copy, and a change of a running one.
async fn refused(world: &World, ns: &str, hub: &str) {
    let unless = format!("object.metadata.namespace != '{hub}'");
    let rule = Refusal { name: hub, kind: (GROUP, "workloaddeployments"), operation: "*", unless: &unless };
    rule.begin(&world.hub, &deployment(hub, "probe", "dfw")).await;
    apply(&world.project, deployment(ns, "new", "dfw")).await;
    apply(&world.project, workload(ns, "web", &["dfw"], 2)).await;
    for name in ["new", "web-p-dfw"] {
        federated(world, ns, name, "HubRefused", "not while the rule stands").await;
        assert_eq!(events(world, ns, name, "HubRefused").await, 1);
    }
    eventually("the Workload reports it, and that it is available", || async {
        let said = condition(&get(&world.project, "Workload", ns, "web").await.ok_or("gone")?, "Available");
        let says = said["message"].as_str().is_some_and(|text| text.contains("not while the rule stands"));
        if says && said["status"] == "True" { Ok(()) } else { Err(said.to_string()) }
    })
    .await;
    rule.end(&world.hub).await;
    ready(world, ns, "web", 2).await;
    federated(world, ns, "new", "Propagated", "").await;
    assert_eq!(events(world, ns, "new", "HubRefused").await, 1, "it was retried, and reported once");
}

/// The hub refuses the policy of a city.
async fn refused_policy(world: &World, ns: &str, hub: &str) {
    let unless = format!("object.metadata.namespace != '{hub}' || object.metadata.name != 'city-ord'");
    let policies = ("policy.karmada.io", "propagationpolicies");
    let rule = Refusal { name: hub, kind: policies, operation: "CREATE", unless: &unless };
    let probe = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "namespace": hub, "name": "city-ord" },
        "spec": { "resourceSelectors": [{ "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment" }] },
    });
    rule.begin(&world.hub, &probe).await;
    apply(&world.project, deployment(ns, "west", "ord")).await;
    federated(world, ns, "west", "HubRefused", "not while the rule stands").await;
    rule.end(&world.hub).await;
    federated(world, ns, "west", "Propagated", "").await;
    delete(&world.project, "WorkloadDeployment", ns, "west").await;
}

/// The copy of a deleted deployment cannot be deleted, and neither can that of a live one.
async fn held(world: &World, ns: &str, hub: &str) {
    let hold = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    let release = json!({ "metadata": { "finalizers": null } });
    for name in ["new", "web-p-dfw"] {
        merge(&world.hub, "WorkloadDeployment", hub, name, hold.clone()).await;
    }
    delete(&world.hub, "WorkloadDeployment", hub, "new").await;
    federated(world, ns, "new", "HubCopyHeld", "finalizers example.com/hold").await;
    delete(&world.project, "Workload", ns, "web").await;
    federated(world, ns, "web-p-dfw", "HubCopyHeld", "finalizers example.com/hold").await;
    eventually("the Workload reports its wait", || async {
        let said = condition(&get(&world.project, "Workload", ns, "web").await.ok_or("gone")?, "Available");
        let says =
            said["message"].as_str().is_some_and(|text| text.contains("web-p-dfw: deletion waits until its copy"));
        if says && said["reason"] == "HubCopyHeld" { Ok(()) } else { Err(said.to_string()) }
    })
    .await;
    for name in ["new", "web-p-dfw"] {
        merge(&world.hub, "WorkloadDeployment", hub, name, release.clone()).await;
    }
    federated(world, ns, "new", "Propagated", "").await;
}

/// The namespace is terminating, and an object in it blocks the deletion.
async fn namespace_is_deleted(world: &World, ns: &str, hub: &str) {
    let thing = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": hub, "name": "thing", "finalizers": ["example.com/hold"] },
    });
    apply(&world.hub, thing).await;
    eventually("the namespace is deleted", || async {
        let label = json!({ "metadata": { "labels": { "resourcetemplate.karmada.io/deletion-protected": null } } });
        merge(&world.hub, "Namespace", "", hub, label).await;
        let _ = api(&world.hub, "Namespace", "").delete(hub, &DeleteParams::default()).await; // the label may be back
        let namespace = get(&world.hub, "Namespace", "", hub).await.ok_or("gone")?;
        if namespace.metadata.deletion_timestamp.is_some() { Ok(()) } else { Err("protected".to_owned()) }
    })
    .await;
    federated(world, ns, "new", "HubNamespaceTerminating", "example.com/hold").await;
    merge(&world.hub, "ConfigMap", hub, "thing", json!({ "metadata": { "finalizers": null } })).await;
    federated(world, ns, "new", "Propagated", "").await;
}

#[test]
fn hub_refusals_and_blocked_deletions_are_reported_to_the_user() {
    RUNTIME.block_on(async {
        let management = "timing:\n  deliveryGraceSeconds: 1\n  deletionPatienceSeconds: 3\n".to_owned();
        let world = alone(Wish { management, ..Wish::default() }).await;
        let (ns, hub) = world.namespace("held").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        refused(&world, &ns, &hub).await;
        refused_policy(&world, &ns, &hub).await;
        held(&world, &ns, &hub).await;
        namespace_is_deleted(&world, &ns, &hub).await;
        delete(&world.project, "WorkloadDeployment", &ns, "new").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}
