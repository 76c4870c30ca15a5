//! What the Go operator wrote by plain updates is taken over: it runs on as it is, once told, and follows from then on.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Wish, alone},
    condition, eventually, get, list, merge, ready, rights, template, workload,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};

/// The field manager of every binary made with kubebuilder that names none.
const GO: &str = "manager";
const WD: &str = "web-p-dfw";

fn by(manager: &str) -> PostParams {
    PostParams { field_manager: Some(manager.into()), ..PostParams::default() }
}

/// Writes as the Go operator does: the object is created, then updated in full.
async fn as_go(client: &Client, object: Value) -> DynamicObject {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let status = object["status"].clone();
    let of_kind = api(client, &kind, &namespace);
    let mut made = of_kind.create(&by(GO), &serde_json::from_value(object).unwrap()).await.unwrap();
    made.annotations_mut().insert("example.com/theirs".into(), "stays".into());
    made.metadata.managed_fields = None;
    let made = of_kind.replace(&made.name_any(), &by(GO), &made).await.unwrap();
    if status.is_null() {
        return made;
    }
    let mut reported = made.clone();
    reported.data["status"] = status;
    reported.metadata.managed_fields = None;
    of_kind.replace_status(&made.name_any(), &by(GO), &reported).await.unwrap()
}

fn env(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "name": name, "value": "1" })).collect()
}

fn tenants(ns: &str, replicas: u32, names: &[&str]) -> Value {
    let mut object = workload(ns, "web", &["dfw"], replicas);
    object["spec"]["template"] = template("docker.io/library/nginx:1");
    object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["env"] = env(names);
    object
}

/// A condition as the Go operator left it.
fn of_go(type_: &str) -> Value {
    let since = "2026-01-01T00:00:00Z";
    json!({ "type": type_, "status": "True", "reason": "Old", "message": "", "lastTransitionTime": since })
}

/// The project's deployment, the hub namespace, the copy and its policy, as the Go operator writes them.
async fn written_by_go(world: &World, ns: &str, hub: &str, workload: &DynamicObject) {
    let spec = json!({
        "workloadRef": { "name": "web", "uid": workload.uid() }, "placementName": "p", "cityCode": "dfw",
        "template": workload.data["spec"]["template"],
        "scaleSettings": { "minReplicas": 2, "instanceManagementPolicy": "OrderedReady" }, "replicas": 2,
    });
    let original = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": {
            "namespace": ns, "name": WD, "finalizers": ["compute.datumapis.com/federator"],
            "labels": { "compute.datumapis.com/workload-uid": workload.uid() },
            "ownerReferences": [{
                "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload", "name": "web", "uid": workload.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
        "status": {
            "replicas": 2, "currentReplicas": 2, "desiredReplicas": 2, "readyReplicas": 2,
            "conditions": [of_go("Available"), of_go("ReferencedDataReady"), of_go("Legacy")],
        },
    });
    as_go(&world.project, original).await;
    let labels = json!({ "meta.datumapis.com/upstream-cluster-name": "cluster-single", "meta.datumapis.com/upstream-namespace": ns });
    as_go(
        &world.hub,
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": hub, "labels": labels } }),
    )
    .await;
    let copy = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": {
            "namespace": hub, "name": WD,
            "labels": {
                "compute.datumapis.com/workload-uid": workload.uid(), "topology.datum.net/city-code": "dfw",
                "meta.datumapis.com/upstream-namespace": ns,
            },
        },
        "spec": spec,
    });
    as_go(&world.hub, copy).await;
    as_go(&world.hub, super::migration::of_go(hub, "dfw")).await;
}

/// The uid of everything that must not be made anew.
async fn uids(world: &World, ns: &str, hub: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (place, client, namespace) in
        [("project", &world.project, ns), ("hub", &world.hub, hub), ("dfw", &world.dfw, hub)]
    {
        for kind in ["WorkloadDeployment", "Instance", "PropagationPolicy"] {
            if kind == "PropagationPolicy" && place != "hub" {
                continue;
            }
            for object in list(client, kind, namespace).await {
                found.insert(format!("{place} {kind} {}", object.name_any()), object.uid().unwrap());
            }
        }
    }
    found
}

/// Everybody who owns something of an object's spec, the number of instances aside.
fn owners(object: &DynamicObject) -> BTreeSet<String> {
    let entries = object.metadata.managed_fields.iter().flatten();
    let of_spec = entries.filter(|entry| {
        let spec = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:spec")).and_then(Value::as_object);
        spec.is_some_and(|spec| spec.keys().any(|path| path != "f:replicas"))
    });
    of_spec.map(|entry| format!("{} {}", entry.manager.clone().unwrap(), entry.operation.clone().unwrap())).collect()
}

/// Waits until every Instance of the cell has exactly this environment; returns the cell's deployment.
async fn arrives(world: &World, hub: &str, replicas: usize, names: &[&str]) -> DynamicObject {
    eventually(&format!("{replicas} instances with {names:?}"), || async {
        let wd = get(&world.dfw, "WorkloadDeployment", hub, WD).await.ok_or("no deployment")?;
        let env_of =
            |spec: &Value| spec["runtime"]["sandbox"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
        let instances = list(&world.dfw, "Instance", hub).await;
        let there: Vec<Vec<Value>> = instances.iter().map(|i| env_of(&i.data["spec"])).collect();
        let wanted = env(names).as_array().cloned().unwrap();
        let right = env_of(&wd.data["spec"]["template"]["spec"]) == wanted
            && there.len() == replicas
            && there.iter().all(|env| *env == wanted);
        if right { Ok(wd) } else { Err(format!("{there:?}")) }
    })
    .await
}

#[test]
fn what_the_go_operator_wrote_runs_on_and_follows() {
    RUNTIME.block_on(async {
        let mut world =
            alone(Wish { management: "timing:\n  takeoverPauseSeconds: 1\n".into(), ..Wish::default() }).await;
        let (ns, hub) = world.namespace("of-go").await;
        world.operators[0].process.kill();
        let tenants_own = apply(&world.project, tenants(&ns, 2, &["FOO", "BAR"])).await;
        written_by_go(&world, &ns, &hub, &tenants_own).await;
        arrives(&world, &hub, 2, &["FOO", "BAR"]).await;
        let written_back = eventually("what runs is written back", || async {
            let copy = get(&world.hub, "Instance", &hub, &format!("{WD}-0")).await.ok_or("no copy")?;
            if condition(&copy, "Ready")["status"] == "True" {
                Ok(copy)
            } else {
                Err(condition(&copy, "Ready").to_string())
            }
        })
        .await;
        // The Go operator's projection, with what it was made from once and is no more.
        let original = get(&world.project, "WorkloadDeployment", &ns, WD).await.unwrap();
        let mut shown = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
            "metadata": {
                "namespace": ns, "name": written_back.name_any(), "labels": written_back.labels(),
                "ownerReferences": [{
                    "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "name": WD,
                    "uid": original.uid(), "controller": true,
                }],
            },
            "spec": written_back.data["spec"], "status": written_back.data["status"],
        });
        shown["spec"]["volumes"] = json!([{ "name": "old", "configMap": { "name": "old" } }]);
        shown["status"]["conditions"].as_array_mut().unwrap().push(of_go("Legacy"));
        as_go(&world.project, shown).await;
        let before = uids(&world, &ns, &hub).await;
        let cell = get(&world.dfw, "WorkloadDeployment", &hub, WD).await.unwrap();

        world.restart_manager(&[]).await;
        taken_over(&world, &ns, &hub, &original).await;
        ready(&world, &ns, "web", 2).await;
        eventually("the projection is its source's", || async {
            let shown = get(&world.project, "Instance", &ns, &written_back.name_any()).await.ok_or("gone")?;
            let right = shown.data["spec"] == written_back.data["spec"] && condition(&shown, "Legacy").is_null();
            if right { Ok(()) } else { Err(shown.data.to_string()) }
        })
        .await;
        let mut after = uids(&world, &ns, &hub).await;
        after.retain(|what, _| before.contains_key(what));
        assert_eq!(after, before, "nothing is made anew");
        let now = get(&world.dfw, "WorkloadDeployment", &hub, WD).await.unwrap();
        assert_eq!(now.metadata.generation, cell.metadata.generation, "the cell has not seen a change");

        // Everything of the Workload follows: more of it, and less.
        apply(&world.project, tenants(&ns, 4, &["FOO", "BAR"])).await;
        ready(&world, &ns, "web", 4).await;
        let generation = arrives(&world, &hub, 4, &["FOO", "BAR"]).await.metadata.generation;
        after = uids(&world, &ns, &hub).await;
        after.retain(|what, _| before.contains_key(what));
        assert_eq!(after, before, "what ran goes on running");
        apply(&world.project, tenants(&ns, 3, &["BAR", "BAZ"])).await;
        let last = arrives(&world, &hub, 3, &["BAR", "BAZ"]).await;
        assert_eq!(last.metadata.generation, generation.map(|g| g + 1), "one change is one change on the cell");
        ready(&world, &ns, "web", 3).await;
        after = uids(&world, &ns, &hub).await;
        after.retain(|what, _| before.contains_key(what) && !what.contains("Instance"));
        assert!(after.iter().all(|(what, uid)| before[what] == *uid), "{after:?}");

        a_hands_edit_goes(&world, &hub).await;
        rights::shown(&world, world.since(), "what_the_go_operator_wrote_runs_on_and_follows");
    });
}

/// Writes the copy as an editor does, with these environment variables and this book of who wrote what; again, where another
/// write came between.
async fn edit_copy(copies: &Api<DynamicObject>, names: &[&str], book: Option<&[ManagedFieldsEntry]>) {
    eventually("the copy is edited", || async {
        let mut copy = copies.get(WD).await.map_err(|e| e.to_string())?;
        copy.data["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["env"] = env(names);
        copy.metadata.managed_fields = book.map(<[_]>::to_vec);
        copies.replace(WD, &by("kubectl-edit"), &copy).await.map(drop).map_err(|e| e.to_string())
    })
    .await;
}

/// What somebody writes into the copy goes by the same way.
async fn a_hands_edit_goes(world: &World, hub: &str) {
    let copies = api(&world.hub, "WorkloadDeployment", hub);
    edit_copy(&copies, &["BAR", "BAZ", "MINE"], None).await;
    eventually("the hand's edit is gone", || async {
        let copy = copies.get(WD).await.map_err(|e| e.to_string())?;
        let right = !copy.data.to_string().contains("MINE") && owners(&copy).len() == 1;
        if right { Ok(()) } else { Err(format!("{:?}", owners(&copy))) }
    })
    .await;
    arrives(world, hub, 3, &["BAR", "BAZ"]).await;

    // And so does what was there before somebody emptied the book of who wrote what.
    edit_copy(&copies, &["BAR", "BAZ", "LOST"], Some(&[ManagedFieldsEntry::default()])).await;
    eventually("what nobody is known to have written is gone", || async {
        let copy = copies.get(WD).await.map_err(|e| e.to_string())?;
        let right = !copy.data.to_string().contains("LOST") && owners(&copy).len() == 1;
        if right { Ok(()) } else { Err(format!("{:?}", owners(&copy))) }
    })
    .await;
    arrives(world, hub, 3, &["BAR", "BAZ"]).await;
}

/// Waits until deployment and copy are the operator's alone, which is told on each and counted; the rest is still others'.
async fn taken_over(world: &World, ns: &str, hub: &str, original: &DynamicObject) {
    for (client, namespace) in [(&world.project, ns), (&world.hub, hub)] {
        let object = eventually("its spec has one owner", || async {
            let object = get(client, "WorkloadDeployment", namespace, WD).await.ok_or("gone")?;
            let owners = owners(&object);
            let ours = owners.iter().all(|owner| owner.starts_with("compute-operator-") && owner.ends_with(" Apply"));
            if ours && !owners.is_empty() { Ok(object) } else { Err(format!("{owners:?}")) }
        })
        .await;
        assert_eq!(object.annotations()["example.com/theirs"], "stays");
        eventually("it is told", || async {
            let events = list(client, "Event", namespace).await;
            let told = events.iter().filter(|event| event.data["reason"] == "FieldsTakenOver").count();
            if told == 1 { Ok(()) } else { Err(format!("{told} events")) }
        })
        .await;
    }
    eventually("what nobody says any more of the status is gone", || async {
        let now = get(&world.project, "WorkloadDeployment", ns, WD).await.ok_or("gone")?;
        let left = ["ReferencedDataReady", "Legacy"].map(|type_| condition(&now, type_));
        if left.iter().all(Value::is_null) { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    let now = get(&world.project, "WorkloadDeployment", ns, WD).await.unwrap();
    assert_eq!((now.uid(), now.metadata.generation), (original.uid(), original.metadata.generation));
    eventually("it is counted", || async {
        let text = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
        let wanted = [
            // Its spec, and its status.
            "compute_fields_taken_over_total{plane=\"project\",kind=\"WorkloadDeployment\"} 2",
            "compute_fields_taken_over_total{plane=\"hub\",kind=\"WorkloadDeployment\"} 1",
            "compute_fields_taken_over_total{plane=\"project\",kind=\"Instance\"} 1",
        ];
        let missing: Vec<&str> = wanted.into_iter().filter(|line| !text.contains(line)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
    })
    .await;
}

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
