//! What the management controllers decide: from a Workload to its copies on the hub, and back.

mod attempt;
pub mod backlog;
mod blocked;
mod budget;
pub mod city;
pub mod cluster;
pub mod companion;
mod companion_facts;
pub mod dead_claim;
mod delivery;
pub mod diagnosis;
pub mod engagement;
pub mod facts;
pub mod fan_out;
pub mod federate;
pub mod federated;
mod federation_status;
pub mod foreign_claim;
pub mod guard;
pub mod hand_over;
pub mod held_copies;
#[cfg(test)]
mod hostile_data_tests;
#[cfg(test)]
mod hostile_instances_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod hostile_workloads_tests;
mod hub_form;
pub mod hub_trouble;
pub mod karmada_version;
pub mod labels;
pub mod last_delivery;
pub mod latency;
pub mod later;
mod leaving;
pub mod leftover;
pub mod losses;
pub mod many_users;
pub mod migration;
mod move_reports;
pub mod moves;
pub mod orphan;
pub mod phase;
pub mod placement;
pub mod policy;
pub mod probe;
pub mod projection;
#[cfg(test)]
mod promised_tests;
pub mod quarantine;
pub mod refusal;
pub mod repair;
mod replicas;
pub mod residue;
pub mod resolve;
pub mod rival;
mod seen;
pub mod split;
pub mod stranded;
pub mod sweep;
#[cfg(test)]
mod takeover_tests;
pub mod triggers;
pub mod unguarded;
pub mod unheard;
#[cfg(test)]
mod unknown_users_tests;
pub mod unlabelled;
pub mod unneeded;
pub mod unreadable;
pub mod whereabouts;
mod workload_status;
pub mod works;
