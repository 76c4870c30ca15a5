//! What we keep of a namespace.

use std::collections::BTreeMap;

use jiff::Timestamp;
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
    /// Of a hub namespace: who keeps it.
    #[serde(default, skip_serializing_if = "Keeper::is_unknown")]
    pub keeper: Keeper,
    /// Of a hub namespace: since when nobody needs what it holds, as far as that has been found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stranded_since: Option<Timestamp>,
}

/// Who keeps a hub namespace. Nobody else judges what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeper {
    /// Uid of `kube-system` in the control plane where the projects are discovered, or in the only project.
    pub management: Option<String>,
    /// Uid of `kube-system` (of `default` where there is none) in the project's control plane: another control plane in
    /// the place of this one says nothing of what was in it.
    pub control_plane: Option<String>,
}

impl NamespaceFacts {
    /// From a namespace's metadata: of its labels, those that say what it mirrors and whether Karmada protects it.
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
        Self { uid: meta.uid.unwrap_or_default(), labels, terminating, paused, keeper, stranded_since }
    }

    /// Project and namespace that a namespace of the hub, or of a cell, mirrors.
    pub fn upstream(&self) -> Option<(ProjectName, &str)> {
        let project = self.labels.get(label::UPSTREAM_CLUSTER).and_then(|v| ProjectName::from_label_value(v))?;
        Some((project, self.labels.get(label::UPSTREAM_NAMESPACE)?))
    }

    /// Whether it mirrors this namespace of this project, however the project is spelt.
    pub fn mirrors(&self, project: &ProjectName, namespace: &str) -> bool {
        self.upstream().is_some_and(|(of, own)| of == *project && own == namespace)
    }
}

impl Keeper {
    /// Whether nothing is known of who it is.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// Who keeps a hub namespace from now on, of which `before` is known: whom it names already keeps it.
    #[must_use]
    pub fn of(&self, before: Option<&Self>) -> Self {
        let Some(before) = before else { return self.clone() };
        if before.management.is_some() && before.management != self.management {
            return before.clone(); // another's, or nobody knows who we are
        }
        Self {
            management: self.management.clone(),
            control_plane: self.control_plane.clone().or_else(|| before.control_plane.clone()),
        }
    }

    /// As it stands on a namespace.
    pub fn to_annotations(&self) -> BTreeMap<&'static str, &str> {
        let known = [
            (annotation::KEPT_BY, self.management.as_deref()),
            (annotation::PROJECT_CONTROL_PLANE, self.control_plane.as_deref()),
        ];
        known.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}
