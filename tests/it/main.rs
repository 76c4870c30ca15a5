//! The operator on real API servers: project, hub, cells, and back.
//!
//! Every test of this binary has a thread and waits there for its turn on a bed (see `common::beds`). Many tests share one bed,
//! each in its own namespace. A test that breaks something or starts its own operator has a bed alone. Tests of many projects and
//! of Karmada itself have their own beds. All beds run in parallel.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod as_written;
mod cells;
mod cities;
mod claim_timeout;
mod claims;
mod cleanup;
mod command;
mod command_views;
mod credentials;
mod data;
mod demo;
mod disruption;
mod federation;
mod install_check;
mod karmada_contract;
mod kept_data;
mod later_companions;
mod later_fields;
mod leadership;
mod leaving_clusters;
mod left_behind;
mod metrics;
mod metrics_access;
mod migration;
mod one_place;
mod overlays;
mod projects;
mod random_kills;
mod refusals;
mod rights;
mod rows_of_go;
mod secrets;
mod stale_leader;
mod suites;
mod takeover;
mod tenants;
mod uninstall;
mod unnamed_cells;
mod walls;
