//! What a cell that is gone, or the Go operator, has left of Instances that the deployment's cell does not have.
//!
//! Its copies on the hub are nobody's to take away, and nobody asks for them; and of its claims, nobody waits for those of
//! Instances that nobody runs any more. Each is the only trace of the other: so the claim goes first, and the copy is given
//! to the city's cell after that, which looks at its own cluster and takes the copy away. Of the Go operator's the copy alone
//! goes: a claim of its does not say whose it is.

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

/// Everything that is known of a copy that may be left over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The copy, and the claim of its Instance.
    #[serde(flatten)]
    pub left: dead_claim::Observed,
    /// All copies that name the deployment.
    pub siblings: Vec<Shared<Instance>>,
    /// Whether a copy in its place that the Go operator had left was given away before.
    #[serde(default)]
    pub given_before: bool,
}

/// A copy of the Go operator's that was given away is there again: whoever has written it lives, and it stays, since it
/// would be given to and fro.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenAgain;

/// Who has left a copy behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former<'a> {
    /// The cell with this uid, which is no member.
    Cell(&'a str),
    /// The Go operator, which writes no cell's uid: on a cell that is gone, or on the present one, from where its Instance went
    /// while nobody was there to take the copy along.
    GoOperator,
}

/// Who may have left a copy behind, as far as the copy tells: it is no member's, nobody asks for it, and by its ordinal it is
/// none of those that the deployment asks for. What has no ordinal (somebody has made it by hand) may be anybody's who lives.
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

/// Whether the copies beside a suspected one are worth a look: its deployment is bound to a member, which has answered the
/// present spec with as many Instances as it asks for.
pub fn is_answered(
    deployment: &WorkloadDeployment,
    bound: Option<&String>,
    members: Option<&BTreeSet<String>>,
) -> bool {
    let is_member = bound.zip(members).is_some_and(|(bound, members)| members.contains(bound));
    is_member && has_all_and_no_more(deployment)
}

impl Observed {
    /// Who has left the copy behind, once it is proved that another is in its place.
    ///
    /// The deployment's cell holds the copies of all that the deployment asks for: what Karmada noted of a cluster may be out of
    /// date, and then nobody lives under that uid, or somebody asks for them. The Go operator holds none.
    pub fn former(&self) -> Option<Former<'_>> {
        let dead_claim::Observed { source, deployment, bound, members, .. } = &self.left;
        let former = suspected(source, deployment.as_deref(), members.as_deref())?;
        let deployment = deployment.as_deref().filter(|of| is_answered(of, bound.as_ref(), members.as_deref()))?;
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

/// Whether a copy is to stay with whom it is.
fn stays(copy: &Instance) -> bool {
    copy.metadata.deletion_timestamp.is_none() && ownership::asking_cell(copy).is_none()
}

/// The place of a copy among those of a deployment; nothing where it is none of them.
fn ordinal_of(copy: &Instance, deployment: &WorkloadDeployment) -> Option<u32> {
    let name = copy.name_any();
    let is_of_it = names::deployment_of_instance(&name) == Some(&*deployment.name_any());
    names::instance_ordinal(&name).filter(|_| is_of_it)
}

/// Whether the cell of a deployment has answered its present spec, with as many Instances as it asks for.
fn has_all_and_no_more(deployment: &WorkloadDeployment) -> bool {
    let desired = i32::try_from(deployment.spec.desired_replicas()).unwrap_or(i32::MAX);
    deployment.metadata.deletion_timestamp.is_none()
        && deployment.status.as_ref().is_some_and(|status| {
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
