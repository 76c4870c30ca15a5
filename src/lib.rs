//! The compute-operator: Workloads, federated over a Karmada hub to POP cells and run there as Instances.
//!
//! Data flows one way, and a module may use only what stands to its left (a test holds the arrows):
//!
//! ```text
//!  api ------> plan ------> io ------> controllers ------> manager ------> main
//!  types,      pure:        watch,     fetch, plan,        wiring,
//!  names       observed     cache,     apply; named by     leadership,
//!              -> writes    apply      controller          orderly end
//!                 ^           ^
//!          timing +   metrics +         config (flags, file) and admin (/readyz, /metrics) serve the manager;
//!                                       admission (webhooks: ask plan, read with io) stands beside the controllers;
//!                                       migration is a command of its own
//! ```
//!
//! A request travels through it like this. On the management side (`controllers::management`, `plan::management`) a tenant's
//! `Workload` is put into a store by `io::watch`; `triggers` enqueues it for `workload`, whose plan, `fan_out`, makes a
//! `WorkloadDeployment` per city. Each is enqueued for `federator` (plan `federate`), which copies it to the hub, and for
//! `policy` (plan `policy`), which keeps the city's PropagationPolicy. The ConfigMaps and Secrets that it refers to are
//! enqueued for `companion` (plan `companion`), which copies them to the hub once `resolve` finds them all in order;
//! `diagnosis` says why something does not arrive. Karmada takes the copies to the cell, where (`controllers::cell`,
//! `plan::cell`) `deployment` (plans `instances`, `networks`) makes `Instance`s and what their networks need, `quota`
//! claims quota for each in its project, and `instance` (plans `instance`, `data`) opens their gates.
//!
//! Statuses come back: `controllers::cell::write_back` copies each Instance to the hub, and `projector` (plan `projection`)
//! shows it in the project it belongs to; a deployment's status is reflected by Karmada and mirrored by `federator`. Which
//! projects there are is `discovery`'s to say.
//!
//! `docs/architecture.md` says the same with what each step costs, `docs/glossary.md` explains the few words of our own.

pub mod admin;
pub mod admission;
pub mod api;
pub mod config;
pub mod controllers;
pub mod io;
pub mod manager;
pub mod metrics;
pub mod migration;
pub mod plan;
pub mod timing;
