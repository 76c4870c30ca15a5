//! `WorkloadDeployment` (WD): a Workload in one city; the object that travels over the hub.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema, ResourceExt};
use serde::{Deserialize, Serialize};

use super::{Condition, InstanceTemplateSpec, LocationReference, ScaleSettings};
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
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status"
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Available\")].reason"),
    printcolumn(name = "Replicas", type_ = "string", json_path = ".status.replicas"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.readyReplicas"),
    printcolumn(name = "Desired", type_ = "string", json_path = ".status.desiredReplicas"),
    printcolumn(name = "Up-to-date", type_ = "string", json_path = ".status.updatedReplicas"),
    printcolumn(name = "Location Namespace", type_ = "string", json_path = ".status.location.namespace", priority = 1),
    printcolumn(name = "Location Name", type_ = "string", json_path = ".status.location.name", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadDeploymentSpec {
    /// The Workload in the project that this is a part of.
    pub workload_ref: WorkloadRef,
    /// The placement that asked for this city.
    pub placement_name: String,
    /// The city, as the user wrote it.
    pub city_code: String,
    /// What to run.
    pub template: Shared<InstanceTemplateSpec>,
    /// How many.
    pub scale_settings: ScaleSettings,
    /// The number of instances the cell runs; `scaleSettings.minReplicas` when absent. It follows `minReplicas`, except
    /// where the scale settings ask for autoscaling: then it begins there, and is left to whoever scales.
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
    /// True if the cell keeps its Instances stopped, with their places, until the suspension ends.
    pub fn is_suspended(&self) -> bool {
        self.annotations().get(annotation::SUSPENDED).is_some_and(|value| value == SUSPENDED)
    }
}

/// A Workload, exactly this one.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct WorkloadRef {
    /// Its name.
    pub name: String,
    /// Its uid in the project.
    pub uid: String,
}

/// What a deployment has come to. Counted on the cell, reflected to the hub, mirrored to the project.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadDeploymentStatus {
    /// `Available`, `ReplicasReady`, and others as controllers come to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Where the cell runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<LocationReference>,
    /// Instances that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Instances on the newest template that are programmed.
    #[serde(default)]
    pub current_replicas: i32,
    /// Instances asked for.
    #[serde(default)]
    pub desired_replicas: i32,
    /// Instances that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Instances on the newest template.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Selects the deployment's Instances on the cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Generation of this very object that the numbers speak of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// On the cell: generation of the project's object that the numbers speak of, from the annotation `source-generation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_source_generation: Option<i64>,
    /// Whether the cell keeps its Instances stopped, as the annotation `suspended` asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
    /// In the project: the last time that everything had arrived on its clusters. It stays while something is missing again, so
    /// that what was lost can be told from what has yet to arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_delivery: Option<LastDelivery>,
}

/// A deployment and its ConfigMaps and Secrets, as they had all arrived.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LastDelivery {
    /// Uid of the copy on the hub.
    #[serde(rename = "copyUID")]
    pub copy_uid: String,
    /// Clusters that had all of it; empty if that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// The ConfigMaps and Secrets that had arrived with it, as `Kind/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<String>,
    /// Since when, in whole seconds.
    pub time: Time,
}
