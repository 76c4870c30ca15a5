//! Plans of the controller `workload-deployment-federator`: a deployment to its copy on the hub, its delivery, and its status.

pub mod backlog;
mod blocked;
mod delivery;
pub mod diagnosis;
pub mod federate;
pub mod federated;
mod federation_status;
pub mod held_copies;
mod hub_form;
pub mod hub_trouble;
pub mod last_delivery;
pub mod latency;
pub mod repair;
mod token_bucket;
pub mod unheard;
