//! Quota, `quota.miloapis.com/v1alpha1`, in a project's control plane.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::Conditions;

/// Requests amounts of a project's quota. The condition `Granted` reports the result.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(
    group = "quota.miloapis.com",
    version = "v1alpha1",
    kind = "ResourceClaim",
    namespaced,
    status = "Conditions",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaimSpec {
    /// Owner of the quota.
    pub consumer_ref: Consumer,
    /// The amounts, 1 to 20 of them.
    pub requests: Vec<ResourceRequest>,
    /// The object that uses the amounts. Absent in other clients' claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_ref: Option<Consumer>,
}

/// An object by group, kind and name.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Consumer {
    /// API group.
    #[serde(default)]
    pub api_group: String,
    /// Kind.
    #[serde(default)]
    pub kind: String,
    /// Name.
    #[serde(default)]
    pub name: String,
}

/// An amount of one resource.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequest {
    /// The registered resource type.
    pub resource_type: String,
    /// In the registration's base unit.
    pub amount: i64,
}
