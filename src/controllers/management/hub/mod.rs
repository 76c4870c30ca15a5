//! The hub's caches, and whether it answers.

pub(crate) mod hub_cache;
pub(crate) mod hub_outage;
