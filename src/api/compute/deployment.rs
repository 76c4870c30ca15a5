//! `WorkloadDeployment` (WD): a Workload in one city; the object that travels over the hub.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema, ResourceExt};
use serde::{Deserialize, Serialize};

use super::{Condition, InstanceTemplateSpec, LocationReference, ScaleSettings, observed_generation};
use crate::api::{
    meta::{SUSPENDED, annotation},
    shared::Shared,
};

/// A Workload in one city.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[kube(
    group = "compute.datumapis.com",
    version = "v1alpha",
    kind = "WorkloadDeployment",
    namespaced,
    status = "WorkloadDeploymentStatus",
    derive = "PartialEq",
    doc = "A Workload in one city.",
    annotation("discovery.miloapis.com/parent-contexts", "Project"),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    shortname = "wd",
    category = "compute",
    selectable = ".spec.cityCode",
    selectable = ".spec.workloadRef.name",
    printcolumn(name = "City", type_ = "string", json_path = ".spec.cityCode"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Instances", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desiredReplicas"),
    printcolumn(name = "Up-to-date", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(
        name = "Delivered",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Federated\")].status"
    ),
    printcolumn(name = "Ready-Instances", type_ = "integer", json_path = ".status.readyReplicas", priority = 1),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status",
        priority = 1
    ),
    printcolumn(
        name = "Available-Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].reason",
        priority = 1
    ),
    printcolumn(name = "Workload", type_ = "string", json_path = ".spec.workloadRef.name", priority = 1),
    printcolumn(name = "Location", type_ = "string", json_path = ".status.location.name", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadDeploymentSpec {
    /// The Workload in the project that the deployment belongs to. The operator writes the whole spec of a deployment.
    pub workload_ref: WorkloadRef,
    /// Name of the Workload's placement that lists the city.
    pub placement_name: String,
    /// Code of the city, in the user's spelling.
    pub city_code: String,
    /// Template of the Instances.
    pub template: Shared<InstanceTemplateSpec>,
    /// Number of Instances, and how they are replaced.
    pub scale_settings: ScaleSettings,
    /// Number of Instances that the cell runs, at most 1000. Defaults to `scaleSettings.minReplicas`, and follows it. In the
    /// project, the operator reverts `kubectl scale`: change the Workload instead. If the scale settings ask for autoscaling,
    /// an autoscaler in the cell may change the number from `minReplicas` to `maxReplicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
}

impl WorkloadDeploymentSpec {
    /// Number of instances that the cell runs.
    pub fn desired_replicas(&self) -> u32 {
        u32::try_from(self.replicas.unwrap_or(self.scale_settings.min_replicas)).unwrap_or(0)
    }
}

impl WorkloadDeployment {
    /// Returns the status that a cell, or a controller, has reported. `None` if there is only the status that the definition
    /// gives to new objects.
    pub fn report(&self) -> Option<&WorkloadDeploymentStatus> {
        self.status.as_ref().filter(|status| **status != WorkloadDeploymentStatus::default())
    }

    /// True if the cell keeps its Instances stopped, with their places, until the suspension ends.
    pub fn is_suspended(&self) -> bool {
        self.annotations().get(annotation::SUSPENDED).is_some_and(|value| value == SUSPENDED)
    }
}

/// Reference to one Workload, by name and uid.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct WorkloadRef {
    /// Name of the Workload.
    pub name: String,
    /// Uid of the Workload in the project.
    pub uid: String,
}

/// Status of a deployment, reported by its cell and copied to hub and project.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadDeploymentStatus {
    /// Conditions of the deployment. The cell reports `Available` and `ReplicasReady`. In the project the operator adds
    /// `Ready`, `Reconciling`, `Stalled`, `Federated` and `ReferencedDataReady`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Location in which the cell runs the deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<LocationReference>,
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
    /// Selects the deployment's Instances on the cell, for an autoscaler there. It selects nothing in the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Generation of this object that the counters describe. -1 before the first report of the cell.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "observed_generation")]
    pub observed_generation: Option<i64>,
    /// Generation of the project's object that the cell's counters describe.
    /// The cell reads it from the annotation `source-generation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_source_generation: Option<i64>,
    /// True if the cell keeps its Instances stopped (annotation `suspended`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
    /// Last complete delivery to the clusters. Set in the project. It is kept while data is missing again, to tell lost data
    /// from data that has not arrived yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_delivery: Option<LastDelivery>,
}

/// A complete delivery of a deployment with its ConfigMaps and Secrets.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LastDelivery {
    /// Uid of the copy on the hub.
    #[serde(rename = "copyUID")]
    pub copy_uid: String,
    /// Clusters with the complete delivery. Empty if they are unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// ConfigMaps and Secrets of the delivery, as `Kind/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<String>,
    /// Time since which the delivery is complete, in whole seconds.
    pub time: Time,
}
