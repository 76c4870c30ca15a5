//! Karmada's kinds, with only the fields that the operator uses. It writes them by server-side apply and never replaces them.

use std::collections::{BTreeMap, BTreeSet};

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod cluster;
pub use cluster::{ApiEnablement, ApiResource, Cluster, ClusterSpec, ClusterStatus, Taint};

/// Assigns templates of a namespace to clusters.
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
    /// Templates that the policy claims.
    #[serde(default)]
    pub resource_selectors: Vec<ResourceSelector>,
    /// True if the dependencies of a template follow it.
    #[serde(default)]
    pub propagate_deps: bool,
    /// Clusters for the claimed templates.
    #[serde(default)]
    pub placement: PolicyPlacement,
    /// Other fields that differ from Karmada's defaults, such as preserving resources on deletion. All of them affect the claimed
    /// templates. A suspension is left out: it is intended, and the deployments report it.
    #[serde(flatten, deserialize_with = "beyond_defaults")]
    pub others: BTreeMap<String, Value>,
}

/// Decodes the fields of a policy that differ from Karmada's defaults (fact 43).
fn beyond_defaults<'de, D: serde::Deserializer<'de>>(fields: D) -> Result<BTreeMap<String, Value>, D::Error> {
    let mut others = BTreeMap::<String, Value>::deserialize(fields)?;
    others.retain(|field, value| match field.as_str() {
        "suspension" => false,
        "conflictResolution" => value != "Abort",
        "preemption" => value != "Never",
        "priority" => *value != 0,
        "schedulerName" => value != "default-scheduler",
        _ => !value.is_null() && *value != false,
    });
    Ok(others)
}

impl PropagationPolicySpec {
    /// Returns the values of a label that the selectors for templates and clusters ask for.
    pub fn spellings_of(&self, key: &str) -> BTreeSet<String> {
        let terms = self.placement.cluster_affinities.iter().flatten().map(|term| &term.group);
        let groups = terms.chain(&self.placement.cluster_affinity).filter_map(|group| group.label_selector.as_ref());
        let templates = self.resource_selectors.iter().filter_map(|selector| selector.label_selector.as_ref());
        groups.chain(templates).flat_map(|selector| selector.values_of(key)).collect()
    }
}

/// Selects the templates that a policy claims.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Karmada's webhook fills it in if it is absent (fact 43). The operator always sets it, so that nothing differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Labels that the template must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// Clusters that a policy sends its templates to.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PolicyPlacement {
    /// One group of clusters. Exclusive with `cluster_affinities`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// Several groups, of which the first that fits is used (facts 46 to 48).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinities: Option<Vec<ClusterAffinityTerm>>,
    /// Other fields of the placement. The operator sets none of them, so another writer did, and the operator removes them,
    /// except tolerations.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

impl PolicyPlacement {
    /// Returns the placement without tolerations. The platform or an old Karmada owns those: they only keep objects on tainted
    /// clusters.
    #[must_use]
    pub fn without_tolerations(&self) -> Self {
        let mut placement = self.clone();
        placement.others.remove("clusterTolerations");
        placement
    }
}

/// A group of clusters. An empty one selects every cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// Labels that the Cluster must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Names of Clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    /// Other fields of the group, such as excluded Clusters. The operator sets none of them.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

/// A group of clusters among others.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinityTerm {
    /// Name of the group, which Karmada records when it schedules by it.
    pub affinity_name: String,
    /// The group.
    #[serde(flatten)]
    pub group: ClusterAffinity,
}

/// A label selector: every part must match.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must have these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must all match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelExpression>,
}

impl LabelSelector {
    /// Returns a selector for one of these values of a label.
    pub fn one_of(key: &str, values: &BTreeSet<String>) -> Self {
        let values: Vec<String> = values.iter().cloned().collect();
        if let [one] = &values[..] {
            return Self { match_labels: [(key.to_owned(), one.clone())].into(), ..Self::default() };
        }
        let expression = LabelExpression { key: key.to_owned(), operator: "In".to_owned(), values };
        Self { match_expressions: vec![expression], ..Self::default() }
    }

    /// Returns the values of a label that the selector asks for.
    pub fn values_of(&self, key: &str) -> Vec<String> {
        let expressions = self.match_expressions.iter().filter(|e| e.key == key).flat_map(|e| e.values.iter());
        self.match_labels.get(key).into_iter().chain(expressions).cloned().collect()
    }
}

/// A requirement on one label.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct LabelExpression {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`.
    pub operator: String,
    /// Values for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Karmada's decision about one template: the target clusters, and the result.
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
    /// Clusters that the template itself is scheduled to.
    #[serde(default)]
    pub clusters: Vec<TargetCluster>,
    /// The placement that the scheduler applies. It is absent on a binding that only follows others (fact 15). Only its presence
    /// is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<serde_json::Value>,
    /// True if the dependencies of the template follow it.
    #[serde(default)]
    pub propagate_deps: bool,
    /// Bindings whose templates depend on this one, with their clusters (fact 15).
    #[serde(default)]
    pub required_by: Vec<BindingSnapshot>,
    /// Suspension by a user or by the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// Clusters that the object is being evicted from and that still have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,
}

/// A cluster that an object is evicted from. Only its presence is read.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GracefulEvictionTask {
    /// Its name.
    #[serde(default)]
    pub from_cluster: String,
}

/// Suspended parts of a binding. Absent means not suspended.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// True if no Work of the binding is dispatched.
    #[serde(default)]
    pub dispatching: Option<bool>,
    /// Clusters that no Work is dispatched to.
    #[serde(default)]
    pub dispatching_on_clusters: Option<SuspendedClusters>,
    /// True if the scheduler ignores the binding.
    #[serde(default)]
    pub scheduling: Option<bool>,
}

/// Clusters without dispatching.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct SuspendedClusters {
    /// Their names.
    #[serde(default)]
    pub cluster_names: Vec<String>,
}

impl Suspension {
    /// True if the scheduler ignores the binding.
    pub fn stops_scheduling(&self) -> bool {
        self.scheduling == Some(true)
    }

    /// True if Works are not dispatched to this cluster.
    pub fn stops_dispatching(&self, cluster: &str) -> bool {
        let on_it = |on: &SuspendedClusters| on.cluster_names.iter().any(|name| name == cluster);
        self.dispatching == Some(true) || self.dispatching_on_clusters.as_ref().is_some_and(on_it)
    }
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
    /// Its resourceVersion when Karmada last read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
}

/// A target cluster of a template.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct TargetCluster {
    /// Name of the Cluster.
    #[serde(default)]
    pub name: String,
}

/// A binding whose template depends on another template.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct BindingSnapshot {
    /// Name of that binding, in the same namespace.
    #[serde(default)]
    pub name: String,
    /// Its target clusters.
    #[serde(default)]
    pub clusters: Vec<TargetCluster>,
}

/// Result of a binding.
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

/// Result of a binding on one cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AggregatedStatusItem {
    /// The cluster.
    #[serde(default)]
    pub cluster_name: String,
    /// True if the cluster accepted the object.
    #[serde(default)]
    pub applied: bool,
    /// The reason if it did not.
    #[serde(default)]
    pub applied_message: String,
    /// Status of the object on that cluster, as far as Karmada collects it.
    #[serde(default)]
    pub status: Value,
}

/// A condition in a status of Karmada; its times are not read.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    /// Its type.
    #[serde(default, rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// Machine-readable cause.
    #[serde(default)]
    pub reason: String,
    /// Human-readable details.
    #[serde(default)]
    pub message: String,
}
