//! Cached facts about a namespace.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::api::{
    meta::{annotation, label},
    names::ProjectName,
};

/// Cached facts about a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceFacts {
    /// Its uid.
    pub uid: String,
    /// Labels that name the mirrored namespace, and the label of Karmada's protection.
    pub labels: BTreeMap<String, String>,
    /// True if the namespace is terminating.
    pub terminating: bool,
    /// True if a user has paused the deletions of sweeps in the namespace.
    pub paused: bool,
    /// The keeper of a hub namespace.
    #[serde(default, skip_serializing_if = "Keeper::is_unknown")]
    pub keeper: Keeper,
    /// The time since when nothing needs the content of a hub namespace. `None` if that was not found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stranded_since: Option<Timestamp>,
    /// Its creation time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
}

/// The keeper of a hub namespace. Only the keeper judges its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeper {
    /// Uid of `kube-system` in the control plane where the projects are discovered, or in the only project.
    pub management: Option<String>,
    /// Uid of `kube-system` in the project's control plane, or of `default` if there is none. A new control plane under the same
    /// name is no proof of the content of the old one.
    pub control_plane: Option<String>,
}

impl NamespaceFacts {
    /// Reads a namespace's metadata. Keeps only the labels that name the mirrored namespace and Karmada's protection.
    pub fn of(meta: ObjectMeta) -> Self {
        let mut labels = meta.labels.unwrap_or_default();
        let kept = [label::UPSTREAM_CLUSTER, label::UPSTREAM_NAMESPACE, label::DELETION_PROTECTED];
        labels.retain(|key, _| kept.contains(&key.as_str()));
        let mut annotations = meta.annotations.unwrap_or_default();
        let paused = annotations.get(annotation::PAUSE).is_some_and(|value| value == "true");
        let stranded_since = annotations.get(annotation::STRANDED_SINCE).and_then(|value| value.parse().ok());
        let keeper = Keeper {
            management: annotations.remove(annotation::KEPT_BY),
            control_plane: annotations.remove(annotation::PROJECT_CONTROL_PLANE),
        };
        let terminating = meta.deletion_timestamp.is_some();
        let created = meta.creation_timestamp.map(|created| created.0);
        Self { uid: meta.uid.unwrap_or_default(), labels, terminating, paused, keeper, stranded_since, created }
    }

    /// Returns the project and the namespace that a namespace of the hub or of a cell mirrors.
    pub fn upstream(&self) -> Option<(ProjectName, &str)> {
        let project = self.labels.get(label::UPSTREAM_CLUSTER).and_then(|v| ProjectName::from_label_value(v))?;
        Some((project, self.labels.get(label::UPSTREAM_NAMESPACE)?))
    }

    /// True if it mirrors this namespace of this project, in any spelling of the project.
    pub fn mirrors(&self, project: &ProjectName, namespace: &str) -> bool {
        self.upstream().is_some_and(|(of, own)| of == *project && own == namespace)
    }
}

impl Keeper {
    /// True if nothing is known of the keeper.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the keeper of a hub namespace from now on. `before` is the known keeper. A keeper that it names is kept.
    #[must_use]
    pub fn of(&self, before: Option<&Self>) -> Self {
        let Some(before) = before else { return self.clone() };
        if before.management.is_some() && before.management != self.management {
            return before.clone(); // another keeper, or our own identity is unknown
        }
        Self {
            management: self.management.clone(),
            control_plane: self.control_plane.clone().or_else(|| before.control_plane.clone()),
        }
    }

    /// Returns the annotations that record the keeper on a namespace.
    pub fn to_annotations(&self) -> BTreeMap<&'static str, &str> {
        let known = [
            (annotation::KEPT_BY, self.management.as_deref()),
            (annotation::PROJECT_CONTROL_PLANE, self.control_plane.as_deref()),
        ];
        known.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}
