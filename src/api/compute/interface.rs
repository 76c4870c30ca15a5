//! The network interfaces of an Instance.

use std::{borrow::Cow, fmt};

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// One network attachment.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// Network to attach to.
    pub network: NetworkReference,
    /// Name of the interface in the guest. It has no effect here: this version stores it for newer ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15))]
    pub name: Option<String>,
    /// Address families of the interface, the primary one first. It has no effect here: this version stores it for newer ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub ip_families: Option<Vec<String>>,
    /// Addresses in addition to those inside the network. It has no effect here: this version stores it for newer ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub addresses: Option<Vec<InterfaceAddressRequest>>,
    /// Policy for the addresses when the place of the Instance is removed, `Delete` or `Retain`. It has no effect here: this
    /// version stores it for newer ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<String>,
    /// Rules for the traffic of the interface. The provider applies them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<InterfaceNetworkPolicy>,
}

/// Request for one address in addition to those inside the network.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct InterfaceAddressRequest {
    /// Kind of address, such as `public-ipv4`.
    #[schemars(length(min = 1, max = 63))]
    pub class: String,
}

/// A network by name.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct NetworkReference {
    /// Name of the Network, in the Workload's namespace. Its author must be allowed to `use` it.
    pub name: String,
    /// The Workload's own namespace, or nothing. A Workload that names another one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Ingress rules of one interface.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
pub struct InterfaceNetworkPolicy {
    /// Rules for incoming traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Vec<IngressRule>>,
}

/// One ingress rule: these ports from these peers.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
pub struct IngressRule {
    /// Ports that the rule allows. Defaults to every port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub ports: Option<Vec<IngressPort>>,
    /// Peers that the rule allows. Defaults to every peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub from: Option<Vec<IngressPeer>>,
}

/// Ports of an ingress rule.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct IngressPort {
    /// Protocol of the port: `TCP`, `UDP` or `SCTP`. Defaults to `TCP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Number of a port, 1 to 65535, or its name. Defaults to every port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<PortReference>,
    /// Last port of a range that begins with the number in `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_port: Option<i32>,
}

/// Number or name of a port. Every number that an API server stores can be decoded, also an invalid port. So the object stays
/// readable, and admission and the plan report the field.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum PortReference {
    /// A number.
    Number(serde_json::Number),
    /// A name.
    Name(String),
}

impl fmt::Display for PortReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl JsonSchema for PortReference {
    fn schema_name() -> Cow<'static, str> {
        "PortReference".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true })
    }
}

/// Peers of an ingress rule.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct IngressPeer {
    /// An address range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_block: Option<IpBlock>,
}

/// An address range with exceptions.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct IpBlock {
    /// Address range in CIDR notation, such as `10.0.0.0/16`.
    pub cidr: String,
    /// Ranges inside `cidr` that are excluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub except: Option<Vec<String>>,
}
