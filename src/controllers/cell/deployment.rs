//! Controller of WorkloadDeployments on their cell: creates Instances, and reports counters and conditions.

use std::{sync::Arc, time::Duration};

use super::caches::Caches;
use crate::{
    api::compute::{Instance, WorkloadDeployment},
    controllers::{Reconciler, contests::Contests, failure_of, record, send, send_each, worst},
    io::{Class, Error, clock::Now, store::ObjectKey},
    metrics::Metrics,
    plan::{
        Failure, Next, Object, Shared,
        cell::instances::{self, Observed},
        contest::Regarding,
        ownership,
    },
    timing::Timing,
};

/// Shortest pause between two looks at a deployment. Each of its Instances causes several events.
const REST: Duration = Duration::from_millis(50);

/// Creates a deployment's Instances, one step at a time, and reports its status.
pub(super) struct DeploymentController {
    pub(super) caches: Arc<Caches>,
    pub(super) contests: Contests,
    pub(super) timing: Timing,
    pub(super) metrics: Metrics,
}

impl Reconciler for DeploymentController {
    const NAME: &'static str = "workload-deployment";
    type Key = ObjectKey;

    fn rest(&self, _: &ObjectKey) -> Duration {
        REST
    }

    fn by_server(&self, _: &ObjectKey, now: Now) -> Now {
        now.on(self.caches.plane.connection().clock())
    }

    /// 1. Observe the deployment, its Instances and their networks, from the caches. Wait until all of them are filled.
    /// 2. Plan the labels, the status, the networks and at most one step of the roll-out. Hold back writes that another
    ///    controller keeps reverting.
    /// 3. Send each write, also after a refused one. Report refused writes on the deployment: at once if only a user can resolve
    ///    them, else after the grace period. If the name of a new Instance is taken, read the existing Instance. If the
    ///    deployment controls it, restore its missing identity labels.
    async fn reconcile(&self, key: &ObjectKey, now: Now, failing: Duration) -> Result<Next, Error> {
        let caches = &self.caches;
        if !caches.knows_all() {
            return Ok(Next::Await);
        }
        let Some(deployment) = caches.deployments.get(key) else {
            self.contests.forget(key);
            return Ok(Next::Await);
        };
        if ownership::is_federated_original(&deployment) {
            return Ok(Next::Await);
        }
        let observed = Observed { failing: !failing.is_zero(), ..self.observe(deployment) };
        let mut plan = instances::plan(&observed, now.time);
        record(Self::NAME, key, &observed, now, &plan);
        let regarding = Regarding::of(&*observed.deployment);
        let mut round = self.contests.begin(key, &mut plan, &regarding, now.time);
        let lasts = self.timing.outlasts_grace(failing);
        let refused = send_each(&caches.plane, &plan.steps, (&self.metrics, lasts), |sent| round.came(sent)).await?;
        drop(round);
        let failures: Vec<(Object, Failure)> = refused
            .iter()
            .filter(|(write, _)| !write.reports())
            .map(|(write, error)| (write.object.clone(), failure_of(error, failing)))
            .collect();
        if let Some(status) = instances::failed(&observed, &failures, now.time) {
            send(&caches.plane, &status, &self.metrics).await?;
        }
        let is_taken = |error: &Error| error.class() == Class::Conflict;
        for (write, _) in refused.iter().filter(|(write, error)| write.makes::<Instance>() && is_taken(error)) {
            let object = &write.object;
            let live = caches.plane.read::<Instance>(&object.namespace, &object.name).await?;
            if let Some(labels) = live.and_then(|live| instances::found(&observed.deployment, &live)) {
                send(&caches.plane, &labels, &self.metrics).await?;
            }
        }
        worst(refused.into_iter().map(|(_, error)| error)).map_or(Ok(plan.next), Err)
    }
}

impl DeploymentController {
    fn observe(&self, deployment: Arc<WorkloadDeployment>) -> Observed {
        let instances: Vec<Shared<Instance>> =
            self.caches.instances_of(&deployment).into_iter().map(Shared::from).collect();
        let of_template = deployment.spec.template.spec.network_interfaces.len();
        let of_instances = instances.iter().map(|instance| instance.spec.network_interfaces.len()).max();
        let interfaces = of_template.max(of_instances.unwrap_or(0));
        Observed {
            networks: self.caches.observe_networks(&deployment, interfaces),
            unreadable: self.caches.unreadable_of(&deployment),
            in_the_way: self.caches.in_the_way_of(&deployment).map(Shared::from).collect(),
            deployment: deployment.into(),
            instances,
            features: self.caches.features,
            failing: false,
            timing: self.timing,
        }
    }
}

#[cfg(test)]
#[path = "deployment_tests.rs"]
mod tests;
