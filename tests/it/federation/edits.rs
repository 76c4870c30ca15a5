//! Foreign edits of the operator's objects, and fields that tenants remove from theirs.

use super::*;

#[test]
fn foreign_fields_are_kept_and_own_fields_are_restored() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("foreign").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        let theirs =
            json!({ "metadata": { "labels": { "example.com/l": "1" }, "annotations": { "example.com/a": "2" } } });
        for client in [&world.project, &world.hub] {
            let namespace = if std::ptr::eq(client, &raw const world.hub) { &hub } else { &ns };
            merge(client, "WorkloadDeployment", namespace, "web-p-dfw", theirs.clone()).await;
        }
        merge(&world.hub, "PropagationPolicy", &hub, "city-dfw", theirs.clone()).await;
        merge(
            &world.hub,
            "WorkloadDeployment",
            &hub,
            "web-p-dfw",
            json!({ "metadata": { "labels": { "topology.datum.net/city-code": "ord" } } }),
        )
        .await;
        merge(
            &world.hub,
            "WorkloadDeployment",
            &hub,
            "web-p-dfw",
            json!({ "spec": { "scaleSettings": { "minReplicas": 7 } } }),
        )
        .await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 2)).await;
        ready(world, &ns, "web", 2).await;
        for (client, namespace, kind, name) in [
            (&world.project, &ns, "WorkloadDeployment", "web-p-dfw"),
            (&world.hub, &hub, "WorkloadDeployment", "web-p-dfw"),
            (&world.hub, &hub, "PropagationPolicy", "city-dfw"),
        ] {
            let object = get(client, kind, namespace, name).await.unwrap();
            assert_eq!(object.labels().get("example.com/l").map(String::as_str), Some("1"), "{kind}");
            assert_eq!(object.annotations().get("example.com/a").map(String::as_str), Some("2"), "{kind}");
        }
        let copy = get(&world.hub, "WorkloadDeployment", &hub, "web-p-dfw").await.unwrap();
        assert_eq!(copy.labels()["topology.datum.net/city-code"], "dfw");
        assert_eq!(copy.data["spec"]["scaleSettings"]["minReplicas"], 2);
    });
}

#[test]
fn label_removed_by_the_tenant_leaves_the_copy() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("dropped").await;
        let with = |labels: serde_json::Value| {
            let mut object = deployment(&ns, "wd", "dfw");
            object["metadata"]["labels"] = labels;
            object
        };
        let labelled = |key: &'static str, wanted: bool| {
            let hub = hub.clone();
            async move {
                eventually(&format!("label {key} on the cell: {wanted}"), || async {
                    let copy = get(&world.dfw, "WorkloadDeployment", &hub, "wd").await.ok_or("no copy")?;
                    if copy.labels().contains_key(key) == wanted { Ok(()) } else { Err(format!("{:?}", copy.labels())) }
                })
                .await;
            }
        };
        apply(&world.project, with(json!({ "team": "a", "tier": "b" }))).await;
        labelled("team", true).await;
        merge(&world.hub, "WorkloadDeployment", &hub, "wd", json!({ "metadata": { "labels": { "theirs": "c" } } }))
            .await;
        labelled("theirs", true).await;
        apply(&world.project, with(json!({ "tier": "b" }))).await;
        labelled("team", false).await;
        labelled("theirs", true).await;
        labelled("tier", true).await;
        delete(&world.project, "WorkloadDeployment", &ns, "wd").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

/// Without the label that the cell's watch selects by, an Instance was invisible and its name was taken. Its deployment made no
/// progress.
#[test]
fn instance_without_its_deployment_label_is_relabelled() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("unlabelled").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        let label = "compute.datumapis.com/workload-deployment-uid";
        let before = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap();
        merge(&world.dfw, "Instance", &hub, "web-p-dfw-0", json!({ "metadata": { "labels": { label: null } } })).await;
        eventually("it is labelled again", || async {
            let instance = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.ok_or("gone")?;
            assert_eq!(instance.uid(), before.uid(), "it runs on");
            let now = instance.labels().get(label);
            if now.is_some() && now == before.labels().get(label) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 2)).await;
        ready(world, &ns, "web", 2).await;
    });
}
