//! Controller of Instances on their cell: gates and readiness.

use std::{sync::Arc, time::Duration};

use super::caches::Caches;
use crate::{
    api::compute::{Instance, WorkloadDeployment},
    controllers::{Reconciler, came_of, contests::Contests, failure_of, record, send},
    io::{Error, clock::Now, store::ObjectKey},
    metrics::Metrics,
    plan::{
        Next,
        cell::instance::{self, Observed, Signal},
        contest::Regarding,
    },
    timing::Timing,
};

/// Opens an Instance's gates, and reports whether it is ready.
pub(super) struct InstanceController {
    pub(super) caches: Arc<Caches>,
    pub(super) contests: Contests,
    pub(super) timing: Timing,
    pub(super) metrics: Metrics,
}

impl Reconciler for InstanceController {
    const NAME: &'static str = "instance";
    type Key = ObjectKey;

    fn by_server(&self, _: &ObjectKey, now: Now) -> Now {
        now.on(self.caches.plane.connection().clock())
    }

    /// 1. Observe the Instance, its deployment, its networks and its referenced data, from the caches. Wait until all of them are
    ///    filled.
    /// 2. Plan the opening of gates, or the status. Hold back writes that another controller keeps reverting.
    /// 3. Write, then count the signals of the plan. If the cell refuses to open a gate, report it on the Instance.
    async fn reconcile(&self, key: &ObjectKey, now: Now, failing: Duration) -> Result<Next, Error> {
        let caches = &self.caches;
        if !caches.knows_all() {
            return Ok(Next::Await);
        }
        let Some(instance) = caches.instances.get(key) else {
            self.contests.forget(key);
            return Ok(Next::Await);
        };
        let owner = caches.owner(&instance);
        // A terminating Instance may have lost its owner, and still need the removal of a finalizer.
        if owner.is_none() && instance.metadata.deletion_timestamp.is_none() {
            return Ok(Next::Await);
        }
        let observed = self.observe(instance, owner);
        let mut plan = instance::plan(&observed, now.time);
        record(Self::NAME, key, &observed, now, &plan);
        let regarding = Regarding::of(&*observed.instance);
        let mut round = self.contests.begin(key, &mut plan, &regarding, now.time);
        for write in &plan.steps {
            match send(&caches.plane, write, &self.metrics).await {
                Ok(answer) => round.came(came_of(answer)),
                Err(error) => {
                    let status = instance::refused(&observed, write, &failure_of(&error, failing), now.time);
                    if let Some(status) = status {
                        send(&caches.plane, &status, &self.metrics).await?;
                    }
                    return Err(error);
                }
            }
        }
        for signal in &plan.signals {
            match signal {
                Signal::WaitedForData(waited) => self.metrics.waited_for_data(&key.namespace, *waited),
                Signal::DataTurned { from, to } => self.metrics.data_turned(&key.namespace, from, to),
            }
        }
        Ok(plan.next)
    }
}

impl InstanceController {
    fn observe(&self, instance: Arc<Instance>, owner: Option<Arc<WorkloadDeployment>>) -> Observed {
        let interfaces = instance.spec.network_interfaces.len();
        Observed {
            networks: owner.as_deref().and_then(|owner| self.caches.observe_networks(owner, interfaces)),
            companions: self.caches.observe_companions(&instance),
            features: self.caches.features,
            deployment: owner.map(Into::into),
            instance: instance.into(),
            timing: self.timing,
        }
    }
}
