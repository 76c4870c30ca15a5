//! The management controllers: they serve one hub, and a set of project control planes that changes at run time.

mod city_policy;
mod collector;
mod drain;
mod federator;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod growth_tests;
mod hub;
mod projector;
mod projects;
mod referenced_data;
mod waiting;
mod wiring;
mod workload;

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use self::{
    city_policy::{migration::probe::Prober, policy::CityPolicy, refused_policies::RefusedPolicies},
    collector::Collector,
    drain::{city_watch::CityWatch, drains::Drains},
    federator::{
        Federator, blocked::BlockedDeployments, latency::Latency, pace::Pace, reports::Reports,
        unshown::UnshownInstances,
    },
    hub::{hub_cache::HubCache, hub_outage::OutageWatch},
    projector::{Projector, quarantine::QuarantineRegistry},
    projects::{registry::ProjectRegistry, unreadable::UnreadableWatch},
    referenced_data::companion::Companion,
    wiring::{queues::Queues, triggers::Triggers, watches::ManagementWatches},
    workload::WorkloadController,
};
use crate::{
    api::names::{self, ProjectName},
    controllers::{Reconciler, contests::Contests},
    io::{
        clients::{Connection, ControlPlane, Projects},
        health::Health,
        queue::Key,
        store::ObjectKey,
    },
    metrics::Metrics,
    plan::{
        admission::sharing::InUse,
        management::{
            city_policy::{migration::karmada_version::KarmadaVersion, policy::Propagation},
            collector::table::Sweep,
            federator::repair,
            referenced_data::resolve::Limits,
            waiting::{Answer, Query},
        },
    },
    timing::Timing,
};

/// Workers per controller. While other projects have work, one project may use eight workers. Otherwise it may use half of them.
/// This hides the latency of the API servers without overloading them. The workers outnumber the projects that may be silent at a
/// time.
const WORKERS: usize = 32;

/// Workers of the companion controller. Each may hold two payloads in memory for a moment.
const COMPANION_WORKERS: usize = 8;

/// Settings of the management controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// True if Workloads wait until their Networks exist.
    pub networks: bool,
    /// True if the cluster of the only project is a cell as well. Then it holds Karmada's copies next to their originals.
    pub beside_cell: bool,
    /// Limits of the tenant data that may be copied.
    pub limits: Limits,
    /// The configured way of companions to the cells.
    pub propagation: Propagation,
    /// True if deployments stay on a cluster that loses the city's label.
    pub city_guard: bool,
    /// The least version of Karmada on the hub.
    pub karmada: KarmadaVersion,
    /// Settings of the sweep for unneeded objects.
    pub sweep: Sweep,
    /// Limits of repairs on the hub.
    pub repair: repair::Limits,
    /// Waiting periods.
    pub timing: Timing,
}

#[cfg(test)]
impl Options {
    /// The defaults, without the city guard.
    fn of_tests() -> Self {
        Self {
            networks: false,
            beside_cell: false,
            limits: Limits::default(),
            repair: repair::Limits::default(),
            propagation: Propagation::Dependencies,
            city_guard: false,
            karmada: KarmadaVersion::DEFAULT,
            sweep: Sweep::default(),
            timing: Timing::default(),
        }
    }
}

/// Caches, queues and memory that the controllers share.
struct Context {
    options: Options,
    metrics: Metrics,
    /// Caches of the hub.
    hub: Arc<HubCache>,
    /// Engaged projects with their caches.
    projects: Arc<ProjectRegistry>,
    /// Work queues of the controllers.
    queues: Arc<Queues>,
    /// Deployments that are not delivered, and their repairs.
    blocked: Arc<BlockedDeployments>,
    /// Measured time that federation takes.
    latency: Arc<Latency>,
    /// Hub Instances that cannot be shown in a project.
    quarantine: Arc<QuarantineRegistry>,
    /// Running Instances that their project rejects.
    unshown: Arc<UnshownInstances>,
    /// Statuses that the federator is writing.
    reports: Arc<Reports>,
    /// Drains of cities, as last decided.
    drains: Arc<Drains>,
    /// Triggers that enqueue keys.
    triggers: Arc<Triggers>,
    /// City policies that the hub rejects.
    refused: Arc<RefusedPolicies>,
    /// State of every watch, for readiness.
    health: Health,
}

#[cfg(test)]
impl Context {
    /// Returns a context with a hub that does not answer.
    fn of_tests() -> Arc<Self> {
        let hub = Connection::new(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        Self::new(hub, Options::of_tests(), Health::default(), Metrics::default())
    }
}

impl Context {
    fn new(hub: Connection, options: Options, health: Health, metrics: Metrics) -> Arc<Self> {
        let hub = Arc::new(HubCache::new(ControlPlane::new("hub", hub)));
        let (projects, queues, drains) = (Arc::<ProjectRegistry>::default(), Arc::default(), Arc::default());
        let blocked = Arc::new(BlockedDeployments::new(options.repair));
        let quarantine = Arc::new(QuarantineRegistry::new(options.timing.delivery_grace, &metrics));
        let (latency, unshown) = (Arc::<Latency>::default(), Arc::<UnshownInstances>::default());
        let reports = Arc::<Reports>::default();
        let triggers = Arc::new(Triggers {
            hub: Arc::clone(&hub),
            projects: Arc::clone(&projects),
            queues: Arc::clone(&queues),
            blocked: Arc::clone(&blocked),
            latency: Arc::clone(&latency),
            quarantine: Arc::clone(&quarantine),
            unshown: Arc::clone(&unshown),
            reports: Arc::clone(&reports),
            drains: Arc::clone(&drains),
        });
        Arc::new(Self {
            options,
            metrics,
            hub,
            projects,
            queues,
            blocked,
            latency,
            quarantine,
            unshown,
            reports,
            drains,
            triggers,
            refused: Arc::default(),
            health,
        })
    }

    fn watches(self: &Arc<Self>, stop: &CancellationToken) -> ManagementWatches {
        ManagementWatches { ctx: self.clone(), stop: stop.clone() }
    }

    fn workload(self: &Arc<Self>) -> WorkloadController {
        WorkloadController { ctx: self.clone(), contests: self.contests(WorkloadController::NAME) }
    }

    fn federator(self: &Arc<Self>) -> Federator {
        Federator {
            ctx: self.clone(),
            collector: self.collector(),
            pace: Pace::default(),
            contests: self.contests(Federator::NAME),
            namespaces_told: Mutex::default(),
        }
    }

    /// Contests of a controller's writes.
    fn contests<K: Key>(&self, controller: &'static str) -> Contests<K> {
        Contests::new(controller, self.options.timing.takeover_pause, &self.metrics)
    }

    fn policy(self: &Arc<Self>) -> CityPolicy {
        let prober = Prober { ctx: self.clone(), verdict: Mutex::default() };
        if self.options.propagation == Propagation::Dependencies {
            prober.report_assumptions();
        }
        CityPolicy {
            ctx: self.clone(),
            prober,
            contests: self.contests(CityPolicy::NAME),
            incomplete: Mutex::default(),
        }
    }

    fn projector(self: &Arc<Self>) -> Projector {
        Projector { ctx: self.clone(), given: Mutex::default() }
    }

    fn companion(self: &Arc<Self>, watches: &Arc<ManagementWatches>) -> Companion {
        Companion { ctx: self.clone(), watches: watches.clone() }
    }

    fn collector(self: &Arc<Self>) -> Collector {
        Collector { ctx: self.clone() }
    }

    fn clusters(self: &Arc<Self>) -> CityWatch {
        CityWatch { ctx: self.clone() }
    }
}

/// The management controllers. [`start`](Self::start) starts their watches of the hub, and [`run`](Self::run) their work.
pub struct ManagementControllers {
    ctx: Arc<Context>,
    watches: Arc<ManagementWatches>,
}

impl ManagementControllers {
    /// Starts the watches of the hub.
    pub fn start(
        hub: Connection,
        options: Options,
        health: &Health,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Self {
        let ctx = Context::new(hub, options, health.clone(), metrics.clone());
        let watches = Arc::new(ctx.watches(stop));
        watches.start_hub();
        Self { ctx, watches }
    }

    /// Engages the only project. Its watches start, its objects are reconciled, and readiness waits for it.
    pub fn engage(&self, name: &ProjectName, connection: Connection) {
        self.watches.engage(name, ControlPlane::new(&format!("project {name}"), connection), None);
    }

    /// Returns a function that lists the data in use in a project's namespace, if each object goes to one city only. It returns
    /// `None` if objects follow their users, or if the users are unknown.
    pub fn claimed(&self) -> impl Fn(&ProjectName, &str) -> Option<Vec<InUse>> + Send + Sync + 'static {
        let (hub, projects) = (self.ctx.hub.clone(), self.ctx.projects.clone());
        let propagation = self.ctx.options.propagation;
        move |project, namespace| {
            let uid = projects.get(project)?.namespace_uid(namespace)?;
            let namespace = names::hub_namespace(&uid);
            let facts = hub.namespaces.get(&ObjectKey::new("", &namespace));
            if projects.rival(project, &namespace, facts.as_deref(), &hub).is_some() {
                return None; // the hub namespace belongs to another project
            }
            hub.claimed(&namespace, propagation)
        }
    }

    /// Returns a function that answers requests for what waits in all projects, from the caches.
    pub fn waiting(&self) -> impl Fn(&Query, Timestamp) -> Result<Answer, String> + Send + Sync + 'static {
        let ctx = self.ctx.clone();
        move |query, now| ctx.waiting(query, now)
    }

    /// Engages every project that `discovery` lists, and disengages each that is gone. This deletes nothing.
    pub fn discover(
        &self,
        discovery: Connection,
        projects: Projects,
        internal: bool,
        health: &Health,
        stop: &CancellationToken,
    ) {
        projects::discovery::start(&self.watches, discovery, projects, internal, health, stop);
    }

    /// Runs the controllers until `stop`. Reconciles that have begun are finished first.
    pub async fn run(&self, stop: &CancellationToken) {
        let Self { ctx, watches } = self;
        let Context { queues, metrics, latency, .. } = &**ctx;
        latency.begin();
        // Only the manager that works counts: the sum over all replicas would be too large otherwise.
        let counted = Arc::downgrade(ctx);
        metrics.is_refreshed_by(move || {
            if let Some(ctx) = counted.upgrade() {
                ctx.count_waiting();
            }
        });
        let workload = Arc::new(ctx.workload());
        let federator = Arc::new(ctx.federator());
        let policy = Arc::new(ctx.policy());
        let projector = Arc::new(ctx.projector());
        let companion = Arc::new(ctx.companion(watches));
        let (collector, clusters, outage) = (ctx.collector(), ctx.clusters(), OutageWatch { ctx: ctx.clone() });
        let (unreadable, grace) = (UnreadableWatch { ctx: ctx.clone() }, ctx.options.timing.error_grace);
        tokio::join!(
            super::run(workload, queues.workload.clone(), (WORKERS, grace), metrics.clone(), stop.clone()),
            super::run(federator, queues.federator.clone(), (WORKERS, grace), metrics.clone(), stop.clone()),
            super::run(policy, queues.policy.clone(), (WORKERS, grace), metrics.clone(), stop.clone()),
            super::run(projector, queues.projector.clone(), (WORKERS, grace), metrics.clone(), stop.clone()),
            super::run(companion, queues.companion.clone(), (COMPANION_WORKERS, grace), metrics.clone(), stop.clone()),
            Box::pin(collector.run(stop)),
            clusters.run(stop),
            outage.run(stop),
            Box::pin(unreadable.run(stop)),
        );
    }
}
