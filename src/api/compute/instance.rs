//! `Instance`: one running copy of a template, on a cell (and, copied, on hub and project).

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{Condition, InstanceController, InstanceRuntime, LocationReference, NetworkInterface, Volume};

/// What one Instance is: its runtime, networks and volumes.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[kube(
    group = "compute.datumapis.com",
    version = "v1alpha",
    kind = "Instance",
    namespaced,
    status = "InstanceStatus",
    derive = "PartialEq",
    doc = "One running copy of a Workload's template.",
    annotation("discovery.miloapis.com/parent-contexts", "Project"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(
        name = "Network IP",
        type_ = "string",
        json_path = ".status.networkInterfaces[0].assignments.networkIP"
    ),
    printcolumn(
        name = "External IP",
        type_ = "string",
        json_path = ".status.networkInterfaces[0].assignments.externalIP"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(
        name = "Quota",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"QuotaGranted\")].reason",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct InstanceSpec {
    /// Container sandbox or virtual machine, with its resources.
    pub runtime: InstanceRuntime,
    /// Networks to attach to; at least one.
    #[schemars(length(min = 1))]
    pub network_interfaces: Vec<NetworkInterface>,
    /// Volumes that the runtime attaches by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub volumes: Option<Vec<Volume>>,
    /// Location the Instance was placed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<LocationReference>,
    /// Written by the deployment's controller, never by users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<InstanceController>,
}

/// What an Instance has come to.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// `Ready` and `QuotaGranted` are written by the operator, `Programmed` and `Available` by the provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// One entry per `spec.networkInterfaces`, written by the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_interfaces: Option<Vec<InstanceInterfaceStatus>>,
    /// What the provider last acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<InstanceObserved>,
}

/// What the provider last acted on.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct InstanceObserved {
    /// The template hash that the running Instance was made from.
    pub observed_template_hash: String,
}

/// State of one network interface.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct InstanceInterfaceStatus {
    /// Addresses given to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignments: Option<InstanceInterfaceAssignments>,
}

/// Addresses of an interface.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct InstanceInterfaceAssignments {
    /// Address inside the network.
    #[serde(rename = "networkIP", default, skip_serializing_if = "Option::is_none")]
    pub network_ip: Option<String>,
    /// Address from outside.
    #[serde(rename = "externalIP", default, skip_serializing_if = "Option::is_none")]
    pub external_ip: Option<String>,
}
