//! What the cell controllers decide: from a deployment to running Instances, and their state back up.

pub(in crate::plan) mod amounts;
pub mod claim;
pub mod data;
pub mod deployment_status;
pub mod instance;
mod instance_events;
pub mod instances;
pub mod locations;
pub mod networks;
pub mod quota;
pub mod quota_trouble;
pub mod reclaim;
mod replicas;
pub mod triggers;
pub mod write_back;

pub use amounts::RESOURCES;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod replay_tests;

/// What this cell gates Instances on.
///
/// Networks, quota and referenced data are their own features; while one is off its gate opens at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[allow(clippy::struct_excessive_bools)] // switches, each its own
pub struct Features {
    /// The `NetworkingIntegration` feature gate.
    pub networks: bool,
    /// Whether a quota backend is configured.
    pub quota: bool,
    /// Without one: whether Instances that have a ResourceClaim are let go all the same.
    pub abandon_claims: bool,
    /// `featureFlags.enableReferencedDataGate`.
    pub data: bool,
}
