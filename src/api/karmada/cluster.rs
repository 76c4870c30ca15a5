//! Member clusters. Hub policies depend only on a Cluster's metadata. Each field of spec and status is decoded by itself, so a
//! Cluster of an unknown form does not block every city of every tenant.

use kube::CustomResource;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::StatusCondition;

/// A member cluster.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[kube(
    group = "cluster.karmada.io",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    schema = "disabled",
    status = "ClusterStatus",
    derive = "PartialEq"
)]
#[serde(from = "Value")]
pub struct ClusterSpec {
    /// Uid of the cluster's `kube-system` namespace, recorded by Karmada when the cluster joins; empty if it was not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Taints of the cluster. The operator's objects tolerate none. `None` if the field cannot be decoded.
    pub taints: Option<Vec<Taint>>,
}

impl From<Value> for ClusterSpec {
    fn from(spec: Value) -> Self {
        Self { id: field(&spec, "id").unwrap_or_default(), taints: field(&spec, "taints") }
    }
}

/// Decodes an optional field of a Cluster; `None` if it cannot be decoded.
fn field<T: Default + DeserializeOwned>(of: &Value, name: &str) -> Option<T> {
    match of {
        Value::Object(fields) => match fields.get(name) {
            None | Some(Value::Null) => Some(T::default()),
            Some(value) => T::deserialize(value).ok(),
        },
        Value::Null => Some(T::default()),
        _ => None,
    }
}

/// A taint of a member cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    #[serde(default)]
    pub key: String,
    /// Its value, mostly empty.
    #[serde(default)]
    pub value: String,
    /// `NoSchedule` or `NoExecute`; others have no effect here.
    #[serde(default)]
    pub effect: String,
}

/// Status of a member cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", from = "Value")]
pub struct ClusterStatus {
    /// `Ready`, and others. `None` if they cannot be decoded.
    pub conditions: Option<Vec<StatusCondition>>,
    /// Served APIs. `None` if they cannot be decoded.
    pub api_enablements: Option<Vec<ApiEnablement>>,
}

impl From<Value> for ClusterStatus {
    fn from(status: Value) -> Self {
        Self { conditions: field(&status, "conditions"), api_enablements: field(&status, "apiEnablements") }
    }
}

/// Kinds of one group and version that a member cluster serves.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ApiEnablement {
    /// Group and version.
    #[serde(default)]
    pub group_version: String,
    /// The kinds.
    #[serde(default)]
    pub resources: Vec<ApiResource>,
}

/// A kind that a member cluster serves.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct ApiResource {
    /// The kind.
    #[serde(default)]
    pub kind: String,
}
