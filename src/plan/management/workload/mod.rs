//! Plans of the controller `workload`: a Workload to its deployments, and their statuses to the Workload.
//!
//! [`fan_out`] is the plan, and [`placement`] chooses the cities. `workload_status` sums up, `workload_events` reports its news, `leaving`
//! a blocked deletion, and [`refusal`] rejected writes.

pub mod fan_out;
mod leaving;
pub mod placement;
pub mod refusal;
mod workload_events;
mod workload_status;
