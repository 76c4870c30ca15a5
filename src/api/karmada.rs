//! Karmada's kinds, with only the fields we use. Written by server-side apply, never replaced.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Which templates of a namespace go to which clusters.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "PropagationPolicy",
    plural = "propagationpolicies",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct PropagationPolicySpec {
    /// What it claims.
    #[serde(default)]
    pub resource_selectors: Vec<ResourceSelector>,
    /// Whether what a template refers to follows it.
    #[serde(default)]
    pub propagate_deps: bool,
    /// Where it goes.
    #[serde(default)]
    pub placement: PolicyPlacement,
}

/// What a policy claims.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Filled in by Karmada's webhook when left out (fact 43); we say it, so that nothing differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels that the template must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<MatchLabels>,
}

/// Where a policy sends what it claims.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PolicyPlacement {
    /// One group of clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
}

/// A group of clusters.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// Labels that the Cluster must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<MatchLabels>,
}

/// A label selector of equalities.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MatchLabels {
    /// Each must be there with this value.
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
}
