//! Controller `city-policy`, and its memory.

pub(crate) mod migration;
pub(crate) mod policy;
pub(crate) mod refused_policies;
