//! Controller `referenced-data`, the users of companions and the cache of sources.

pub(crate) mod companion;
pub(crate) mod companion_users;
pub(crate) mod sources;
