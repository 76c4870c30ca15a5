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
    /// One group of clusters; or
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// several, of which the first that fits counts (facts 46 to 48).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinities: Option<Vec<ClusterAffinityTerm>>,
}

/// A group of clusters. An empty one is all of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// Labels that the Cluster must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<MatchLabels>,
    /// Names of Clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    /// Names of Clusters that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// A group of clusters among others.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinityTerm {
    /// Its name, by which Karmada notes where it is.
    pub affinity_name: String,
    /// The group.
    #[serde(flatten)]
    pub group: ClusterAffinity,
}

/// A label selector of equalities.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MatchLabels {
    /// Each must be there with this value.
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
}

/// What Karmada decided about one template: where it goes, and what came of it.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(
    group = "work.karmada.io",
    version = "v1alpha2",
    kind = "ResourceBinding",
    plural = "resourcebindings",
    namespaced,
    schema = "disabled",
    status = "ResourceBindingStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingSpec {
    /// The template.
    #[serde(default)]
    pub resource: BoundResource,
    /// Where it goes on its own account.
    #[serde(default)]
    pub clusters: Vec<TargetCluster>,
    /// By what the scheduler chooses those clusters; absent on one that only follows others (fact 15). Only that it is
    /// there is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<serde_json::Value>,
    /// Whether what the template depends on is to follow it.
    #[serde(default)]
    pub propagate_deps: bool,
    /// Where others need it (fact 15).
    #[serde(default)]
    pub required_by: Vec<BindingSnapshot>,
}

/// The template of a binding.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BoundResource {
    /// Its kind.
    #[serde(default)]
    pub kind: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// A cluster that a template goes to.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct TargetCluster {
    /// Name of the Cluster.
    #[serde(default)]
    pub name: String,
}

/// A binding whose template needs another's.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct BindingSnapshot {
    /// Name of that binding, in the same namespace.
    #[serde(default)]
    pub name: String,
    /// Where it goes.
    #[serde(default)]
    pub clusters: Vec<TargetCluster>,
}

/// What came of a binding.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingStatus {
    /// `Scheduled`, `FullyApplied`.
    #[serde(default)]
    pub conditions: Vec<StatusCondition>,
    /// One entry per cluster.
    #[serde(default)]
    pub aggregated_status: Vec<AggregatedStatusItem>,
}

/// What came of a binding on one cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AggregatedStatusItem {
    /// The cluster.
    #[serde(default)]
    pub cluster_name: String,
    /// Whether it took what it was given.
    #[serde(default)]
    pub applied: bool,
    /// If not, why.
    #[serde(default)]
    pub applied_message: String,
}

/// A condition in a status of Karmada's; its times are not read.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Its type.
    #[serde(default, rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// Why, for machines.
    #[serde(default)]
    pub reason: String,
    /// Why, for people.
    #[serde(default)]
    pub message: String,
}

/// A member cluster.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(
    group = "cluster.karmada.io",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    schema = "disabled",
    status = "ClusterStatus",
    derive = "PartialEq"
)]
pub struct ClusterSpec {}

/// How a member cluster is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct ClusterStatus {
    /// `Ready`, and others.
    #[serde(default)]
    pub conditions: Vec<StatusCondition>,
}
