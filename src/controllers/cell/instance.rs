//! Gates and readiness of an Instance on its cell.

use std::sync::Arc;

use super::State;
use crate::{
    controllers::{Reconciler, send},
    io::{Error, clock::Now, queue::Key, store::ObjectKey},
    plan::{
        Next,
        cell::{
            data,
            instance::{self, Observed},
            networks,
        },
    },
};

/// See the module.
pub(super) struct InstanceController(pub(super) Arc<State>);

impl Reconciler for InstanceController {
    const NAME: &'static str = "instance";

    async fn reconcile(&self, key: &Key, now: Now) -> Result<Next, Error> {
        let state = &self.0;
        if !state.knows_all() {
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
        let data = state.companions.as_ref().zip(owner.as_deref()).and_then(|(companions, owner)| {
            data::look(owner, &instance, &|token| companions.has(&key.namespace, token))
        });
        let observed = Observed { instance: &instance, features: state.features, networks, data };
        let decision = instance::plan(&observed, now.time);
        for write in &decision.plan.steps {
            send(&state.plane, write, &state.metrics).await?;
        }
        if let Some(waited) = decision.waited {
            state.metrics.waited_for_data(&key.namespace, waited);
        }
        if let Some((from, to)) = &decision.turned {
            state.metrics.data_turned(&key.namespace, from, to);
        }
        Ok(decision.plan.next)
    }
}
