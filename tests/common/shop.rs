//! A shop in two cities that uses one Secret, and a manager that dies after so many writes.

use std::{path::Path, sync::Arc, time::Duration};

use serde_json::{Value, json};
use testbed::{
    gate::{Budget, Gate},
    operator::Operator,
};
use tokio::time::sleep;

use super::{World, binary, get, template, workload};

/// One testbed at a time: each is a dozen processes, and these tests look closely at what happens when.
pub static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

pub const SWEEPS: &str = "cleanup:\n  sweepIntervalSeconds: 1\n";

/// A manager whose writes are counted, and stop at a budget.
pub struct Cut {
    pub budget: Arc<Budget>,
    pub project: Gate,
    pub hub: Gate,
}

impl Cut {
    pub async fn new(world: &World) -> Self {
        let budget = Arc::new(Budget::default());
        let dir = world.bed.dir();
        let project = Gate::start(dir, &world.bed.project, &budget).await.unwrap();
        let hub = Gate::start(dir, &world.bed.hub, &budget).await.unwrap();
        Self { budget, project, hub }
    }

    /// Starts the manager with so many writes left.
    pub async fn start(&self, world: &World, writes: i64) -> Operator {
        self.budget.set(writes);
        let flag = |name: &str, file: &Path| format!("--{name}={}", file.display());
        let flags = [
            "--enable-management-controllers".to_owned(),
            flag("kubeconfig", self.project.kubeconfig()),
            flag("federation-kubeconfig", self.hub.kubeconfig()),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut manager = Operator::with_config(world.bed.dir(), binary(), "cut", SWEEPS, &flags).unwrap();
        tokio::select! {
            ready = manager.wait_ready() => ready.unwrap(),
            () = async {
                while !self.budget.is_spent() {
                    sleep(Duration::from_millis(10)).await; // it may be over before it is ready
                }
            } => {}
        }
        manager
    }
}

pub async fn manager(world: &World) -> Operator {
    let mut manager = Operator::management(&world.bed, binary(), "operator-management", &[]).unwrap();
    manager.wait_ready().await.unwrap();
    manager
}

pub fn secret(ns: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": ns, "name": "db" }, "data": { "k": "dg==" },
    })
}

pub fn using(ns: &str, cities: &[&str]) -> Value {
    let mut object = workload(ns, "web", cities, 1);
    object["spec"]["template"] = template("docker.io/library/nginx:1");
    object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
        json!([{ "secretRef": { "name": "db" } }]);
    object
}

/// What is left of ours on hub and cells, the hub namespace aside.
pub async fn left(world: &World, ns: &str, hub: &str) -> Result<(), String> {
    world.is_clean(ns, hub).await?;
    for (place, client) in [("hub", &world.hub), ("dfw", &world.dfw), ("ord", &world.ord)] {
        if get(client, "Secret", hub, "db").await.is_some() {
            return Err(format!("{place}: Secret db"));
        }
    }
    Ok(())
}
