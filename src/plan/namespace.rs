//! What we keep of a namespace.

use std::collections::BTreeMap;

use crate::api::{meta::label, names::ProjectName};

/// What we keep of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Project and namespace that a namespace of the hub, or of a cell, mirrors.
    pub fn upstream(&self) -> Option<(ProjectName, &str)> {
        let project = self.labels.get(label::UPSTREAM_CLUSTER).and_then(|v| ProjectName::from_label_value(v))?;
        Some((project, self.labels.get(label::UPSTREAM_NAMESPACE)?))
    }
}
