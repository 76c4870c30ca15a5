//! Whose a ResourceClaim is. Cells make their claims side by side in a project's namespace, often under one cluster name.

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

/// Where an Instance's claim lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The project whose quota is used.
    pub project: ProjectName,
    /// The project's namespace of the Instance.
    pub namespace: String,
}

impl Address {
    /// From the labels of the cell's namespace. `Err` says which one is missing.
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

/// The Instance that a claim is for, by the cell's namespace and by name; nothing where it is for none.
pub fn instance_of(claim: &ResourceClaim) -> Option<(String, String)> {
    let namespace = claim.labels().get(label::INSTANCE_NAMESPACE)?;
    Some((namespace.clone(), names::claimant_of(&claim.name_any())?.to_owned()))
}

/// The name on the claims of a cell that was given none.
pub const UNNAMED: &str = "single";

/// What a cell is called on its claims: for people, and for the watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// `discovery.clusterName`. Cells that were given no name share one.
    #[serde(rename = "cluster")]
    pub current: String,
    /// `discovery.formerClusterNames`: what the Go operator called it on claims that say nothing else of whose they are.
    #[serde(default)]
    pub former: BTreeSet<String>,
}

impl Names {
    /// Whether the cell is or was called so.
    pub fn contains(&self, name: &str) -> bool {
        self.current == name || self.former.contains(name)
    }

    /// The names whose claims the watch shows: all of its own, and the name from before it was given one. Under that stand its
    /// claims from then, by its uid; a claim without a uid says nothing under a name that every unnamed cell has.
    fn watched(&self) -> BTreeSet<&str> {
        self.former.iter().chain([&self.current]).map(String::as_str).chain([UNNAMED]).collect()
    }

    /// The selector of the claims that the watch shows.
    pub fn selector(&self) -> String {
        format!("{} in ({})", label::SOURCE_CLUSTER, self.watched().into_iter().collect::<Vec<_>>().join(","))
    }
}

/// Who a cell is on its claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Uid of the cell's `kube-system` namespace: no two cells share it, and none changes it.
    pub uid: String,
    /// Its names.
    #[serde(flatten)]
    pub names: Names,
}

impl Identity {
    /// Whose `claim` is, when its Instance is one of `namespace`. One without a uid counts when it carries a name of this cell:
    /// made by the Go operator, here or on a cell of the same name. Only for an Instance that we have may it be ours, and not
    /// where it was there before one that still waits for a grant.
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

    /// Whether this cell has made `claim`.
    pub fn has_made(&self, claim: &ResourceClaim) -> bool {
        ownership::holder(claim, &self.uid) == Holder::ThisCell
    }

    /// Whether a change of `claim` can be news for an Instance of this cell.
    pub fn concerns(&self, claim: &ResourceClaim) -> bool {
        ownership::holder(claim, &self.uid) != Holder::Other
    }

    /// Whom a claim of another belongs to, for people.
    pub(super) fn describe_other(&self, claim: &ResourceClaim) -> String {
        let cluster = claim.labels().get(label::SOURCE_CLUSTER);
        match ownership::cell_of(claim) {
            Some(uid) if cluster.is_some_and(|name| *name == self.names.current) && *uid != self.uid => format!(
                "another cell that is called {} as well (uid {uid}); discovery.clusterName gives each a name of its own",
                self.names.current
            ),
            None if self.is_under_a_name(claim) => format!(
                "{}, for which the Go operator made it before this Instance was there: another cell's that is or was called so \
                 as well, or one that was left behind and may be deleted",
                cluster.map_or("", String::as_str)
            ),
            None if cluster.is_some() => format!(
                "{}, for which the Go operator made it; where that was this cell's name, discovery.formerClusterNames says so",
                cluster.map_or("", String::as_str)
            ),
            _ => cluster.map_or_else(|| "somebody else".to_owned(), Clone::clone),
        }
    }

    /// The write that makes a claim of this cell.
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
