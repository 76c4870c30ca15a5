//! What we keep of a namespace.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::api::{
    meta::{annotation, label},
    names::ProjectName,
};

/// What we keep of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceFacts {
    /// Its uid.
    pub uid: String,
    /// Its labels that say what it mirrors.
    pub labels: BTreeMap<String, String>,
    /// Whether it is on its way out.
    pub terminating: bool,
    /// Whether somebody has stopped the deletions of sweeps in it.
    pub paused: bool,
}

impl NamespaceFacts {
    /// From a namespace's metadata: of its labels, those that say what it mirrors and whether Karmada protects it.
    pub fn of(meta: ObjectMeta) -> Self {
        let mut labels = meta.labels.unwrap_or_default();
        let kept = [label::UPSTREAM_CLUSTER, label::UPSTREAM_NAMESPACE, label::DELETION_PROTECTED];
        labels.retain(|key, _| kept.contains(&key.as_str()));
        let paused = meta.annotations.iter().flatten().any(|(k, v)| k == annotation::PAUSE && v == "true");
        let terminating = meta.deletion_timestamp.is_some();
        Self { uid: meta.uid.unwrap_or_default(), labels, terminating, paused }
    }

    /// Project and namespace that a namespace of the hub, or of a cell, mirrors.
    pub fn upstream(&self) -> Option<(ProjectName, &str)> {
        let project = self.labels.get(label::UPSTREAM_CLUSTER).and_then(|v| ProjectName::from_label_value(v))?;
        Some((project, self.labels.get(label::UPSTREAM_NAMESPACE)?))
    }
}
