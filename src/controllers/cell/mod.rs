//! The cell controllers: deployments that Karmada brought become Instances here.

mod deployment;
mod instance;

use std::sync::Arc;

use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

use super::Watches;
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::label,
    },
    io::{
        clients::{Connection, ControlPlane},
        health::Health,
        queue::{Key, Queue},
        store::Store,
    },
    metrics::Metrics,
    plan::{self, Kind, cell::Features, ownership},
};

const WORKERS: usize = 8;
/// A cell has one lane.
const LANE: &str = "cell";

/// The cell side, watching from the moment it is made, working once it [`run`](Self::run)s.
pub struct Cell(Arc<State>);

struct State {
    plane: ControlPlane<plan::Cell>,
    /// Copies that Karmada brought.
    deployments: Arc<Store<WorkloadDeployment>>,
    /// By the uid of the deployment that controls them.
    instances: Arc<Store<Instance>>,
    deployment_queue: Arc<Queue>,
    instance_queue: Arc<Queue>,
    features: Features,
    metrics: Metrics,
}

impl Cell {
    /// Starts the watches of the cell.
    pub fn start(
        connection: Connection,
        features: Features,
        health: &Health,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Self {
        let state = Arc::new(State {
            plane: ControlPlane::new("cell", connection),
            deployments: Arc::new(Store::new(|_, _| Vec::new())),
            instances: Arc::new(Store::new(|_, instance: &Instance| {
                ownership::controller_of(instance).map(|owner| owner.uid.clone()).into_iter().collect()
            })),
            deployment_queue: Arc::default(),
            instance_queue: Arc::default(),
            features,
            metrics: metrics.clone(),
        });
        listen(&state);
        let all = state.clone();
        let watches =
            Watches { plane: &state.plane, health, metrics, stop, on_fresh: Arc::new(move || everything_again(&all)) };
        let kind = Some(Kind::WorkloadDeployment);
        // Where one cluster is project and cell at once, the project's originals are not the cell's to run.
        watches.objects::<WorkloadDeployment, _>(kind, label::UPSTREAM_NAMESPACE, |wd| wd, &state.deployments);
        let kind = Some(Kind::Instance);
        watches.objects::<Instance, _>(kind, label::WORKLOAD_DEPLOYMENT_UID, |i| i, &state.instances);
        Self(state)
    }

    /// Works until `stop`; what is under way then is finished first.
    pub async fn run(&self, stop: &CancellationToken) {
        let State { deployment_queue, instance_queue, metrics, .. } = &*self.0;
        let deployments = Arc::new(deployment::DeploymentController(self.0.clone()));
        let instances = Arc::new(instance::InstanceController(self.0.clone()));
        tokio::join!(
            super::run(deployments, deployment_queue.clone(), WORKERS, metrics.clone(), stop.clone()),
            super::run(instances, instance_queue.clone(), WORKERS, metrics.clone(), stop.clone()),
        );
    }
}

impl State {
    fn is_synced(&self) -> bool {
        self.deployments.is_synced() && self.instances.is_synced()
    }
}

fn listen(state: &Arc<State>) {
    let queue = state.deployment_queue.clone();
    state.deployments.listen(move |change| queue.add(Key::new(LANE, &change.key.namespace, &change.key.name)));
    let (own, owners) = (state.instance_queue.clone(), state.deployment_queue.clone());
    state.instances.listen(move |change| {
        own.add(Key::new(LANE, &change.key.namespace, &change.key.name));
        if let Some(owner) = change.any().and_then(|instance| ownership::controller_of(instance.as_ref())) {
            owners.add(Key::new(LANE, &change.key.namespace, &owner.name));
        }
    });
}

/// A cache is fresh: look at everything, and let what failed meanwhile try now.
fn everything_again(state: &State) {
    for queue in [&state.deployment_queue, &state.instance_queue] {
        queue.retry_now(LANE);
    }
    for deployment in state.deployments.values() {
        let namespace = deployment.namespace().unwrap_or_default();
        state.deployment_queue.add(Key::new(LANE, &namespace, &deployment.name_any()));
    }
    for key in state.instances.keys() {
        state.instance_queue.add(Key::new(LANE, &key.namespace, &key.name));
    }
}
