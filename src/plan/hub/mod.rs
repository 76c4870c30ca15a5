//! What the management controllers decide: from a Workload to its copies on the hub, and back.

pub mod fan_out;
pub mod federate;
pub mod policy;
pub mod project;
mod workload_status;

pub use workload_status::{rejected, workload_status};
