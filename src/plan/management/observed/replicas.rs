//! How many Instances a deployment is to run, and what its status on a cluster says of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::compute::{ScaleSettings, WorkloadDeployment};

/// How many Instances a deployment has on one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Replicas {
    /// Asked for, and to run: of a deployment that its cell keeps suspended none is, however many places it has.
    pub desired: i64,
    /// Programmed by their provider, as the deployment's template says now.
    pub current: i64,
}

impl Replicas {
    /// As a deployment's status on a cluster says; nothing while it does not. A cell may have written any number: beyond those
    /// that the field may have, it counts as the nearest of them, so that sums hold.
    pub(crate) fn of(status: &Value) -> Option<Self> {
        let count = |field: &str| Some(status.get(field)?.as_i64()?.clamp(0, i32::MAX.into()));
        let desired = count("desiredReplicas")?;
        let suspended = status.get("suspended").and_then(Value::as_bool) == Some(true);
        let desired = if suspended { 0 } else { desired };
        Some(Self { desired, current: count("currentReplicas").unwrap_or_default() })
    }
}

/// How many instances a deployment, or its copy on the hub, is to run. Where autoscaling is asked for, whoever scales decides once it has begun,
/// within the bounds that the Workload sets. The interpreter on the hub says the same of a cell's number. A deployment that
/// has no number, as the Go operator made them once, runs the least; to write it down would change nothing but the object.
pub(crate) fn wanted(settings: &ScaleSettings, live: Option<&WorkloadDeployment>) -> Option<i32> {
    let scales = settings.asks_for_autoscaling();
    if !scales && live.is_some_and(|live| live.spec.replicas.is_none()) {
        return None;
    }
    let standing = live.and_then(|live| live.spec.replicas).filter(|_| scales);
    let least = settings.min_replicas;
    let most = settings.max_replicas.map_or(i32::MAX, |most| most.max(least));
    Some(standing.map_or(least, |standing| standing.clamp(least, most)))
}
