//! An application in two cities that uses one Secret, and a manager that dies after a given number of writes.

use std::{ops::Range, path::Path, sync::Arc};

use serde_json::{Value, json};
use testbed::{
    gate::{Budget, Gate},
    operator::Operator,
};

use super::{World, apply, binary, eventually, get, workload};

pub const SWEEPS: &str = "cleanup:\n  sweepIntervalSeconds: 1\n";

/// A manager with a budget of writes. They are counted for each place, and blocked when the budget is spent.
pub struct Cut {
    pub budget: Arc<Budget>,
    pub project: Gate,
    pub hub: Gate,
}

/// The namespaces of one application: in the project and on the hub.
#[derive(Clone, Debug)]
pub struct Place {
    pub ns: String,
    pub hub: String,
}

impl Cut {
    pub async fn new(world: &World) -> Self {
        let budget = Arc::new(Budget::default());
        let dir = world.bed.dir();
        let project = Gate::start(dir, &world.bed.project, &budget).await.unwrap();
        let hub = Gate::start(dir, &world.bed.hub, &budget).await.unwrap();
        Self { budget, project, hub }
    }

    /// Starts a manager with all requests going through the gates.
    pub async fn start(&self, world: &World) -> Operator {
        let flag = |name: &str, file: &Path| format!("--{name}={}", file.display());
        let flags = [
            "--enable-management-controllers".to_owned(),
            flag("kubeconfig", self.project.kubeconfig()),
            flag("federation-kubeconfig", self.hub.kubeconfig()),
            "--zap-log-level=info".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let config = &world.bed.options().management;
        let mut manager = Operator::with_config(world.bed.dir(), binary(), "cut", config, &flags).unwrap();
        manager.wait_ready().await.unwrap();
        manager
    }

    /// Assigns one budget of writes to each place. The last place is never cut: it counts the writes of a complete run.
    pub fn budgets(&self, budgets: Vec<u64>, places: Vec<Place>) -> Vec<(u64, Place)> {
        let places: Vec<_> = budgets.into_iter().zip(places).collect();
        for (writes, place) in &places {
            self.budget.set(&[&place.ns, &place.hub], *writes);
        }
        places
    }

    /// Waits until each place is cut off or done. Returns the writes of the place that was not cut.
    pub async fn dead_or_done<F: Future<Output = Result<(), String>>>(
        &self,
        places: &[(u64, Place)],
        is_done: impl Fn(Place) -> F,
    ) -> Vec<String> {
        for (writes, place) in places {
            eventually(&format!("dead at write {writes}, or done"), || async {
                if self.budget.is_spent(&place.ns) { Ok(()) } else { is_done(place.clone()).await }
            })
            .await;
        }
        let (_, uncut) = places.last().unwrap();
        self.budget.spent(&uncut.ns)
    }
}

/// Fails if the number of writes is out of range, and prints them.
pub fn takes(what: &str, writes: &[String], wanted: Range<u64>) {
    eprintln!("{what} takes {} writes", writes.len());
    let most = wanted.end;
    assert!(
        wanted.contains(&(writes.len() as u64)),
        "{what} takes {} writes, and is cut after up to {most}:\n{}",
        writes.len(),
        writes.join("\n")
    );
}

/// Numbers of writes after which a manager dies, one for each place. The last place is never cut. With `CUTS=all`, the cuts
/// follow each single write. Otherwise they follow every fifth write from a random start.
pub fn budgets(most: u64) -> Vec<u64> {
    budgets_by(most, 5)
}

/// The same as `budgets`, with another step.
pub fn budgets_by(most: u64, step: u64) -> Vec<u64> {
    let all = std::env::var("CUTS").is_ok_and(|cuts| cuts == "all");
    let (first, step) = if all { (1, 1) } else { (fastrand::u64(1..=step), usize::try_from(step).unwrap()) };
    (first..=most).step_by(step).chain([u64::MAX]).collect()
}

pub fn secret(ns: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": ns, "name": "db" }, "data": { "k": "dg==" },
    })
}

pub fn using(ns: &str, cities: &[&str]) -> Value {
    let mut object = workload(ns, "web", cities, 1);
    object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
        json!([{ "secretRef": { "name": "db" } }]);
    object
}

/// Deploys the application and its Secret, with one instance in each of these cities.
pub async fn deploy(world: &World, ns: &str, cities: &[&str]) {
    apply(&world.project, secret(ns)).await;
    apply(&world.project, using(ns, cities)).await;
}

/// Fails if an object of the operator is left on hub or cells, except for the hub namespace.
pub async fn left(world: &World, ns: &str, hub: &str) -> Result<(), String> {
    world.is_clean(ns, hub).await?;
    for (place, client) in [("hub", &world.hub), ("dfw", &world.dfw), ("ord", &world.ord)] {
        if get(client, "Secret", hub, "db").await.is_some() {
            return Err(format!("{place}: Secret db"));
        }
    }
    Ok(())
}
