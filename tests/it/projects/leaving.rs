//! Projects that end, regularly or suddenly.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::Method;
use jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject},
};
use testbed::{audit::Audit, gate::Gate, pki::User};

use super::*;
use crate::common::{example_app::SWEEPS, merge, never, refusal::Refusal, rights};

/// Time for which the hub keeps the objects of a vanished project.
const GRACE: Duration = Duration::from_secs(6);

#[test]
fn project_deleted_with_deployments_is_finalized_on_the_hub() {
    RUNTIME.block_on(async {
        let world = world().await;
        let (alpha, beta) = (client(&world, "alpha").await, client(&world, "beta").await);
        engaged(&world, 3.0).await;
        let hub = world.namespace_in(&beta, "leaving").await;
        apply(&beta, workload("leaving", "web", &["dfw"], 1)).await;
        served(&beta, "leaving", "web-p-dfw").await;
        // Milo keeps a terminating Project by a finalizer until it is empty. The Project becomes unready first.
        let projects = api(&alpha, "Project", "");
        let patch = |patch| Patch::Merge(patch);
        projects.patch("beta", &PatchParams::default(), &patch(json!({ "metadata": { "finalizers": ["milo/teardown"] } }))).await.unwrap();
        delete(&alpha, "Project", "", "beta").await;
        let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "Deleting", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
        projects.patch_status("beta", &PatchParams::default(), &patch(unready)).await.unwrap();
        delete(&beta, "Namespace", "", "leaving").await;
        eventually("hub, cell and project are clean", || async {
            let left = [
                list(&world.hub, "WorkloadDeployment", &hub).await.len(),
                list(&world.hub, "PropagationPolicy", &hub).await.len(),
                list(&world.hub, "Instance", &hub).await.len(),
                list(&world.dfw, "Instance", &hub).await.len(),
                usize::from(get(&beta, "Namespace", "", "leaving").await.is_some()),
            ];
            if left == [0; 5] { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        assert!(metric(&world, "compute_projects_engaged").await > 2.5, "engaged to the end");
        projects.patch("beta", &PatchParams::default(), &patch(json!({ "metadata": { "finalizers": [] } }))).await.unwrap();
        engaged(&world, 2.0).await;
        // A later project of that name is a new one.
        announce(&alpha, "beta").await.unwrap();
        engaged(&world, 3.0).await;
        world.namespace_in(&beta, "again").await;
        apply(&beta, workload("again", "web", &["dfw"], 1)).await;
        served(&beta, "again", "web-p-dfw").await;
        empty(&beta, "again").await;
    });
}

/// Deletes a namespace that a rule may still protect for a moment.
async fn delete_once_allowed(client: &Client, namespace: &str) {
    eventually("it may be deleted", || async {
        let deleted = api(client, "Namespace", "").delete(namespace, &DeleteParams::default()).await;
        deleted.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// Waits until a stranded hub namespace is reported and counted. Returns the time of the report.
async fn reported_as_stranded(world: &World, namespace: &str) -> Timestamp {
    let counted = AtomicBool::new(false);
    eventually("it is reported and counted", || async {
        // After its removal, the namespace no longer counts.
        if metric(world, "compute_federation_stranded_namespaces").await > 0.5 {
            counted.store(true, Ordering::SeqCst);
        }
        let event = list(&world.hub, "Event", "default")
            .await
            .into_iter()
            .find(|event| event.data["reason"] == "Stranded" && event.data["regarding"]["name"] == json!(namespace))
            .ok_or("no Event")?;
        if !counted.load(Ordering::SeqCst) {
            return Err("not counted".to_owned());
        }
        Ok(event.data["eventTime"].as_str().unwrap().parse().unwrap())
    })
    .await
}

/// Protects the objects in a hub namespace through Karmada, and with them the namespace. An older cell or an administrator can do
/// that.
async fn protect_what_is_in(world: &World, namespace: &str) {
    let label = json!({ "metadata": { "labels": { "resourcetemplate.karmada.io/deletion-protected": "Always" } } });
    eventually("it is written back", || async {
        get(&world.hub, "Instance", namespace, "web-p-dfw-0").await.map(drop).ok_or("not yet".to_owned())
    })
    .await;
    for (kind, name) in [("Instance", "web-p-dfw-0"), ("WorkloadDeployment", "web-p-dfw")] {
        merge(&world.hub, kind, namespace, name, label.clone()).await;
    }
}

/// Pauses the clean-up while the manager is about to delete this namespace, and asserts that the namespace stays.
async fn stays_while_paused(world: &World, gate: &Gate, before: &DynamicObject) {
    let namespace = before.name_any();
    // The manager has read the namespace and decided to delete it. Now an administrator pauses the clean-up.
    gate.hold().caught().await;
    let pause =
        |value: Value| json!({ "metadata": { "annotations": { "compute.datumapis.com/pause-cleanup": value } } });
    merge(&world.hub, "Namespace", "", &namespace, pause(json!("true"))).await;
    gate.hold().release();
    eventually("the kept namespace is logged", || async {
        let log = std::fs::read_to_string(world.operators[0].process.log()).map_err(|e| e.to_string())?;
        if log.contains("kept for now: the object has changed, or its owner exists") {
            Ok(())
        } else {
            Err("not yet".to_owned())
        }
    })
    .await;
    never("it is touched", || async {
        let after = get(&world.hub, "Namespace", "", &namespace).await.unwrap().metadata;
        (after.deletion_timestamp.is_some() || after.labels != before.metadata.labels).then_some(after)
    })
    .await;
    merge(&world.hub, "Namespace", "", &namespace, pause(Value::Null)).await;
}

#[test]
fn hub_objects_of_a_vanished_project_are_reported_and_deleted_after_the_grace_period() {
    RUNTIME.block_on(async {
        let mut world = world().await;
        engaged(&world, 3.0).await;
        world.bed.options_mut().management = format!("{PERIODS}{SWEEPS}  strandedGraceSeconds: {}\n", GRACE.as_secs());
        let beta = world.bed.others["beta"].client().await.unwrap();
        let (kept, lost) = (world.namespace_in(&world.project, "kept").await, world.namespace_in(&beta, "lost").await);
        apply(&world.project, workload("kept", "web", &["dfw"], 1)).await;
        apply(&beta, workload("lost", "web", &["dfw"], 1)).await;
        for hub in [&kept, &lost] {
            eventually("it runs", || async {
                get(&world.dfw, "Instance", hub, "web-p-dfw-0").await.map(|_| ()).ok_or("not yet".to_owned())
            })
            .await;
        }
        protect_what_is_in(&world, &lost).await;
        // A namespace that cannot be deleted must not block the other one.
        let stuck = world.namespace_in(&beta, "stuck").await;
        apply(&beta, workload("stuck", "web", &["dfw"], 1)).await;
        eventually("it is on the hub", || async {
            get(&world.hub, "WorkloadDeployment", &stuck, "web-p-dfw").await.map(drop).ok_or("not yet".to_owned())
        })
        .await;
        // Karmada itself refuses to delete the hub namespace until its protection is removed, so the rule is tested with another
        // namespace.
        apply(&world.hub, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "probe" } })).await;
        let unless = format!("!(oldObject.metadata.name in ['{stuck}', 'probe'])");
        let rule = Refusal { name: "stuck", kind: ("", "namespaces"), operation: "DELETE", unless: &unless };
        rule.begin_with(&world.hub, || async {
            let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
            api(&world.hub, "Namespace", "").delete("probe", &params).await.map(drop)
        })
        .await;
        // The project is deleted while no manager runs, so nothing is finalized.
        let on_hub = Audit::mark(&world.bed.hub);
        world.operators[0].process.kill();
        delete(&world.project, "Project", "", "beta").await;
        let gate = Gate::start(world.bed.dir(), &world.bed.hub, &Arc::default()).await.unwrap();
        let before = get(&world.hub, "Namespace", "", &lost).await.unwrap();
        world.restart_manager(&[&format!("--federation-kubeconfig={}", gate.kubeconfig().display())]).await;
        let reported = reported_as_stranded(&world, &lost).await;
        gate.hold().next(Method::PATCH, &format!("/namespaces/{lost}"));
        stays_while_paused(&world, &gate, &before).await;
        for (place, client) in [("hub", &world.hub), ("dfw", &world.dfw)] {
            eventually(&format!("it is deleted from {place}"), || async {
                let left = get(client, "Namespace", "", &lost).await;
                if left.is_none() { Ok(()) } else { Err("still there".to_owned()) }
            })
            .await;
        }
        assert!(get(&world.hub, "Namespace", "", &stuck).await.is_some());
        rule.end(&world.hub).await;
        delete_once_allowed(&world.hub, "probe").await;
        eventually("the other namespace is deleted too", || async {
            if get(&world.hub, "Namespace", "", &stuck).await.is_none() { Ok(()) } else { Err("there".to_owned()) }
        })
        .await;
        let asked = on_hub.requests().unwrap();
        let removal =
            asked.iter().find(|r| r.verb == "delete" && r.resource == "namespaces" && r.name == lost).unwrap();
        let warned = removal.at.duration_since(reported);
        assert!(warned.as_secs_f64() > GRACE.as_secs_f64() - 0.1, "removed {warned:?} after the report");
        assert!(get(&world.dfw, "Instance", &kept, "web-p-dfw-0").await.is_some(), "the other project's runs on");
        // Restores the bed for the next test.
        delete(&world.project, "Workload", "kept", "web").await;
        announce(&world.project, "beta").await.unwrap();
        PERIODS.clone_into(&mut world.bed.options_mut().management);
        world.restart_manager(&[]).await;
        engaged(&world, 3.0).await;
        for namespace in ["lost", "stuck"] {
            empty(&beta, namespace).await;
        }
        rights::shown(
            &world,
            world.since(),
            "hub_objects_of_a_vanished_project_are_reported_and_deleted_after_the_grace_period",
        );
    });
}

/// Announces a project's control plane, as Milo's infrastructure component does.
async fn announce_control_plane(milo: &Client, project: &str) {
    let object = json!({
        "apiVersion": "infrastructure.miloapis.com/v1alpha1", "kind": "ProjectControlPlane", "metadata": { "name": project },
    });
    apply(milo, object).await;
    let status = json!({ "status": { "conditions": [{
        "type": "ControlPlaneReady", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] } });
    let api = api(milo, "ProjectControlPlane", "");
    api.patch_status(project, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Returns the time since which a hub namespace is stranded, from its annotation.
async fn stranded_since(hub: &Client, namespace: &str) -> Option<String> {
    let found = get(hub, "Namespace", "", namespace).await.unwrap();
    found.annotations().get("compute.datumapis.com/stranded-since").cloned()
}

/// Here no server answers at the addresses of such services. The test only covers which projects exist.
#[test]
fn projects_with_internal_services_are_discovered_by_their_control_planes() {
    RUNTIME.block_on(async {
        let mut world = world().await;
        engaged(&world, 3.0).await;
        let (alpha, beta) = (client(&world, "alpha").await, client(&world, "beta").await);
        let mut hubs = Vec::new();
        for project in [&alpha, &beta] {
            hubs.push(world.namespace_in(project, "inner").await);
            apply(project, workload("inner", "web", &["dfw"], 1)).await;
            served(project, "inner", "web-p-dfw").await;
        }
        for project in ["alpha", "idle"] {
            announce_control_plane(&alpha, project).await;
        }
        let file = world.bed.milo.as_ref().unwrap().kubeconfig(&User::Operator).display().to_string();
        let discovery = format!(
            "discovery:\n  mode: milo\n  internalServiceDiscovery: true\n  discoveryKubeconfigPath: {file}\n  projectKubeconfigPath: {file}\n"
        );
        world.bed.options_mut().management = format!("{PERIODS}{SWEEPS}{discovery}");
        world.restart_manager(&[]).await;
        engaged(&world, 2.0).await;
        eventually("the namespace of the vanished project is stranded", || async {
            stranded_since(&world.hub, &hubs[1]).await.map(drop).ok_or("not yet".to_owned())
        })
        .await;
        assert_eq!(stranded_since(&world.hub, &hubs[0]).await, None, "a silent project has not vanished");
        // Restores the bed for the next test.
        for project in ["alpha", "idle"] {
            delete(&alpha, "ProjectControlPlane", "", project).await;
        }
        world.bed.options_mut().management = format!("{PERIODS}{SWEEPS}");
        world.restart_manager(&[]).await;
        engaged(&world, 3.0).await;
        eventually("nothing is stranded any more", || async {
            stranded_since(&world.hub, &hubs[1]).await.map_or(Ok(()), Err)
        })
        .await;
        PERIODS.clone_into(&mut world.bed.options_mut().management);
        world.restart_manager(&[]).await;
        for project in [&alpha, &beta] {
            empty(project, "inner").await;
        }
        let test = "projects_with_internal_services_are_discovered_by_their_control_planes";
        rights::shown(&world, world.since(), test);
    });
}
