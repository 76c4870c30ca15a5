//! Network services, `networking.datumapis.com/v1alpha`: where locations are, and what a deployment's networks need there.

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
    /// The location that is opened; the binding's own name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location_ref: Option<LocationReference>,
    /// Where it is; the city stands under [`label::TOPOLOGY_CITY`].
    #[serde(default)]
    pub topology: BTreeMap<String, String>,
}

impl LocationBindingSpec {
    /// The city that this binding opens to the project. `None` when it names none, or none that can be one.
    pub fn city(&self) -> Option<CityCode> {
        city(&self.topology)
    }
}

/// A place that runs workloads.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(group = "networking.datumapis.com", version = "v1alpha", kind = "Location", schema = "disabled")]
pub struct LocationSpec {
    /// Where it is; the city stands under [`label::TOPOLOGY_CITY`].
    #[serde(default)]
    pub topology: BTreeMap<String, String>,
}

impl LocationSpec {
    /// Its city. `None` when it names none, or none that can be one.
    pub fn city(&self) -> Option<CityCode> {
        city(&self.topology)
    }
}

fn city(topology: &BTreeMap<String, String>) -> Option<CityCode> {
    topology.get(label::TOPOLOGY_CITY).and_then(|code| CityCode::parse(code).ok())
}

/// A tenant's network. Only its existence matters here.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(group = "networking.datumapis.com", version = "v1alpha", kind = "Network", namespaced, schema = "disabled")]
pub struct NetworkSpec {}

/// Asks for a network in a location. Immutable.
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

/// What came of a [`NetworkBinding`].
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

/// Asks for a subnet of a network context.
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
    /// What the subnet is for.
    pub subnet_class: String,
    /// The context, in the claim's namespace.
    pub network_context: LocalReference,
    /// The location.
    pub location: LocationReference,
    /// `IPv4` or `IPv6`.
    pub ip_family: String,
}

/// What came of a [`SubnetClaim`].
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SubnetClaimStatus {
    /// The subnet it was given.
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
