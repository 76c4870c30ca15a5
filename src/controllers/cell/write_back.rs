//! Instances of this cell -> their copies on the hub.

use std::sync::Arc;

use super::{caches::Caches, scope::Scope};
use crate::{
    api::{compute::Instance, meta::label},
    controllers::{Reconciler, carry_out, record, send},
    io::{
        Class, Error,
        clients::ControlPlane,
        clock::Now,
        queue::Queue,
        store::{ObjectKey, Store},
    },
    metrics::Metrics,
    plan::{
        self, Next, Object, Op, Shared, Step,
        cell::write_back::{self, Observed},
    },
    timing::Timing,
};

/// The hub, and the copies there that this cell wrote.
pub(super) struct Copies {
    pub(super) hub: ControlPlane<plan::Hub>,
    pub(super) store: Arc<Store<Instance>>,
    pub(super) queue: Arc<Queue<ObjectKey>>,
}

impl Copies {
    pub(super) fn new(hub: ControlPlane<plan::Hub>) -> Self {
        Self { hub, store: Arc::new(Store::new(|_, _| Vec::new())), queue: Arc::default() }
    }

    /// Starts the watch of the hub: of the copies that carry the uid of this cell.
    pub(super) fn start(&self, cell: &str, scope: &Scope) {
        let selector = format!("{}={cell}", label::CELL_UID);
        scope.watches(&self.hub).written::<Instance, _>(&selector, |i| i, &self.store);
    }
}

/// Copies each Instance to the hub, and takes its copy away when it is gone.
pub(super) struct WriteBackController {
    pub(super) caches: Arc<Caches>,
    pub(super) copies: Arc<Copies>,
    pub(super) timing: Timing,
    pub(super) metrics: Metrics,
}

impl Reconciler for WriteBackController {
    const NAME: &'static str = "write-back";
    type Key = ObjectKey;

    /// 1. Observe: the Instance, its deployment and its copy, from the caches; only once they are filled, and the cell
    ///    knows who it is.
    /// 2. Plan: the next write that brings the copy nearer to the Instance.
    /// 3. Write, behind the live reads that the plan demands.
    /// 4. Where a new copy finds another in its place, decide who gives way.
    async fn reconcile(&self, key: &ObjectKey, now: Now) -> Result<Next, Error> {
        let Some(observed) = self.observe(key) else { return Ok(Next::Await) };
        let plan = write_back::plan(&observed, now.time);
        record(Self::NAME, key, &observed, now, &plan);
        let done = carry_out(&self.caches.plane, &self.copies.hub, &plan, &self.metrics).await;
        match done.map_err(Error::from) {
            // Nobody on the hub would own the copy: a deployment on its way out, or a hub that was built anew.
            // Karmada reports the cell's deployment of a new owner, which enqueues the Instance again.
            Err(gone) if gone.class() == Class::Gone => Ok(Next::Await),
            Err(Error::StillThere(_)) if is_new(&plan.steps) => self.contest(&observed).await,
            done => done,
        }
    }
}

/// Whether a plan was to make a copy that this cell has not.
fn is_new<N, F>(steps: &[Step<N, F>]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Remote(write) if matches!(write.op, Op::ConfirmPresent { .. })))
}

impl WriteBackController {
    /// What is known of one Instance and its copy; nothing while any of it is unknown. A cache that has been filled
    /// enqueues every key again, and so does the cell's uid.
    fn observe(&self, key: &ObjectKey) -> Option<Observed> {
        let (caches, copies) = (&self.caches, &self.copies.store);
        let cell = caches.uid.get().filter(|_| caches.is_synced() && copies.is_synced())?;
        if caches.instances.has_unreadable(&key.namespace) || copies.has_unreadable(&key.namespace) {
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
        })
    }

    /// A copy is there that the watch of our own does not show.
    async fn contest(&self, observed: &Observed) -> Result<Next, Error> {
        let hub = &self.copies.hub;
        let recreate = Next::After(self.timing.write_back_recreate);
        let object = &observed.object;
        let Some(other) = hub.read::<Instance>(&object.namespace, &object.name).await? else { return Ok(recreate) };
        let Some(write) = write_back::contest(observed, &other) else {
            tracing::debug!(%object, "the hub's copy is another cell's");
            return Ok(Next::After(self.timing.write_back_contested));
        };
        send(hub, &write, &self.metrics).await?;
        Ok(recreate)
    }
}
