//! Workload -> WorkloadDeployments, and their sums back.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt;

use super::{index::workload_index, state::Management};
use crate::{
    controllers::{Reconciler, send},
    io::{Class, Error, clock::Now, queue::Key, store::ObjectKey},
    plan::{
        Next,
        management::{
            fan_out::{self, Observed},
            rejected,
        },
    },
};

/// See the module.
pub(super) struct WorkloadController(pub(super) Arc<Management>);

impl Reconciler for WorkloadController {
    const NAME: &'static str = "workload";

    async fn reconcile(&self, key: &Key, now: Now) -> Result<Next, Error> {
        let Some(project) = self.0.project(&key.lane) else { return Ok(Next::Await) };
        if !project.is_synced() {
            return Ok(Next::Await); // a fresh cache brings every key back
        }
        let Some(workload) = project.workloads.get(&ObjectKey::new(&key.namespace, &key.name)) else {
            return Ok(Next::Await);
        };
        let deleting = workload.metadata.deletion_timestamp.is_some();
        let networks_known = project.networks.as_ref().is_none_or(|networks| networks.is_synced());
        let known = deleting || project.locations.is_synced() && networks_known;
        // Of what is to be deleted with it, all must be known.
        if !known || deleting && project.deployments.has_unreadable(&key.namespace) {
            return Ok(Next::Await);
        }
        let deployments = project.deployments.by_index(&workload_index(&workload.uid().unwrap_or_default()));
        let bound: BTreeSet<_> = project.locations.values().iter().filter_map(|city| (**city).clone()).collect();
        let namespace_uid = project.namespace_uid(&key.namespace);
        let network_exists = project
            .networks
            .as_ref()
            .map(|networks| |name: &str| networks.get(&ObjectKey::new(&key.namespace, name)).is_some());
        let plan = fan_out::plan(
            &Observed {
                workload: &workload,
                deployments: &deployments,
                named: &|name| project.deployments.get(&ObjectKey::new(&key.namespace, name)),
                bound: &bound,
                namespace_uid: namespace_uid.as_deref(),
                network_exists: network_exists.as_ref().map(|exists| exists as &dyn Fn(&str) -> bool),
            },
            now.time,
        );
        for write in &plan.steps {
            if let Err(error) = send(&project.plane, write, &self.0.metrics).await {
                if matches!(error.class(), Class::Invalid | Class::Forbidden) {
                    let reported = rejected(&workload, &error.to_string(), now.time);
                    if let Some(reported) = reported {
                        send(&project.plane, &reported, &self.0.metrics).await?;
                    }
                }
                return Err(error);
            }
        }
        Ok(plan.next)
    }
}
