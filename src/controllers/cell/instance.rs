//! Gates and readiness of an Instance on its cell.

use std::sync::Arc;

use jiff::Timestamp;

use super::State;
use crate::{
    controllers::{Reconciler, send},
    io::{Error, queue::Key, store::ObjectKey},
    plan::{Next, cell::instance, ownership},
};

/// See the module.
pub(super) struct InstanceController(pub(super) Arc<State>);

impl Reconciler for InstanceController {
    const NAME: &'static str = "instance";

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let state = &self.0;
        if !state.is_synced() {
            return Ok(Next::Await);
        }
        let Some(instance) = state.instances.get(&ObjectKey::new(&key.namespace, &key.name)) else {
            return Ok(Next::Await);
        };
        // Only what a deployment of this cell controls; a projection in a project's namespace is not ours to judge.
        let owner = ownership::controller_of(instance.as_ref())
            .and_then(|owner| state.deployments.get(&ObjectKey::new(&key.namespace, &owner.name)))
            .filter(|deployment| ownership::is_controlled_by(instance.as_ref(), deployment.as_ref()));
        if owner.is_none() {
            return Ok(Next::Await);
        }
        let plan = instance::plan(&instance, state.features, Timestamp::now());
        for write in &plan.steps {
            send(&state.plane, write, &state.metrics).await?;
        }
        Ok(plan.next)
    }
}
