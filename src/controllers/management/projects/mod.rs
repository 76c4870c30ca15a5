//! Projects: found, engaged, let go; and what protects them from each other and from losses.

pub(crate) mod discovery;
pub(crate) mod first_look;
pub(crate) mod losses;
pub(crate) mod project_cache;
pub(crate) mod registry;
pub(crate) mod unreadable;
