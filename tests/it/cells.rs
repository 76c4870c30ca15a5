//! Cells in full, on real API servers: networks and quota, each reason of theirs appearing and disappearing.
//! On the shared bed; each test has namespaces, and where it needs them a city and a project, of its own.

use std::time::Duration;

use crate::common::{
    PATIENCE, RUNTIME, World, api, apply,
    beds::{Wish, alone, shared},
    condition, delete, eventually, eventually_within, get, list, merge, network, ready, template, workload,
};
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{
    audit::Audit,
    neighbours::{Milo, Reach, grant},
};

fn milo(world: &World) -> &Milo {
    world.bed.milo.as_ref().unwrap()
}

async fn set_status(client: &Client, kind: &str, namespace: &str, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    api(client, kind, namespace).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// One condition, as a status.
fn says(type_: &str, status: &str, reason: &str) -> Value {
    json!({ "conditions": [{
        "type": type_, "status": status, "reason": reason, "message": "by hand", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]})
}

fn gates(instance: &DynamicObject) -> Vec<String> {
    let gates = instance.data["spec"]["controller"]["schedulingGates"].as_array().cloned().unwrap_or_default();
    gates.iter().map(|gate| gate["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until an object's condition has this reason, and returns its message.
async fn reason(client: &Client, kind: &str, namespace: &str, name: &str, type_: &str, reason: &str) -> String {
    eventually(&format!("{kind} {name} says {type_} {reason}"), || async {
        let object = get(client, kind, namespace, name).await.ok_or("it is not there")?;
        let told = condition(&object, type_);
        if told["reason"] == reason { Ok(told["message"].as_str().unwrap().to_owned()) } else { Err(told.to_string()) }
    })
    .await
}

#[test]
fn the_full_road_with_networks_and_quota() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("road").await;
        apply(&world.project, grant(&ns, 2)).await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 2)).await;
        ready(world, &ns, "web", 2).await;
        for n in 0..2 {
            let name = format!("web-p-dfw-{n}");
            let instance = get(&world.dfw, "Instance", &hub, &name).await.unwrap();
            assert_eq!(gates(&instance), Vec::<String>::new());
            assert_eq!(instance.data["spec"]["location"]["name"], "dfw-1");
            reason(&world.project, "Instance", &ns, &name, "Ready", "Available").await;
            let claim = get(&world.project, "ResourceClaim", &ns, &format!("instance-{name}")).await.unwrap();
            assert_eq!(claim.labels()["compute.datumapis.com/source-cluster"], "cell-dfw");
            assert_eq!(claim.labels()["compute.datumapis.com/instance-namespace"], hub);
            assert_eq!(claim.data["spec"]["consumerRef"]["name"], "single");
            let amounts: Vec<_> =
                claim.data["spec"]["requests"].as_array().unwrap().iter().map(|r| &r["amount"]).collect();
            assert_eq!(amounts, [1, 1000, 2048]);
        }
        let wd = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.unwrap();
        assert_eq!(wd.data["status"]["location"]["name"], "dfw-1");
        let subnets = list(&world.dfw, "SubnetClaim", &hub).await;
        assert_eq!(
            subnets.iter().map(|c| c.name_any()).collect::<Vec<_>>(),
            ["default-dfw-1-0"],
            "one for the context"
        );
        // A second Workload on the same network needs no second subnet.
        apply(&world.project, grant(&ns, 3)).await;
        apply(&world.project, workload(&ns, "api", &["dfw"], 1)).await;
        ready(world, &ns, "api", 1).await;
        assert_eq!(list(&world.dfw, "SubnetClaim", &hub).await.len(), 1, "an equal one is used again");
        // A new template: instance by instance, each with a claim of its own, never one more than the budget.
        let before = list(&world.project, "ResourceClaim", &ns).await;
        let mut changed = workload(&ns, "web", &["dfw"], 2);
        changed["spec"]["template"] = template("docker.io/library/nginx:2");
        apply(&world.project, changed).await;
        ready(world, &ns, "web", 2).await;
        let after = list(&world.project, "ResourceClaim", &ns).await;
        assert_eq!(after.len(), 3);
        let kept = after.iter().filter(|claim| before.iter().any(|old| old.uid() == claim.uid())).count();
        assert_eq!(kept, 1, "the other Workload's");
        for name in ["web", "api"] {
            delete(&world.project, "Workload", &ns, name).await;
        }
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

#[test]
fn a_workload_waits_for_networks_that_do_not_exist() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, _) = world.namespace("absent").await;
        apply(&world.project, grant(&ns, 9)).await;
        delete(&world.project, "Network", &ns, "default").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        let message = reason(&world.project, "Workload", &ns, "web", "Available", "NetworkNotFound").await;
        assert_eq!(message, "Unable to find networks: default");
        assert!(list(&world.project, "WorkloadDeployment", &ns).await.is_empty());
        apply(&world.project, network(&ns, "default")).await;
        ready(world, &ns, "web", 1).await;
        delete(&world.project, "Workload", &ns, "web").await;
    });
}

#[test]
fn every_step_of_a_network_is_told_on_deployment_and_instance() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("steps").await;
        apply(&world.project, grant(&ns, 9)).await;
        apply(&world.project, network(&ns, "by-hand")).await;
        let mut object = workload(&ns, "web", &["dfw"], 1);
        object["spec"]["template"]["spec"]["networkInterfaces"] = json!([{ "network": { "name": "by-hand" } }]);
        apply(&world.project, object).await;
        let told = |expected: &'static str, message: &'static str| {
            let (ns, hub) = (ns.clone(), hub.clone());
            async move {
                for (client, kind, ns, name, type_) in [
                    (&world.dfw, "Instance", &hub, "web-p-dfw-0", "Ready"),
                    (&world.project, "WorkloadDeployment", &ns, "web-p-dfw", "Available"),
                    (&world.project, "Instance", &ns, "web-p-dfw-0", "Ready"),
                ] {
                    eventually(&format!("{kind} says {expected} {message}"), || async {
                        let object = get(client, kind, ns, name).await.ok_or("it is not there")?;
                        let told = condition(&object, type_);
                        let text = told["message"].as_str().unwrap_or_default();
                        if told["reason"] == expected && text.contains(message) { Ok(()) } else { Err(told.to_string()) }
                    })
                    .await;
                }
                let instance = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap();
                assert_eq!(gates(&instance), ["Network", "Quota"], "they open together");
                assert_eq!(condition(&instance, "QuotaGranted")["status"], "True", "though quota is granted");
            }
        };
        let binding = "web-p-dfw-net-0";
        told("NetworkProvisioning", "NetworkBinding web-p-dfw-net-0 says nothing yet").await;
        for why in ["NetworkFailedToCreate", "NetworkNotFound", "ProjectUnresolved", "LocationNotAvailable"] {
            set_status(&world.dfw, "NetworkBinding", &hub, binding, says("Ready", "False", why)).await;
            told(why, "by hand").await;
        }
        set_status(&world.dfw, "NetworkBinding", &hub, binding, says("Ready", "False", "NetworkContextNotReady")).await;
        told("NetworkProvisioning", "NetworkBinding web-p-dfw-net-0 is not ready: NetworkContextNotReady").await;
        let mut status = says("Ready", "True", "NetworkContextReady");
        status["networkContextRef"] = json!({ "namespace": hub, "name": "by-hand-dfw" });
        set_status(&world.dfw, "NetworkBinding", &hub, binding, status).await;
        told("NetworkProvisioning", "NetworkContext by-hand-dfw is not there yet").await;
        let of = |kind: &str, name: &str, spec: Value| json!({
            "apiVersion": "networking.datumapis.com/v1alpha", "kind": kind,
            "metadata": { "name": name, "namespace": hub }, "spec": spec,
        });
        apply(&world.dfw, of("NetworkContext", "by-hand-dfw", json!({}))).await;
        set_status(&world.dfw, "NetworkContext", &hub, "by-hand-dfw", says("Ready", "False", "Allocating")).await;
        told("NetworkProvisioning", "NetworkContext by-hand-dfw is not ready: Allocating").await;
        assert!(list(&world.dfw, "SubnetClaim", &hub).await.is_empty());
        set_status(&world.dfw, "NetworkContext", &hub, "by-hand-dfw", says("Ready", "True", "Ready")).await;
        told("NetworkProvisioning", "SubnetClaim by-hand-dfw-0 says nothing yet").await;
        let claim = get(&world.dfw, "SubnetClaim", &hub, "by-hand-dfw-0").await.unwrap();
        assert_eq!(claim.data["spec"], json!({
            "subnetClass": "private", "ipFamily": "IPv4", "networkContext": { "name": "by-hand-dfw" }, "location": { "name": "dfw-1" },
        }));
        assert_eq!(claim.owner_references()[0].kind, "NetworkContext");
        let mut status = says("Ready", "True", "Ready");
        status["subnetRef"] = json!({ "name": "sub" });
        set_status(&world.dfw, "SubnetClaim", &hub, "by-hand-dfw-0", status).await;
        told("NetworkProvisioning", "Subnet sub is not there yet").await;
        apply(&world.dfw, of("Subnet", "sub", json!({ "networkContext": { "name": "by-hand-dfw" } }))).await;
        set_status(&world.dfw, "Subnet", &hub, "sub", says("Ready", "True", "Ready")).await;
        ready(world, &ns, "web", 1).await;
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

/// A deployment put on the cell by hand, as Karmada would bring it, in a namespace of these labels.
async fn on_cell(world: &World, labels: Value, city: &str) -> String {
    let namespace = format!("ns-{:016x}", fastrand::u64(..));
    let object =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace, "labels": labels } });
    apply(&world.dfw, object).await;
    let mut object = crate::common::deployment(&namespace, "wd", city);
    object["metadata"]["labels"] = json!({ "meta.datumapis.com/upstream-namespace": "whatever" });
    apply(&world.dfw, object).await;
    namespace
}

#[test]
fn the_location_of_a_city_must_be_one() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let hub = on_cell(world, json!({}), "syd").await;
        let location = |name: &str| {
            json!({
                "apiVersion": "networking.datumapis.com/v1alpha", "kind": "Location",
                "metadata": { "name": name }, "spec": { "topology": { "topology.datum.net/city-code": "SYD" } },
            })
        };
        let told = |expected: &'static str| {
            let hub = hub.clone();
            async move {
                reason(&world.dfw, "Instance", &hub, "wd-0", "Ready", expected).await;
                reason(&world.dfw, "WorkloadDeployment", &hub, "wd", "Available", expected).await
            }
        };
        // Quota that nobody can ask for ranks above networks that are on their way.
        reason(&world.dfw, "WorkloadDeployment", &hub, "wd", "Available", "QuotaProjectIDUnresolvable").await;
        apply(&world.dfw, location("syd-1")).await;
        apply(&world.dfw, location("syd-2")).await;
        let message = told("AmbiguousServingLocation").await;
        assert!(message.contains("syd-1, syd-2"), "{message}");
        delete(&world.dfw, "Location", "", "syd-2").await;
        told("QuotaProjectIDUnresolvable").await;
        let wd = get(&world.dfw, "WorkloadDeployment", &hub, "wd").await.unwrap();
        assert_eq!(wd.data["status"]["location"]["name"], "syd-1");
        // A LocationBinding to the same location is no second one.
        let binding = json!({
            "apiVersion": "networking.datumapis.com/v1alpha", "kind": "LocationBinding", "metadata": { "name": "syd" },
            "spec": { "locationRef": { "name": "syd-1" }, "topology": { "topology.datum.net/city-code": "syd" } },
        });
        apply(&world.dfw, binding).await;
        delete(&world.dfw, "Location", "", "syd-1").await;
        eventually("the network is bound by way of the LocationBinding", || async {
            let binding = get(&world.dfw, "NetworkBinding", &hub, "wd-net-0").await.ok_or("no binding")?;
            if binding.data["spec"]["location"]["name"] == "syd-1" { Ok(()) } else { Err(binding.data.to_string()) }
        })
        .await;
        delete(&world.dfw, "LocationBinding", "", "syd").await;
        delete(&world.dfw, "Namespace", "", &hub).await;
    });
}

/// A project path of its own to the one project, so that what happens to it happens to nobody else.
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

#[test]
fn every_reason_of_quota_appears_and_disappears() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let told = |hub: &str, expected: &'static str| {
            let hub = hub.to_owned();
            async move {
                reason(&world.dfw, "Instance", &hub, "wd-0", "QuotaGranted", expected).await;
                let shown = match expected {
                    "QuotaAvailable" => "Available",
                    expected => expected,
                };
                reason(&world.dfw, "Instance", &hub, "wd-0", "Ready", shown).await
            }
        };
        // No such namespace; then nobody looks; then too little; then enough.
        let labels = project(world, "quota-a").await;
        let hub = on_cell(world, labels, "dfw").await;
        told(&hub, "QuotaNamespaceNotFound").await;
        make_namespace(world, "quota-a").await;
        told(&hub, "QuotaNoBudget").await;
        apply(&world.project, grant("quota-a", 0)).await;
        told(&hub, "QuotaExceeded").await;
        let message = reason(&world.dfw, "WorkloadDeployment", &hub, "wd", "ReplicasReady", "QuotaExceeded").await;
        assert!(message.starts_with("1 of 1 desired replicas pending quota"), "{message}");
        apply(&world.project, grant("quota-a", 1)).await;
        told(&hub, "QuotaAvailable").await;
        delete(&world.dfw, "Namespace", "", &hub).await;
        eventually("the claim is released", || async {
            let left = list(&world.project, "ResourceClaim", "quota-a").await.len();
            if left == 0 { Ok(()) } else { Err(left.to_string()) }
        })
        .await;

        // A project that is away, silent, shut, unknown; and each time is there again.
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
            told(&hub, expected).await;
            let instance = get(&world.dfw, "Instance", &hub, "wd-0").await.unwrap();
            assert!(gates(&instance).contains(&"Quota".to_owned()));
            assert!(failures(world, label).await > before, "{label}");
            milo(world).set("quota-b", Reach::Served);
            told(&hub, "QuotaAvailable").await;
            // All names are the same in this project: the next one needs the claim's name.
            delete(&world.dfw, "Namespace", "", &hub).await;
            eventually("the claim is released", || async {
                let left = list(&world.project, "ResourceClaim", "quota-b").await.len();
                if left == 0 { Ok(()) } else { Err(left.to_string()) }
            })
            .await;
        }

        // A namespace that does not say whose it is, until it does.
        let hub = on_cell(world, json!({}), "dfw").await;
        told(&hub, "QuotaProjectIDUnresolvable").await;
        merge(&world.dfw, "Namespace", "", &hub, json!({ "metadata": { "labels": labels } })).await;
        told(&hub, "QuotaAvailable").await;
        delete(&world.dfw, "Namespace", "", &hub).await;

        // What the backend calls invalid.
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
        told(&hub, "ValidationFailed").await;
        set_status(&world.project, "ResourceClaim", "quota-c", claim, says("Granted", "True", "QuotaAvailable")).await;
        told(&hub, "QuotaAvailable").await;
        delete(&world.dfw, "Namespace", "", &hub).await;
    });
}

#[test]
fn claims_of_others_are_waited_for_and_what_is_left_behind_is_found() {
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
        // The city's former cell still holds the name.
        apply(&world.project, claim("instance-wd-0", "cell-old", "ns-old")).await;
        let hub = on_cell(world, labels, "dfw").await;
        eventually("it says by whom", || async {
            let instance = get(&world.dfw, "Instance", &hub, "wd-0").await.ok_or("none")?;
            let told = condition(&instance, "QuotaGranted")["message"].to_string();
            if told.contains("still held by cell-old") { Ok(()) } else { Err(told) }
        })
        .await;
        delete(&world.project, "ResourceClaim", "quota-e", "instance-wd-0").await;
        reason(&world.dfw, "Instance", &hub, "wd-0", "Ready", "Available").await;
        // A claim of ours for an Instance that is no more; one without a uid may be another's of the same name.
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

/// How long an Instance waits here for a project that is not there.
const GONE: Duration = Duration::from_secs(12);

#[test]
fn a_claim_whose_project_is_gone_for_good_is_left_behind_and_told() {
    RUNTIME.block_on(async {
        let cell = format!("timing:\n  quotaProjectGoneSeconds: {}\n", GONE.as_secs());
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
        // It is held for a while: an absence that passes leaves nothing behind.
        eventually_within(PATIENCE * 2, "it is let go", || async {
            let left = get(&world.dfw, "Instance", &hub, "wd-0").await;
            if left.is_none() { Ok(()) } else { Err("still there".into()) }
        })
        .await;
        assert!(deleted.elapsed() > GONE, "it was held for {:?}", deleted.elapsed());
        let told = list(&world.dfw, "Event", &hub).await;
        assert_eq!(told.iter().filter(|event| event.data["reason"] == "QuotaClaimOrphaned").count(), 1);
        let text = world.operators[world.of_cell("dfw")].metrics().await.unwrap();
        assert!(text.lines().any(|line| line == "compute_quota_claim_orphaned_total 1"), "{text}");
        delete(&world.dfw, "Namespace", "", &hub).await;
    });
}

#[test]
fn an_instance_costs_the_fewest_writes() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("cost").await;
        apply(&world.project, grant(&ns, 9)).await;
        apply(&world.project, workload(&ns, "first", &["dfw"], 1)).await;
        ready(world, &ns, "first", 1).await;
        let planes = [&world.bed.project, &world.bed.hub, world.bed.cell("dfw").unwrap()];
        let marks = planes.map(Audit::mark);
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        reason(&world.project, "Instance", &ns, "web-p-dfw-0", "Ready", "Available").await;
        let costs = marks.map(|mark| -> Vec<String> {
            let ours = |r: &testbed::audit::Request| {
                [&ns, &hub].contains(&&r.namespace) && r.name.contains("web-p-dfw-") && !r.resource.ends_with("/status")
            };
            let requests = mark.requests().unwrap().into_iter().filter(ours);
            let mut all: Vec<String> = requests.map(|r| format!("{} {} {}", r.verb, r.resource, r.code)).collect();
            all.sort();
            all
        });
        assert_eq!(costs[0], ["create resourceclaims 201", "patch instances 200", "patch instances 201"], "project");
        // Its owner and its place are looked at once, before the copy is made.
        assert_eq!(costs[1], ["get instances 404", "patch instances 200", "patch instances 201"], "hub");
        assert_eq!(costs[2], ["create instances 201", "create networkbindings 201", "patch instances 200"], "cell");
        for name in ["first", "web"] {
            delete(&world.project, "Workload", &ns, name).await;
        }
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}
