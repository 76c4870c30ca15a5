//! Controller `referenced-data`, and who uses which companion.

pub(crate) mod companion;
pub(crate) mod companion_users;
pub(crate) mod sources;
