//! Companions of the Go operator's policies: from claims to dependencies, and the rollback.
//!
//! This folder, its namesake in the controllers, `src/migration.rs` and the phases other than `Dependencies` are there for
//! hubs that the Go operator has written to. They can be deleted once none is left.

pub mod karmada_version;
pub mod late_companions;
pub mod probe;
pub mod rollback;
