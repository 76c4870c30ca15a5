//! The rights that `config/` grants, and the test that uses each. Audit logs prove it.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use testbed::{audit::Audit, control_plane::ControlPlane, pki::User};

use super::{World, path};

/// A role of `config/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Management in a project.
    Project,
    /// Management on the hub.
    Hub,
    /// A cell on the hub.
    CellOnHub,
    /// A cell in its cluster.
    Cell,
    /// Cells that claim quota in a project.
    Quota,
    /// A server of metrics, in its own cluster.
    Metrics,
    /// A candidate for leader election, in its own cluster.
    LeaderElection,
}

impl Role {
    /// All roles of this operator. The additional role of the Go operator is checked in `tests/tree/manifests.rs`, because no
    /// test uses it.
    pub const ALL: [Self; 7] =
        [Self::Project, Self::Hub, Self::CellOnHub, Self::Cell, Self::Quota, Self::Metrics, Self::LeaderElection];

    fn file(self) -> &'static str {
        match self {
            Self::Project => "config/components/controller_rbac/role.yaml",
            Self::Hub => "config/base/downstream-rbac/role.yaml",
            Self::CellOnHub => "config/base/downstream-rbac/cell_role.yaml",
            Self::Cell => "config/components/cell_rbac/role.yaml",
            Self::Quota => "config/components/quota_rbac/role.yaml",
            Self::Metrics => "config/components/prometheus/rbac.yaml",
            Self::LeaderElection => "config/components/leader_election/role.yaml",
        }
    }

    /// Returns the control planes of a bed on which the role is bound.
    fn planes(self, world: &World) -> Vec<&ControlPlane> {
        match self {
            Self::Project | Self::Quota => vec![&world.bed.project],
            Self::Hub | Self::CellOnHub => vec![&world.bed.hub],
            Self::Cell => world.bed.cells.values().collect(),
            Self::Metrics | Self::LeaderElection => {
                [&world.bed.project].into_iter().chain(world.bed.cells.values()).collect()
            }
        }
    }

    /// True if this user has the role.
    fn is_of(self, user: &str) -> bool {
        match self {
            Self::Project | Self::Hub | Self::Cell | Self::Metrics | Self::LeaderElection => {
                user == User::Operator.name()
            }
            Self::CellOnHub => user.starts_with(&*User::Cell(String::new()).name()),
            Self::Quota => user == User::Quota.name(),
        }
    }

    /// Returns the rights of the role, each as `group/resource verb`.
    pub fn rights(self) -> BTreeSet<String> {
        let text = std::fs::read_to_string(path(self.file())).unwrap();
        let strings = |list: &serde_json::Value| -> Vec<String> {
            list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let mut rights = BTreeSet::new();
        for document in testbed::manifests::documents(&text).unwrap() {
            for rule in document["rules"].as_array().into_iter().flatten() {
                for group in strings(&rule["apiGroups"]) {
                    for resource in strings(&rule["resources"]) {
                        rights.extend(strings(&rule["verbs"]).iter().map(|verb| format!("{group}/{resource} {verb}")));
                    }
                }
            }
        }
        rights
    }

    /// Returns the rules of this role without one of its rights, and with an additional one.
    pub fn rules_without(self, lacking: Option<&str>, more: Option<&str>) -> Value {
        let rights = self.rights();
        let rule = |right: &str| {
            let (resource, verb) = right.split_once(' ').unwrap();
            let (group, resource) = resource.split_once('/').unwrap();
            json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb] })
        };
        let kept = rights.iter().map(String::as_str).filter(|right| Some(*right) != lacking);
        kept.chain(more).map(rule).collect()
    }

    /// Returns the rights that users of the role have used on a bed since this time, and the rights that they lacked.
    pub fn used(self, world: &World, since: Timestamp) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut used, mut lacked) = (BTreeSet::new(), BTreeSet::new());
        for plane in self.planes(world) {
            let of_plane = Audit::uses(plane, since).unwrap();
            for one in of_plane.into_iter().filter(|one| self.is_of(&one.user)) {
                let right = format!("{} {}", one.resource, one.verb);
                if one.had {
                    used.insert(right)
                } else {
                    lacked.insert(right)
                };
            }
        }
        (used, lacked)
    }
}

/// Returns a client that impersonates a user on a control plane.
pub async fn impersonating(plane: &ControlPlane, user: &'static str) -> Client {
    let file = Kubeconfig::read_from(plane.kubeconfig(&User::Admin)).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.headers.push((HeaderName::from_static("impersonate-user"), HeaderValue::from_static(user)));
    Client::try_from(config).unwrap()
}

/// Rights that no audit log shows, because an admission plugin or policy checks them. For each, a test in `tests/it/rights.rs` is
/// refused without it.
pub const UNLOGGED: [(Role, &str); 4] = [
    // OwnerReferencesPermissionEnforcement, enabled here, requires this to set an owner reference that blocks the owner's
    // deletion.
    (Role::Project, "compute.datumapis.com/workloads/finalizers update"),
    (Role::CellOnHub, "compute.datumapis.com/workloaddeployments/finalizers update"),
    (Role::Cell, "compute.datumapis.com/workloaddeployments/finalizers update"),
    // config/base/downstream-rbac/cell_policy.yaml.
    (Role::Hub, "compute.datumapis.com/cells hold"),
];

/// Rarely used rights, each with the test that shows the use in its audit log.
pub const SELDOM: [(Role, &str, &str); 30] = [
    (Role::Metrics, "authentication.k8s.io/tokenreviews create", METRICS),
    (Role::Metrics, "authorization.k8s.io/subjectaccessreviews create", METRICS),
    (Role::LeaderElection, "coordination.k8s.io/leases get", LEADING),
    (Role::LeaderElection, "coordination.k8s.io/leases create", LEADING),
    (Role::LeaderElection, "coordination.k8s.io/leases update", LEADING),
    (Role::Project, "compute.datumapis.com/workloads get", TAKEOVER),
    (Role::Project, "compute.datumapis.com/instances get", TAKEOVER),
    (Role::Project, "events.k8s.io/events create", TAKEOVER),
    (Role::Cell, "compute.datumapis.com/workloaddeployments get", TAKEOVER),
    (Role::Cell, "compute.datumapis.com/workloaddeployments patch", TAKEOVER),
    (Role::Project, "resourcemanager.miloapis.com/projects get", LEAVING),
    (Role::Project, "resourcemanager.miloapis.com/projects list", LEAVING),
    (Role::Project, "resourcemanager.miloapis.com/projects watch", LEAVING),
    (Role::Project, "infrastructure.miloapis.com/projectcontrolplanes get", INTERNAL),
    (Role::Project, "infrastructure.miloapis.com/projectcontrolplanes list", INTERNAL),
    (Role::Project, "infrastructure.miloapis.com/projectcontrolplanes watch", INTERNAL),
    (Role::Project, "/namespaces get", LEFT),
    (Role::Project, "authorization.k8s.io/subjectaccessreviews create", ADMISSION),
    (Role::Project, "quota.miloapis.com/resourceclaims get", DEAD),
    (Role::Project, "quota.miloapis.com/resourceclaims delete", DEAD),
    (Role::CellOnHub, "/namespaces get", BY_HAND),
    (Role::Hub, "/namespaces delete", LEAVING),
    (Role::Hub, "work.karmada.io/works delete", "works_of_deleted_objects_are_reported_and_forgotten_ones_deleted"),
    (Role::Hub, "/namespaces get", LEFT),
    (Role::Hub, "/namespaces patch", LEAVING),
    (Role::Hub, "events.k8s.io/events create", LEAVING),
    (Role::Hub, "policy.karmada.io/propagationpolicies get", "undecodable_policy_is_reported_and_kept"),
    (
        Role::Hub,
        "policy.karmada.io/clusterpropagationpolicies get",
        "claim_residue_of_a_foreign_policy_is_removed_after_its_deletion",
    ),
    (Role::Hub, "work.karmada.io/resourcebindings patch", "claim_residue_is_removed_until_it_stays_removed"),
    (
        Role::Hub,
        "compute.datumapis.com/instances patch",
        "cell_cannot_write_instances_of_another_and_management_hands_over",
    ),
];
const LEADING: &str = "leader_election_second_replica_takes_over";
const METRICS: &str = "metrics_are_readable_only_with_permission_of_the_api_server";
const TAKEOVER: &str = "go_federation_taken_over_with_cuts_keeps_running_and_follows_changes";
const DEAD: &str = "claim_of_a_removed_member_is_freed_after_the_hand_over";
const BY_HAND: &str = "manual_instance_is_shown_after_the_hub_names_its_project";
const LEFT: &str = "hub_objects_of_a_namespace_deleted_during_downtime_are_swept";
const LEAVING: &str = "hub_objects_of_a_vanished_project_are_reported_and_deleted_after_the_grace_period";
const INTERNAL: &str = "projects_with_internal_services_are_discovered_by_their_control_planes";
const ADMISSION: &str = "webhooks_block_foreign_secrets_and_copy_control_without_lockout";

/// Fails if the audit logs of a bed do not show a use of every right that this test has to prove. Also fails if a user lacked a
/// right.
pub fn shown(world: &World, since: Timestamp, test: &str) {
    let mut wanted: BTreeMap<Role, BTreeSet<String>> = BTreeMap::new();
    for (role, right, by) in SELDOM {
        if by == test {
            wanted.entry(role).or_default().insert(right.to_owned());
        }
    }
    assert!(!wanted.is_empty(), "{test} has nothing to show");
    for (role, rights) in wanted {
        let (used, lacked) = role.used(world, since);
        assert!(lacked.is_empty(), "{role:?}: {lacked:?} are lacked by {test}");
        let unused: Vec<&String> = rights.difference(&used).collect();
        assert!(unused.is_empty(), "{role:?}: {unused:?} are not used by {test}");
    }
}
