//! What the management controllers decide: from a Workload to its copies on the hub, and back.

pub mod companion;
pub mod fan_out;
pub mod federate;
pub mod federated;
mod federated_status;
pub mod guard;
pub mod policy;
pub mod project;
pub mod resolve;
pub mod sweep;
mod workload_status;

pub use workload_status::{rejected, workload_status};
