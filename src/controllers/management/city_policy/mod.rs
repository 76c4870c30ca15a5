//! Controller `city-policy`, and what it remembers.

pub(crate) mod migration;
pub(crate) mod policy;
pub(crate) mod refused_policies;
