//! The quota of Instances.

use std::time::Duration;

use super::*;

/// Adds a project path for this test alone. Changes to it affect no other test.
async fn project(world: &World, name: &str) -> Value {
    milo(world).add(name, &world.bed.project).await.unwrap();
    json!({ "meta.datumapis.com/upstream-cluster-name": format!("cluster-{name}"), "meta.datumapis.com/upstream-namespace": name })
}

async fn make_namespace(world: &World, name: &str) {
    apply(&world.project, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await;
}

async fn failures(world: &World, reason: &str) -> u32 {
    let text = world.operators[world.of_cell("dfw")].metrics().await.unwrap();
    let line = format!("compute_quota_eval_failures_total{{reason=\"{reason}\"}} ");
    text.lines().find_map(|l| l.strip_prefix(&line)).map_or(0, |value| value.parse().unwrap())
}

/// Waits until the Instance on the cell has this reason in `QuotaGranted`, and also in `Ready`.
async fn gives(world: &World, hub: &str, expected: &str) {
    reason(&world.dfw, "Instance", hub, "wd-0", "QuotaGranted", expected).await;
    let shown = if expected == "QuotaAvailable" { "Available" } else { expected };
    reason(&world.dfw, "Instance", hub, "wd-0", "Ready", shown).await;
}

#[test]
fn quota_reasons_appear_and_disappear() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        // First the namespace is missing, then no server has it, then the budget is too small, then it is enough.
        let labels = project(world, "quota-a").await;
        let hub = on_cell(world, labels, "dfw").await;
        gives(world, &hub, "QuotaNamespaceNotFound").await;
        make_namespace(world, "quota-a").await;
        gives(world, &hub, "QuotaNoBudget").await;
        apply(&world.project, grant("quota-a", 0)).await;
        gives(world, &hub, "QuotaExceeded").await;
        let message = reason(&world.dfw, "WorkloadDeployment", &hub, "wd", "ReplicasReady", "QuotaExceeded").await;
        assert!(message.starts_with("1 of 1 desired replicas pending quota"), "{message}");
        apply(&world.project, grant("quota-a", 1)).await;
        gives(world, &hub, "QuotaAvailable").await;
        let told = list(&world.dfw, "Event", &hub).await;
        for reason in ["QuotaNamespaceNotFound", "QuotaNoBudget", "QuotaExceeded"] {
            let of_it =
                told.iter().filter(|event| event.data["reason"] == reason && event.data["regarding"]["name"] == "wd-0");
            assert_eq!(of_it.map(|event| &event.data["type"]).collect::<Vec<_>>(), ["Warning"], "{reason}: once");
        }
        delete(&world.dfw, "Namespace", "", &hub).await;
        eventually("the claim is released", || async {
            let left = list(&world.project, "ResourceClaim", "quota-a").await.len();
            if left == 0 { Ok(()) } else { Err(left.to_string()) }
        })
        .await;

        // The project is away, forbidden, absent and silent. Each time it returns.
        let labels = project(world, "quota-b").await;
        make_namespace(world, "quota-b").await;
        apply(&world.project, grant("quota-b", 99)).await;
        for (reach, expected, label) in [
            (Reach::Away, "QuotaBackendUnavailable", "backend_unavailable"),
            (Reach::Forbidden, "QuotaMisconfigured", "misconfigured"),
            (Reach::Absent, "QuotaProjectNotFound", "project_not_found"),
            (Reach::Silent, "QuotaBackendUnavailable", "backend_unavailable"),
        ] {
            let before = failures(world, label).await;
            milo(world).set("quota-b", reach);
            let hub = on_cell(world, labels.clone(), "dfw").await;
            gives(world, &hub, expected).await;
            let instance = get(&world.dfw, "Instance", &hub, "wd-0").await.unwrap();
            assert!(gates(&instance).contains(&"Quota".to_owned()));
            assert!(failures(world, label).await > before, "{label}");
            milo(world).set("quota-b", Reach::Served);
            gives(world, &hub, "QuotaAvailable").await;
            // All names in this project are the same: the next Instance needs the name of the claim.
            delete(&world.dfw, "Namespace", "", &hub).await;
            eventually("the claim is released", || async {
                let left = list(&world.project, "ResourceClaim", "quota-b").await.len();
                if left == 0 { Ok(()) } else { Err(left.to_string()) }
            })
            .await;
        }
    });
}

#[test]
fn quota_unresolvable_project_and_invalid_claim_are_reported() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let labels = project(world, "quota-d").await;
        make_namespace(world, "quota-d").await;
        apply(&world.project, grant("quota-d", 99)).await;
        // A namespace without project labels. Later it gets them.
        let hub = on_cell(world, json!({}), "dfw").await;
        gives(world, &hub, "QuotaProjectIDUnresolvable").await;
        merge(&world.dfw, "Namespace", "", &hub, json!({ "metadata": { "labels": labels } })).await;
        gives(world, &hub, "QuotaAvailable").await;
        delete(&world.dfw, "Namespace", "", &hub).await;

        // The backend reports the claim as invalid.
        let labels = project(world, "quota-c").await;
        make_namespace(world, "quota-c").await;
        let hub = on_cell(world, labels, "dfw").await;
        let claim = "instance-wd-0";
        eventually("it is claimed", || async {
            get(&world.project, "ResourceClaim", "quota-c", claim).await.ok_or("not yet".into())
        })
        .await;
        set_status(&world.project, "ResourceClaim", "quota-c", claim, says("Granted", "False", "ValidationFailed"))
            .await;
        gives(world, &hub, "ValidationFailed").await;
        set_status(&world.project, "ResourceClaim", "quota-c", claim, says("Granted", "True", "QuotaAvailable")).await;
        gives(world, &hub, "QuotaAvailable").await;
        delete(&world.dfw, "Namespace", "", &hub).await;
    });
}

#[test]
fn quota_foreign_claim_is_awaited_and_leftover_claim_is_deleted() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let labels = project(world, "quota-e").await;
        make_namespace(world, "quota-e").await;
        apply(&world.project, grant("quota-e", 9)).await;
        let claim = |name: &str, cluster: &str, namespace: &str| json!({
            "apiVersion": "quota.miloapis.com/v1alpha1", "kind": "ResourceClaim",
            "metadata": { "name": name, "namespace": "quota-e", "labels": {
                "compute.datumapis.com/source-cluster": cluster, "compute.datumapis.com/instance-namespace": namespace,
            }},
            "spec": { "consumerRef": { "kind": "Project", "name": "x" }, "requests": [] },
        });
        // The former cell of the city still holds the name.
        apply(&world.project, claim("instance-wd-0", "cell-old", "ns-old")).await;
        let hub = on_cell(world, labels, "dfw").await;
        eventually("the condition names the owner", || async {
            let instance = get(&world.dfw, "Instance", &hub, "wd-0").await.ok_or("none")?;
            let message = condition(&instance, "QuotaGranted")["message"].to_string();
            if message.contains("still held by cell-old") { Ok(()) } else { Err(message) }
        })
        .await;
        delete(&world.project, "ResourceClaim", "quota-e", "instance-wd-0").await;
        reason(&world.dfw, "Instance", &hub, "wd-0", "Ready", "Available").await;
        // A claim of this cell without an Instance. A claim without a uid may belong to another cell of the same
        // name.
        let mut ghost = claim("instance-ghost-0", "cell-dfw", &hub);
        let uid = get(&world.dfw, "Namespace", "", "kube-system").await.unwrap().uid().unwrap();
        ghost["metadata"]["labels"]["compute.datumapis.com/cell-uid"] = json!(uid);
        apply(&world.project, ghost).await;
        apply(&world.project, claim("instance-go-0", "cell-dfw", &hub)).await;
        apply(&world.project, claim("instance-theirs-0", "cell-old", &hub)).await;
        eventually("the ghost is released", || async {
            let left = get(&world.project, "ResourceClaim", "quota-e", "instance-ghost-0").await;
            if left.is_none() { Ok(()) } else { Err("still there".into()) }
        })
        .await;
        for name in ["instance-theirs-0", "instance-go-0"] {
            assert!(get(&world.project, "ResourceClaim", "quota-e", name).await.is_some(), "{name}");
        }
        delete(&world.dfw, "Namespace", "", &hub).await;
    });
}

/// Time for which an Instance waits here for a missing project.
const GONE: Duration = Duration::from_secs(12);

#[test]
fn quota_claim_of_a_deleted_project_is_orphaned_and_reported() {
    RUNTIME.block_on(async {
        let cell = format!("timing:\n  deletionPatienceSeconds: {}\n", GONE.as_secs());
        let stay = alone(Wish { networks_and_quota: true, cell, ..Wish::default() }).await;
        let world = &*stay;
        let labels = project(world, "quota-f").await;
        make_namespace(world, "quota-f").await;
        apply(&world.project, grant("quota-f", 9)).await;
        let hub = on_cell(world, labels, "dfw").await;
        reason(&world.dfw, "Instance", &hub, "wd-0", "Ready", "Available").await;
        milo(world).set("quota-f", Reach::Absent);
        let deleted = tokio::time::Instant::now();
        delete(&world.dfw, "WorkloadDeployment", &hub, "wd").await;
        reason(&world.dfw, "Instance", &hub, "wd-0", "QuotaGranted", "QuotaProjectNotFound").await;
        // The deletion waits: a short absence must not leave a claim behind.
        eventually_within(PATIENCE * 2, "the Instance is deleted", || async {
            let left = get(&world.dfw, "Instance", &hub, "wd-0").await;
            if left.is_none() { Ok(()) } else { Err("still there".into()) }
        })
        .await;
        // A deletionTimestamp has whole seconds.
        let held = deleted.elapsed() + Duration::from_secs(1);
        assert!(held > GONE, "it was held for {:?}", deleted.elapsed());
        let events = list(&world.dfw, "Event", &hub).await;
        assert_eq!(events.iter().filter(|event| event.data["reason"] == "QuotaClaimOrphaned").count(), 1);
        let text = world.operators[world.of_cell("dfw")].metrics().await.unwrap();
        assert!(text.lines().any(|line| line == "compute_quota_claim_orphaned_total 1"), "{text}");
        delete(&world.dfw, "Namespace", "", &hub).await;
    });
}
