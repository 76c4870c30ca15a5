//! WorkloadDeployment on its cell -> Instances, counters and conditions.

use std::sync::Arc;

use kube::ResourceExt;

use super::State;
use crate::{
    controllers::{Reconciler, send},
    io::{Error, clock::Now, queue::Key, store::ObjectKey},
    plan::{
        Next,
        cell::{
            instances::{self, Observed},
            networks::View,
        },
        ownership,
    },
};

/// See the module.
pub(super) struct DeploymentController(pub(super) Arc<State>);

impl Reconciler for DeploymentController {
    const NAME: &'static str = "workload-deployment";

    async fn reconcile(&self, key: &Key, now: Now) -> Result<Next, Error> {
        let state = &self.0;
        // An Instance that cannot be read may be any of the ones we look for: unknown is not absent.
        if !state.knows_all() || state.instances.has_unreadable(&key.namespace) {
            return Ok(Next::Await);
        }
        let Some(deployment) = state.deployments.get(&ObjectKey::new(&key.namespace, &key.name)) else {
            return Ok(Next::Await);
        };
        if ownership::is_federated_original(&deployment) {
            return Ok(Next::Await);
        }
        let instances = state.instances.by_index(&deployment.uid().unwrap_or_default());
        let plan = instances::plan(
            &Observed {
                deployment: &deployment,
                instances: &instances,
                features: state.features,
                networks: state.networks.as_ref().map(|networks| networks as &dyn View),
            },
            now.time,
        );
        for write in &plan.steps {
            send(&state.plane, write, &state.metrics).await?;
        }
        Ok(plan.next)
    }
}
