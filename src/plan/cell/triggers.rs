//! Which change has whom look again, on a cell.
//!
//! A change says, by itself, what it concerns; who that is by name may have to be looked up (every Instance of a
//! deployment, every user of a network), which the triggers of the controllers do when they put keys into queues. A change
//! that is missed here shows only as something that waits for ever: a cell has no sweep.

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

/// What changed on a cell, or in its copies on the hub.
#[derive(Debug)]
pub enum Change<'a> {
    /// A deployment that Karmada brought.
    Deployment(Delta<'a, WorkloadDeployment>),
    /// An Instance.
    Instance(Delta<'a, Instance>),
    /// A namespace that mirrors one of a project.
    Namespace(Delta<'a, NamespaceFacts>),
    /// A companion, of which it is known whether it stays.
    Companion(SourceKind, Delta<'a, bool>),
    /// The binding of a deployment's interface to a network.
    NetworkBinding(Delta<'a, NetworkBinding>),
    /// A network context, by namespace and name.
    NetworkContext(&'a str, &'a str),
    /// The claim of a subnet.
    SubnetClaim(Delta<'a, SubnetClaim>),
    /// A subnet.
    Subnet(Delta<'a, Subnet>),
    /// Where this cell is.
    Location(Delta<'a, Place>),
    /// The copy of an Instance on the hub, by namespace and name.
    Copy(&'a str, &'a str),
    /// Every Instance of this namespace can be read again.
    InstancesReadable(&'a str),
    /// Every copy on the hub in this namespace can be read again.
    CopiesReadable(&'a str),
}

/// Work that a change brings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// A deployment, by namespace and name.
    Deployment(String, String),
    /// Every deployment of a namespace.
    Deployments(String),
    /// Everything that is done for an Instance, by namespace and name: its gates, its quota and its copy.
    Instance(String, String),
    /// Everything that is done for each Instance of a namespace.
    Instances(String),
    /// Everything that is done for each Instance of a deployment, by namespace and name.
    InstancesOf(String, String),
    /// Everything that is done for each Instance of a namespace that needs this companion.
    Users(String, DataRef),
    /// Each deployment, with its Instances, that has a binding to the network context of this namespace and name.
    UsersOfContext(String, String),
    /// The copy of an Instance, by namespace and name.
    Copy(String, String),
    /// The copy of every Instance of a namespace, and every copy that has lost its Instance.
    Copies(String),
    /// Every quota claim for an Instance of a namespace, also when the Instance is gone.
    QuotaClaims(String),
    /// Whether the project that a namespace mirrors has any Instance here still.
    QuotaUse(String),
    /// How many Instances wait for an answer from quota, and get none for this reason.
    UnansweredCount(Cause),
    /// How many companions the deployments of a namespace expect, and how many are there.
    CompanionCount(String),
    /// What is counted of a namespace that is gone, or has no deployment any more.
    ForgetNamespace(String),
    /// Everything there is.
    Everything,
}

/// What a change concerns.
pub fn after(change: &Change<'_>) -> BTreeSet<Work> {
    match change {
        Change::Deployment(delta) => after_deployment(delta),
        Change::Instance(delta) => after_instance(delta),
        Change::Namespace(delta) if delta.old == delta.new => BTreeSet::new(),
        // Its labels say where the quota of its Instances is, and where their copies come from.
        Change::Namespace(delta) => {
            let namespace = || delta.name.to_owned();
            let mut work = BTreeSet::from([Work::Instances(namespace())]);
            work.extend(delta.old.is_some().then(|| Work::QuotaUse(namespace())));
            work.extend(delta.new.is_none().then(|| Work::ForgetNamespace(namespace())));
            work
        }
        Change::Companion(_, delta) if delta.old == delta.new => BTreeSet::new(),
        // It came or went: those who need it are looked at, and nobody else.
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
        // Another name or another city; a heartbeat in its status is none.
        Change::Location(delta) if delta.old == delta.new => BTreeSet::new(),
        Change::Location(_) => [Work::Everything].into(),
        Change::Copy(namespace, name) => [Work::Copy((*namespace).to_owned(), (*name).to_owned())].into(),
        // Whoever found something there unreadable has waited, and no event of its own would call it; an Instance may have
        // gone meanwhile, and left its copy and its claim.
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

/// A deployment and each of its Instances.
fn with_instances(namespace: &str, name: &str) -> [Work; 2] {
    let owned = || (namespace.to_owned(), name.to_owned());
    let ((namespace, name), (of_namespace, of_name)) = (owned(), owned());
    [Work::Deployment(namespace, name), Work::InstancesOf(of_namespace, of_name)]
}

fn after_deployment(delta: &Delta<'_, WorkloadDeployment>) -> BTreeSet<Work> {
    let [itself, instances] = with_instances(delta.namespace, delta.name);
    // Instances read nothing of a deployment's status.
    let same = delta.old.zip(delta.new).is_some_and(|(old, new)| {
        old.metadata.generation == new.metadata.generation && old.metadata.annotations == new.metadata.annotations
    });
    if same {
        return [itself].into();
    }
    let mut work = BTreeSet::from([itself, instances, Work::CompanionCount(delta.namespace.to_owned())]);
    // Hub namespaces outlive what was in them: what is counted of each would grow with every namespace that tenants ever had.
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
        // One that had another owner, or none, may have stood in the way of what a deployment is to have.
        let named_after = names::deployment_of_instance(delta.name);
        work.extend(named_after.map(|deployment| Work::Deployment(namespace(), deployment.to_owned())));
        work.insert(Work::QuotaUse(namespace()));
    }
    work
}

fn users_of_contexts<'a>(namespace: &str, contexts: impl Iterator<Item = &'a String>) -> BTreeSet<Work> {
    contexts.map(|context| Work::UsersOfContext(namespace.to_owned(), context.clone())).collect()
}

/// The Instance, by namespace and name, whose quota a change in its project concerns. While the cell does not know who it
/// is, any claim may be its own.
pub fn after_quota_claim(cell: Option<&Identity>, delta: &Delta<'_, ResourceClaim>) -> Option<(String, String)> {
    let claim = delta.newest().filter(|claim| cell.is_none_or(|cell| cell.concerns(claim)))?;
    claim::instance_of(claim)
}

#[cfg(test)]
#[path = "triggers_tests.rs"]
mod tests;
