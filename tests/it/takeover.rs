//! Who scales is left alone where that is asked for; what the Go operator left is taken over in `go_era`.

use crate::common::{
    RUNTIME, api, apply,
    beds::{Wish, alone},
    condition, eventually, get, list, merge, ready, workload,
};
use kube::{Client, ResourceExt};
use serde_json::json;

const WD: &str = "web-p-dfw";

#[test]
fn who_scales_is_left_alone_where_autoscaling_is_asked_for_and_nowhere_else() {
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
        eventually("it is told", || async {
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
        // Something else is changed, and the number stays.
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
