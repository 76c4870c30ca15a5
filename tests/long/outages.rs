//! Cells that crash, and outages of hub and quota: nothing restarts, nothing is claimed twice, nothing is left behind. Each test
//! has its own bed with networks and quota.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Lent, Wish, alone},
    binary, condition, delete, deployment, eventually, get, list, merge, promised, ready, workload,
};
use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{
    audit::Audit,
    neighbours::{Reach, grant},
    operator::Operator,
};

async fn world() -> Lent<World> {
    alone(Wish { networks_and_quota: true, ..Wish::default() }).await
}

/// Kills the cell's operator in the middle of its work.
fn kill_cell(world: &mut World) {
    let cell = world.of_cell("dfw");
    world.operators[cell].process.kill();
}

async fn start_cell(world: &mut World) {
    let mut operator = Operator::cell(&world.bed, binary(), "dfw", &[]).unwrap();
    operator.wait_ready().await.unwrap();
    let cell = world.of_cell("dfw");
    world.operators[cell] = operator;
}

fn gates(instance: &DynamicObject) -> Vec<Value> {
    let gates = instance.data["spec"]["controller"]["schedulingGates"].as_array().cloned().unwrap_or_default();
    gates.into_iter().map(|gate| gate["name"].clone()).collect()
}

fn granted() -> Value {
    json!({ "status": { "conditions": [{
        "type": "Granted", "status": "True", "reason": "QuotaAvailable", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}})
}

async fn uids(world: &World, kind: &str, namespace: &str) -> BTreeSet<String> {
    let client = if kind == "Instance" { &world.dfw } else { &world.project };
    list(client, kind, namespace).await.iter().map(|object| object.uid().unwrap()).collect()
}

#[test]
fn quota_gate_with_a_spec_changed_after_the_grant_stays_closed() {
    RUNTIME.block_on(async {
        let mut world = world().await;
        let (ns, hub) = world.namespace("edited").await;
        // Only this test grants quota here.
        delete(&world.project, "ResourceGrant", &ns, "compute").await;
        apply(&world.project, deployment(&ns, "wd", "dfw")).await;
        let claim = "instance-wd-0";
        let first = eventually("it is claimed", || async {
            get(&world.project, "ResourceClaim", &ns, claim).await.ok_or("not yet".to_owned())
        })
        .await;
        // The cell dies after it recorded the grant, and before it opened the gate. Then the spec changes.
        kill_cell(&mut world);
        let claims = api(&world.project, "ResourceClaim", &ns);
        claims.patch_status(claim, &PatchParams::default(), &Patch::Merge(granted())).await.unwrap();
        let instance = get(&world.dfw, "Instance", &hub, "wd-0").await.unwrap();
        let recorded = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance", "metadata": { "name": "wd-0" },
            "status": { "conditions": [{
                "type": "QuotaGranted", "status": "True", "reason": "QuotaAvailable", "message": "",
                "observedGeneration": instance.metadata.generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        let params = PatchParams::apply("compute-operator-quota").force();
        let instances = api(&world.dfw, "Instance", &hub);
        instances.patch_status("wd-0", &params, &Patch::Apply(recorded)).await.unwrap();
        let limits = json!({ "limits": { "cpu": "4", "memory": "8Gi" } });
        let bigger = json!([{ "name": "c", "image": "docker.io/library/nginx:1", "resources": limits }]);
        let edit = json!({ "spec": { "runtime": { "sandbox": { "containers": bigger } } } });
        let edited = merge(&world.dfw, "Instance", &hub, "wd-0", edit).await;
        assert!(edited.metadata.generation > instance.metadata.generation);
        assert!(gates(&edited).contains(&json!("Quota")));
        start_cell(&mut world).await;
        let second = eventually("a new claim is created", || async {
            let claim = get(&world.project, "ResourceClaim", &ns, claim).await.ok_or("none")?;
            if claim.uid() == first.uid() { Err("the old one".to_owned()) } else { Ok(claim) }
        })
        .await;
        let amounts: Vec<_> =
            second.data["spec"]["requests"].as_array().unwrap().iter().map(|r| &r["amount"]).collect();
        assert_eq!(amounts, [1, 4000, 8192]);
        eventually("the grant of old counts no more", || async {
            let instance = get(&world.dfw, "Instance", &hub, "wd-0").await.ok_or("none")?;
            assert!(gates(&instance).contains(&json!("Quota")), "the gate was opened without a grant");
            let condition = condition(&instance, "QuotaGranted");
            if condition["status"] == "Unknown" { Ok(()) } else { Err(condition.to_string()) }
        })
        .await;
        claims.patch_status(claim, &PatchParams::default(), &Patch::Merge(granted())).await.unwrap();
        eventually("the Instance runs after the grant", || async {
            let instance = get(&world.dfw, "Instance", &hub, "wd-0").await.ok_or("none")?;
            if condition(&instance, "Ready")["status"] == "True" { Ok(()) } else { Err(instance.data.to_string()) }
        })
        .await;
        delete(&world.project, "WorkloadDeployment", &ns, "wd").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

#[test]
fn cell_killed_repeatedly_finishes_its_work() {
    RUNTIME.block_on(async {
        let mut world = world().await;
        let (ns, hub) = world.namespace("dying").await;
        apply(&world.project, grant(&ns, 4)).await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 4)).await;
        for _ in 0..6 {
            let have = uids(&world, "Instance", &hub).await;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(20..400))).await; // any moment will do
            kill_cell(&mut world);
            start_cell(&mut world).await;
            assert!(have.is_subset(&uids(&world, "Instance", &hub).await), "none restarted");
        }
        ready(&world, &ns, "web", 4).await;
        assert_eq!(uids(&world, "ResourceClaim", &ns).await.len(), 4);
        let (instances, claims) = (uids(&world, "Instance", &hub).await, uids(&world, "ResourceClaim", &ns).await);
        // After a restart in a steady state, the cell writes nothing. The projections of the last Instance come a moment after it.
        let audits = || {
            [Audit::mark(&world.bed.project), Audit::mark(&world.bed.hub), Audit::mark(world.bed.cell("dfw").unwrap())]
        };
        let writes = |audit: &Audit| {
            let all = audit.requests().unwrap().into_iter();
            all.filter(|request| !["list", "get"].contains(&&*request.verb)).collect::<Vec<_>>()
        };
        eventually("a second passes without a write", || async {
            let audits = audits();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let writes: Vec<_> = audits.iter().flat_map(writes).collect();
            if writes.is_empty() { Ok(()) } else { Err(format!("{writes:?}")) }
        })
        .await;
        let audits = audits();
        kill_cell(&mut world);
        start_cell(&mut world).await;
        tokio::time::sleep(Duration::from_secs(2)).await; // the test checks that nothing happens in this time
        for audit in &audits {
            assert_eq!(writes(audit), []);
        }
        assert_eq!(uids(&world, "Instance", &hub).await, instances);
        assert_eq!(uids(&world, "ResourceClaim", &ns).await, claims);
        // The cell dies once more during the deletion.
        delete(&world.project, "Workload", &ns, "web").await;
        kill_cell(&mut world);
        start_cell(&mut world).await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

#[test]
fn outage_of_hub_and_quota_restarts_nothing_and_leaks_nothing() {
    RUNTIME.block_on(async {
        let mut world = world().await;
        let (ns, hub) = world.namespace("minute").await;
        apply(&world.project, grant(&ns, 3)).await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 3)).await;
        ready(&world, &ns, "web", 3).await;
        let shown = |name: &'static str| {
            let (client, ns) = (world.project.clone(), ns.clone());
            async move { get(&client, "Instance", &ns, name).await.map(|i| condition(&i, "Ready")["status"] == "True") }
        };
        eventually("all are shown", || async {
            let all = [shown("web-p-dfw-0").await, shown("web-p-dfw-1").await, shown("web-p-dfw-2").await];
            if all == [Some(true); 3] { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
        let before = uids(&world, "Instance", &hub).await;
        let claims = uids(&world, "ResourceClaim", &ns).await;
        let victim = get(&world.dfw, "Instance", &hub, "web-p-dfw-2").await.unwrap();

        world.bed.hub.stop_api_server();
        world.bed.milo.as_ref().unwrap().set("single", Reach::Away);
        let away = tokio::time::Instant::now();
        // During the outage an Instance is deleted, and another one becomes unready.
        delete(&world.dfw, "Instance", &hub, "web-p-dfw-2").await;
        let broken = json!([{ "name": "c", "image": "docker.io/library/broken:1" }]);
        merge(
            &world.dfw,
            "Instance",
            &hub,
            "web-p-dfw-1",
            json!({ "spec": { "runtime": { "sandbox": { "containers": broken } } } }),
        )
        .await;
        eventually("the terminating Instance reports its wait", || async {
            let instance = get(&world.dfw, "Instance", &hub, "web-p-dfw-2").await.ok_or("it did not wait")?;
            let condition = condition(&instance, "QuotaGranted");
            let text = condition["message"].as_str().unwrap_or_default().to_owned();
            let says = condition["reason"] == "QuotaBackendUnavailable" && text.contains("waiting to release");
            if says { Ok(()) } else { Err(condition.to_string()) }
        })
        .await;
        // The outage is longer than any retry. `OUTAGE=60` makes it a minute.
        let outage = std::env::var("OUTAGE").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(10);
        tokio::time::sleep(Duration::from_secs(outage).saturating_sub(away.elapsed())).await;
        assert_eq!(uids(&world, "Instance", &hub).await, before, "none restarted, and none gone without its claim");
        assert_eq!(uids(&world, "ResourceClaim", &ns).await, claims);
        world.bed.hub.start_api_server().unwrap();
        world.bed.hub.wait_ready().await.unwrap();
        // The garbage collector restarts too. After a minute without its server, it would need another minute to retry.
        world.bed.hub.start_controllers().unwrap();
        let back = tokio::time::Instant::now();
        eventually("the write-back is up to date", || async {
            let copy = get(&world.hub, "Instance", &hub, "web-p-dfw-1").await.ok_or("no copy")?;
            let condition = condition(&copy, "Ready");
            if condition["reason"] == "ImageUnavailable" { Ok(()) } else { Err(condition.to_string()) }
        })
        .await;
        assert!(
            back.elapsed() < promised(Duration::from_secs(20)),
            "within seconds of the hub's return: {:?}",
            back.elapsed()
        );
        // It is repaired, because it would block the next Instance.
        let whole = json!([{ "name": "c", "image": "docker.io/library/nginx:1" }]);
        let mended = json!({ "spec": { "runtime": { "sandbox": { "containers": whole } } } });
        merge(&world.dfw, "Instance", &hub, "web-p-dfw-1", mended).await;
        world.bed.milo.as_ref().unwrap().set("single", Reach::Served);
        eventually("the deleted Instance is recreated with a new claim", || async {
            let instance = get(&world.dfw, "Instance", &hub, "web-p-dfw-2").await.ok_or("none")?;
            let (own, made) = (uids(&world, "ResourceClaim", &ns).await, instance.uid() != victim.uid());
            if made && own.len() == 3 && own != claims { Ok(()) } else { Err(format!("{made} {own:?}")) }
        })
        .await;
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

/// Waits until this condition of each of these objects has this status and reason.
async fn all_report(world: &World, what: &[(&str, String, &str)], ns: &str, status: &str, reason: &str) {
    for (kind, name, type_) in what {
        eventually(&format!("{kind} {name}: {type_} is {status}/{reason}"), || async {
            let object = get(&world.project, kind, ns, name).await.ok_or("not there")?;
            let told = condition(&object, type_);
            if told["status"] == status && told["reason"] == reason { Ok(()) } else { Err(told.to_string()) }
        })
        .await;
    }
}

#[test]
fn unreachable_cell_is_reported_as_unknown_to_the_tenant() {
    RUNTIME.block_on(async {
        let management = "timing:\n  deliveryGraceSeconds: 0.5\n  clusterSilenceSeconds: 2\n".to_owned();
        let mut world = alone(Wish { management, ..Wish::default() }).await;
        let (ns, _) = world.namespace("silent").await;
        apply(&world.project, workload(&ns, "web", &["ord"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        let what = [
            ("WorkloadDeployment", "web-p-ord".to_owned(), "Available"),
            ("WorkloadDeployment", "web-p-ord".to_owned(), "ReplicasReady"),
            ("Workload", "web".to_owned(), "Available"),
            ("Instance", "web-p-ord-0".to_owned(), "Ready"),
        ];
        world.bed.cells.get_mut("ord").unwrap().stop_api_server();
        all_report(&world, &what, &ns, "Unknown", "ClusterNotReady").await;
        // A restarted manager has no memory of this, and keeps the report.
        let since = condition(&get(&world.project, "WorkloadDeployment", &ns, "web-p-ord").await.unwrap(), "Available");
        world.restart_manager(&[]).await;
        crate::common::never("it was taken back", || async {
            let wd = get(&world.project, "WorkloadDeployment", &ns, "web-p-ord").await.unwrap();
            let now = condition(&wd, "Available");
            (now["lastTransitionTime"] != since["lastTransitionTime"]).then_some(now)
        })
        .await;
        let ord = world.bed.cells.get_mut("ord").unwrap();
        ord.start_api_server().unwrap();
        ord.wait_ready().await.unwrap();
        all_report(&world, &what[..1], &ns, "True", "StableInstanceFound").await;
        all_report(&world, &what[2..3], &ns, "True", "AvailablePlacementFound").await;
        all_report(&world, &what[3..], &ns, "True", "Available").await;
    });
}

/// Waits until `Federated` of a deployment has this reason. Returns the condition.
async fn federated(world: &World, ns: &str, name: &str, reason: &str) -> Value {
    eventually(&format!("{name} reports {reason}"), || async {
        let wd = get(&world.project, "WorkloadDeployment", ns, name).await.ok_or("gone")?;
        let said = condition(&wd, "Federated");
        if said["reason"] == reason { Ok(said) } else { Err(said.to_string()) }
    })
    .await
}

/// Returns the number of status writes and Events in the project, by object.
fn told(audit: &Audit) -> BTreeMap<String, usize> {
    let mut writes = BTreeMap::new();
    for request in audit.requests().unwrap().into_iter().filter(|r| !["get", "list"].contains(&&*r.verb)) {
        let about = if request.resource == "events" { "Event of " } else { "status of " };
        if request.resource == "events" || request.resource == "workloaddeployments/status" {
            let name = request.name.split('.').next().unwrap_or_default();
            *writes.entry(format!("{about}{name}")).or_default() += 1;
        }
    }
    writes
}

#[test]
fn hub_outage_is_reported_and_loses_nothing() {
    RUNTIME.block_on(async {
        let management = "timing:\n  deliveryGraceSeconds: 1\n".to_owned();
        let mut world = alone(Wish { management, ..Wish::default() }).await;
        let (ns, hub) = world.namespace("hub-away").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        federated(&world, &ns, "web-p-dfw", "Propagated").await;
        let kept = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap().uid();
        let audit = Audit::mark(&world.bed.project);
        world.bed.hub.stop_api_server();
        let away = tokio::time::Instant::now();
        apply(&world.project, deployment(&ns, "new", "dfw")).await;
        for (name, was_delivered) in [("web-p-dfw", true), ("new", false)] {
            let said = federated(&world, &ns, name, "HubUnavailable").await;
            let text = said["message"].as_str().unwrap();
            assert_eq!(said["status"], "Unknown", "{said}");
            assert!(
                text.contains("in hub: ") && text.contains("; it was last delivered to cell-dfw") == was_delivered,
                "{text}"
            );
        }
        assert!(away.elapsed() < promised(Duration::from_secs(20)), "{:?}", away.elapsed());
        eventually("its Workload reports it, and is not reported as down", || async {
            let object = get(&world.project, "Workload", &ns, "web").await.ok_or("gone")?;
            let said = condition(&object, "Available");
            assert_eq!(said["status"], "True", "{said}");
            let says = said["message"].as_str().is_some_and(|text| text.contains("the hub does not answer"));
            if says && object.data["status"]["readyReplicas"] == 1 { Ok(()) } else { Err(said.to_string()) }
        })
        .await;
        // The first status of a new deployment says that it is on its way.
        let most = |what: &str| if what == "status of new" { 2 } else { 1 };
        let reported = told(&audit);
        crate::common::never("the status is written again", || async {
            let writes = told(&audit);
            let grows =
                |(what, count): (&String, &usize)| what.starts_with("status") && reported.get(what) != Some(count);
            let is_more = writes.iter().any(|(what, count)| *count > most(what)) || writes.iter().any(grows);
            is_more.then_some(writes)
        })
        .await;
        let all = ["Event of new", "Event of web", "Event of web-p-dfw", "status of new", "status of web-p-dfw"];
        eventually("each has one Event and its status", || async {
            let writes: Vec<String> = told(&audit).into_keys().collect();
            if writes == all { Ok(()) } else { Err(format!("{writes:?}")) }
        })
        .await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 2)).await;
        eventually("readiness names the hub", || async {
            match world.operators[0].probe("/readyz").await {
                Ok((503, body)) if body.contains("in hub") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        assert_eq!(world.operators[0].probe("/healthz").await.unwrap().0, 200, "a restart would not help");
        // A manager that starts during the outage does not know the hub's state. It reports that on new deployments.
        world.operators[0].process.kill();
        world.operators[0] = Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap();
        apply(&world.project, deployment(&ns, "newer", "dfw")).await;
        federated(&world, &ns, "newer", "HubUnavailable").await;
        delete(&world.project, "WorkloadDeployment", &ns, "new").await;
        world.bed.hub.start_api_server().unwrap();
        world.bed.hub.wait_ready().await.unwrap();
        ready(&world, &ns, "web", 2).await;
        for name in ["web-p-dfw", "newer"] {
            federated(&world, &ns, name, "Propagated").await;
        }
        assert_eq!(get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap().uid(), kept);
        delete(&world.project, "Workload", &ns, "web").await;
        delete(&world.project, "WorkloadDeployment", &ns, "newer").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
        world.operators[0].wait_ready().await.unwrap();
    });
}
