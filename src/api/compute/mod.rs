//! Our own kinds, `compute.datumapis.com/v1alpha`: Workload, WorkloadDeployment, Instance.

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
