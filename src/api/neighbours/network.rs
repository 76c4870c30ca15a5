//! Network services, `networking.datumapis.com/v1alpha`: locations, and the objects that a deployment's networks need there.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::Conditions;
use crate::api::{
    compute::{Condition, LocalReference, LocationReference, NetworkReference},
    meta::label,
    names::CityCode,
};

/// A location that a project may use. Cluster-scoped in the project.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(group = "networking.datumapis.com", version = "v1alpha", kind = "LocationBinding", schema = "disabled")]
#[serde(rename_all = "camelCase")]
pub struct LocationBindingSpec {
    /// The opened location; the binding's own name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location_ref: Option<LocationReference>,
    /// Topology of the location; the city is under [`label::TOPOLOGY_CITY`].
    #[serde(default)]
    pub topology: BTreeMap<String, String>,
}

impl LocationBindingSpec {
    /// Returns the city that this binding opens to the project. `None` if it names none, or no valid one.
    pub fn city(&self) -> Option<CityCode> {
        city(&self.topology)
    }
}

/// A place that runs workloads.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(group = "networking.datumapis.com", version = "v1alpha", kind = "Location", schema = "disabled")]
pub struct LocationSpec {
    /// Topology of the location; the city is under [`label::TOPOLOGY_CITY`].
    #[serde(default)]
    pub topology: BTreeMap<String, String>,
}

impl LocationSpec {
    /// Returns the city. `None` if it names none, or no valid one.
    pub fn city(&self) -> Option<CityCode> {
        city(&self.topology)
    }
}

fn city(topology: &BTreeMap<String, String>) -> Option<CityCode> {
    topology.get(label::TOPOLOGY_CITY).and_then(|code| CityCode::parse(code).ok())
}

/// A tenant's network. Only its existence is used.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(group = "networking.datumapis.com", version = "v1alpha", kind = "Network", namespaced, schema = "disabled")]
pub struct NetworkSpec {}

/// Requests a network in a location. Immutable.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(
    group = "networking.datumapis.com",
    version = "v1alpha",
    kind = "NetworkBinding",
    namespaced,
    status = "NetworkBindingStatus",
    schema = "disabled"
)]
pub struct NetworkBindingSpec {
    /// The network.
    pub network: NetworkReference,
    /// The location.
    pub location: LocationReference,
}

/// Status of a [`NetworkBinding`].
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NetworkBindingStatus {
    /// The network's presence in the location.
    #[serde(default)]
    pub network_context_ref: Option<ContextReference>,
    /// `Ready`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// A NetworkContext by namespace and name.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct ContextReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A network's presence in a location.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(
    group = "networking.datumapis.com",
    version = "v1alpha",
    kind = "NetworkContext",
    namespaced,
    status = "Conditions",
    schema = "disabled"
)]
pub struct NetworkContextSpec {}

/// Requests a subnet of a network context.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(
    group = "networking.datumapis.com",
    version = "v1alpha",
    kind = "SubnetClaim",
    namespaced,
    status = "SubnetClaimStatus",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct SubnetClaimSpec {
    /// Class of the subnet.
    pub subnet_class: String,
    /// The context, in the claim's namespace.
    pub network_context: LocalReference,
    /// The location.
    pub location: LocationReference,
    /// `IPv4` or `IPv6`.
    pub ip_family: String,
}

/// Status of a [`SubnetClaim`].
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SubnetClaimStatus {
    /// The assigned subnet.
    #[serde(default)]
    pub subnet_ref: Option<LocalReference>,
    /// `Ready`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// A subnet of a network context.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(
    group = "networking.datumapis.com",
    version = "v1alpha",
    kind = "Subnet",
    namespaced,
    status = "Conditions",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct SubnetSpec {
    /// The context, in the subnet's namespace.
    pub network_context: LocalReference,
}
