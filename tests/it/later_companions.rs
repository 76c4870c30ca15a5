//! The operator detects a Karmada that only notices the first of several dependencies of one kind (its issue 6924), and does not
//! rely on it.

use crate::{
    common::{
        RUNTIME, World, apply,
        beds::{Wish, alone},
        delete, eventually,
        example_app::{Place, secret, using},
        get, list, ready, skip,
    },
    migration::{migrated, status, watch_copy, write_as_the_go_operator},
};
use kube::ResourceExt;
use serde_json::{Value, json};

/// Deploys a Workload in one city with two Secrets: `db` and `late`.
async fn deploy(world: &World, ns: &str) {
    let mut object = using(ns, &["dfw"]);
    let of = |name: &str| json!({ "secretRef": { "name": name } });
    object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
        json!([of("db"), of("late")]);
    for name in ["db", "late"] {
        let mut source = secret(ns);
        source["metadata"]["name"] = json!(name);
        apply(&world.project, source).await;
    }
    apply(&world.project, object).await;
    ready(world, ns, "web", 1).await;
}

/// Recreates the second Secret on the hub, after the binding of its deployment.
async fn come_later(world: &World, hub: &str) {
    let companion = get(&world.hub, "Secret", hub, "late").await.unwrap();
    delete(&world.hub, "Secret", hub, "late").await;
    eventually("its binding is collected", || async {
        let binding = get(&world.hub, "ResourceBinding", hub, "late-secret").await;
        binding.map_or(Ok(()), |binding| Err(format!("{:?}", binding.metadata)))
    })
    .await;
    let metadata = json!({
        "namespace": hub, "name": "late", "labels": companion.labels(), "annotations": companion.annotations(),
    });
    let data: &Value = &companion.data["data"];
    apply(&world.hub, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data })).await;
}

#[test]
fn migration_to_dependencies_with_karmada_issue_6924_waits() {
    RUNTIME.block_on(async {
        let management = "timing:\n  migrationStepSeconds: 8\n".to_owned();
        let mut world = alone(Wish { management, ..Wish::default() }).await;
        if world.bed.stand_in().is_none() {
            skip!("an older Karmada is another binary");
        }
        let text = world.operators[0].metrics().await.unwrap();
        assert!(
            text.contains("compute_federation_karmada_assumed{bug=\"later_companions\"} 1"),
            "nothing was seen yet"
        );
        let (done, done_hub) = world.namespace("later").await;
        deploy(&world, &done).await;
        let (ns, hub) = world.namespace("waits").await;
        world.operators[0].process.kill();
        write_as_the_go_operator(&world, &[Place { ns, hub: hub.clone() }]).await;
        // Any status of the cell would make Karmada read all dependencies of the deployment.
        let cell = world.of_cell("dfw");
        world.operators[cell].process.kill();
        world.bed.stand_in().unwrap().hear_of_later(false);
        come_later(&world, &done_hub).await;
        let (seen, watching) = watch_copy(&world.dfw, &hub);
        world.restart_manager(&[]).await;
        eventually("the refusal is reported with Karmada's issue", || async {
            let events = list(&world.hub, "Event", &hub).await;
            let told = events.iter().find(|event| event.data["reason"] == "MigrationRefused");
            let text = told.and_then(|event| event.data["note"].as_str()).unwrap_or_default();
            if text.contains("Karmada issue 6924") { Ok(()) } else { Err(format!("{text:?}; {}", status(&world))) }
        })
        .await;
        let policy = get(&world.hub, "PropagationPolicy", &hub, "city-dfw").await.unwrap();
        assert_eq!(policy.data["spec"]["resourceSelectors"].as_array().unwrap().len(), 3, "it stays with its claims");
        assert!(get(&world.dfw, "Secret", &done_hub, "late").await.is_none(), "Karmada has not heard of it");
        // After the upgrade of Karmada, the migration continues by itself.
        world.bed.stand_in().unwrap().hear_of_later(true);
        eventually("all is by need", || migrated(&world, &hub)).await;
        watching.abort();
        assert_eq!(seen.lock().unwrap().len(), 1, "the copy in use is the same throughout");
        eventually("the second one is there", || async {
            get(&world.dfw, "Secret", &done_hub, "late").await.map(|_| ()).ok_or_else(|| "not yet".to_owned())
        })
        .await;
    });
}
