//! The compute-operator: federates Workloads over a Karmada hub to POP cells and runs them there as Instances.
//!
//! Data flows one way. A module uses only modules to its left (a test checks the arrows):
//!
//! ```text
//!  api ------> plan ------> io ------> controllers ------> manager ------> main
//!  types,      pure:        watch,     fetch, plan,        wiring,
//!  names       observed     cache,     apply; named by     leadership,
//!              -> writes    apply      controller          orderly end
//!                 ^           ^
//!          timing +   metrics +         config (flags, file) and admin (/readyz, /metrics, /waiting) serve the manager;
//!                                       admission (webhooks: ask plan, read with io) runs beside the controllers;
//!                                       migration is a separate command
//! ```
//!
//! A request takes this path. On the management side (`controllers::management`, `plan::management`), `io::watch` puts a tenant's
//! `Workload` into a store, and `triggers` enqueues it for `workload`. The plan `fan_out` makes one `WorkloadDeployment` for each
//! city. Each is enqueued for `federator` (plan `federate`), which copies it to the hub, and for `policy` (plan `policy`), which
//! keeps the city's PropagationPolicy. Its ConfigMaps and Secrets are enqueued for `companion` (plan `companion`), which copies
//! them to the hub once `resolve` finds all of them valid. `diagnosis` reports why an object does not arrive. Karmada delivers
//! the copies to the cell. There (`controllers::cell`, `plan::cell`), `deployment` (plans `instances`, `networks`) makes
//! `Instance`s and their network objects. `quota` claims quota for each Instance in its project, and `instance` (plans
//! `instance`, `data`) opens its scheduling gates.
//!
//! Statuses return the other way. `controllers::cell::write_back` copies each Instance to the hub, and `projector` (plan
//! `projection`) shows it in its project. Karmada reflects a deployment's status to the hub, and `federator` mirrors it to the
//! project. `discovery` finds the projects.
//!
//! `docs/architecture.md` describes the path with the cost of each step. `docs/glossary.md` explains our own terms.

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
