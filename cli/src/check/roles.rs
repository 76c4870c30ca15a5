//! Rights that the operator needs on each control plane, as the roles of `config/` list them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Namespace of the managers.
pub const NAMESPACE: &str = "compute-system";

/// A role of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Management in a project.
    Project,
    /// Cells that claim quota in a project.
    Quota,
    /// Management on the hub.
    Hub,
    /// A cell on the hub.
    CellOnHub,
    /// A cell in its cluster.
    Cell,
    /// A server of metrics, in its own cluster.
    Metrics,
    /// A candidate for leader election, in its own cluster.
    LeaderElection,
}

/// A right: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Right {
    /// API group; empty for the core group.
    pub group: String,
    /// Resource, with the subresource after a slash.
    pub resource: String,
    /// Verb.
    pub verb: String,
    /// Name of the one object that the right is about. `None`: all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace that the right is about. `None`: all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl Right {
    /// Returns a right on all objects.
    pub fn new(group: &str, resource: &str, verb: &str) -> Self {
        let (group, resource, verb) = (group.to_owned(), resource.to_owned(), verb.to_owned());
        Self { group, resource, verb, name: None, namespace: None }
    }

    /// Returns the right as people write it: `watch subnetclaims.networking.datumapis.com`.
    pub fn text(&self) -> String {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        format!("{} {resource}{group}{subresource}", self.verb)
    }
}

impl Role {
    /// Returns the manifest of the role.
    fn manifest(self) -> &'static str {
        match self {
            Self::Project => include_str!("../../../config/components/controller_rbac/role.yaml"),
            Self::Quota => include_str!("../../../config/components/quota_rbac/role.yaml"),
            Self::Hub => include_str!("../../../config/base/downstream-rbac/role.yaml"),
            Self::CellOnHub => include_str!("../../../config/base/downstream-rbac/cell_role.yaml"),
            Self::Cell => include_str!("../../../config/components/cell_rbac/role.yaml"),
            Self::Metrics => include_str!("../../../config/components/prometheus/rbac.yaml"),
            Self::LeaderElection => include_str!("../../../config/components/leader_election/role.yaml"),
        }
    }

    /// Returns the name of the role in its manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Project => "compute",
            Self::Quota => "compute-quota",
            Self::Hub => "compute-manager",
            Self::CellOnHub => "compute-cell-federation",
            Self::Cell => "compute-cell",
            Self::Metrics => "compute-metrics-auth",
            Self::LeaderElection => "compute-leader-election",
        }
    }

    /// Returns the rights of the role.
    pub fn rights(self) -> BTreeSet<Right> {
        let mut rights = BTreeSet::new();
        let namespace = (self == Self::LeaderElection).then(|| NAMESPACE.to_owned());
        for object in documents(self.manifest()) {
            for rule in object["rules"].as_array().into_iter().flatten() {
                for group in strings(&rule["apiGroups"]) {
                    for resource in strings(&rule["resources"]) {
                        for verb in strings(&rule["verbs"]) {
                            rights.insert(Right { namespace: namespace.clone(), ..Right::new(group, resource, verb) });
                        }
                    }
                }
            }
        }
        rights
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> + Clone {
    list.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(Value::as_str)
}

/// Returns the objects of a manifest of this repository.
pub fn documents(manifest: &str) -> Vec<Value> {
    let documents = format!("\n{manifest}");
    documents.split("\n---").filter_map(|text| serde_saphyr::from_str(text).ok()).filter(Value::is_object).collect()
}

/// Returns the user name of a ServiceAccount in the managers' namespace.
pub fn user(service_account: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{service_account}")
}

/// Rights that an install needs, on every control plane.
pub fn to_install(with_manager: bool) -> BTreeSet<Right> {
    let rbac = "rbac.authorization.k8s.io";
    let mut all = vec![
        ("", "namespaces"),
        ("", "serviceaccounts"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        (rbac, "clusterroles"),
        (rbac, "clusterrolebindings"),
    ];
    if with_manager {
        all.extend([
            ("", "configmaps"),
            ("", "secrets"),
            ("", "services"),
            ("apps", "deployments"),
            ("networking.k8s.io", "networkpolicies"),
            (rbac, "roles"),
            (rbac, "rolebindings"),
        ]);
    }
    let verbs = |(group, resource)| ["create", "patch"].map(|verb| Right::new(group, resource, verb));
    all.into_iter().flat_map(verbs).collect()
}

/// Rights that the install needs on the hub in addition.
pub fn to_install_hub() -> BTreeSet<Right> {
    let all = [
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
        ("config.karmada.io", "resourceinterpretercustomizations"),
        ("cluster.karmada.io", "clusters"),
    ];
    let verbs = |(group, resource)| ["create", "patch"].map(|verb| Right::new(group, resource, verb));
    all.into_iter().flat_map(verbs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_those_of_the_manifests() {
        let count = |role: Role| role.rights().len();
        assert_eq!((count(Role::Quota), count(Role::Metrics), count(Role::LeaderElection)), (5, 2, 3));
        assert_eq!(count(Role::CellOnHub), 10);
        for role in [Role::Project, Role::Hub, Role::Cell] {
            assert!(count(role) > 20, "{role:?}: {}", count(role));
            let named = documents(role.manifest()).iter().any(|object| object["metadata"]["name"] == role.name());
            assert!(named, "{role:?}");
        }
        let lease = Role::LeaderElection.rights();
        assert!(lease.iter().all(|right| right.namespace.as_deref() == Some(NAMESPACE)));
    }

    #[test]
    fn right_is_written_as_kubectl_names_resources() {
        let text = |group: &str, resource: &str| Right::new(group, resource, "watch").text();
        assert_eq!(text("networking.datumapis.com", "subnetclaims"), "watch subnetclaims.networking.datumapis.com");
        assert_eq!(text("", "secrets"), "watch secrets");
        assert_eq!(text("g.io", "things/status"), "watch things.g.io/status");
    }
}
