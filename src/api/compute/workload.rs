//! `Workload`: the object that a tenant writes.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Condition, InstanceTemplateSpec, Quantity};
use crate::api::shared::Shared;

/// A container or virtual machine, the number of its Instances, and their cities.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[kube(
    group = "compute.datumapis.com",
    version = "v1alpha",
    kind = "Workload",
    namespaced,
    status = "WorkloadStatus",
    derive = "PartialEq",
    doc = "A container or virtual machine, the number of its Instances, and their cities.",
    annotation("discovery.miloapis.com/parent-contexts", "Project"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status"
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].reason"),
    printcolumn(name = "Deployments", type_ = "string", json_path = ".status.deployments"),
    printcolumn(name = "Replicas", type_ = "string", json_path = ".status.replicas"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.readyReplicas"),
    printcolumn(name = "Desired", type_ = "string", json_path = ".status.desiredReplicas"),
    printcolumn(name = "Up-to-date", type_ = "string", json_path = ".status.updatedReplicas")
)]
pub struct WorkloadSpec {
    /// Template of the Instances.
    pub template: Shared<InstanceTemplateSpec>,
    /// Placements, each with its cities and its scale. At least one.
    #[schemars(length(min = 1))]
    pub placements: Vec<Placement>,
}

/// A set of cities with one scale.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Name of the placement, unique in the Workload. Part of each deployment's name.
    pub name: String,
    /// Codes of the cities. Each may occur once.
    pub city_codes: Vec<String>,
    /// Number of Instances in each city.
    pub scale_settings: ScaleSettings,
}

/// The most Instances of one deployment. Stored objects may have more: the definitions limit only `minReplicas`, as they always
/// did. Admission applies the limit to new values of the other fields.
pub const MAX_REPLICAS: i32 = 1000;

/// Number of Instances, and how they are replaced.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ScaleSettings {
    /// Instances per city.
    #[schemars(range(min = 0, max = MAX_REPLICAS))]
    pub min_replicas: i32,
    /// Upper bound of autoscaling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// Metrics for autoscaling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Vec<ScaleMetric>>,
    /// Order of creation and replacement.
    #[serde(default)]
    pub instance_management_policy: InstanceManagementPolicy,
}

impl ScaleSettings {
    /// True if the number of instances is meant to change with their load. The operator does not scale: it leaves the number to
    /// an autoscaler.
    pub fn asks_for_autoscaling(&self) -> bool {
        self.max_replicas.is_some_and(|max| max > self.min_replicas)
            || self.metrics.as_ref().is_some_and(|metrics| !metrics.is_empty())
    }
}

/// Order of creation and replacement of instances.
///
/// The only known value is `OrderedReady`; the schema has no enum, as the Go operator's has none, so others are kept as they
/// are and treated alike.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(transparent)]
#[schemars(inline)]
pub struct InstanceManagementPolicy(pub String);

impl Default for InstanceManagementPolicy {
    fn default() -> Self {
        Self("OrderedReady".into())
    }
}

/// A metric for autoscaling.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
pub struct ScaleMetric {
    /// A resource of the instances.
    pub resource: ResourceMetric,
}

/// A resource and its target.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
pub struct ResourceMetric {
    /// Name of the resource.
    pub name: String,
    /// Target of the resource.
    pub target: MetricTarget,
}

/// Exactly one target.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MetricTarget {
    /// Total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Quantity>,
    /// Average per instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_value: Option<Quantity>,
    /// Average per instance, in percent of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_utilization: Option<i32>,
}

/// Status of a Workload, with sums over its deployments.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Conditions of the Workload, such as `Available`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Status of each placement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<PlacementStatus>,
    /// Deployments that exist.
    #[serde(default)]
    pub deployments: i32,
    /// Instances that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Instances on the newest template that are programmed.
    #[serde(default)]
    pub current_replicas: i32,
    /// Instances that are desired.
    #[serde(default)]
    pub desired_replicas: i32,
    /// Instances that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Instances on the newest template.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Generation of the Workload that its deployments reflect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Sums over one placement's deployments.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    /// The placement's name.
    pub name: String,
    /// Condition `Available`. Its message gives cities without a deployment, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Instances that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Instances on the newest template that are programmed.
    #[serde(default)]
    pub current_replicas: i32,
    /// Instances that are desired.
    #[serde(default)]
    pub desired_replicas: i32,
    /// Instances that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Instances on the newest template.
    #[serde(default)]
    pub updated_replicas: i32,
}
