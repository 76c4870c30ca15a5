//! Gates and readiness of an Instance on its cell.

use std::sync::Arc;

use jiff::Timestamp;

use super::State;
use crate::{
    controllers::{Reconciler, send},
    io::{Error, queue::Key, store::ObjectKey},
    plan::{
        Next,
        cell::{
            instance::{self, Observed},
            networks,
        },
    },
};

/// See the module.
pub(super) struct InstanceController(pub(super) Arc<State>);

impl Reconciler for InstanceController {
    const NAME: &'static str = "instance";

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let state = &self.0;
        if !state.knows_networks() {
            return Ok(Next::Await);
        }
        let Some(instance) = state.instances.get(&ObjectKey::new(&key.namespace, &key.name)) else {
            return Ok(Next::Await);
        };
        let owner = state.owner(&instance);
        // One that goes may have lost its owner already, and still have a finalizer to be released.
        if owner.is_none() && instance.metadata.deletion_timestamp.is_none() {
            return Ok(Next::Await);
        }
        let networks = state
            .networks
            .as_ref()
            .zip(owner.as_deref())
            .map(|(view, owner)| networks::look(view, owner, &instance.spec.network_interfaces).verdict);
        let plan =
            instance::plan(&Observed { instance: &instance, features: state.features, networks }, Timestamp::now());
        for write in &plan.steps {
            send(&state.plane, write, &state.metrics).await?;
        }
        Ok(plan.next)
    }
}
