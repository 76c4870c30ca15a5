//! Our own kinds, `compute.datumapis.com/v1alpha`: Workload, WorkloadDeployment, Instance.

use serde::{Deserialize, Deserializer};

mod condition;
mod deployment;
mod instance;
mod interface;
mod template;
mod volume;
mod workload;

pub use condition::{Condition, ConditionStatus};
pub use deployment::{LastDelivery, WorkloadDeployment, WorkloadDeploymentSpec, WorkloadDeploymentStatus, WorkloadRef};
pub use instance::{
    Instance, InstanceInterfaceAddress, InstanceInterfaceAssignments, InstanceInterfaceExternalAddress,
    InstanceInterfaceStatus, InstanceObserved, InstanceSpec, InstanceStatus,
};
pub use interface::*;
pub use template::*;
pub use volume::*;
pub use workload::{
    InstanceManagementPolicy, MAX_REPLICAS, MetricTarget, Placement, PlacementStatus, ResourceMetric, ScaleMetric,
    ScaleSettings, Workload, WorkloadSpec, WorkloadStatus,
};

/// The `observedGeneration` that the definitions give to new objects. It differs from every generation, so a client that waits
/// for the status does not take a new object for one that is up to date.
pub const NOTHING_OBSERVED: i64 = -1;

/// Reads an `observedGeneration`. That of a new object is none.
fn observed_generation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(Option::deserialize(deserializer)?.filter(|generation| *generation != NOTHING_OBSERVED))
}
