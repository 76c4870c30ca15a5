//! Maps watch events of a cell to work.
//!
//! A change alone tells which objects it concerns. Some need a lookup by name (every Instance of a deployment, every user of a
//! network). The triggers of the controllers do that when they enqueue keys. A missing mapping blocks an object without end,
//! because a cell has no periodic resync.

use std::collections::BTreeSet;

use super::{
    claim::{self, Identity},
    locations::Place,
    quota_trouble::{self, Cause},
};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        names,
        neighbours::{NetworkBinding, ResourceClaim, Subnet, SubnetClaim},
        referenced::{DataRef, SourceKind},
    },
    plan::{Delta, NamespaceFacts, ownership},
};

/// A change on a cell, or in its copies on the hub.
#[derive(Debug)]
pub enum Change<'a> {
    /// A deployment from Karmada.
    Deployment(Delta<'a, WorkloadDeployment>),
    /// An Instance.
    Instance(Delta<'a, Instance>),
    /// A namespace that mirrors a project's namespace.
    Namespace(Delta<'a, NamespaceFacts>),
    /// A companion. The value is true if the companion is not terminating.
    Companion(SourceKind, Delta<'a, bool>),
    /// The binding of a deployment's interface to a network.
    NetworkBinding(Delta<'a, NetworkBinding>),
    /// A network context, by namespace and name.
    NetworkContext(&'a str, &'a str),
    /// The claim of a subnet.
    SubnetClaim(Delta<'a, SubnetClaim>),
    /// A subnet.
    Subnet(Delta<'a, Subnet>),
    /// The location of this cell.
    Location(Delta<'a, Place>),
    /// The copy of an Instance on the hub, by namespace and name.
    Copy(&'a str, &'a str),
    /// All Instances of this namespace can be decoded again.
    InstancesReadable(&'a str),
    /// All copies in this namespace on the hub can be decoded again.
    CopiesReadable(&'a str),
}

/// Work that follows from a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// A deployment, by namespace and name.
    Deployment(String, String),
    /// All deployments of a namespace.
    Deployments(String),
    /// All work on an Instance, by namespace and name: its gates, its quota and its copy.
    Instance(String, String),
    /// All work on each Instance of a namespace.
    Instances(String),
    /// All work on each Instance of a deployment, by namespace and name.
    InstancesOf(String, String),
    /// All work on each Instance of a namespace that needs this companion.
    Users(String, DataRef),
    /// Each deployment with a binding to the network context of this namespace and name, and its Instances.
    UsersOfContext(String, String),
    /// The copy of an Instance, by namespace and name.
    Copy(String, String),
    /// The copy of each Instance of a namespace, and each copy without an Instance.
    Copies(String),
    /// Each quota claim for an Instance of a namespace. The Instance may no longer exist.
    QuotaClaims(String),
    /// The check if the project of a namespace still has an Instance on this cell.
    QuotaUse(String),
    /// The number of Instances that wait for quota for this reason.
    UnansweredCount(Cause),
    /// The numbers of expected and of present companions in a namespace.
    CompanionCount(String),
    /// The metrics of a namespace that no longer exists, or has no deployment any more.
    ForgetNamespace(String),
    /// All objects.
    Everything,
}

/// Returns the work that a change causes.
pub fn after(change: &Change<'_>) -> BTreeSet<Work> {
    match change {
        Change::Deployment(delta) => after_deployment(delta),
        Change::Instance(delta) => after_instance(delta),
        Change::Namespace(delta) if delta.old == delta.new => BTreeSet::new(),
        // The labels name the project of the quota and of the copies.
        Change::Namespace(delta) => {
            let namespace = || delta.name.to_owned();
            let mut work = BTreeSet::from([Work::Instances(namespace())]);
            work.extend(delta.old.is_some().then(|| Work::QuotaUse(namespace())));
            work.extend(delta.new.is_none().then(|| Work::ForgetNamespace(namespace())));
            work
        }
        Change::Companion(_, delta) if delta.old == delta.new => BTreeSet::new(),
        // The companion was created or deleted. Only Instances that need it are reconciled.
        Change::Companion(kind, delta) => {
            let data_ref = DataRef { kind: *kind, name: delta.name.to_owned() };
            let namespace = delta.namespace.to_owned();
            [Work::Users(namespace.clone(), data_ref), Work::CompanionCount(namespace)].into()
        }
        Change::NetworkBinding(delta) => {
            let owners = delta.both().filter_map(ownership::controller_of);
            owners.flat_map(|owner| with_instances(delta.namespace, &owner.name)).collect()
        }
        Change::NetworkContext(namespace, name) => {
            [Work::UsersOfContext((*namespace).to_owned(), (*name).to_owned())].into()
        }
        Change::SubnetClaim(delta) => {
            users_of_contexts(delta.namespace, delta.both().map(|claim| &claim.spec.network_context.name))
        }
        Change::Subnet(delta) => {
            users_of_contexts(delta.namespace, delta.both().map(|subnet| &subnet.spec.network_context.name))
        }
        // Only another name or another city counts. A heartbeat in the status does not.
        Change::Location(delta) if delta.old == delta.new => BTreeSet::new(),
        Change::Location(_) => [Work::Everything].into(),
        Change::Copy(namespace, name) => [Work::Copy((*namespace).to_owned(), (*name).to_owned())].into(),
        // Controllers that found an undecodable object have waited, and no other event wakes them. In that time, an Instance may
        // have been deleted, and left its copy and its claim.
        Change::InstancesReadable(namespace) => {
            let namespace = || (*namespace).to_owned();
            [
                Work::Deployments(namespace()),
                Work::Instances(namespace()),
                Work::Copies(namespace()),
                Work::QuotaClaims(namespace()),
            ]
            .into()
        }
        Change::CopiesReadable(namespace) => [Work::Copies((*namespace).to_owned())].into(),
    }
}

/// Returns the work for a deployment and each of its Instances.
fn with_instances(namespace: &str, name: &str) -> [Work; 2] {
    let owned = || (namespace.to_owned(), name.to_owned());
    let ((namespace, name), (of_namespace, of_name)) = (owned(), owned());
    [Work::Deployment(namespace, name), Work::InstancesOf(of_namespace, of_name)]
}

fn after_deployment(delta: &Delta<'_, WorkloadDeployment>) -> BTreeSet<Work> {
    let [itself, instances] = with_instances(delta.namespace, delta.name);
    // Instances do not depend on a deployment's status.
    let same = delta.old.zip(delta.new).is_some_and(|(old, new)| {
        old.metadata.generation == new.metadata.generation && old.metadata.annotations == new.metadata.annotations
    });
    if same {
        return [itself].into();
    }
    let mut work = BTreeSet::from([itself, instances, Work::CompanionCount(delta.namespace.to_owned())]);
    // Hub namespaces outlive their deployments. Without this, the metrics would grow with every namespace that tenants ever had.
    let is_gone = delta.old.is_some() && delta.new.is_none();
    work.extend(is_gone.then(|| Work::ForgetNamespace(delta.namespace.to_owned())));
    work
}

fn after_instance(delta: &Delta<'_, Instance>) -> BTreeSet<Work> {
    let namespace = || delta.namespace.to_owned();
    let mut work = BTreeSet::from([Work::Instance(namespace(), delta.name.to_owned())]);
    if let Some(owner) = delta.newest().and_then(ownership::controller_of) {
        work.insert(Work::Deployment(namespace(), owner.name.clone()));
    }
    let (before, now) = (delta.old.and_then(quota_trouble::unanswered), delta.new.and_then(quota_trouble::unanswered));
    if before != now {
        work.extend(before.into_iter().chain(now).map(Work::UnansweredCount));
    }
    if delta.new.is_none() {
        // An Instance of another owner may have blocked a name that a deployment needs.
        let named_after = names::deployment_of_instance(delta.name);
        work.extend(named_after.map(|deployment| Work::Deployment(namespace(), deployment.to_owned())));
        work.insert(Work::QuotaUse(namespace()));
    }
    work
}

fn users_of_contexts<'a>(namespace: &str, contexts: impl Iterator<Item = &'a String>) -> BTreeSet<Work> {
    contexts.map(|context| Work::UsersOfContext(namespace.to_owned(), context.clone())).collect()
}

/// Returns the namespace and name of the Instance that a claim concerns. While the cell's identity is unknown, each claim may be
/// its own.
pub fn after_quota_claim(cell: Option<&Identity>, delta: &Delta<'_, ResourceClaim>) -> Option<(String, String)> {
    let claim = delta.newest().filter(|claim| cell.is_none_or(|cell| cell.concerns(claim)))?;
    claim::instance_of(claim)
}

#[cfg(test)]
#[path = "triggers_tests.rs"]
mod tests;
