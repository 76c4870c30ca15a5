//! Histories that take a minute or more each, on real API servers: what becomes of a federation while something is away,
//! is taken away, or is taken over.
//!
//! They are no part of `cargo test --workspace`, which has to answer within minutes; `cargo test --test long` runs them, and
//! so does whoever changes what they are about. Beds are shared as in `tests/it`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod alerts;
mod diagnosis;
mod drains;
mod drains_called_off;
mod drains_shared;
mod elsewhere;
mod external_edits;
mod gated_suites;
mod go_era;
mod hub_refusals;
mod karmada_upgrade;
mod left_on_clusters;
mod many_users;
mod memory_limit;
mod outages;
mod projects;
mod prometheus;
mod repair;
mod restored;
mod restored_hub;
mod scraping;
mod two_managers;
mod watched;
