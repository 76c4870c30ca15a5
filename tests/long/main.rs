//! Scenarios of a minute or more on real API servers: a federation while a component is unavailable, deleted or taken over.
//!
//! `cargo test --workspace` leaves them out, because it has to finish within minutes. `cargo test --test long` runs them. Run it
//! after a change of the code that they cover. Beds are shared as in `tests/it`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod alerts;
mod drains;
mod drains_called_off;
mod drains_shared;
mod elsewhere;
mod external_edits;
mod faults;
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
