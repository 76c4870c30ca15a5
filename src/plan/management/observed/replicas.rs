//! Wanted number of Instances of a deployment, and the numbers that its status on a cluster reports.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::compute::{NOTHING_OBSERVED, ScaleSettings, WorkloadDeployment};

/// Number of Instances that a deployment has on one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Replicas {
    /// Instances that should run. Zero while the cell keeps the deployment suspended.
    pub desired: i64,
    /// Instances that their provider has programmed with the present template.
    pub current: i64,
}

impl Replicas {
    /// Reads the numbers from a deployment's status on a cluster. `None` while the status lacks them, or is the one that the
    /// definition gives to new objects. A cell may have written any number. A number out of the field's range is clamped, so that
    /// sums hold.
    pub(crate) fn of(status: &Value) -> Option<Self> {
        let count = |field: &str| Some(status.get(field)?.as_i64()?.clamp(0, i32::MAX.into()));
        let reports = |conditions: &Vec<Value>| !conditions.is_empty();
        let is_new = status.get("observedGeneration").and_then(Value::as_i64) == Some(NOTHING_OBSERVED);
        if is_new && !status.get("conditions").and_then(Value::as_array).is_some_and(reports) {
            return None;
        }
        let desired = count("desiredReplicas")?;
        let suspended = status.get("suspended").and_then(Value::as_bool) == Some(true);
        let desired = if suspended { 0 } else { desired };
        Some(Self { desired, current: count("currentReplicas").unwrap_or_default() })
    }
}

/// Returns how many Instances a deployment, or its copy on the hub, should run. With autoscaling, an existing number is kept
/// within the Workload's bounds. The interpreter on the hub treats a cell's number the same way. A deployment without a number,
/// as the Go operator made them, runs the minimum. It gets no number, because writing one would change only the object.
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
