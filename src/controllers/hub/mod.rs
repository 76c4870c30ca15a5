//! The management controllers: over a set of project control planes that changes while running, and one hub.

mod federator;
mod policy;
mod state;
mod workload;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::state::Management;
use crate::{
    api::names::ProjectName,
    io::{
        clients::{Connection, ControlPlane},
        health::Health,
    },
    metrics::Metrics,
};

/// Workers per controller: enough to hide the latency of the API servers, few enough not to crowd them.
const WORKERS: usize = 8;

/// The management side, watching from the moment it is made, working once it [`run`](Self::run)s.
pub struct Hub(Arc<Management>);

impl Hub {
    /// Starts the watches of the hub.
    pub fn start(hub: Connection, health: &Health, metrics: &Metrics, stop: &CancellationToken) -> Self {
        Self(Management::start(ControlPlane::new("hub", hub), health, metrics, stop))
    }

    /// Takes a project in: its watches start, its objects are worked on.
    pub fn engage(&self, name: &ProjectName, connection: Connection) {
        Management::engage(&self.0, name, ControlPlane::new(&format!("project {name}"), connection));
    }

    /// Lets a project go: its watches end, its work is dropped. Nothing is deleted anywhere.
    pub fn disengage(&self, name: &ProjectName) {
        self.0.disengage(name);
    }

    /// Works until `stop`; what is under way then is finished first.
    pub async fn run(&self, stop: &CancellationToken) {
        let Management { queues, metrics, .. } = &*self.0;
        let workload = Arc::new(workload::WorkloadController(self.0.clone()));
        let federator = Arc::new(federator::Federator(self.0.clone()));
        let policy = Arc::new(policy::CityPolicy(self.0.clone()));
        tokio::join!(
            super::run(workload, queues.workload.clone(), WORKERS, metrics.clone(), stop.clone()),
            super::run(federator, queues.federator.clone(), WORKERS, metrics.clone(), stop.clone()),
            super::run(policy, queues.policy.clone(), WORKERS, metrics.clone(), stop.clone()),
        );
    }
}
