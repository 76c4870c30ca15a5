//! What the management controllers decide: from a Workload to its copies on the hub, and back.

pub mod backlog;
mod blocked;
mod budget;
pub mod city;
pub mod cluster;
pub mod companion;
pub mod dead_claim;
mod delivery;
pub mod diagnosis;
pub mod engagement;
pub mod facts;
pub mod fan_out;
pub mod federate;
mod federation_status;
pub mod guard;
mod hand_over;
#[cfg(test)]
mod hostile_tests;
pub mod karmada_version;
pub mod labels;
pub mod later;
pub mod losses;
pub mod migration;
pub mod moves;
pub mod orphan;
pub mod phase;
pub mod placement;
pub mod policy;
pub mod probe;
pub mod projection;
pub mod quarantine;
pub mod refusal;
pub mod repair;
pub mod residue;
pub mod resolve;
pub mod stranded;
pub mod sweep;
#[cfg(test)]
mod takeover_tests;
pub mod triggers;
pub mod unheard;
pub mod unneeded;
pub mod whereabouts;
mod workload_status;
