//! The volumes of an Instance.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, SecretVolumeSource};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EmbeddedMetadata, LocalReference, Quantity};

/// A volume with exactly one source.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Name of the volume, unique within the Instance. A DNS label of at most 63 characters.
    pub name: String,
    /// A disk of the Instance. Set this, `configMap` or `secret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskSource>,
    /// Keys of a ConfigMap as files. The operator copies the ConfigMap to the cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolumeSource>,
    /// Keys of a Secret as files. The operator copies the Secret to the cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolumeSource>,
}

/// A disk that is created for the Instance.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DiskSource {
    /// Device name, unique within the Instance. Defaults to `persistent-disk-<index>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Template of the disk.
    pub template: DiskTemplate,
}

/// Metadata and spec of a disk.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
pub struct DiskTemplate {
    /// Labels and annotations for the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<EmbeddedMetadata>,
    /// Spec of the disk.
    pub spec: DiskSpec,
}

/// Spec of a disk.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema, PartialEq)]
pub struct DiskSpec {
    /// Type of disk. The only value is `pd-standard`.
    #[serde(rename = "type", default = "default_disk_type")]
    pub type_: String,
    /// Size of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<DiskResources>,
    /// Initial content of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub populator: Option<DiskPopulator>,
}

impl Default for DiskSpec {
    fn default() -> Self {
        Self { type_: default_disk_type(), resources: None, populator: None }
    }
}

fn default_disk_type() -> String {
    "pd-standard".into()
}

/// Size of a disk.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
pub struct DiskResources {
    /// `storage` is the size: 10Gi to 100Gi in whole Gi. Required without an image. With one it is at least 25Gi, the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// Initial content of a disk.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
pub struct DiskPopulator {
    /// A bootable image. The only value of `name` is `datumcloud/ubuntu-2204-lts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<LocalReference>,
    /// An empty filesystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<FilesystemPopulator>,
}

/// An empty filesystem.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
pub struct FilesystemPopulator {
    /// Kind of filesystem. The only value is `ext4`.
    #[serde(rename = "type")]
    pub type_: FilesystemType,
}

/// Kinds of filesystem.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum FilesystemType {
    /// ext4
    Ext4,
}
