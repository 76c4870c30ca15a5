//! Instances that no deployment of the cell created.

use super::*;
use crate::common::rights;

/// Returns an Instance with every identifying label except those of the hub.
fn by_hand(hub: &str) -> Value {
    let key = |name: &str| format!("compute.datumapis.com/{name}");
    let mut labels = serde_json::Map::new();
    for (name, value) in [
        ("workload-uid", "w"),
        ("workload-deployment-uid", "d"),
        ("workload-deployment-name", "wd"),
        ("workload-name", "web"),
        ("instance-index", "0"),
        ("city-code", "dfw"),
        ("placement-name", "p"),
    ] {
        labels.insert(key(name), json!(value));
    }
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": { "name": "wd-0", "namespace": hub, "labels": labels },
        "spec": template("docker.io/library/nginx:1")["spec"],
    })
}

#[test]
fn manual_instance_is_shown_after_the_hub_names_its_project() {
    RUNTIME.block_on(async {
        let cell = "timing:\n  pollSeconds: 0.2\n".to_owned();
        let world = alone(Wish { cell, ..Wish::default() }).await;
        // The namespace of a project with the two labels that its first WorkloadDeployment causes.
        let (ns, hub) = world.namespace("by-hand").await;
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": hub } });
        for client in [&world.hub, &world.dfw] {
            apply(client, namespace.clone()).await;
        }
        // An Instance without the labels that link it was not reported.
        let mut unlinked = by_hand(&hub);
        let labels = unlinked["metadata"].as_object_mut().unwrap().remove("labels").unwrap();
        apply(&world.dfw, unlinked).await;
        let why = async |expected: &str| {
            eventually(&format!("WrittenBack reports {expected}"), || async {
                let instance = get(&world.dfw, "Instance", &hub, "wd-0").await.ok_or("gone")?;
                let said = condition(&instance, "WrittenBack");
                let right = said["status"] == "False" && said["message"].to_string().contains(expected);
                if right { Ok(()) } else { Err(said.to_string()) }
            })
            .await;
        };
        why("the Instance has no label compute.datumapis.com/workload-uid").await;
        merge(&world.dfw, "Instance", &hub, "wd-0", json!({ "metadata": { "labels": labels } })).await;
        why("has no label meta.datumapis.com/upstream-cluster-name").await;
        let labels = json!({ "metadata": { "labels": {
            "meta.datumapis.com/upstream-cluster-name": "cluster-single", "meta.datumapis.com/upstream-namespace": ns,
        } } });
        merge(&world.hub, "Namespace", "", &hub, labels).await;
        why("has no WorkloadDeployment").await;
        assert!(get(&world.hub, "Instance", &hub, "wd-0").await.is_none(), "it would have no owner");
        let owner = apply(&world.hub, crate::common::deployment(&hub, "wd", "dfw")).await;
        eventually("it is written back, and WrittenBack is removed", || async {
            let copy = get(&world.hub, "Instance", &hub, "wd-0").await.ok_or("not yet")?;
            assert_eq!(copy.labels()["meta.datumapis.com/upstream-cluster-name"], "cluster-single");
            assert_eq!(copy.owner_references()[0].uid, owner.uid().unwrap());
            let instance = get(&world.dfw, "Instance", &hub, "wd-0").await.ok_or("gone")?;
            let left = [condition(&instance, "WrittenBack"), condition(&copy, "WrittenBack")];
            if left.iter().all(Value::is_null) { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        rights::shown(&world, world.since(), "manual_instance_is_shown_after_the_hub_names_its_project");
        delete(&world.hub, "WorkloadDeployment", &hub, "wd").await;
        delete(&world.dfw, "Instance", &hub, "wd-0").await;
    });
}
