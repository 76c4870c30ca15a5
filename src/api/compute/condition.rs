//! `metav1.Condition` with its limits in the schema.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::reason::Reason;

/// Status of a [`Condition`].
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// It does not.
    False,
    /// Nobody knows yet.
    Unknown,
}

/// One aspect of an object's state, after `metav1.Condition`.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Kind of condition, in CamelCase; one entry per type.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Generation of the object that this was judged on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// When `status` last changed.
    pub last_transition_time: Time,
    /// Machine-readable cause of the last transition.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Human-readable details.
    #[schemars(length(max = 32768))]
    pub message: String,
}

impl Condition {
    /// Returns the reason, as one of ours if it is known.
    pub fn reason(&self) -> Reason {
        Reason::from(&*self.reason)
    }
}
