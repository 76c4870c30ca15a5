//! Ownership of ResourceClaims. Several cells create claims in one namespace of a project, often under one cluster name.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    api::{
        meta::{label, manager},
        names::{self, ProjectName},
        neighbours::{Consumer, ResourceClaim, ResourceClaimSpec, ResourceRequest},
    },
    plan::{
        Object, Project, Write,
        ownership::{self, Holder},
    },
};

/// Place of an Instance's claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The project that provides the quota.
    pub project: ProjectName,
    /// The Instance's namespace in the project.
    pub namespace: String,
}

impl Address {
    /// Reads the labels of the cell's namespace. `Err` names the missing label.
    pub fn from_labels(labels: &std::collections::BTreeMap<String, String>) -> Result<Self, String> {
        let project = labels.get(label::UPSTREAM_CLUSTER).and_then(|value| ProjectName::from_label_value(value));
        let namespace = labels.get(label::UPSTREAM_NAMESPACE).filter(|namespace| !namespace.is_empty());
        match (project, namespace) {
            (Some(project), Some(namespace)) => Ok(Self { project, namespace: namespace.clone() }),
            (None, _) => {
                Err(format!("the cell's namespace has no label {} that names a project", label::UPSTREAM_CLUSTER))
            }
            (_, None) => Err(format!("the cell's namespace has no label {}", label::UPSTREAM_NAMESPACE)),
        }
    }
}

/// Returns the cell's namespace and the name of the Instance that a claim is for. `None` if it is for no Instance.
pub fn instance_of(claim: &ResourceClaim) -> Option<(String, String)> {
    let namespace = claim.labels().get(label::INSTANCE_NAMESPACE)?;
    Some((namespace.clone(), names::claimant_of(&claim.name_any())?.to_owned()))
}

/// The cluster name on claims of a cell without a configured name.
pub const UNNAMED: &str = "single";

/// The names of a cell on its claims, for users and for the watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// `discovery.clusterName`. All cells without a configured name share one.
    #[serde(rename = "cluster")]
    pub current: String,
    /// `discovery.formerClusterNames`: earlier names of the cell, which the Go operator wrote on claims without any other mark.
    #[serde(default)]
    pub former: BTreeSet<String>,
}

impl Names {
    /// True if this is the current name or a former name of the cell.
    pub fn contains(&self, name: &str) -> bool {
        self.current == name || self.former.contains(name)
    }

    /// Returns the cluster names of the claims that the watch shows: all names of the cell, and the name from before it had one.
    /// Under that name, the cell finds its claims by its uid. A claim there without a uid has no known owner, because all unnamed
    /// cells share the name.
    fn watched(&self) -> BTreeSet<&str> {
        self.former.iter().chain([&self.current]).map(String::as_str).chain([UNNAMED]).collect()
    }

    /// Returns the label selector of the watch on claims.
    pub fn selector(&self) -> String {
        format!("{} in ({})", label::SOURCE_CLUSTER, self.watched().into_iter().collect::<Vec<_>>().join(","))
    }
}

/// The identity of a cell on its claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Uid of the cell's `kube-system` namespace. It is unique and never changes.
    pub uid: String,
    /// The current and former names.
    #[serde(flatten)]
    pub names: Names,
}

impl Identity {
    /// Returns the holder of `claim`, for an Instance in `namespace`. A claim without a uid is `Unmarked` if it carries a name of
    /// this cell. The Go operator created it, here or on a cell of the same name. Such a claim may be ours only if its Instance
    /// exists here. It is not ours if it is older than an Instance that still waits for a grant.
    pub fn holder(&self, claim: &ResourceClaim, namespace: &str) -> Holder {
        let is = |key: &str, value: &str| claim.labels().get(key).is_some_and(|v| v == value);
        match ownership::holder(claim, &self.uid) {
            _ if !is(label::INSTANCE_NAMESPACE, namespace) => Holder::Other,
            Holder::Unmarked if !self.is_under_a_name(claim) => Holder::Other,
            holder => holder,
        }
    }

    /// True if `claim` carries a name of this cell.
    fn is_under_a_name(&self, claim: &ResourceClaim) -> bool {
        claim.labels().get(label::SOURCE_CLUSTER).is_some_and(|name| self.names.contains(name))
    }

    /// True if the watch of claims shows `claim`.
    pub fn is_watched(&self, claim: &ResourceClaim) -> bool {
        claim.labels().get(label::SOURCE_CLUSTER).is_some_and(|name| self.names.watched().contains(name.as_str()))
    }

    /// True if this cell created `claim`.
    pub fn has_made(&self, claim: &ResourceClaim) -> bool {
        ownership::holder(claim, &self.uid) == Holder::ThisCell
    }

    /// True if a change of `claim` can concern an Instance of this cell.
    pub fn concerns(&self, claim: &ResourceClaim) -> bool {
        ownership::holder(claim, &self.uid) != Holder::Other
    }

    /// Describes the owner of another cell's claim, for users.
    pub(super) fn describe_other(&self, claim: &ResourceClaim) -> String {
        let cluster = claim.labels().get(label::SOURCE_CLUSTER);
        match ownership::cell_of(claim) {
            Some(uid) if cluster.is_some_and(|name| *name == self.names.current) && *uid != self.uid => format!(
                "another cell with the name {} (uid {uid}); set another discovery.clusterName on one of the two",
                self.names.current
            ),
            None if self.is_under_a_name(claim) => format!(
                "{}, for which the Go operator created it before this Instance existed: it belongs to another cell with \
                 this name, or was left behind and may be deleted",
                cluster.map_or("", String::as_str)
            ),
            None if cluster.is_some() => format!(
                "{}, for which the Go operator created it; if this cell had that name, add it to \
                 discovery.formerClusterNames",
                cluster.map_or("", String::as_str)
            ),
            _ => cluster.map_or_else(|| "another owner".to_owned(), Clone::clone),
        }
    }

    /// Returns the write that creates a claim of this cell.
    pub(super) fn create(
        &self,
        address: &Address,
        name: &str,
        instance_namespace: &str,
        amounts: &[ResourceRequest],
    ) -> Write<Project> {
        let project = Consumer {
            api_group: "resourcemanager.miloapis.com".into(),
            kind: "Project".into(),
            name: address.project.to_string(),
        };
        let spec = ResourceClaimSpec {
            consumer_ref: project.clone(),
            requests: amounts.to_vec(),
            resource_ref: Some(project),
        };
        let body = json!({
            "metadata": { "labels": {
                label::SOURCE_CLUSTER: self.names.current,
                label::CELL_UID: self.uid,
                label::INSTANCE_NAMESPACE: instance_namespace,
            }},
            "spec": spec,
        });
        Write::create(manager::QUOTA, Object::named::<ResourceClaim>(&address.namespace, name), body)
    }
}
