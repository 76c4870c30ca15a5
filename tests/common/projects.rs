//! Many projects under one manager, on beds with a stand-in for Milo.

use kube::{
    Client,
    api::{DeleteParams, ListParams},
};
use testbed::{Options, Testbed, control_plane::ControlPlane};

use super::{
    World, api,
    beds::{Lender, Lent},
    eventually, get,
};

/// A returning project is found sooner than in production.
pub const PERIODS: &str = "timing:\n  watchRetryMaxSeconds: 1\n";

pub static BEDS: Lender<World> = Lender::new(1);

pub async fn world() -> Lent<World> {
    let projects = ["alpha", "beta", "idle"].map(String::from).into();
    let management = PERIODS.to_owned();
    let options = Options { cells: vec!["dfw".into()], projects, management, ..Options::default() };
    let world = BEDS.lend(async || World::start_with(options).await).await;
    world.settled().await;
    world
}

pub fn plane<'a>(bed: &'a Testbed, name: &str) -> &'a ControlPlane {
    if name == "alpha" { &bed.project } else { &bed.others[name] }
}

pub async fn client(world: &World, name: &str) -> Client {
    plane(&world.bed, name).client().await.unwrap()
}

pub async fn metric(world: &World, name: &str) -> f64 {
    let text = world.operators[0].metrics().await.unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or(0.0)
}

pub async fn engaged(world: &World, count: f64) {
    eventually(&format!("{count} projects are engaged"), || async {
        let engaged = metric(world, "compute_projects_engaged").await;
        if (engaged - count).abs() < 0.5 { Ok(()) } else { Err(engaged.to_string()) }
    })
    .await;
}

pub async fn served(project: &Client, namespace: &str, name: &str) {
    eventually(&format!("{name} runs"), || async {
        let wd = get(project, "WorkloadDeployment", namespace, name).await.ok_or("no deployment")?;
        if wd.data["status"]["readyReplicas"] == 1 { Ok(()) } else { Err(wd.data["status"].to_string()) }
    })
    .await;
}

/// Deletes the objects in a namespace, and keeps the namespace. The namespace controller retries a namespace that is not empty
/// only after eight seconds.
pub async fn empty(project: &Client, namespace: &str) {
    for kind in ["Workload", "WorkloadDeployment"] {
        let all = ListParams::default();
        api(project, kind, namespace).delete_collection(&DeleteParams::background(), &all).await.unwrap();
    }
}
