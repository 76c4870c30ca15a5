//! Fields arrive as written: in their order, with empty values. A foreign policy that rewrites them blocks nothing. Deployments
//! without an owner are adopted.

use compute_operator::{
    api::compute::WorkloadDeployment,
    plan::diff::{differs, in_standing_form},
};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, DynamicObject, PropagationPolicy},
};
use serde_json::{Value, json};

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Wish, alone, shared},
    delete, deployment, eventually, get, list, merge, ready, try_apply, workload,
};

#[path = "../common/generated.rs"]
mod generated;

use generated::Generator;

const WD: &str = "web-p-dfw";

/// Number of pairs applied to a real API server. The test of the model uses many more.
const PAIRS: u64 = 60;

/// List entries in another order counted as equal, and never arrived. The test applies a sample of all lists to a server.
#[test]
fn pair_that_counts_as_equal_does_not_change_the_stored_object() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        // A cell ignores a deployment that Karmada did not deliver.
        let server = &visit.ord;
        let (ns, _) = visit.namespace("pairs").await;
        visit.namespace_in(server, &ns).await;
        let crd =
            get(server, "CustomResourceDefinition", "", "workloaddeployments.compute.datumapis.com").await.unwrap();
        let schema = &crd.data["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let (mut same, mut changed) = (0, 0);
        for seed in 0..PAIRS {
            let mut generator = Generator::new(seed);
            let first = generator.value(schema);
            let second = generator.edited(schema, &first);
            let name = format!("pair-{seed}");
            let object = |spec: &Value| {
                json!({
                    "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
                    "metadata": { "name": name, "namespace": ns }, "spec": spec,
                })
            };
            let read = |object: DynamicObject| serde_json::from_value::<WorkloadDeployment>(json!(object)).ok();
            let typed = |spec: &Value| {
                let deployment: Option<WorkloadDeployment> = serde_json::from_value(object(spec)).ok();
                deployment.map(|deployment| json!(deployment.spec))
            };
            let (Some(first), Some(second)) = (typed(&first), typed(&second)) else { continue };
            // A pair that the definition refuses proves nothing about the comparison.
            let Ok(made) = try_apply(server, object(&first)).await else { continue };
            let Some(mut live) = read(made) else { continue };
            for _ in 0..4 {
                let wanted = in_standing_form(&json!(live.spec), &second);
                let differ = differs(&json!({ "spec": wanted }), &live, "test");
                let Ok(applied) = try_apply(server, object(&wanted)).await else { break };
                let version = applied.resource_version();
                if !differ {
                    assert_eq!(version, live.resource_version(), "seed {seed}: {wanted} over {}", json!(live.spec));
                    same += 1;
                    break;
                }
                changed += usize::from(version != live.resource_version());
                live = read(applied).unwrap();
            }
        }
        assert!(same > 10 && changed > 10, "{same} and {changed}: the definition takes too few of them");
        delete(server, "Namespace", "", &ns).await;
    });
}

/// Returns the names of the variables of a template's only container.
fn variables(object: &DynamicObject, at: &str) -> Value {
    let containers = object.data.pointer(at).cloned().unwrap_or_default();
    containers[0]["env"].as_array().into_iter().flatten().map(|variable| variable["name"].clone()).collect()
}

#[test]
fn reordered_variables_and_an_empty_policy_arrive_in_the_cell() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("order").await;
        let variables_of =
            |names: [&str; 2]| -> Value { names.iter().map(|n| json!({ "name": n, "value": "v" })).collect() };
        let mut object = workload(&ns, "web", &["dfw"], 1);
        object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["env"] =
            variables_of(["URL", "HOST"]);
        apply(&world.project, object.clone()).await;
        ready(world, &ns, "web", 1).await;
        object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["env"] =
            variables_of(["HOST", "URL"]);
        apply(&world.project, object.clone()).await;
        eventually("the Instance has them in their order", || async {
            let instance = get(&world.dfw, "Instance", &hub, &format!("{WD}-0")).await.ok_or("none")?;
            let found = variables(&instance, "/spec/runtime/sandbox/containers");
            if found == json!(["HOST", "URL"]) { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        for policy in [json!({}), Value::Null] {
            object["spec"]["template"]["spec"]["networkInterfaces"][0]["networkPolicy"] = policy.clone();
            if policy.is_null() {
                object["spec"]["template"]["spec"]["networkInterfaces"][0]
                    .as_object_mut()
                    .unwrap()
                    .remove("networkPolicy");
            }
            apply(&world.project, object.clone()).await;
            eventually("the copy on the hub is equal", || async {
                let copy = get(&world.hub, "WorkloadDeployment", &hub, WD).await.ok_or("none")?;
                let found = &copy.data["spec"]["template"]["spec"]["networkInterfaces"][0];
                if found["networkPolicy"] == policy { Ok(()) } else { Err(found.to_string()) }
            })
            .await;
        }
        delete(&world.project, "Workload", &ns, "web").await;
    });
}

/// Starts a platform policy that rewrites the image of every deployment in a namespace.
async fn begin_rewriting(project: &Client, ns: &str, image: &str) {
    let rule = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": { "name": ns },
        "spec": {
            "failurePolicy": "Ignore", "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": ns } },
                "resourceRules": [{
                    "apiGroups": ["compute.datumapis.com"], "apiVersions": ["v1alpha"],
                    "operations": ["CREATE", "UPDATE"], "resources": ["workloaddeployments"],
                }],
            },
            "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": format!(
                "[JSONPatch{{op: \"replace\", path: \"/spec/template/spec/runtime/sandbox/containers/0/image\", value: {image}}}]"
            ) } }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": { "name": ns }, "spec": { "policyName": ns },
    });
    apply(project, rule).await;
    apply(project, binding).await;
    eventually("the policy is in force", || async {
        let probe = deployment(ns, "probe", "dfw");
        let asks = kube::api::PatchParams { dry_run: true, ..kube::api::PatchParams::apply("test").force() };
        let answer =
            api(project, "WorkloadDeployment", ns).patch("probe", &asks, &kube::api::Patch::Apply(probe)).await;
        let stored = answer.map_err(|error| error.to_string())?.data;
        let image = stored["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["image"].clone();
        if image.as_str().is_some_and(|image| image.starts_with("mirror.example.com")) {
            Ok(())
        } else {
            Err(image.to_string())
        }
    })
    .await;
}

async fn end_rewriting(project: &Client, ns: &str) {
    delete(project, "MutatingAdmissionPolicyBinding", "", ns).await;
    delete(project, "MutatingAdmissionPolicy", "", ns).await;
}

/// The Workload never got a status, and each event wrote to its deployment. A random name rolled the deployment out each time.
#[test]
fn workload_with_a_rewritten_deployment_gets_a_status_and_an_event() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        for (prefix, image) in [
            ("mirrored", "\"mirror.example.com/library/nginx:1\""),
            // The policy writes another value each time, as far as CEL can: it appends the generation.
            (
                "random",
                "\"mirror.example.com/x:\" + string(has(object.metadata.generation) ? object.metadata.generation : 0)",
            ),
        ] {
            let (ns, _) = world.namespace(prefix).await;
            begin_rewriting(&world.project, &ns, image).await;
            apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
            ready(world, &ns, "web", 1).await;
            eventually("it is reported", || async {
                let events = list(&world.project, "Event", &ns).await;
                let told = events.iter().find(|event| event.data["reason"] == "WritesNotKept").ok_or("no Event")?;
                let (note, on) = (told.data["note"].as_str().unwrap_or_default(), &told.data["regarding"]["kind"]);
                let names_it = note.contains(".containers[c].image") && on == "Workload";
                if names_it { Ok(()) } else { Err(told.data.to_string()) }
            })
            .await;
            let before = get(&world.project, "WorkloadDeployment", &ns, WD).await.unwrap();
            // Another field changes. It is written once, without delay.
            let label = json!({ "spec": { "template": { "metadata": { "labels": { "more": "1" } } } } });
            merge(&world.project, "Workload", &ns, "web", label).await;
            eventually("the status has seen it", || async {
                let workload = get(&world.project, "Workload", &ns, "web").await.ok_or("gone")?;
                let (seen, is) = (&workload.data["status"]["observedGeneration"], workload.metadata.generation);
                if json!(is) == *seen { Ok(()) } else { Err(workload.data["status"].to_string()) }
            })
            .await;
            ready(world, &ns, "web", 1).await;
            let after = get(&world.project, "WorkloadDeployment", &ns, WD).await.unwrap();
            let writes = after.metadata.generation.unwrap() - before.metadata.generation.unwrap();
            assert!((1..=2).contains(&writes), "{prefix}: {writes} versions of one change");
            end_rewriting(&world.project, &ns).await;
            delete(&world.project, "Workload", &ns, "web").await;
        }
    });
}

/// Returns the uid of a deployment's controller, its own uid, and the uid of the Workload that it names.
fn ties(deployment: &DynamicObject) -> (Option<String>, Option<String>, Value) {
    let owner = deployment.owner_references().iter().find(|owner| owner.controller == Some(true));
    (owner.map(|owner| owner.uid.clone()), deployment.uid(), deployment.data["spec"]["workloadRef"]["uid"].clone())
}

async fn is_taken_up(world: &World, ns: &str, workload: &DynamicObject) -> DynamicObject {
    eventually("the Workload has its deployment", || async {
        let wd = get(&world.project, "WorkloadDeployment", ns, WD).await.ok_or("none")?;
        let (owner, _, named) = ties(&wd);
        if owner == workload.uid() && named == json!(workload.uid()) { Ok(wd) } else { Err(json!(wd).to_string()) }
    })
    .await
}

/// `kubectl delete workload --cascade=orphan` deleted everything, and a recreated Workload was blocked by the remaining
/// deployment.
#[test]
fn workload_deleted_with_orphan_keeps_its_instances_and_recreated_adopts_them() {
    RUNTIME.block_on(async {
        let world = alone(Wish::default()).await;
        let (ns, hub) = world.namespace("orphan").await;
        let first = apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        let (owner, uid, _) = ties(&get(&world.project, "WorkloadDeployment", &ns, WD).await.unwrap());
        assert_eq!(owner, first.uid());
        let instance = get(&world.dfw, "Instance", &hub, &format!("{WD}-0")).await.unwrap().uid();
        orphaned(&world, &ns).await;
        let left = get(&world.project, "WorkloadDeployment", &ns, WD).await.expect("it is left");
        assert_eq!((ties(&left).0, left.uid()), (None, uid.clone()));

        let again = apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        assert_eq!(is_taken_up(&world, &ns, &again).await.uid(), uid, "the same one");
        ready(&world, &ns, "web", 1).await;
        let runs = get(&world.dfw, "Instance", &hub, &format!("{WD}-0")).await.unwrap().uid();
        assert_eq!(runs, instance, "nothing was restarted");

        orphaned(&world, &ns).await;
        delete(&world.project, "WorkloadDeployment", &ns, WD).await;
        gone(&world.project, "WorkloadDeployment", &ns, WD).await;
        gone(&world.dfw, "Instance", &hub, &format!("{WD}-0")).await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;

        restored_object_by_object(&world, &ns).await;
    });
}

/// Deletes the Workload as `kubectl delete --cascade=orphan` does.
async fn orphaned(world: &World, ns: &str) {
    let orphaning = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    let _ = api(&world.project, "Workload", ns).delete("web", &orphaning).await.unwrap();
    gone(&world.project, "Workload", ns, "web").await;
}

async fn gone(plane: &Client, kind: &str, ns: &str, name: &str) {
    eventually("the object is deleted", || async {
        get(plane, kind, ns, name).await.map_or(Ok(()), |left| Err(format!("{kind} {}", json!(left.metadata))))
    })
    .await;
}

/// Returns the parts of an object that a backup contains.
fn backed_up(object: &DynamicObject) -> Value {
    let meta = &object.metadata;
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": object.types.as_ref().unwrap().kind,
        "metadata": { "name": meta.name, "namespace": meta.namespace, "labels": meta.labels, "annotations": meta.annotations },
        "spec": object.data["spec"],
    })
}

/// Deletes and restores a namespace, with new uids and without owner references. Workload and deployment are restored in both
/// orders.
async fn restored_object_by_object(world: &World, ns: &str) {
    for deployments_first in [true, false] {
        let backup = [
            backed_up(&get(&world.project, "WorkloadDeployment", ns, WD).await.unwrap()),
            backed_up(&get(&world.project, "Workload", ns, "web").await.unwrap()),
        ];
        delete(&world.project, "Namespace", "", ns).await;
        gone(&world.project, "Namespace", "", ns).await;
        let hub = world.namespace_in(&world.project, ns).await;
        let order = if deployments_first { [0, 1] } else { [1, 0] };
        for object in order.map(|place| backup[place].clone()) {
            let kind = object["kind"].as_str().unwrap().to_owned();
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            // If the Workload came first, it may have created the deployment already.
            let made = api(&world.project, &kind, ns).create(&kube::api::PostParams::default(), &object).await;
            assert!(made.is_ok() || !deployments_first, "{made:?}");
        }
        let workload = get(&world.project, "Workload", ns, "web").await.unwrap();
        let taken = is_taken_up(world, ns, &workload).await;
        ready(world, ns, "web", 1).await;
        let recorded = &taken.annotations()["compute.datumapis.com/federation-namespace"];
        assert_eq!(*recorded, hub, "not the hub namespace of before");
    }
}
