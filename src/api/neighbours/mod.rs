//! Objects of neighbouring services, with only the fields that the operator uses.

mod network;
mod project;
mod quota;

use serde::{Deserialize, Serialize};

pub use network::{
    ContextReference, Location, LocationBinding, LocationBindingSpec, LocationSpec, Network, NetworkBinding,
    NetworkBindingSpec, NetworkBindingStatus, NetworkContext, NetworkContextSpec, NetworkSpec, Subnet, SubnetClaim,
    SubnetClaimSpec, SubnetClaimStatus, SubnetSpec,
};
pub use project::{Project, ProjectControlPlane};
pub use quota::{Consumer, ResourceClaim, ResourceClaimSpec, ResourceRequest};

use super::compute::Condition;

/// A status of which only the conditions are read.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct Conditions {
    /// Conditions that the owner of the object reports.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
