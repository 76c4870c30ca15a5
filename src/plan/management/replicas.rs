//! What a deployment's status on a cluster says of its Instances.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    pub(super) fn of(status: &Value) -> Option<Self> {
        let count = |field: &str| Some(status.get(field)?.as_i64()?.clamp(0, i32::MAX.into()));
        let desired = count("desiredReplicas")?;
        let suspended = status.get("suspended").and_then(Value::as_bool) == Some(true);
        let desired = if suspended { 0 } else { desired };
        Some(Self { desired, current: count("currentReplicas").unwrap_or_default() })
    }
}
