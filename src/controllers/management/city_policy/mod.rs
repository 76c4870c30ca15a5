//! Controller `city-policy`, and what it remembers.

pub(crate) mod policy;
pub(crate) mod policy_memory;
pub(crate) mod probe;
