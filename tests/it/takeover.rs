//! Autoscalers are respected if the Workload asks for autoscaling. `go_era` tests the take-over of the Go operator's objects.

use crate::common::{
    RUNTIME, api, apply,
    beds::{Wish, alone, shared},
    condition, delete, deployment, eventually, get, list, merge, ready, workload,
};
use kube::{Client, ResourceExt};
use serde_json::json;

const WD: &str = "web-p-dfw";

#[test]
fn autoscaler_replicas_are_kept_only_with_autoscaling_requested() {
    RUNTIME.block_on(async {
        let world = alone(Wish::default()).await;
        let (ns, hub) = world.namespace("scaled").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        let scale = |client: &Client, namespace: &str, replicas: u32| {
            let api = api(client, "WorkloadDeployment", namespace);
            async move {
                let patch = kube::api::Patch::Merge(json!({ "spec": { "replicas": replicas } }));
                api.patch_scale(WD, &kube::api::PatchParams::default(), &patch).await.unwrap()
            }
        };
        let asked = scale(&world.project, &ns, 3).await;
        assert_eq!(asked.spec.unwrap().replicas, Some(3), "the API takes it");
        eventually("the Workload's number is put back", || async {
            let wd = get(&world.project, "WorkloadDeployment", &ns, WD).await.ok_or("gone")?;
            if wd.data["spec"]["replicas"] == 1 { Ok(()) } else { Err(wd.data["spec"]["replicas"].to_string()) }
        })
        .await;
        ready(&world, &ns, "web", 1).await;

        let more =
            json!([{ "name": "p", "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 1, "maxReplicas": 5 } }]);
        merge(&world.project, "Workload", &ns, "web", json!({ "spec": { "placements": more } })).await;
        eventually("it is reported", || async {
            let workload = get(&world.project, "Workload", &ns, "web").await.ok_or("gone")?;
            let told = condition(&workload, "AutoscalingReady");
            if told["reason"] == "AutoscalingNotServed" { Ok(()) } else { Err(told.to_string()) }
        })
        .await;
        eventually("the cell knows", || async {
            let wd = get(&world.dfw, "WorkloadDeployment", &hub, WD).await.ok_or("gone")?;
            let settings = &wd.data["spec"]["scaleSettings"];
            if settings["maxReplicas"] == 5 { Ok(()) } else { Err(settings.to_string()) }
        })
        .await;
        scale(&world.dfw, &hub, 2).await;
        ready(&world, &ns, "web", 2).await;
        // Another field changes, and the number stays.
        let label = json!({ "spec": { "template": { "metadata": { "labels": { "more": "1" } } } } });
        merge(&world.project, "Workload", &ns, "web", label).await;
        eventually("every instance has the label", || async {
            let instances = list(&world.dfw, "Instance", &hub).await;
            let labelled = instances.iter().filter(|instance| instance.labels().contains_key("more")).count();
            if (labelled, instances.len()) == (2, 2) {
                Ok(())
            } else {
                Err(format!("{labelled} of {}", instances.len()))
            }
        })
        .await;
        let fewer = json!([{ "name": "p", "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 1 } }]);
        merge(&world.project, "Workload", &ns, "web", json!({ "spec": { "placements": fewer } })).await;
        ready(&world, &ns, "web", 1).await;
    });
}

/// The API server answers `scale` of an object without the number with HTTP 500, so no autoscaler could start.
#[test]
fn manual_deployment_without_replicas_has_a_scale_on_its_cell() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("by-hand").await;
        let made = apply(&world.project, deployment(&ns, "wd", "dfw")).await;
        assert!(made.data["spec"]["replicas"].is_null());
        let cell = api(&world.dfw, "WorkloadDeployment", &hub);
        eventually("the cell's deployment can be scaled", || async {
            let scale = cell.get_scale("wd").await.map_err(|error| error.to_string())?;
            let replicas = scale.spec.and_then(|spec| spec.replicas);
            if replicas == Some(1) { Ok(()) } else { Err(format!("{replicas:?}")) }
        })
        .await;
        // The number follows the minimum, as before.
        let two = json!({ "spec": { "scaleSettings": { "minReplicas": 2 } } });
        merge(&world.project, "WorkloadDeployment", &ns, "wd", two).await;
        eventually("two run", || async {
            let instances = list(&world.dfw, "Instance", &hub).await.len();
            if instances == 2 { Ok(()) } else { Err(instances.to_string()) }
        })
        .await;
        let original = get(&world.project, "WorkloadDeployment", &ns, "wd").await.unwrap();
        assert!(original.data["spec"]["replicas"].is_null(), "the user's spec is unchanged");
        delete(&world.project, "WorkloadDeployment", &ns, "wd").await;
    });
}
