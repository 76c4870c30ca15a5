//! What stands on the wire: our own kinds, the few fields of foreign kinds that we use, and every name.
//!
//! The leftmost layer: it uses nothing else of this crate.

pub mod compute;
pub mod crds;
pub mod karmada;
pub mod meta;
pub mod names;
pub mod neighbours;
pub mod reason;
pub mod referenced;
pub mod shared;
mod workload_schema;
