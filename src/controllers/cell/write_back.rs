//! Controller of the write-back: copies Instances of this cell to the hub.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;

use super::{caches::Caches, scope::Scope};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::label,
    },
    controllers::{Reconciler, carry_out_each, compact, contests::Contests, failure_of, record, send},
    io::{
        Class, Error,
        clients::ControlPlane,
        clock::Now,
        queue::Queue,
        store::{ObjectKey, Store},
    },
    metrics::Metrics,
    plan::{
        Cell, Hub, Next, Object, Plan, Shared, Step,
        cell::write_back::{self, Observed, OnHub, Rival, Signal},
        contest::Regarding,
    },
    timing::Timing,
};

/// The hub, and this cell's copies there.
pub(super) struct Copies {
    pub(super) hub: ControlPlane<Hub>,
    pub(super) store: Arc<Store<Instance>>,
    pub(super) queue: Arc<Queue<ObjectKey>>,
}

impl Copies {
    pub(super) fn new(hub: ControlPlane<Hub>) -> Self {
        Self { hub, store: Arc::new(Store::new(|_, _| Vec::new())), queue: Arc::default() }
    }

    /// Starts the watch of the copies on the hub that carry this cell's uid.
    pub(super) fn start(&self, cell: &str, scope: &Scope) {
        let selector = format!("{}={cell}", label::CELL_UID);
        scope.watches(&self.hub).written::<Instance, _>(&selector, compact::instance_copy, &self.store);
    }
}

/// Shortest pause between two writes of a copy. The first change is copied at once. Networks, quota and the provider then answer
/// within a moment of each other, and one write shows what all of them said.
const REST: Duration = Duration::from_millis(100);

/// Copies each Instance to the hub, and deletes the copy of an Instance that does not exist.
pub(super) struct WriteBackController {
    pub(super) caches: Arc<Caches>,
    pub(super) contests: Contests,
    pub(super) copies: Arc<Copies>,
    pub(super) timing: Timing,
    pub(super) metrics: Metrics,
}

impl Reconciler for WriteBackController {
    const NAME: &'static str = "write-back";
    type Key = ObjectKey;

    fn rest(&self, _: &ObjectKey) -> Duration {
        REST
    }

    fn by_server(&self, _: &ObjectKey, now: Now) -> Now {
        now.on(self.caches.plane.connection().clock())
    }

    /// 1. Observe the Instance, its deployment and its copy, from the caches. Wait until they are filled and the cell's identity
    ///    is known.
    /// 2. Plan the next write that brings the copy closer to the Instance.
    /// 3. Write after the live reads that the plan requires. If the cell does not know the Instance's project or owner, read the
    ///    hub and plan once more.
    /// 4. If a new copy finds another copy of its name, read that copy, and decide which cell keeps it.
    /// 5. Report on the Instance a failure that lasts longer than the grace period.
    async fn reconcile(&self, key: &ObjectKey, now: Now, failing: Duration) -> Result<Next, Error> {
        let Some(mut observed) = self.observe(key) else { return Ok(Next::Await) };
        let done = self.sync(key, &mut observed, now).await;
        let failed = done.as_ref().err().map(|error| failure_of(error, failing));
        if let Some(status) = failed.and_then(|failure| write_back::failed(&observed, &failure, now.time)) {
            send(&self.caches.plane, &status, &self.metrics).await?;
        }
        done
    }
}

fn decide(key: &ObjectKey, observed: &Observed, now: Now) -> Plan<Step<Cell, Hub>, Signal> {
    let plan = write_back::plan(observed, now.time);
    record(WriteBackController::NAME, key, observed, now, &plan);
    plan
}

impl WriteBackController {
    /// Writes the next step of the copy.
    async fn sync(&self, key: &ObjectKey, observed: &mut Observed, now: Now) -> Result<Next, Error> {
        let hub = &self.copies.hub;
        let mut plan = decide(key, observed, now);
        if plan.signals.contains(&Signal::Asks) {
            observed.hub = self.read_hub(observed).await?;
            plan = decide(key, observed, now);
        }
        let creates = plan.signals.contains(&Signal::Creates);
        match self.carry_out(key, observed, plan, now).await {
            // The copy would have no owner on the hub: the deployment is terminating, or the hub was rebuilt. Karmada then brings
            // a new owner to the cell's deployment, which enqueues the Instance again.
            Err(gone) if gone.class() == Class::Gone => Ok(Next::Await),
            // There is a copy that the watch of our own copies does not show.
            Err(Error::StillThere(_)) if creates => {
                let other = hub.read::<Instance>(&observed.object.namespace, &observed.object.name).await?;
                observed.rival = other.map_or(Rival::Absent, |other| Rival::Present(other.into()));
                let plan = decide(key, observed, now);
                self.carry_out(key, observed, plan, now).await
            }
            done => done,
        }
    }

    /// Sends the writes of a plan, except those that another controller keeps reverting.
    async fn carry_out(
        &self,
        key: &ObjectKey,
        observed: &Observed,
        mut plan: Plan<Step<Cell, Hub>, Signal>,
        now: Now,
    ) -> Result<Next, Error> {
        let instance = observed.instance.as_deref();
        if instance.is_none() {
            self.contests.forget(key);
        }
        let regarding = instance.map(Regarding::of);
        let mut round = regarding.map(|regarding| self.contests.begin(key, &mut plan, &regarding, now.time));
        let came = |sent| {
            if let Some(round) = &mut round {
                round.came(sent);
            }
        };
        Ok(carry_out_each(&self.caches.plane, &self.copies.hub, &plan, &self.metrics, came).await?)
    }

    /// Reads an Instance's project and owner from the hub.
    async fn read_hub(&self, observed: &Observed) -> Result<OnHub, Error> {
        let (hub, namespace) = (&self.copies.hub, &observed.object.namespace);
        let found = hub.read_metadata(&Object::named::<Namespace>("", namespace)).await?;
        let named = observed.instance.as_deref().and_then(|i| i.labels().get(label::WORKLOAD_DEPLOYMENT_NAME));
        let deployment = match named {
            Some(name) => hub.read_metadata(&Object::named::<WorkloadDeployment>(namespace, name)).await?,
            None => None,
        };
        let labels = found.map(|namespace| namespace.labels.unwrap_or_default());
        Ok(OnHub::Read { labels, deployment: deployment.and_then(|deployment| deployment.uid) })
    }

    /// Returns the facts about one Instance and its copy. `None` while one of them is unknown. A filled cache enqueues every key
    /// again, and so does the cell's uid.
    fn observe(&self, key: &ObjectKey) -> Option<Observed> {
        let (caches, copies) = (&self.caches, &self.copies.store);
        let cell = caches.uid.get().filter(|_| caches.is_synced() && copies.is_synced())?;
        if caches.instances.is_unreadable(key) || copies.is_unreadable(key) {
            return None;
        }
        let instance = caches.instances.get(key);
        let deployment = instance.as_deref().and_then(|instance| caches.owner(instance));
        Some(Observed {
            object: Object::named::<Instance>(&key.namespace, &key.name),
            instance: instance.map(Shared::from),
            deployment: deployment.map(Shared::from),
            namespace_labels: caches.labels_of(&key.namespace),
            cell: cell.clone(),
            copy: copies.get(key).map(Shared::from),
            hub: OnHub::Unread,
            rival: Rival::Unread,
            timing: self.timing,
        })
    }
}
