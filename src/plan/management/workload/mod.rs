//! Plans of the controller `workload`: a Workload to its deployments, and their statuses to the Workload.

pub mod fan_out;
mod leaving;
pub mod placement;
pub mod refusal;
mod workload_status;
