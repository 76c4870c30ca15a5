//! Cell controllers: they run the deployments that Karmada brings to the cell as Instances.

mod caches;
mod companions;
mod deployment;
mod identity;
mod index;
mod instance;
mod listeners;
mod locations;
mod networks;
mod quota;
mod quota_backends;
mod scope;
mod triggers;
mod write_back;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use tokio_util::sync::CancellationToken;

use self::{caches::Caches, quota_backends::QuotaBackends, scope::Scope, triggers::Triggers, write_back::Copies};
use super::{Reconciler, contests::Contests, namespace_facts};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::label,
    },
    controllers::compact,
    io::{
        clients::{Connection, ControlPlane, Projects},
        health::Health,
    },
    metrics::Metrics,
    plan::cell::{Features, claim::Names},
    timing::Timing,
};

const WORKERS: usize = 8;
/// Number of workers if each project is a separate lane. See [`super::management::WORKERS`].
const QUOTA_WORKERS: usize = 32;

/// Options of the cell controllers.
pub struct Options {
    /// The connection to the cell.
    pub cell: Connection,
    /// The connection to the hub for the write-back. Without it, Instances are not written back.
    pub hub: Option<Connection>,
    /// True if Instances wait for their networks.
    pub networks: bool,
    /// True if Instances wait for their referenced data.
    pub data: bool,
    /// Names of the cell on its claims, and the connection to projects. Set if Instances wait for quota.
    pub quota: Option<(Names, Projects)>,
    /// True if an Instance is released although its ResourceClaim remains. Read only without quota.
    pub abandon_claims: bool,
    /// Intervals and limits of the operator.
    pub timing: Timing,
}

/// The cell side of the operator. Its watches start when it is created, and its workers start with [`run`](Self::run).
pub struct CellControllers {
    caches: Arc<Caches>,
    backends: Option<Arc<QuotaBackends>>,
    copies: Option<Arc<Copies>>,
    triggers: Arc<Triggers>,
    timing: Timing,
    metrics: Metrics,
}

impl CellControllers {
    /// Starts the watches of the cell.
    pub fn start(options: Options, health: &Health, metrics: &Metrics, stop: &CancellationToken) -> Self {
        let Options { cell, hub, networks, data, quota, abandon_claims, timing } = options;
        metrics.quota_enabled(quota.is_some());
        let features = Features { networks, quota: quota.is_some(), abandon_claims, data };
        let caches = Arc::new(Caches::new(ControlPlane::new("cell", cell), features));
        let backends =
            quota.map(|quota| Arc::new(QuotaBackends::new(caches.clone(), quota, health, (metrics, timing), stop)));
        let copies = hub.map(|hub| Arc::new(Copies::new(ControlPlane::new("hub", hub))));
        let triggers = Arc::new(Triggers::new(caches.clone(), backends.clone(), copies.clone(), metrics.clone()));
        triggers.listen();
        let all = triggers.clone();
        let scope = Scope {
            health: health.clone(),
            metrics: metrics.clone(),
            timing,
            stop: stop.clone(),
            on_fresh: Arc::new(move || all.enqueue_everything()),
        };
        let this = Self { caches, backends, copies, triggers, timing, metrics: metrics.clone() };
        this.watch(&scope);
        this.learn_identity(scope);
        this
    }

    fn watch(&self, scope: &Scope) {
        let caches = &self.caches;
        let watches = scope.watches(&caches.plane);
        // If one cluster is both project and cell, the cell must not run the project's originals.
        watches.written::<WorkloadDeployment, _>(label::UPSTREAM_NAMESPACE, compact::deployment, &caches.deployments);
        // All Instances are watched, also those without identity labels: the write-back reports which label is missing.
        watches.written::<Instance, _>("", compact::instance, &caches.instances);
        let mirrors = label::UPSTREAM_CLUSTER;
        watches.start::<PartialObjectMeta<Namespace>, _>(mirrors, namespace_facts, &caches.namespaces);
        if let Some(companions) = &caches.companions {
            companions.start(&watches);
        }
        let Some(networks) = &caches.networks else { return };
        networks.start(&watches);
        let (caches, scope) = (caches.clone(), scope.clone());
        tokio::spawn(async move {
            let Some(networks) = &caches.networks else { return };
            tokio::select! {
                () = scope.stop.cancelled() => {}
                () = networks.locations.run(&caches.plane, &scope) => {}
            }
        });
    }

    /// Reads the identity of this cell, then starts quota and the write-back, which depend on it.
    fn learn_identity(&self, scope: Scope) {
        if self.backends.is_none() && self.copies.is_none() {
            return;
        }
        let (caches, copies, triggers) = (self.caches.clone(), self.copies.clone(), self.triggers.clone());
        tokio::spawn(async move {
            let uid = tokio::select! {
                () = scope.stop.cancelled() => return,
                uid = identity::cell_uid(&caches.plane, &scope.health) => uid,
            };
            let uid = caches.uid.get_or_init(|| uid);
            if let Some(copies) = &copies {
                let again = Arc::downgrade(&triggers);
                let on_fresh = Arc::new(move || super::with(&again, |triggers| triggers.enqueue_copies()));
                copies.start(uid, &Scope { on_fresh, ..scope });
            }
            triggers.enqueue_instances();
        });
    }

    /// Runs the workers until `stop`. Reconciles in progress are finished.
    pub async fn run(&self, stop: &CancellationToken) {
        let Self { caches, backends, copies, triggers, timing, metrics } = self;
        let timing = *timing;
        let of = |name| (caches.clone(), Contests::new(name, timing.takeover_pause, metrics), metrics.clone());
        let (caches, contests, metrics) = of(deployment::DeploymentController::NAME);
        let deployments = Arc::new(deployment::DeploymentController { caches, contests, timing, metrics });
        let (caches, contests, metrics) = of(instance::InstanceController::NAME);
        let instances = Arc::new(instance::InstanceController { caches, contests, timing, metrics });
        let quota = backends.clone().map(|backends| {
            let (caches, contests, metrics) = of(quota::QuotaController::NAME);
            Arc::new(quota::QuotaController { caches, contests, backends, timing, metrics })
        });
        let write_back = copies.clone().map(|copies| {
            let (caches, contests, metrics) = of(write_back::WriteBackController::NAME);
            Arc::new(write_back::WriteBackController { caches, contests, copies, timing, metrics })
        });
        let (metrics, grace) = (&self.metrics, timing.error_grace);
        tokio::join!(
            super::run(deployments, triggers.deployments.clone(), (WORKERS, grace), metrics.clone(), stop.clone()),
            super::run(instances, triggers.instances.clone(), (WORKERS, grace), metrics.clone(), stop.clone()),
            async {
                if let Some(quota) = quota {
                    let queue = quota.backends.queue.clone();
                    super::run(quota, queue, (QUOTA_WORKERS, grace), metrics.clone(), stop.clone()).await;
                }
            },
            async {
                if let Some(write_back) = write_back {
                    let queue = write_back.copies.queue.clone();
                    super::run(write_back, queue, (WORKERS, grace), metrics.clone(), stop.clone()).await;
                }
            },
        );
    }
}
