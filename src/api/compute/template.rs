//! The template of an Instance, shared by all three kinds.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::EnvVar;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use super::{InstanceSpec, NetworkInterface};

/// Metadata and spec of the Instances to create.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
pub struct InstanceTemplateSpec {
    /// Labels and annotations for each Instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<EmbeddedMetadata>,
    /// Spec of each Instance.
    pub spec: InstanceSpec,
}

/// The part of an object's metadata that a template may carry.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
pub struct EmbeddedMetadata {
    /// Annotations for the object created from the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Ignored for Instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizers: Option<Vec<String>>,
    /// Labels for the object created from the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Ignored for Instances: each is named `<deployment>-<number>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Ignored for Instances: they are in the namespace of their deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// State of the deployment's controller in an Instance.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InstanceController {
    /// Hash of the Instance's template. Only compared for equality.
    pub template_hash: String,
    /// Gates that the Instance waits for. It must not start while one is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub scheduling_gates: Vec<SchedulingGate>,
}

/// A gate that an Instance waits for.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct SchedulingGate {
    /// Name of the gate, such as `Network`, `Quota`, `ReferencedData`.
    pub name: String,
}

/// A location by name.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct LocationReference {
    /// Name of the location.
    pub name: String,
    /// Namespace of the location, from versions in which locations had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Runtime of an Instance. Exactly one of `sandbox` and `virtualMachine`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InstanceRuntime {
    /// Size of the Instance, for all containers together.
    pub resources: InstanceResources,
    /// Containers that run together. Set this or `virtualMachine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxRuntime>,
    /// A virtual machine. Set this or `sandbox`. It needs the annotation `compute.datumapis.com/ssh-keys` in the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_machine: Option<VirtualMachineRuntime>,
    /// RuntimeClass. It has no effect here: this version stores it for newer ones, and passes it on unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub class: Option<String>,
}

/// Size of an Instance.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InstanceResources {
    /// Named size. Required in a Workload, where it is `datumcloud/d1-standard-2` or `datumcloud-d1-standard-2`. Quota counts
    /// each as 1 CPU and 2 GiB of memory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance_type: String,
    /// Adjustments to the named size. Not supported: leave it out. A Workload that sets it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// Containers that run together.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxRuntime {
    /// Containers, at least one.
    #[schemars(length(min = 1))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub containers: Vec<SandboxContainer>,
    /// Secrets in the Workload's namespace to pull the images with. The operator copies them to the cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalReference>>,
}

/// The most entries of a container's `envFrom`.
pub const MAX_SOURCES: usize = 512;

/// One container.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxContainer {
    /// Name of the container, unique within the sandbox. A DNS label of at most 63 characters.
    pub name: String,
    /// Image to run, such as `docker.io/library/nginx:1.29`.
    pub image: String,
    /// Entry point. Defaults to the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Arguments. Defaults to the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Environment variables, with unique names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Option<Vec<EnvVar>>,
    /// ConfigMaps and Secrets, at most 512. Each of their keys becomes an environment variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_from: Option<Vec<EnvFromSource>>,
    /// Limits and requests. Not supported: the instance type sets them. A Workload that sets one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ContainerResources>,
    /// Volumes of the Instance to mount, each at a path of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_attachments: Option<Vec<VolumeAttachment>>,
    /// Ports that the container listens on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub ports: Option<Vec<NamedPort>>,
    /// Security options. They have no effect here: this version stores them for newer ones, and passes them on unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<ContainerSecurityContext>,
}

/// Security options of a container.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSecurityContext {
    /// Capabilities to add to those of the runtime, or to drop from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<ContainerCapabilities>,
    /// True if a process may gain more privileges than its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<bool>,
    /// Filter of system calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<ContainerSeccompProfile>,
}

/// Capabilities of a container, by their names in capital letters.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct ContainerCapabilities {
    /// Capabilities to add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub add: Option<Vec<String>>,
    /// Capabilities to drop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub drop: Option<Vec<String>>,
}

/// Filter of a container's system calls.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct ContainerSeccompProfile {
    /// `RuntimeDefault` or `Unconfined`.
    #[serde(rename = "type")]
    pub type_: String,
}

/// Source of environment variables: exactly one of the two references.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EnvFromSource {
    /// Prefix of the name of each variable: letters, digits and `_`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// A ConfigMap in the Workload's namespace. Set this or `secretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<OptionalReference>,
    /// A Secret in the Workload's namespace. Set this or `configMapRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<OptionalReference>,
}

/// Reference to an object of the same namespace, which may be optional.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct OptionalReference {
    /// Name of the object.
    pub name: String,
    /// True if the object may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// Reference to an object of the same namespace.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct LocalReference {
    /// Name of the object.
    pub name: String,
}

/// Limits and requests of a container.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
pub struct ContainerResources {
    /// Maximum that the container may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// Guaranteed minimum of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// Attachment of a volume of the Instance.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttachment {
    /// Name of the volume.
    pub name: String,
    /// Path at which the volume is mounted, unique in the container. A disk can be mounted if it has a populator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_path: Option<String>,
}

/// A port with a name.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct NamedPort {
    /// Name of the port, unique in its list: at most 15 lower-case letters, digits and `-`, with at least one letter.
    pub name: String,
    /// Number of the port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Protocol of the port: `TCP`, `UDP` or `SCTP`. Defaults to `TCP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// A virtual machine. Its first attachment is the boot disk.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineRuntime {
    /// Volumes of the Instance to attach. At least one: the first is the boot disk, which needs an image.
    #[schemars(length(min = 1))]
    pub volume_attachments: Vec<VolumeAttachment>,
    /// Ports that the machine listens on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub ports: Option<Vec<NamedPort>>,
}

/// A resource quantity: `500m`, `2Gi` or `1`. A number is decoded too, and written back as text with the same meaning.
#[derive(Clone, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Quantity(pub String);

impl InstanceTemplateSpec {
    /// Returns the template as earlier versions decode it, without later fields. Their hashes cover exactly that.
    #[must_use]
    pub fn without_later_fields(&self) -> Self {
        let mut template = self.clone();
        let spec = &mut template.spec;
        spec.runtime.class = None;
        for container in spec.runtime.sandbox.iter_mut().flat_map(|sandbox| &mut sandbox.containers) {
            container.security_context = None;
        }
        for interface in &mut spec.network_interfaces {
            *interface = NetworkInterface {
                network: interface.network.clone(),
                network_policy: interface.network_policy.clone(),
                ..NetworkInterface::default()
            };
        }
        template
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Int(i64),
            Float(f64),
            Text(String),
        }
        Ok(Self(match Raw::deserialize(deserializer)? {
            Raw::Int(n) => n.to_string(),
            Raw::Float(n) => n.to_string(),
            Raw::Text(text) => text,
        }))
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            "x-kubernetes-int-or-string": true,
        })
    }
}
