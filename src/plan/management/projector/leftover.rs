//! Copies and claims that a dead cell, or the Go operator, left of Instances that the deployment's cell does not have.
//!
//! No cell deletes such a copy, and none asks for it. No cell waits for the claim of an Instance that no longer runs. Each of the
//! two is the only trace of the other. So the claim is deleted first. Then the copy is given to the city's cell, which checks its
//! own cluster and deletes the copy. Of the Go operator only copies are cleaned up, because its claims do not name a cell.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::{dead_claim, hand_over};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        names,
    },
    plan::{Hub, Plan, Project, Proof, Shared, Step, ownership},
};

/// Snapshot of a copy that may be left over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The copy, and the claim of its Instance.
    #[serde(flatten)]
    pub left: dead_claim::Observed,
    /// All copies that name the deployment.
    pub siblings: Vec<Shared<Instance>>,
    /// True if a copy of the Go operator in the same place was given away before.
    #[serde(default)]
    pub given_before: bool,
}

/// A copy of the Go operator was given away, and exists again. Its writer is alive, so the copy is kept: it would be given back
/// and forth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenAgain;

/// Former holder that has left a copy behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former<'a> {
    /// The cell with this uid, which is not a member.
    Cell(&'a str),
    /// The Go operator, which writes no cell's uid. The Instance was on a dead cell, or left the present one while no operator
    /// ran that would delete the copy.
    GoOperator,
}

/// Returns the former holder that may have left a copy behind, as far as the copy shows. The copy belongs to no member, no cell
/// asks for it, and the deployment does not want its ordinal. A copy without an ordinal was created by hand, and its user may
/// need it.
pub fn suspected<'a>(
    source: &'a Instance,
    deployment: Option<&WorkloadDeployment>,
    members: Option<&BTreeSet<String>>,
) -> Option<Former<'a>> {
    let (members, deployment) = (members?, deployment?);
    let former = match ownership::cell_of(source) {
        Some(cell) if members.contains(cell) => return None,
        Some(cell) => Former::Cell(cell),
        None => Former::GoOperator,
    };
    let is_surplus = stays(source) && ordinal_of(source, deployment)? >= deployment.spec.desired_replicas();
    is_surplus.then_some(former)
}

/// True if the sibling copies of a suspected one are worth a check. Its deployment is bound to a member, which has answered the
/// present spec with as many Instances as it wants.
pub fn is_answered(
    deployment: &WorkloadDeployment,
    bound: Option<&String>,
    members: Option<&BTreeSet<String>>,
) -> bool {
    let is_member = bound.zip(members).is_some_and(|(bound, members)| members.contains(bound));
    is_member && has_all_and_no_more(deployment)
}

impl Observed {
    /// Returns the former holder, once the deployment's cell is proved to have taken its place.
    ///
    /// The deployment's cell must hold the copies of all Instances that the deployment wants. Karmada's record of a cluster may
    /// be out of date. Then no cell has the recorded uid, or a cell asks for the copies. The Go operator holds none.
    pub fn former(&self) -> Option<Former<'_>> {
        let dead_claim::Observed { source, deployment, bound, members, .. } = &self.left;
        let former = suspected(source, deployment.as_deref(), members.as_deref())?;
        let deployment = deployment.as_deref().filter(|wd| is_answered(wd, bound.as_ref(), members.as_deref()))?;
        let bound = bound.as_ref()?;
        let desired = deployment.spec.desired_replicas();
        let is_held = |copy: &&Shared<Instance>| {
            let is_counted = ordinal_of(copy, deployment).is_some_and(|ordinal| ordinal < desired);
            let is_of_bound = ownership::cell_of(&***copy) == Some(bound);
            is_counted && is_of_bound && stays(copy) && copy.namespace() == source.namespace()
        };
        let held = self.siblings.iter().filter(is_held).count();
        (desired > 0 && u32::try_from(held) == Ok(desired)).then_some(former)
    }
}

/// True if a copy stays with its holder.
fn stays(copy: &Instance) -> bool {
    copy.metadata.deletion_timestamp.is_none() && ownership::asking_cell(copy).is_none()
}

/// Returns the ordinal of a copy in its deployment. `None` if it belongs to another one.
fn ordinal_of(copy: &Instance, deployment: &WorkloadDeployment) -> Option<u32> {
    let name = copy.name_any();
    let is_of_it = names::deployment_of_instance(&name) == Some(&*deployment.name_any());
    names::instance_ordinal(&name).filter(|_| is_of_it)
}

/// True if the deployment's cell has answered the present spec, with exactly as many Instances as it wants.
fn has_all_and_no_more(deployment: &WorkloadDeployment) -> bool {
    let desired = i32::try_from(deployment.spec.desired_replicas()).unwrap_or(i32::MAX);
    deployment.metadata.deletion_timestamp.is_none()
        && deployment.report().is_some_and(|status| {
            status.observed_generation.is_some()
                && status.observed_generation == deployment.metadata.generation
                && status.desired_replicas == desired
                && status.replicas == desired
        })
}

/// Deletes the claim of a cell that is gone, and then gives the copy away.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Step<Project, Hub>, WrittenAgain> {
    let dead_claim::Observed { source, deployment, bound, claim, .. } = &observed.left;
    let Some((former, bound)) = observed.former().zip(bound.as_ref()) else { return Plan::nothing() };
    if former == Former::GoOperator && observed.given_before {
        return Plan::nothing().with([WrittenAgain]);
    }
    let freed = match (former, claim.as_deref()) {
        (Former::Cell(cell), Some(claim)) => dead_claim::freed(claim, source, cell, deployment.as_deref(), now),
        _ => Proof::of_target(),
    };
    freed.then([Step::Remote(hand_over::give(source, bound))]).into_iter().collect()
}

#[cfg(test)]
#[path = "leftover_tests.rs"]
mod tests;
