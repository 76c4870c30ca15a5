//! Discovery, engagement and caches of projects, and the protection of one project from another.

pub(crate) mod discovery;
pub(crate) mod project_cache;
pub(crate) mod registry;
pub(crate) mod unreadable;
