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
    /// The condition does not hold.
    False,
    /// The status is unknown.
    Unknown,
}

/// One aspect of an object's state, after `metav1.Condition`.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition, in CamelCase. A list has one entry per type.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    pub type_: String,
    /// Status of the condition, one of `True`, `False` and `Unknown`.
    pub status: ConditionStatus,
    /// Generation of the object that the condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Time of the last change of `status`.
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
