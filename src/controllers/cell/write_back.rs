//! Instances of this cell -> their copies on the hub.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{LANE, State};
use crate::{
    api::{compute::Instance, meta::label},
    controllers::{Reconciler, Watches, carry_out, send, with},
    io::{
        Class, Error,
        clients::ControlPlane,
        clock::Now,
        health::Health,
        queue::{Key, Queue},
        store::{ObjectKey, Store},
    },
    plan::{
        self, Kind, Next, Object, Op, Step,
        cell::write_back::{self, Observed},
    },
};

/// Between taking a copy from another cell and making it anew.
const RECREATE_DELAY: Duration = Duration::from_millis(200);
/// Between two looks at a copy that is another cell's.
const CONTESTED_RETRY: Duration = Duration::from_secs(30);

/// The cell's end of the way back.
pub(super) struct WriteBack {
    pub(super) hub: ControlPlane<plan::Hub>,
    /// Copies that this cell wrote.
    pub(super) copies: Arc<Store<Instance>>,
    pub(super) queue: Arc<Queue>,
}

impl WriteBack {
    pub(super) fn new(hub: ControlPlane<plan::Hub>) -> Self {
        Self { hub, copies: Arc::new(Store::new(|_, _| Vec::new())), queue: Arc::default() }
    }

    /// Starts the watch of the hub: of the copies that carry the cell's uid, which is known by now.
    pub(super) fn start(state: &Arc<State>, health: &Health, stop: &CancellationToken) {
        let Some(this) = &state.write_back else { return };
        let queue = this.queue.clone();
        this.copies.listen(move |change| queue.add(Key::new(LANE, &change.key.namespace, &change.key.name)));
        let Some(uid) = state.uid.get() else { return };
        let selector = format!("{}={uid}", label::CELL_UID);
        let again = Arc::downgrade(state);
        let watches = Watches {
            plane: &this.hub,
            health,
            metrics: &state.metrics,
            timing: state.timing,
            stop,
            tenant: false,
            on_fresh: Arc::new(move || with(&again, |state| state.write_back_again())),
        };
        watches.written::<Instance, _>(&selector, |i| i, &this.copies);
    }
}

/// See the module.
pub(super) struct WriteBackController(pub(super) Arc<State>);

impl Reconciler for WriteBackController {
    const NAME: &'static str = "write-back";

    async fn reconcile(&self, key: &Key, _: Now) -> Result<Next, Error> {
        let state = &self.0;
        let Some(this) = &state.write_back else { return Ok(Next::Await) };
        let (true, Some(cell)) = (state.is_synced() && this.copies.is_synced(), state.uid.get()) else {
            return Ok(Next::Await); // a fresh cache brings every key back
        };
        if state.instances.has_unreadable(&key.namespace) || this.copies.has_unreadable(&key.namespace) {
            return Ok(Next::Await);
        }
        let place = ObjectKey::new(&key.namespace, &key.name);
        let instance = state.instances.get(&place);
        let deployment = instance.as_deref().and_then(|instance| state.owner(instance));
        let namespace_labels =
            state.namespaces.get(&ObjectKey::new("", &key.namespace)).map(|facts| facts.labels.clone());
        let copy = this.copies.get(&place);
        let object = Object { kind: Kind::Instance, namespace: key.namespace.to_string(), name: key.name.to_string() };
        let observed = Observed {
            object: &object,
            instance: instance.as_deref(),
            deployment: deployment.as_deref(),
            namespace_labels: &namespace_labels.unwrap_or_default(),
            cell,
            copy: copy.as_deref(),
        };
        let plan = write_back::plan(&observed);
        match carry_out(&state.plane, &this.hub, &plan, &state.metrics).await.map_err(Error::from) {
            // Nobody on the hub would own the copy: a deployment on its way out, or a hub that was built anew.
            // Karmada reports the cell's deployment of a new owner, and that brings us back.
            Err(gone) if gone.class() == Class::Gone => Ok(Next::Await),
            Err(Error::StillThere(_)) if is_new(&plan.steps) => self.contest(this, &observed).await,
            done => done,
        }
    }
}

/// Whether a plan was to make a copy that this cell has not.
fn is_new<N, F>(steps: &[Step<N, F>]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Remote(write) if matches!(write.op, Op::ConfirmPresent { .. })))
}

impl WriteBackController {
    /// A copy is there that the watch of our own does not show.
    async fn contest(&self, this: &WriteBack, observed: &Observed<'_>) -> Result<Next, Error> {
        let Some(other) = this.hub.read::<Instance>(&observed.object.namespace, &observed.object.name).await? else {
            return Ok(Next::After(RECREATE_DELAY));
        };
        let Some(write) = write_back::contest(observed, &other) else {
            tracing::debug!(object = %observed.object, "the hub's copy is another cell's");
            return Ok(Next::After(CONTESTED_RETRY));
        };
        send(&this.hub, &write, &self.0.metrics).await?;
        Ok(Next::After(RECREATE_DELAY))
    }
}
