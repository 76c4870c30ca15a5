//! The wire format: our own kinds, the used fields of foreign kinds, and every name.
//!
//! This is the leftmost layer: it uses nothing else of this crate.

pub mod compute;
pub mod crds;
mod descriptions;
pub mod karmada;
pub mod meta;
pub mod names;
pub mod neighbours;
pub mod reason;
pub mod referenced;
pub mod shared;
pub mod user_list;
mod workload_schema;
