//! Plans of the controller `workload-deployment-federator`: a deployment to its copy on the hub, its delivery, and its status.
//!
//! * The copy: [`snapshot`] is the input of the plan, [`federate`] the plan, `hub_form` the form of the spec.
//! * Its delivery: [`diagnosis`] finds the cause that blocks it, and `delivery` has the possible results. [`last_delivery`] is the
//!   record of the last one. [`unheard`] is about clusters that do not answer.
//! * Its repair: `blocked` applies the rules of [`repair`]. [`backlog`] has all blocked deployments, and the budget (`token_bucket`).
//! * Reports: `federation_status` is the status, [`hub_trouble`] has the problems with the hub, [`held_copies`] terminating copies.
//! * [`latency`] measures.

pub mod backlog;
mod blocked;
mod delivery;
pub mod diagnosis;
pub mod federate;
mod federation_status;
pub mod held_copies;
mod hub_form;
pub mod hub_trouble;
pub mod last_delivery;
pub mod latency;
pub mod repair;
pub mod snapshot;
mod token_bucket;
pub mod unheard;
