//! Many projects behind one manager: engaged and let go as they come and go, none at the mercy of another.
//! On one bed with a stand-in for Milo, the tests one after the other: each changes what all see.
mod admission;
mod generated;
mod leaving;
mod load;
mod twins;

use std::time::Duration;

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Lender, Lent},
    delete, deployment, eventually, get, list, promised, workload,
};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{Options, Testbed, bed::announce, control_plane::ControlPlane, neighbours::Reach};

/// A project that is back is found sooner than in production.
const PERIODS: &str = "timing:\n  tenantWatchRetryMaxSeconds: 3\n";

static BEDS: Lender<World> = Lender::new(1);

async fn world() -> Lent<World> {
    let projects = ["alpha", "beta", "idle"].map(String::from).into();
    let management = PERIODS.to_owned();
    let options = Options { cells: vec!["dfw".into()], projects, management, ..Options::default() };
    let world = BEDS.lend(async || World::start_with(options).await).await;
    world.settled().await;
    world
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

async fn served(project: &Client, namespace: &str, name: &str) {
    eventually(&format!("{name} runs"), || async {
        let wd = get(project, "WorkloadDeployment", namespace, name).await.ok_or("no deployment")?;
        if wd.data["status"]["readyReplicas"] == 1 { Ok(()) } else { Err(wd.data["status"].to_string()) }
    })
    .await;
}

/// Deletes what is in a namespace, and not the namespace: its controller comes back to one that is not empty yet only
/// after eight seconds.
async fn empty(project: &Client, namespace: &str) {
    for kind in ["Workload", "WorkloadDeployment"] {
        let all = ListParams::default();
        api(project, kind, namespace).delete_collection(&DeleteParams::background(), &all).await.unwrap();
    }
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
        for project in [&alpha, &beta] {
            world.namespace_in(project, "calm").await;
        }
        let waiting = |k: usize, replicas: usize| {
            let mut scaled = deployment("calm", &format!("waiting-{k}"), "dfw");
            scaled["spec"]["scaleSettings"]["minReplicas"] = json!(replicas);
            scaled
        };
        for k in 0..20 {
            apply(&beta, waiting(k, 1)).await;
        }
        served(&beta, "calm", "waiting-19").await;
        for (n, reach) in [Reach::Silent, Reach::Away, Reach::Absent].into_iter().enumerate() {
            milo.set("beta", reach);
            let replicas = n % 2;
            for k in 0..20 {
                apply(&beta, waiting(k, replicas)).await;
            }
            let began = tokio::time::Instant::now();
            let name = format!("web-{n}");
            apply(&alpha, workload("calm", &name, &["dfw"], 1)).await;
            served(&alpha, "calm", &format!("{name}-p-dfw")).await;
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
                let wd = get(&beta, "WorkloadDeployment", "calm", "waiting-0").await.ok_or("gone")?;
                if wd.data["status"]["replicas"] == replicas && wd.data["status"]["observedGeneration"] == n + 2 {
                    Ok(())
                } else {
                    Err(wd.data["status"].to_string())
                }
            })
            .await;
        }
        for project in [&alpha, &beta] {
            empty(project, "calm").await;
        }
        world.settled().await;
        delete(&alpha, "Project", "", "incomplete").await;
        engaged(&world, 3.0).await;
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
        empty(&beta, "unread").await;
        eventually("nothing is left on the hub", || async {
            let left = list(&world.hub, "WorkloadDeployment", &hub).await.len();
            if left == 0 { Ok(()) } else { Err(left.to_string()) }
        })
        .await;
    });
}
