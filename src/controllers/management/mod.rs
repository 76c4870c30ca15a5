//! The management controllers: over a set of project control planes that changes while running, and one hub.

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
mod wiring;
mod workload;

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use self::{
    city_policy::{migration::probe::Prober, policy::CityPolicy, refused_policies::RefusedPolicies},
    collector::Collector,
    drain::{city_watch::CityWatch, drains::Drains},
    federator::{Federator, blocked::BlockedDeployments, latency::Latency, pace::Pace, unshown::UnshownInstances},
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
        },
    },
    timing::Timing,
};

/// Workers per controller. While others have work, a project has a share of eight of them, and else of half: that hides
/// the latency of the API servers without crowding them. All together they outnumber the projects that may be silent at a time.
const WORKERS: usize = 32;

/// Companions that are looked at at once: each may hold two payloads in memory for a moment.
const COMPANION_WORKERS: usize = 8;

/// What the management side is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether Workloads wait until their Networks exist.
    pub networks: bool,
    /// Whether the one project's cluster is a cell as well: copies that Karmada brings lie beside their originals.
    pub beside_cell: bool,
    /// How much of a tenant's data may be copied.
    pub limits: Limits,
    /// How companions are brought to the cells.
    pub propagation: Propagation,
    /// Whether what runs in a city stays where it is when its cluster loses the city's label.
    pub city_guard: bool,
    /// The least version of Karmada on the hub.
    pub karmada: KarmadaVersion,
    /// How what is left behind is found.
    pub sweep: Sweep,
    /// How many repairs the hub is given.
    pub repair: repair::Limits,
    /// How long to wait for what.
    pub timing: Timing,
}

#[cfg(test)]
impl Options {
    /// As without a config file, and without the guard.
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
    /// What is known of the hub.
    hub: Arc<HubCache>,
    /// Which projects there are, and what is known of each.
    projects: Arc<ProjectRegistry>,
    /// What is to be done.
    queues: Arc<Queues>,
    /// What keeps deployments from being delivered, and what is repaired.
    blocked: Arc<BlockedDeployments>,
    /// How long federation takes.
    latency: Arc<Latency>,
    /// Hub Instances that cannot be shown in a project.
    quarantine: Arc<QuarantineRegistry>,
    /// Instances that run and that their project does not take.
    unshown: Arc<UnshownInstances>,
    /// Cities that leave a cluster.
    drains: Arc<Drains>,
    /// What puts keys into the queues.
    triggers: Arc<Triggers>,
    /// City policies that the hub refuses.
    refused: Arc<RefusedPolicies>,
    /// What every watch is up to.
    health: Health,
}

#[cfg(test)]
impl Context {
    /// Returns a context whose hub does not answer.
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
        let quarantine = Arc::new(QuarantineRegistry::new(options.timing.quarantine_grace, &metrics));
        let (latency, unshown) = (Arc::<Latency>::default(), Arc::<UnshownInstances>::default());
        let triggers = Arc::new(Triggers {
            hub: Arc::clone(&hub),
            projects: Arc::clone(&projects),
            queues: Arc::clone(&queues),
            blocked: Arc::clone(&blocked),
            latency: Arc::clone(&latency),
            quarantine: Arc::clone(&quarantine),
            unshown: Arc::clone(&unshown),
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
        CityPolicy { ctx: self.clone(), prober, contests: self.contests(CityPolicy::NAME) }
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

/// The management side, watching from the moment it is made, working once it [`run`](Self::run)s.
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

    /// Takes the only project in: its watches start, its objects are worked on, and readiness waits for it.
    pub fn engage(&self, name: &ProjectName, connection: Connection) {
        self.watches.engage(name, ControlPlane::new(&format!("project {name}"), connection), None);
    }

    /// Who uses what in a namespace of a project, where each object goes to one city alone; nothing where objects follow
    /// their users, or it is not known.
    pub fn claimed(&self) -> impl Fn(&ProjectName, &str) -> Option<Vec<InUse>> + Send + Sync + 'static {
        let (hub, projects) = (self.ctx.hub.clone(), self.ctx.projects.clone());
        let propagation = self.ctx.options.propagation;
        move |project, namespace| {
            let uid = projects.get(project)?.namespace_uid(namespace)?;
            let namespace = names::hub_namespace(&uid);
            let facts = hub.namespaces.get(&ObjectKey::new("", &namespace));
            if projects.rival(project, &namespace, facts.as_deref(), &hub).is_some() {
                return None; // what is there is another tenant's
            }
            hub.claimed(&namespace, propagation)
        }
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
        projects::discovery::start(&self.watches, discovery, projects, internal, health, stop);
    }

    /// Works until `stop`; what is under way then is finished first.
    pub async fn run(&self, stop: &CancellationToken) {
        let Self { ctx, watches } = self;
        let Context { queues, metrics, latency, .. } = &**ctx;
        latency.begin();
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
