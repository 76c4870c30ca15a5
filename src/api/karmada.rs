//! Karmada's kinds, with only the fields we use. Written by server-side apply, never replaced.

use std::collections::{BTreeMap, BTreeSet};

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod cluster;
pub use cluster::{ApiEnablement, ApiResource, Cluster, ClusterSpec, ClusterStatus, Taint};

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
    /// What else it says that is not Karmada's default, such as that what it brought stays on the clusters. All of it decides
    /// over what the policy claims. A suspension is left out: it is asked for on purpose, and the deployments report it.
    #[serde(flatten, deserialize_with = "beyond_defaults")]
    pub others: BTreeMap<String, Value>,
}

/// The fields of a policy that say more than Karmada's defaults (fact 43).
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
    /// The values of a label that its selectors, of templates and of clusters, ask for.
    pub fn spellings_of(&self, key: &str) -> BTreeSet<String> {
        let terms = self.placement.cluster_affinities.iter().flatten().map(|term| &term.group);
        let groups = terms.chain(&self.placement.cluster_affinity).filter_map(|group| group.label_selector.as_ref());
        let templates = self.resource_selectors.iter().filter_map(|selector| selector.label_selector.as_ref());
        groups.chain(templates).flat_map(|selector| selector.values_of(key)).collect()
    }
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
    pub label_selector: Option<LabelSelector>,
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
    /// What else a placement can say. We say nothing of it, so that it is somebody else's wherever it stands, and goes, but for
    /// tolerations.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
}

impl PolicyPlacement {
    /// The placement without tolerations. Those are left to whoever writes them, the platform or an old Karmada: they
    /// only let what a taint would take away stay where it is.
    #[must_use]
    pub fn without_tolerations(&self) -> Self {
        let mut placement = self.clone();
        placement.others.remove("clusterTolerations");
        placement
    }
}

/// A group of clusters. An empty one is all of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// Labels that the Cluster must carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Names of Clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_names: Vec<String>,
    /// What else a group can say, such as Clusters that are left out. We say nothing of it.
    #[serde(flatten)]
    pub others: BTreeMap<String, Value>,
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

/// A label selector: all of it must hold.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Each must be there with this value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Each must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelExpression>,
}

impl LabelSelector {
    /// Selects by a label that has one of these values.
    pub fn one_of(key: &str, values: &BTreeSet<String>) -> Self {
        let values: Vec<String> = values.iter().cloned().collect();
        if let [one] = &values[..] {
            return Self { match_labels: [(key.to_owned(), one.clone())].into(), ..Self::default() };
        }
        let expression = LabelExpression { key: key.to_owned(), operator: "In".to_owned(), values };
        Self { match_expressions: vec![expression], ..Self::default() }
    }

    /// The values of a label that it asks for.
    pub fn values_of(&self, key: &str) -> Vec<String> {
        let expressions = self.match_expressions.iter().filter(|e| e.key == key).flat_map(|e| e.values.iter());
        self.match_labels.get(key).into_iter().chain(expressions).cloned().collect()
    }
}

/// A demand on one label.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct LabelExpression {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`.
    pub operator: String,
    /// The values that `In` and `NotIn` speak of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
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
    /// What somebody has stopped of it, by hand or through the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// Clusters that it is evicted from, and that still have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,
}

/// A cluster that an object is evicted from. Only that there is one is read.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GracefulEvictionTask {
    /// Its name.
    #[serde(default)]
    pub from_cluster: String,
}

/// What is stopped of a binding. Absent is not stopped.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// Whether its Works are kept from every cluster.
    #[serde(default)]
    pub dispatching: Option<bool>,
    /// The clusters that they are kept from.
    #[serde(default)]
    pub dispatching_on_clusters: Option<SuspendedClusters>,
    /// Whether the scheduler leaves it alone.
    #[serde(default)]
    pub scheduling: Option<bool>,
}

/// Clusters that Works are kept from.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct SuspendedClusters {
    /// Their names.
    #[serde(default)]
    pub cluster_names: Vec<String>,
}

impl Suspension {
    /// Whether the scheduler leaves the binding alone.
    pub fn stops_scheduling(&self) -> bool {
        self.scheduling == Some(true)
    }

    /// Whether Works are kept from this cluster.
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
    /// Its resourceVersion when Karmada looked at it last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
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
    /// The status that the object has there, as far as Karmada was told to bring it.
    #[serde(default)]
    pub status: Value,
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
