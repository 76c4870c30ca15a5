//! `Instance`: one running copy of a template, on a cell (and, copied, on hub and project).

use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Condition, InstanceController, InstanceRuntime, LocalReference, LocationReference, NetworkInterface, Volume,
};
use crate::api::shared::Shared;

/// Runtime, networks and volumes of one Instance.
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
    shortname = "cinst",
    category = "compute",
    selectable = ".spec.runtime.class",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(
        name = "Network-IP",
        type_ = "string",
        json_path = ".status.networkInterfaces[0].assignments.networkIP"
    ),
    printcolumn(
        name = "External-IP",
        type_ = "string",
        json_path = ".status.networkInterfaces[0].assignments.externalIP"
    ),
    printcolumn(
        name = "City",
        type_ = "string",
        json_path = ".metadata.labels.compute\\.datumapis\\.com/city-code",
        priority = 1
    ),
    printcolumn(
        name = "Workload",
        type_ = "string",
        json_path = ".metadata.labels.compute\\.datumapis\\.com/workload-name",
        priority = 1
    ),
    printcolumn(
        name = "Quota",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"QuotaGranted\")].reason",
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
#[serde(rename_all = "camelCase")]
pub struct InstanceSpec {
    /// Container sandbox or virtual machine, with its resources.
    pub runtime: Shared<InstanceRuntime>,
    /// Networks to attach to, 1 to 64.
    #[schemars(length(min = 1))]
    pub network_interfaces: Vec<NetworkInterface>,
    /// Volumes. Each must be attached by a container or by the virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub volumes: Option<Shared<Vec<Volume>>>,
    /// Location of the Instance. The cell writes it. Do not set it in a Workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<LocationReference>,
    /// State of the deployment's controller. The cell writes it. Do not set it in a Workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<InstanceController>,
}

/// Status of an Instance.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// Conditions of the Instance. The operator writes `Ready` and `QuotaGranted`.
    /// The provider writes `Programmed` and `Available`. A new Instance has all four as `Unknown`, since 1970.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// State of each entry of `spec.networkInterfaces`, written by the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_interfaces: Option<Vec<InstanceInterfaceStatus>>,
    /// Template that the provider last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<InstanceObserved>,
    /// True if the provider must stop the process. Place, disks and quota are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
    /// Published DNS names. Accepted for newer versions, and kept unchanged.
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

/// Template that the provider last applied.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct InstanceObserved {
    /// Template hash of the running Instance.
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
    /// External addresses, one for each that the spec requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub external_addresses: Option<Vec<InstanceInterfaceExternalAddress>>,
    /// Conditions that network services report about the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub conditions: Option<Vec<Condition>>,
    /// Addresses of the interface, one per direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignments: Option<InstanceInterfaceAssignments>,
}

/// One address of an interface inside its network.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct InstanceInterfaceAddress {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// The address with its prefix length.
    #[schemars(length(min = 1, max = 45))]
    pub address: String,
    /// Next hop. Absent until the location has a subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    pub gateway: Option<String>,
    /// True if `assignments.networkIP` has this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<bool>,
    /// Kind of address that the spec requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub class: Option<String>,
}

/// One external address of an interface.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct InstanceInterfaceExternalAddress {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// The address, without a prefix length.
    #[schemars(length(min = 1, max = 45))]
    pub address: String,
    /// Kind of address that the spec requests.
    #[schemars(length(min = 1, max = 63))]
    pub class: String,
}

/// Addresses of an interface, one per direction, for clients that need no more.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct InstanceInterfaceAssignments {
    /// Address inside the network.
    #[serde(rename = "networkIP", default, skip_serializing_if = "Option::is_none")]
    pub network_ip: Option<String>,
    /// External address.
    #[serde(rename = "externalIP", default, skip_serializing_if = "Option::is_none")]
    pub external_ip: Option<String>,
}
