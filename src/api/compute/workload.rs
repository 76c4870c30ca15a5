//! `Workload`: the object that a tenant writes.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Condition, InstanceTemplateSpec, Quantity, observed_generation};
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
    shortname = "cwl",
    shortname = "computeworkloads",
    category = "compute",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Instances", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desiredReplicas"),
    printcolumn(name = "Up-to-date", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(name = "Deployments", type_ = "integer", json_path = ".status.deployments"),
    printcolumn(name = "Ready-Instances", type_ = "integer", json_path = ".status.readyReplicas", priority = 1),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct WorkloadSpec {
    /// The Instances to run. A change replaces the Instances of each city one after the other. A template has at most 128 KiB
    /// as JSON, 512 list entries, and references to 256 ConfigMaps and Secrets.
    pub template: Shared<InstanceTemplateSpec>,
    /// The cities to run in, and the number of Instances there. For each city of a placement, the operator creates a
    /// WorkloadDeployment `<workload>-<placement>-<city>` of at most 63 characters. 1 to 32 placements, with at most 100
    /// cities together.
    #[schemars(length(min = 1))]
    pub placements: Vec<Placement>,
}

/// A set of cities with one scale.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Name of the placement, unique in the Workload. A DNS label of at most 63 characters. It is part of the name of each of
    /// its WorkloadDeployments. A placement with another name is another placement, with new Instances.
    pub name: String,
    /// Codes of the cities, such as `dfw`. At least one, and each once, in upper or lower case. A city must be open to the
    /// project: `kubectl get locationbindings` lists the open ones.
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub city_codes: Vec<String>,
    /// Number of Instances in each city of the placement.
    pub scale_settings: ScaleSettings,
}

/// The most Instances of one deployment. Stored objects may have more: the definitions limit only `minReplicas`, as they always
/// did. Admission applies the limit to new values of the other fields.
pub const MAX_REPLICAS: i32 = 1000;

/// Number of Instances, and how they are replaced.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ScaleSettings {
    /// Number of Instances in each city, 1 to 1000.
    #[schemars(range(min = 0, max = MAX_REPLICAS))]
    pub min_replicas: i32,
    /// Most Instances in each city, for an autoscaler in the cell: `minReplicas` to 1000. This operator does not autoscale. It
    /// starts with `minReplicas`, and keeps the number that an autoscaler sets within both bounds. Requires `metrics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// Metrics for an autoscaler in the cell. This operator does not read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Vec<ScaleMetric>>,
    /// Order of creation and replacement. The only value is `OrderedReady`: one Instance after the other, each after the
    /// previous one is ready.
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
    /// Name of the resource. The only value is `cpu`.
    pub name: String,
    /// Target of the resource.
    pub target: MetricTarget,
}

/// Target of a metric: exactly one of its fields, with more than 0.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MetricTarget {
    /// Total over all Instances of a city, such as `4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Quantity>,
    /// Average of an Instance, such as `500m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_value: Option<Quantity>,
    /// Average of an Instance, in percent of what it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_utilization: Option<i32>,
}

/// Status of a Workload, with sums over its deployments.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Conditions of the Workload: `Ready`, `Reconciling`, `Stalled`, `Available`, and `AutoscalingReady` if it asks for
    /// autoscaling.
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
    /// Generation of the Workload that its deployments reflect. -1 before the first reconcile.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "observed_generation")]
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
