//! Objects of our neighbours, with only the fields that we use.

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

/// A status of which only the conditions matter here.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct Conditions {
    /// What its owner says of the object.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}
