//! WorkloadDeployment of a project -> its copy on the hub, and the copy's status back.

use std::sync::Arc;

use jiff::Timestamp;

use super::state::Management;
use crate::{
    api::names,
    controllers::{Reconciler, carry_out},
    io::{Error, queue::Key, store::ObjectKey},
    plan::{
        Next,
        hub::federate::{self, Observed},
    },
};

/// See the module.
pub(super) struct Federator(pub(super) Arc<Management>);

impl Reconciler for Federator {
    const NAME: &'static str = "workload-deployment-federator";

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let (Some(project), hub) = (self.0.project(&key.lane), &self.0.hub) else { return Ok(Next::Await) };
        if !project.is_synced() || !hub.is_synced() {
            return Ok(Next::Await); // a fresh cache brings every key back
        }
        let namespace_uid = project.namespace_uid(&key.namespace);
        let Some(deployment) = project.deployments.get(&ObjectKey::new(&key.namespace, &key.name)) else {
            let Some(uid) = namespace_uid.filter(|_| !project.deployments.has_unreadable(&key.namespace)) else {
                return Ok(Next::Await);
            };
            let Some(copy) = hub.copies.get(&ObjectKey::new(&names::hub_namespace(&uid), &key.name)) else {
                return Ok(Next::Await);
            };
            let plan = federate::plan_orphan(&key.namespace, &uid, &copy);
            return Ok(carry_out(&project.plane, &hub.plane, &plan, &self.0.metrics).await?);
        };
        let plan = federate::plan(
            &Observed {
                project: &project.name,
                deployment: &deployment,
                namespace_uid: namespace_uid.as_deref(),
                hub_namespace: &|name| hub.namespaces.get(&ObjectKey::new("", name)).map(|facts| (*facts).clone()),
                copy: &|namespace| hub.copies.get(&ObjectKey::new(namespace, &key.name)),
            },
            Timestamp::now(),
        );
        Ok(carry_out(&project.plane, &hub.plane, &plan, &self.0.metrics).await?)
    }
}
