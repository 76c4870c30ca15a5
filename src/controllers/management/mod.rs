//! The management controllers: over a set of project control planes that changes while running, and one hub.

mod blocked;
mod budget;
mod clusters;
mod companion;
mod discovery;
mod federator;
mod hub_cache;
mod index;
mod labels;
mod move_memory;
mod moves;
mod policy;
mod probe;
mod probe_memory;
mod project_cache;
mod projector;
mod quarantine;
mod registry;
mod state;
mod stranded;
mod sweep;
mod triggers;
mod workload;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::state::Management;
use crate::{
    api::names::ProjectName,
    io::{
        clients::{Connection, ControlPlane, Projects},
        health::Health,
    },
    metrics::Metrics,
    plan::management::{policy::Propagation, repair, resolve::Limits, sweep::Sweep},
    timing::Timing,
};

/// Workers per controller. A project has a share of eight of them, which hides the latency of the API servers without
/// crowding them; all together they outnumber the projects that may be silent at a time.
const WORKERS: usize = 32;

/// Companions that are looked at at once: each may hold two payloads in memory for a moment.
const COMPANION_WORKERS: usize = 8;

/// What the management side is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether Workloads wait until their Networks exist.
    pub networks: bool,
    /// How much of a tenant's data may be copied.
    pub limits: Limits,
    /// How companions are brought to the cells.
    pub propagation: Propagation,
    /// Whether what runs in a city stays where it is when its cluster loses the city's label.
    pub city_guard: bool,
    /// How what is left behind is found.
    pub sweep: Sweep,
    /// How many repairs the hub is given.
    pub repair: repair::Limits,
    /// How long to wait for what.
    pub timing: Timing,
}

/// The management side, watching from the moment it is made, working once it [`run`](Self::run)s.
pub struct ManagementControllers(Arc<Management>);

impl ManagementControllers {
    /// Starts the watches of the hub.
    pub fn start(
        hub: Connection,
        options: Options,
        health: &Health,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Self {
        Self(Management::start(ControlPlane::new("hub", hub), options, health, metrics, stop))
    }

    /// Takes the only project in: its watches start, its objects are worked on, and readiness waits for it.
    pub fn engage(&self, name: &ProjectName, connection: Connection) {
        Management::engage(&self.0, name, ControlPlane::new(&format!("project {name}"), connection), false);
    }

    /// Takes in every project that `discovery` knows, and lets each go when it is gone. Nothing is deleted by that.
    pub fn discover(
        &self,
        discovery: Connection,
        projects: Projects,
        internal: bool,
        health: &Health,
        stop: &CancellationToken,
    ) {
        discovery::start(&self.0, discovery, projects, internal, health, stop);
    }

    /// Works until `stop`; what is under way then is finished first.
    pub async fn run(&self, stop: &CancellationToken) {
        let Management { queues, metrics, .. } = &*self.0;
        let workload = Arc::new(workload::WorkloadController(self.0.clone()));
        let federator = Arc::new(federator::Federator(self.0.clone()));
        let policy = Arc::new(policy::CityPolicy(self.0.clone()));
        let projector = Arc::new(projector::Projector(self.0.clone()));
        let companion = Arc::new(companion::Companion(self.0.clone()));
        tokio::join!(
            super::run(workload, queues.workload.clone(), WORKERS, metrics.clone(), stop.clone()),
            super::run(federator, queues.federator.clone(), WORKERS, metrics.clone(), stop.clone()),
            super::run(policy, queues.policy.clone(), WORKERS, metrics.clone(), stop.clone()),
            super::run(projector, queues.projector.clone(), WORKERS, metrics.clone(), stop.clone()),
            super::run(companion, queues.companion.clone(), COMPANION_WORKERS, metrics.clone(), stop.clone()),
            sweep::run(&self.0, stop),
            clusters::run(&self.0, stop),
        );
    }
}
