//! Caches of the hub, and the detection of its outages.

pub(crate) mod hub_cache;
pub(crate) mod hub_outage;
