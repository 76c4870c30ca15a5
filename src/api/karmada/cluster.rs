//! Member clusters. Everything that hub policies rest on is in a Cluster's metadata; one whose spec or status has another form
//! than is known here must not keep every city of every tenant waiting, so each field of them is read by itself.

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
    /// Uid of the cluster's `kube-system` namespace, which Karmada notes when the cluster joins; empty when it did not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// What keeps objects away that do not tolerate it; ours tolerate nothing. Absent where it cannot be read.
    pub taints: Option<Vec<Taint>>,
}

impl From<Value> for ClusterSpec {
    fn from(spec: Value) -> Self {
        Self { id: field(&spec, "id").unwrap_or_default(), taints: field(&spec, "taints") }
    }
}

/// A field of a Cluster, which may be left out; nothing where it cannot be read.
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
    /// `NoSchedule`, `NoExecute`; others keep nothing away.
    #[serde(default)]
    pub effect: String,
}

/// How a member cluster is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", from = "Value")]
pub struct ClusterStatus {
    /// `Ready`, and others. Absent where they cannot be read.
    pub conditions: Option<Vec<StatusCondition>>,
    /// What it serves. Absent where that cannot be read.
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
