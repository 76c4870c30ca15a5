//! The compute-operator: Workloads, federated over a Karmada hub to POP cells and run there as Instances.
//!
//! Data flows one way, and a module may use only what stands to its left (a test holds the arrows):
//!
//! ```text
//!  api ------> plan ------> io ------> controllers ------> manager ------> main
//!  types,      pure:        watch,     fetch, plan,        wiring,
//!  names       observed     cache,     apply; one file     leadership,
//!              -> writes    apply      per controller      orderly end
//!                             ^
//!              metrics, timing +        config (flags, file) and admin (/readyz, /metrics) serve the manager;
//!                                       migration is a command of its own
//! ```
//!
//! A request travels through it like this. A tenant applies a `Workload`; `io::watch` puts it into a store and wakes
//! `controllers::management::workload`, whose plan, `plan::management::fan_out`, makes a `WorkloadDeployment` per city. Each wakes
//! `controllers::management::federator` (`plan::management::federate`), which copies it to the hub, and `controllers::management::policy`
//! (`plan::management::policy`), which holds the city's PropagationPolicy. The ConfigMaps and Secrets that it refers to wake
//! `controllers::management::companion` (`plan::management::companion`), which copies them to the hub once `plan::management::resolve` finds
//! them all in order; `plan::management::federated` says why something does not arrive. Karmada takes the copies to the cell, where
//! `controllers::cell::deployment` (`plan::cell::{instances, networks}`) makes `Instance`s and what their networks need,
//! `controllers::cell::quota` (`plan::cell::quota`) claims quota for each in its project, and
//! `controllers::cell::instance` (`plan::cell::{instance, data}`) opens their gates.
//!
//! The way back: `controllers::cell::write_back` (`plan::cell::write_back`) copies each Instance to the hub, and
//! `controllers::management::projector` (`plan::management::projection`) shows it in the project it belongs to; a deployment's status is
//! reflected by Karmada and mirrored by the federator. Which projects there are is `controllers::management::discovery`'s to say.

pub mod admin;
pub mod api;
pub mod config;
pub mod controllers;
pub mod io;
pub mod manager;
pub mod metrics;
pub mod migration;
pub mod plan;
pub mod timing;
