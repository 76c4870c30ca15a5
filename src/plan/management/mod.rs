//! Plans of the management controllers: from a Workload to its copies on the hub, and back.

pub mod city_policy;
pub mod collector;
pub mod drain;
#[cfg(test)]
mod expected_data_tests;
pub mod federator;
#[cfg(test)]
mod hostile_data_tests;
#[cfg(test)]
mod hostile_instances_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod hostile_workloads_tests;
pub mod observed;
pub mod projector;
pub mod projects;
mod readiness;
pub mod referenced_data;
#[cfg(test)]
mod takeover_tests;
#[cfg(test)]
mod unknown_users_tests;
pub mod waiting;
pub mod workload;
