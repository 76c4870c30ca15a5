//! Decisions of the cell controllers: they turn deployments into running Instances, and report the state of Instances to the hub.
//!
//! * A deployment: [`instances`] rolls out, [`networks`] connects, [`deployment_status`] counts.
//! * An Instance: [`instance`] opens gates and judges readiness, with [`data`] for its ConfigMaps and Secrets.
//! * Its quota: [`quota`] claims (the amounts are in `amounts`), [`reclaim`] releases, [`claim`] tells whose a claim is.
//! * Its copy on the hub: [`write_back`].

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

/// Features that hold Instances at a gate on this cell.
///
/// Networks, quota and referenced data are separate features. The gate of a feature that is off opens at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[allow(clippy::struct_excessive_bools)] // independent switches
pub struct Features {
    /// The `NetworkingIntegration` feature gate.
    pub networks: bool,
    /// True if a quota backend is configured.
    pub quota: bool,
    /// True if an Instance is released although its ResourceClaim remains. Read only without a quota backend.
    pub abandon_claims: bool,
    /// `featureFlags.enableReferencedDataGate`.
    pub data: bool,
}
