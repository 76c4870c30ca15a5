//! What controllers keep of objects that others write: facts of bindings, companions, clusters and policies.

pub mod cluster;
mod companion_facts;
pub mod facts;
pub mod phase;
pub(super) mod replicas;
pub(super) mod seen;
