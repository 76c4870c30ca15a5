//! Facts of objects that other components write: bindings, companions, clusters and policies.
//!
//! [`facts`] has bindings and companions, [`cluster`] member clusters, [`phase`] and [`placement`] policies.

pub mod cluster;
mod companion_facts;
pub mod facts;
pub mod phase;
pub mod placement;
pub(super) mod replicas;
pub(super) mod seen;
