//! Many projects under one manager: engaged and released as they come and go, and isolated from each other. The tests run one
//! after the other on one bed with a stand-in for Milo, because each changes what all see.
mod admission;
mod generated;
mod leaving;
mod twins;

use std::time::Duration;

use crate::common::{
    RUNTIME, World, api, apply, delete, deployment, eventually, get, list,
    projects::{PERIODS, client, empty, engaged, metric, served, world},
    workload,
};
use kube::{
    Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{bed::announce, neighbours::Reach};

#[test]
fn projects_are_served_and_see_only_their_own_objects() {
    RUNTIME.block_on(async {
        let world = world().await;
        engaged(&world, 3.0).await;
        let mut hubs = Vec::new();
        for name in ["alpha", "beta"] {
            let project = client(&world, name).await;
            // Both projects use the same names. No object may be attributed to the wrong one.
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
        // A deletion in one project affects nothing in the other.
        delete(&client(&world, "beta").await, "Workload", "shop", "web").await;
        eventually("the objects of beta are deleted", || async {
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
fn undecodable_project_is_still_reconciled() {
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
        status(json!({ "conditions": "of an unknown shape" })).await;
        eventually("it is counted", || async {
            let text = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
            let counted =
                text.lines().any(|l| l.starts_with("compute_undecodable_objects") && l.contains("\"Project\""));
            if counted { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        apply(&beta, workload("unread", "late", &["dfw"], 1)).await;
        served(&beta, "unread", "late-p-dfw").await;
        assert!(metric(&world, "compute_projects_engaged").await > 2.5, "an unreadable project stays engaged");
        status(before).await;
        empty(&beta, "unread").await;
        eventually("nothing is left on the hub", || async {
            let left = list(&world.hub, "WorkloadDeployment", &hub).await.len();
            if left == 0 { Ok(()) } else { Err(left.to_string()) }
        })
        .await;
    });
}
