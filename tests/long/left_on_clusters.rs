//! Works of deleted objects that Karmada keeps, and those that it has forgotten.

use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::common::{
    RUNTIME, World, apply,
    beds::{Wish, alone},
    condition, delete, deployment, eventually,
    example_app::SWEEPS,
    get, list, rights,
};

/// Fails unless this number of Works of deleted objects is counted for the cell in ord.
async fn kept(world: &World, count: u32) -> Result<(), String> {
    let text = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
    let of_ord = |line: &&str| line.starts_with("compute_federation_left_on_clusters") && line.contains("cell-ord");
    let line = text.lines().find(of_ord).unwrap_or_default();
    if line.ends_with(&format!("}} {count}")) { Ok(()) } else { Err(line.to_owned()) }
}

/// Delivers a foreign ConfigMap to the cell in ord with a foreign policy. It is no companion and no leftover.
async fn bring_theirs(world: &World, hub: &str) {
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": hub, "name": "theirs" }, "data": { "a": "b" },
    });
    apply(&world.hub, theirs).await;
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "namespace": hub, "name": "their-policy" },
        "spec": {
            "resourceSelectors": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "theirs" }],
            "placement": { "clusterAffinity": { "clusterNames": ["cell-ord"] } },
        },
    });
    apply(&world.hub, policy).await;
    eventually("theirs is on the cell", || async {
        get(&world.ord, "ConfigMap", hub, "theirs").await.map(drop).ok_or("not yet".to_owned())
    })
    .await;
}

#[test]
fn works_of_deleted_objects_are_reported_and_forgotten_ones_deleted() {
    RUNTIME.block_on(async {
        let since = jiff::Timestamp::now();
        let management = format!("{SWEEPS}timing:\n  deletionPatienceSeconds: 2\n");
        let mut world = alone(Wish { management, ..Wish::default() }).await;
        let (ns, hub) = world.namespace("kept").await;
        for name in ["gone", "stays"] {
            apply(&world.project, deployment(&ns, name, "ord")).await;
            eventually("it is on the cell", || async {
                get(&world.ord, "WorkloadDeployment", &hub, name).await.map(drop).ok_or("not yet".to_owned())
            })
            .await;
        }
        eventually("nothing is left of anything", || kept(&world, 0)).await;

        bring_theirs(&world, &hub).await;
        // Karmada was creating a Work when its template was deleted (its issue 7896).
        let mut copy = deployment(&hub, "forgotten", "ord");
        copy["metadata"]["labels"] = json!({ "meta.datumapis.com/upstream-namespace": ns, "karmada.io/managed": "true" });
        let work = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {
                "namespace": "karmada-es-cell-ord", "name": "forgotten-1", "finalizers": ["karmada.io/execution-controller"],
                "annotations": {
                    "resourcebinding.karmada.io/namespace": hub,
                    "resourcebinding.karmada.io/name": "forgotten-workloaddeployment",
                },
            },
            "spec": { "workload": { "manifests": [copy] } },
        });
        apply(&world.hub, work).await;
        eventually("it is deleted from the hub", || async {
            let left = get(&world.hub, "Work", "karmada-es-cell-ord", "forgotten-1").await;
            if left.is_none() { Ok(()) } else { Err("still there".to_owned()) }
        })
        .await;
        eventually("and from the cell", || async {
            let left = get(&world.ord, "WorkloadDeployment", &hub, "forgotten").await;
            if left.is_none() { Ok(()) } else { Err("still there".to_owned()) }
        })
        .await;
        // The cell is unavailable, and Karmada keeps the Work of a deleted object for it (fact 32).
        world.bed.cells.get_mut("ord").unwrap().stop_api_server();
        eventually("Karmada has noticed", || async {
            let cluster = get(&world.hub, "Cluster", "", "cell-ord").await.ok_or("none")?;
            let ready = condition(&cluster, "Ready")["status"].clone();
            if ready == "True" { Err(ready.to_string()) } else { Ok(()) }
        })
        .await;
        delete(&world.project, "WorkloadDeployment", &ns, "gone").await;
        eventually("it is counted, and nothing else is", || kept(&world, 1)).await;
        eventually("it is reported on the hub namespace", || async {
            let events = list(&world.hub, "Event", "default").await;
            let of = |event: &&DynamicObject| {
                event.data["reason"] == "LeftOnCluster" && event.data["regarding"]["name"] == hub.as_str()
            };
            let notes: Vec<Value> = events.iter().filter(of).map(|event| event.data["note"].clone()).collect();
            let says = |note: &Value| note.as_str().is_some_and(|text| text.contains("cell-ord") && text.contains("/gone"));
            if notes.len() == 1 && says(&notes[0]) { Ok(()) } else { Err(format!("{notes:?}")) }
        })
        .await;
        let ord = world.bed.cells.get_mut("ord").unwrap();
        ord.start_api_server().unwrap();
        ord.wait_ready().await.unwrap();
        let world = &world;
        eventually("it is back, and nothing is left", || kept(world, 0)).await;

        let text = world.operators[0].metrics().await.unwrap();
        assert!(text.contains("compute_federation_works_removed_total 1"), "{text}");
        assert!(get(&world.ord, "WorkloadDeployment", &hub, "stays").await.is_some());
        delete(&world.project, "WorkloadDeployment", &ns, "stays").await;
        for (kind, name) in [("PropagationPolicy", "their-policy"), ("ConfigMap", "theirs")] {
            delete(&world.hub, kind, &hub, name).await;
        }
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
        rights::shown(world, since, "works_of_deleted_objects_are_reported_and_forgotten_ones_deleted");
    });
}
