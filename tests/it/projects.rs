//! Many projects behind one manager: engaged and let go as they come and go, none at the mercy of another.
//! On one bed with a stand-in for Milo, the tests one after the other: each changes what all see.
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Lender, Lent},
    delete, deployment, eventually,
    example_app::SWEEPS,
    get, list, merge, never, promised,
    refusal::Refusal,
    workload,
};
use http::Method;
use jiff::Timestamp;
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{
    Options, Testbed, audit::Audit, bed::announce, control_plane::ControlPlane, gate::Gate, neighbours::Reach,
};

/// How long the hub keeps what a vanished project left.
const GRACE: Duration = Duration::from_secs(6);
/// Memory that a project may take in which nothing happens. A debug build takes more than a release.
const IDLE_KIB: u64 = 1024;

static BEDS: Lender<World> = Lender::new(1);

async fn world() -> Lent<World> {
    let projects = ["alpha", "beta", "idle"].map(String::from).into();
    let options = Options { cells: vec!["dfw".into()], projects, ..Options::default() };
    BEDS.lend(async || World::start_with(options).await).await
}

fn plane<'a>(bed: &'a Testbed, name: &str) -> &'a ControlPlane {
    if name == "alpha" { &bed.project } else { &bed.others[name] }
}

async fn client(world: &World, name: &str) -> Client {
    plane(&world.bed, name).client().await.unwrap()
}

async fn metric(world: &World, name: &str) -> f64 {
    let text = world.operators[0].metrics().await.unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or(0.0)
}

async fn engaged(world: &World, count: f64) {
    eventually(&format!("{count} projects are engaged"), || async {
        let engaged = metric(world, "compute_projects_engaged").await;
        if (engaged - count).abs() < 0.5 { Ok(()) } else { Err(engaged.to_string()) }
    })
    .await;
}

async fn gone_from(project: &Client, namespace: &str) {
    eventually(&format!("namespace {namespace} is gone"), || async {
        let left = get(project, "Namespace", "", namespace).await;
        if left.is_none() { Ok(()) } else { Err("still there".into()) }
    })
    .await;
}

async fn served(project: &Client, namespace: &str, name: &str) {
    eventually(&format!("{name} runs"), || async {
        let wd = get(project, "WorkloadDeployment", namespace, name).await.ok_or("no deployment")?;
        if wd.data["status"]["readyReplicas"] == 1 { Ok(()) } else { Err(wd.data["status"].to_string()) }
    })
    .await;
}

#[test]
fn each_project_is_served_and_sees_its_own_alone() {
    RUNTIME.block_on(async {
        let world = world().await;
        engaged(&world, 3.0).await;
        let mut hubs = Vec::new();
        for name in ["alpha", "beta"] {
            let project = client(&world, name).await;
            // The same names in both: nothing of one may be taken for the other's.
            hubs.push(world.namespace_in(&project, "shop").await);
            apply(&project, workload("shop", "web", &["dfw"], 1)).await;
        }
        assert_ne!(hubs[0], hubs[1]);
        for (name, hub) in ["alpha", "beta"].iter().zip(&hubs) {
            let project = client(&world, name).await;
            served(&project, "shop", "web-p-dfw").await;
            let namespace = get(&world.hub, "Namespace", "", hub).await.unwrap();
            assert_eq!(namespace.labels()["meta.datumapis.com/upstream-cluster-name"], format!("cluster-{name}"));
            eventually("its Instance is shown", || async {
                let shown = get(&project, "Instance", "shop", "web-p-dfw-0").await.ok_or("not yet")?;
                let of = &shown.labels()["meta.datumapis.com/upstream-cluster-name"];
                if *of == format!("cluster-{name}") { Ok(()) } else { Err(of.clone()) }
            })
            .await;
        }
        // What goes in one stays in the other.
        delete(&client(&world, "beta").await, "Workload", "shop", "web").await;
        eventually("beta's is gone", || async {
            let left = list(&world.hub, "Instance", &hubs[1]).await.len()
                + list(&world.hub, "WorkloadDeployment", &hubs[1]).await.len();
            if left == 0 { Ok(()) } else { Err(left.to_string()) }
        })
        .await;
        assert_eq!(list(&world.hub, "Instance", &hubs[0]).await.len(), 1);
        delete(&client(&world, "alpha").await, "Workload", "shop", "web").await;
    });
}

#[test]
fn a_project_that_is_silent_shut_or_incomplete_delays_no_other() {
    RUNTIME.block_on(async {
        let world = world().await;
        engaged(&world, 3.0).await;
        let (alpha, beta) = (client(&world, "alpha").await, client(&world, "beta").await);
        let milo = world.bed.milo.as_ref().unwrap();
        // The hub's API server has no LocationBindings: a project that is not all there.
        milo.add("incomplete", &world.bed.hub).await.unwrap();
        announce(&alpha, "incomplete").await.unwrap();
        engaged(&world, 4.0).await;
        for (n, reach) in [Reach::Silent, Reach::Away, Reach::Absent].into_iter().enumerate() {
            let ns = format!("calm-{n}");
            for project in [&alpha, &beta] {
                world.namespace_in(project, &ns).await;
            }
            for k in 0..20 {
                apply(&beta, deployment(&ns, &format!("waiting-{k}"), "dfw")).await;
            }
            served(&beta, &ns, "waiting-19").await;
            milo.set("beta", reach);
            for k in 0..20 {
                let mut scaled = deployment(&ns, &format!("waiting-{k}"), "dfw");
                scaled["spec"]["scaleSettings"]["minReplicas"] = json!(0);
                apply(&beta, scaled).await;
            }
            let began = tokio::time::Instant::now();
            apply(&alpha, workload(&ns, "web", &["dfw"], 1)).await;
            served(&alpha, &ns, "web-p-dfw").await;
            assert!(began.elapsed() < promised(Duration::from_secs(10)), "{reach:?}: {:?}", began.elapsed());
            eventually("ready all the while, and who is not is named", || async {
                let (code, body) = world.operators[0].probe("/readyz").await.map_err(|e| e.to_string())?;
                let named = ["list locationbindings.networking.datumapis.com in project incomplete", "in project beta"];
                if code == 200 && named.iter().all(|name| body.contains(name)) {
                    Ok(())
                } else {
                    Err(format!("{code} {body}"))
                }
            })
            .await;
            milo.set("beta", Reach::Served);
            eventually("beta catches up", || async {
                let wd = get(&beta, "WorkloadDeployment", &ns, "waiting-0").await.ok_or("gone")?;
                if wd.data["status"]["replicas"] == 0 && wd.data["status"]["observedGeneration"] == 2 {
                    Ok(())
                } else {
                    Err(wd.data["status"].to_string())
                }
            })
            .await;
            for project in [&alpha, &beta] {
                delete(project, "Namespace", "", &ns).await;
                gone_from(project, &ns).await;
            }
        }
        delete(&alpha, "Project", "", "incomplete").await;
        engaged(&world, 3.0).await;
    });
}

#[test]
fn a_project_deleted_with_deployments_in_it_is_finalised_on_the_hub() {
    RUNTIME.block_on(async {
        let world = world().await;
        let (alpha, beta) = (client(&world, "alpha").await, client(&world, "beta").await);
        engaged(&world, 3.0).await;
        let hub = world.namespace_in(&beta, "leaving").await;
        apply(&beta, workload("leaving", "web", &["dfw"], 1)).await;
        served(&beta, "leaving", "web-p-dfw").await;
        // Milo holds a Project by a finalizer until everything in it is gone; its readiness goes first.
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
        // And a project of that name that comes later is a new one.
        announce(&alpha, "beta").await.unwrap();
        engaged(&world, 3.0).await;
        world.namespace_in(&beta, "again").await;
        apply(&beta, workload("again", "web", &["dfw"], 1)).await;
        served(&beta, "again", "web-p-dfw").await;
        delete(&beta, "Namespace", "", "again").await;
    });
}

#[test]
fn a_project_that_cannot_be_read_is_still_worked_on() {
    RUNTIME.block_on(async {
        let world = world().await;
        let (alpha, beta) = (client(&world, "alpha").await, client(&world, "beta").await);
        engaged(&world, 3.0).await;
        let hub = world.namespace_in(&beta, "unread").await;
        apply(&beta, workload("unread", "web", &["dfw"], 1)).await;
        served(&beta, "unread", "web-p-dfw").await;
        let projects = api(&alpha, "Project", "");
        let before = projects.get("beta").await.unwrap().data["status"].clone();
        let status = |status: Value| {
            let projects = projects.clone();
            async move {
                let patch = Patch::Merge(json!({ "status": status }));
                projects.patch_status("beta", &PatchParams::default(), &patch).await.unwrap();
            }
        };
        status(json!({ "conditions": "of a shape that nobody knows" })).await;
        eventually("it is counted", || async {
            let text = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
            let counted =
                text.lines().any(|l| l.starts_with("compute_undecodable_objects") && l.contains("\"Project\""));
            if counted { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        apply(&beta, workload("unread", "late", &["dfw"], 1)).await;
        served(&beta, "unread", "late-p-dfw").await;
        assert!(metric(&world, "compute_projects_engaged").await > 2.5, "what is not known is not gone");
        status(before).await;
        delete(&beta, "Namespace", "", "unread").await;
        gone_from(&beta, "unread").await;
        eventually("nothing is left on the hub", || async {
            let left = list(&world.hub, "WorkloadDeployment", &hub).await.len();
            if left == 0 { Ok(()) } else { Err(left.to_string()) }
        })
        .await;
    });
}

#[test]
fn a_project_with_much_to_do_does_not_starve_one_with_little() {
    RUNTIME.block_on(async {
        const MUCH: usize = 400;
        let world = world().await;
        engaged(&world, 3.0).await;
        let (alpha, beta) = (client(&world, "alpha").await, client(&world, "beta").await);
        let (much, little) = (world.namespace_in(&alpha, "much").await, world.namespace_in(&beta, "little").await);
        // No cell serves the city: what is counted is the manager's own work.
        let copies = |hub: String| {
            let client = world.hub.clone();
            async move { list(&client, "WorkloadDeployment", &hub).await.len() }
        };
        world.bed.milo.as_ref().unwrap().set("alpha", Reach::Away); // all of it comes at once, when it is back
        for n in 0..MUCH {
            apply(&alpha, deployment("much", &format!("wd-{n}"), "lhr")).await;
        }
        world.bed.milo.as_ref().unwrap().set("alpha", Reach::Served);
        eventually("the big one is under way", || async {
            let done = copies(much.clone()).await;
            if done > 0 { Ok(()) } else { Err(done.to_string()) }
        })
        .await;
        for n in 0..3 {
            apply(&beta, deployment("little", &format!("wd-{n}"), "lhr")).await;
        }
        let ahead = eventually("the small one is done", || async {
            if copies(little.clone()).await == 3 { Ok(copies(much.clone()).await) } else { Err(String::new()) }
        })
        .await;
        assert!(ahead < MUCH / 4, "the small one had to wait for {ahead} of {MUCH} of the big one");
        eprintln!("the small project was done when the big one was at {ahead} of {MUCH}");
        eventually("the big one is done", || async {
            let done = copies(much.clone()).await;
            if done == MUCH { Ok(()) } else { Err(done.to_string()) }
        })
        .await;
        for (project, namespace) in [(&alpha, "much"), (&beta, "little")] {
            delete(project, "Namespace", "", namespace).await;
            gone_from(project, namespace).await;
        }
    });
}

#[test]
fn fifty_projects_that_rest_ask_for_nothing() {
    RUNTIME.block_on(async {
        let world = world().await;
        engaged(&world, 3.0).await;
        let alpha = client(&world, "alpha").await;
        let resident = || -> u64 {
            let status = std::fs::read_to_string(format!("/proc/{}/status", world.operators[0].process.pid())).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        let before = resident();
        let names: Vec<String> = (0..47).map(|n| format!("idle-{n:02}")).collect();
        for name in &names {
            world.bed.milo.as_ref().unwrap().add(name, &world.bed.others["idle"]).await.unwrap();
            announce(&alpha, name).await.unwrap();
        }
        engaged(&world, 50.0).await;
        eventually("all are synced", || async {
            let (code, body) = world.operators[0].probe("/readyz").await.map_err(|e| e.to_string())?;
            if (code, body.as_str()) == (200, "ok\n") { Ok(()) } else { Err(format!("{code} {body}")) }
        })
        .await;
        let planes = [&world.bed.project, &world.bed.others["idle"], &world.bed.hub];
        eventually("quiet begins", || async {
            let marks = planes.map(Audit::mark);
            tokio::time::sleep(Duration::from_secs(2)).await;
            let asked: usize = marks.iter().map(|mark| mark.requests().unwrap().len()).sum();
            if asked == 0 { Ok(()) } else { Err(format!("{asked} requests")) }
        })
        .await;
        let marks = planes.map(Audit::mark);
        tokio::time::sleep(Duration::from_secs(30)).await; // the very thing that is to be shown
        for mark in &marks {
            // A sweep of the hub, every five minutes, may fall into it.
            let swept = ["configmaps", "secrets", "resourcebindings"];
            let sweeps = |r: &testbed::audit::Request| r.verb == "list" && swept.contains(&&*r.resource);
            let asked: Vec<_> = mark.requests().unwrap().into_iter().filter(|r| !sweeps(r)).collect();
            assert_eq!(asked, []);
        }
        let each = resident().saturating_sub(before) / 47;
        eprintln!("resident memory per idle project: {each} KiB");
        assert!(each < IDLE_KIB, "an idle project takes {each} KiB of memory");
        for name in &names {
            delete(&alpha, "Project", "", name).await;
        }
        engaged(&world, 3.0).await;
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

#[test]
fn what_a_vanished_project_leaves_on_the_hub_is_reported_and_removed_after_its_grace() {
    RUNTIME.block_on(async {
        let mut world = world().await;
        engaged(&world, 3.0).await;
        world.bed.options_mut().management = format!("{SWEEPS}  strandedGraceSeconds: {}\n", GRACE.as_secs());
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
        // One that somebody keeps from going must not keep the other from it.
        let stuck = world.namespace_in(&beta, "stuck").await;
        apply(&beta, workload("stuck", "web", &["dfw"], 1)).await;
        eventually("it is on the hub", || async {
            get(&world.hub, "WorkloadDeployment", &stuck, "web-p-dfw").await.map(drop).ok_or("not yet".to_owned())
        })
        .await;
        // Karmada itself refuses to let go of the hub namespace until its protection is lifted: the rule is tried on another.
        apply(&world.hub, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "probe" } })).await;
        let unless = format!("!(oldObject.metadata.name in ['{stuck}', 'probe'])");
        let rule = Refusal { name: "stuck", kind: ("", "namespaces"), operation: "DELETE", unless: &unless };
        rule.begin_with(&world.hub, || async {
            let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
            api(&world.hub, "Namespace", "").delete("probe", &params).await.map(drop)
        })
        .await;
        // Gone while nobody looks: nothing of it is finalised.
        let on_hub = Audit::mark(&world.bed.hub);
        world.operators[0].process.kill();
        delete(&world.project, "Project", "", "beta").await;
        let gate = Gate::start(world.bed.dir(), &world.bed.hub, &Arc::default()).await.unwrap();
        gate.hold().next(Method::PATCH, &format!("/namespaces/{lost}"));
        let before = get(&world.hub, "Namespace", "", &lost).await.unwrap();
        world.restart_manager(&[&format!("--federation-kubeconfig={}", gate.kubeconfig().display())]).await;
        let counted = std::sync::atomic::AtomicBool::new(false);
        let told: Timestamp = eventually("it is told, and counted", || async {
            // Once it is removed, it is counted no more.
            if metric(&world, "compute_federation_stranded_namespaces").await > 0.5 {
                counted.store(true, Ordering::SeqCst);
            }
            let told = list(&world.hub, "Event", "default")
                .await
                .into_iter()
                .find(|event| event.data["reason"] == "Stranded" && event.data["regarding"]["name"] == json!(lost))
                .ok_or("no Event")?;
            if !counted.load(Ordering::SeqCst) {
                return Err("not counted".to_owned());
            }
            Ok(told.data["eventTime"].as_str().unwrap().parse().unwrap())
        })
        .await;
        // The manager has read the namespace and judged it; now somebody says that it is to stay.
        gate.hold().caught().await;
        let pause =
            |value: Value| json!({ "metadata": { "annotations": { "compute.datumapis.com/pause-cleanup": value } } });
        merge(&world.hub, "Namespace", "", &lost, pause(json!("true"))).await;
        gate.hold().release();
        eventually("it says that the namespace stays", || async {
            let log = std::fs::read_to_string(world.operators[0].process.log()).map_err(|e| e.to_string())?;
            if log.contains("stranded hub namespace stays for now") { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        never("it is touched", || async {
            let after = get(&world.hub, "Namespace", "", &lost).await.unwrap().metadata;
            (after.deletion_timestamp.is_some() || after.labels != before.metadata.labels).then_some(after)
        })
        .await;
        merge(&world.hub, "Namespace", "", &lost, pause(Value::Null)).await;
        for (place, client) in [("hub", &world.hub), ("dfw", &world.dfw)] {
            eventually(&format!("it is gone from {place}"), || async {
                let left = get(client, "Namespace", "", &lost).await;
                if left.is_none() { Ok(()) } else { Err("still there".to_owned()) }
            })
            .await;
        }
        assert!(get(&world.hub, "Namespace", "", &stuck).await.is_some());
        rule.end(&world.hub).await;
        delete_once_allowed(&world.hub, "probe").await;
        eventually("the other is gone as well", || async {
            if get(&world.hub, "Namespace", "", &stuck).await.is_none() { Ok(()) } else { Err("there".to_owned()) }
        })
        .await;
        let asked = on_hub.requests().unwrap();
        let removal =
            asked.iter().find(|r| r.verb == "delete" && r.resource == "namespaces" && r.name == lost).unwrap();
        let warned = removal.at.duration_since(told);
        assert!(warned.as_secs_f64() > GRACE.as_secs_f64() - 0.1, "removed {warned:?} after it was told");
        assert!(get(&world.dfw, "Instance", &kept, "web-p-dfw-0").await.is_some(), "the other project's runs on");
        // As it was before, for whoever comes next.
        delete(&world.project, "Workload", "kept", "web").await;
        announce(&world.project, "beta").await.unwrap();
        world.bed.options_mut().management.clear();
        world.restart_manager(&[]).await;
        engaged(&world, 3.0).await;
        for namespace in ["lost", "stuck"] {
            delete(&beta, "Namespace", "", namespace).await;
            gone_from(&beta, namespace).await;
        }
    });
}
