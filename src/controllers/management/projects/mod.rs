//! Projects: found, engaged, let go; and what protects them from each other.

pub(crate) mod discovery;
pub(crate) mod project_cache;
pub(crate) mod registry;
pub(crate) mod unreadable;
