//! A project namespace is deleted while no manager runs. The next sweep deletes its objects on the hub.

use crate::common::{
    RUNTIME, World, apply,
    beds::{Wish, alone},
    delete, eventually,
    example_app::{SWEEPS, secret, using},
    get, list, merge, never, ready, rights,
};
use kube::{
    Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Deletes a namespace of the project, and removes every finalizer in it, as an impatient user does.
async fn force_away(world: &World, namespace: &str) {
    delete(&world.project, "Namespace", "", namespace).await;
    eventually("the namespace is deleted", || async {
        for kind in ["Workload", "WorkloadDeployment", "Instance", "ResourceClaim"] {
            for held in list(&world.project, kind, namespace).await.iter().filter(|o| !o.finalizers().is_empty()) {
                let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                let api = crate::common::api(&world.project, kind, namespace);
                let _ = api.patch(&held.name_any(), &PatchParams::default(), &none).await; // it may be deleted already
            }
        }
        match get(&world.project, "Namespace", "", namespace).await {
            None => Ok(()),
            Some(still) => Err(still.data["status"].to_string()),
        }
    })
    .await;
}

/// Returns the operator's objects in a namespace of the hub or of a cell.
async fn held(client: &Client, namespace: &str) -> Vec<String> {
    let mut held = Vec::new();
    let kinds = ["WorkloadDeployment", "Instance", "Secret", "ConfigMap"];
    let on_hub = ["PropagationPolicy", "ResourceBinding"];
    let is_hub = get(client, "CustomResourceDefinition", "", "resourcebindings.work.karmada.io").await.is_some();
    for kind in kinds.into_iter().chain(on_hub.into_iter().filter(|_| is_hub)) {
        // Secrets and ConfigMaps that a cluster creates in every namespace do not count.
        let ours = |name: &str| !matches!(kind, "Secret" | "ConfigMap") || name == "db";
        let names = list(client, kind, namespace).await.into_iter().map(|object| object.name_any());
        held.extend(names.filter(|name| ours(name)).map(|name| format!("{kind}/{name}")));
    }
    held
}

/// Returns a binding of a deployment copy that does not exist.
fn lost_binding(hub: &str) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "namespace": hub, "name": "lost-workloaddeployment",
            "annotations": { "propagationpolicy.karmada.io/name": "city-dfw" },
        },
        "spec": { "resource": { "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "namespace": hub, "name": "lost" } },
    })
}

#[test]
fn hub_objects_of_a_namespace_deleted_during_downtime_are_swept() {
    RUNTIME.block_on(async {
        // A copy that has lost its original waits for a short grace here.
        let management = format!("{SWEEPS}timing:\n  lossPatienceSeconds: 5\n");
        let mut world = alone(Wish { management, ..Wish::default() }).await;
        let mut places = Vec::new();
        for name in ["gone", "anew", "stays"] {
            let (ns, hub) = world.namespace(name).await;
            apply(&world.project, secret(&ns)).await;
            apply(&world.project, using(&ns, &["dfw"])).await;
            places.push((ns, hub));
        }
        for (ns, hub) in &places {
            ready(&world, ns, "web", 1).await;
            eventually("its data is on the cell", || async {
                get(&world.dfw, "Secret", hub, "db").await.map(drop).ok_or("not yet".to_owned())
            })
            .await;
        }
        let [gone, anew, stays] = &places[..] else { unreachable!() };
        let before = get(&world.dfw, "Secret", &stays.1, "db").await.unwrap().uid();
        world.operators[0].process.kill();
        for (ns, _) in [gone, anew] {
            force_away(&world, ns).await;
        }
        // The new namespace has the same name. Its objects keep nothing of the old one alive.
        let new_hub = world.namespace_in(&world.project, &anew.0).await;
        assert_ne!(new_hub, anew.1);
        apply(&world.project, secret(&anew.0)).await;
        apply(&world.project, using(&anew.0, &["dfw"])).await;
        for (_, hub) in [gone, anew] {
            assert!(
                held(&world.dfw, hub).await.iter().any(|what| what == "Secret/db"),
                "the cell still has the objects"
            );
        }
        // A binding that outlived its copy (fact 14), and a copy without its label.
        apply(&world.hub, lost_binding(&gone.1)).await;
        let unlabelled = json!({ "metadata": { "labels": { "meta.datumapis.com/upstream-namespace": null } } });
        merge(&world.hub, "WorkloadDeployment", &gone.1, "web-p-dfw", unlabelled).await;
        // A hub namespace without the label by which the operator finds it.
        let unlabelled = json!({ "metadata": { "labels": { "meta.datumapis.com/upstream-cluster-name": null } } });
        merge(&world.hub, "Namespace", "", &gone.1, unlabelled).await;
        let began = Instant::now();
        world.restart_manager(&[]).await;
        for (_, hub) in [gone, anew] {
            for (place, client) in [("hub", &world.hub), ("dfw", &world.dfw)] {
                eventually(&format!("nothing of {hub} is left on {place}"), || async {
                    let left = held(client, hub).await;
                    if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
                })
                .await;
            }
        }
        eprintln!("what two namespaces left was gone {:?} after the manager's start", began.elapsed());
        ready(&world, &anew.0, "web", 1).await;
        assert!(held(&world.hub, &new_hub).await.iter().any(|what| what == "PropagationPolicy/city-dfw"));
        ready(&world, &stays.0, "web", 1).await;
        never("something of a namespace that lives is touched", || async {
            let now = get(&world.dfw, "Secret", &stays.1, "db").await.and_then(|secret| secret.uid());
            (now != before).then_some(now)
        })
        .await;
        assert!(get(&world.hub, "Namespace", "", &gone.1).await.is_some(), "hub namespaces stay");
        let kept = get(&world.hub, "Namespace", "", &stays.1).await.unwrap();
        assert!(
            kept.annotations().contains_key("compute.datumapis.com/kept-by"),
            "the annotation names the finalizers: {kept:?}"
        );
        rights::shown(&world, world.since(), "hub_objects_of_a_namespace_deleted_during_downtime_are_swept");
        for (ns, _) in [anew, stays] {
            delete(&world.project, "Workload", ns, "web").await;
        }
    });
}
