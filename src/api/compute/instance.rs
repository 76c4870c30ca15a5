//! `Instance`: one running copy of a template, on a cell (and, copied, on hub and project).

use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Condition, InstanceController, InstanceRuntime, LocalReference, LocationReference, NetworkInterface, Volume,
};
use crate::api::shared::Shared;

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
    pub runtime: Shared<InstanceRuntime>,
    /// Networks to attach to; at least one.
    #[schemars(length(min = 1))]
    pub network_interfaces: Vec<NetworkInterface>,
    /// Volumes that the runtime attaches by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub volumes: Option<Shared<Vec<Volume>>>,
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
    /// Whether its process is to be stopped, while its place, its disks and its quota are kept. The provider acts on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
    /// Names under which it is published; of later versions, and carried as they stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_entries")]
    pub dns: Option<Vec<Map<String, Value>>>,
}

/// Schema of a list of arbitrary objects.
fn any_entries(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    })
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
#[serde(rename_all = "camelCase")]
pub struct InstanceInterfaceStatus {
    /// Name of the interface in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The NetworkInterface that serves it, in the Instance's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_interface_ref: Option<LocalReference>,
    /// Addresses inside the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub addresses: Option<Vec<InstanceInterfaceAddress>>,
    /// Addresses from outside, one for each that the spec asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub external_addresses: Option<Vec<InstanceInterfaceExternalAddress>>,
    /// What network services say of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub conditions: Option<Vec<Condition>>,
    /// Addresses given to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignments: Option<InstanceInterfaceAssignments>,
}

/// One address that an interface has inside its network.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct InstanceInterfaceAddress {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// The address with its prefix length.
    #[schemars(length(min = 1, max = 45))]
    pub address: String,
    /// The next hop; not known before the location has a subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    pub gateway: Option<String>,
    /// Whether it is the one of `assignments.networkIP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<bool>,
    /// Kind of address that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub class: Option<String>,
}

/// One address at which an interface is reached from outside.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct InstanceInterfaceExternalAddress {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// The address, without a prefix length.
    #[schemars(length(min = 1, max = 45))]
    pub address: String,
    /// Kind of address that was asked for.
    #[schemars(length(min = 1, max = 63))]
    pub class: String,
}

/// Addresses of an interface, one of each direction, for clients that read no more.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct InstanceInterfaceAssignments {
    /// Address inside the network.
    #[serde(rename = "networkIP", default, skip_serializing_if = "Option::is_none")]
    pub network_ip: Option<String>,
    /// Address from outside.
    #[serde(rename = "externalIP", default, skip_serializing_if = "Option::is_none")]
    pub external_ip: Option<String>,
}
