//! Instances on the hub -> their projections, the read-only copies in the project.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::hand_over::{self, Unbound};
use crate::plan::management::federator::unheard;
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::{label, manager},
        names::{self, ProjectName},
        reason::Reason,
    },
    plan::{
        Hub, NamespaceFacts, Object, Plan, Project, Proof, Shared, Step, Write,
        event::{self, Note, Severity},
        instance_copy::{self, Copy},
        ownership,
    },
};

/// Why a hub Instance cannot be shown to its tenant. It stays in quarantine until it changes, or an object that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quarantine {
    /// It does not name its project, or its namespace is not the hub namespace that the project would have.
    Unidentifiable,
    /// It does not name the project's namespace.
    MissingNamespaceLabel,
    /// It does not name its deployment.
    MissingDeploymentName,
    /// It names an unknown project.
    ProjectAbsent,
    /// It names a deployment that does not exist in the project.
    DeploymentAbsent,
    /// The project has a user's own Instance in the place of the projection.
    PlaceTaken,
    /// The project's API server rejects it as invalid.
    Refused,
    /// The project's admission denies it, or its API server has returned another error for longer than the grace. The deployment
    /// reports it.
    Denied,
    /// It is too large, or the object in its place is.
    TooLarge,
}

impl Quarantine {
    /// All causes.
    pub const ALL: [Self; 9] = [
        Self::Unidentifiable,
        Self::MissingNamespaceLabel,
        Self::MissingDeploymentName,
        Self::ProjectAbsent,
        Self::DeploymentAbsent,
        Self::PlaceTaken,
        Self::Refused,
        Self::Denied,
        Self::TooLarge,
    ];

    /// Value of the gauge's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unidentifiable => "unidentifiable",
            Self::MissingNamespaceLabel => "missing_namespace_label",
            Self::MissingDeploymentName => "missing_deployment_name",
            Self::ProjectAbsent => "project_absent",
            Self::DeploymentAbsent => "deployment_absent",
            Self::PlaceTaken => "place_taken",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::TooLarge => "too_large",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Unidentifiable => {
                "its label meta.datumapis.com/upstream-cluster-name is missing or names no project, or it is not in that \
                 project's namespace"
            }
            Self::MissingNamespaceLabel => "its label meta.datumapis.com/upstream-namespace is missing",
            Self::MissingDeploymentName => "its label compute.datumapis.com/workload-deployment-name is missing",
            Self::ProjectAbsent => "the project in its label meta.datumapis.com/upstream-cluster-name is unknown",
            Self::DeploymentAbsent => "its project does not have the WorkloadDeployment that it names",
            Self::PlaceTaken => "another user created an Instance of that name in its project",
            Self::Refused => "the project's API server refuses the copy",
            Self::Denied => {
                "a quota, a webhook or a policy of the project rejects the copy, or the project's API server answers with \
                 an error"
            }
            Self::TooLarge => "it is too large. It runs on its cell as before. Make its template smaller",
        }
    }
}

/// Place in a project that a hub Instance claims to belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The project.
    pub project: ProjectName,
    /// Namespace in the project.
    pub namespace: String,
    /// Deployment in that namespace.
    pub deployment: String,
}

/// Returns the origin that a hub Instance names.
///
/// # Errors
/// The cause of the quarantine.
pub fn identify(instance: &Instance) -> Result<Origin, Quarantine> {
    let label = |key: &str| instance.labels().get(key).filter(|value| !value.is_empty());
    let project = label(label::UPSTREAM_CLUSTER)
        .and_then(|value| ProjectName::from_label_value(value))
        .ok_or(Quarantine::Unidentifiable)?;
    let namespace = label(label::UPSTREAM_NAMESPACE).ok_or(Quarantine::MissingNamespaceLabel)?;
    let deployment = label(label::WORKLOAD_DEPLOYMENT_NAME).ok_or(Quarantine::MissingDeploymentName)?;
    Ok(Origin { project, namespace: namespace.clone(), deployment: deployment.clone() })
}

/// Snapshot of one place in a project. It is complete: the caches behind it are filled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The namespace in the project.
    pub namespace: String,
    /// Name of the projection, and of its source.
    pub name: String,
    /// Facts of that namespace. `None` if it is gone.
    pub facts: Option<NamespaceFacts>,
    /// The hub Instance that belongs there.
    pub source: Option<Shared<Instance>>,
    /// Hub Instances that name the place, and are not in its hub namespace.
    pub foreign: Vec<Shared<Instance>>,
    /// The deployment that the source names.
    pub deployment: Option<Shared<WorkloadDeployment>>,
    /// The projection.
    pub projection: Option<Shared<Instance>>,
    /// True if the source or the projection is too large to be cached. Then its content is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub too_large: bool,
    /// Uid of the cell that Karmada has bound the source's deployment to. `None` while it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// Why that cell is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbound: Option<Unbound>,
    /// Uids of the member cells. `None` while they are unknown, or if a cell has no uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Shared<BTreeSet<String>>>,
}

/// A hub Instance that cannot be shown, and the cause.
#[derive(Clone, Debug)]
pub struct Misplaced {
    /// The Instance.
    pub instance: Shared<Instance>,
    /// The cause.
    pub why: Quarantine,
}

/// Decides the writes for one place, and which Instances that name it cannot be shown there. Time does not change the decision.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Step<Project, Hub>, Misplaced> {
    let foreign = observed.foreign.iter().map(|instance| (instance, Quarantine::Unidentifiable));
    let (steps, misplaced) = match &observed.source {
        None => (remove(observed), None),
        Some(source) => match show(observed, source, now) {
            Ok(write) => (write.map(Step::Local).into_iter().collect(), None),
            Err(why) => (Vec::new(), Some((source, why))),
        },
    };
    let misplaced = misplaced.into_iter().chain(foreign);
    // The holder of a copy does not depend on the projection. The hand-over comes first, because the project may reject the rest.
    let handed = observed.source.as_deref().and_then(|source| hand_over::write(source, observed.bound.as_deref()));
    let steps = handed.map(Step::Remote).into_iter().chain(steps).collect();
    Plan::writes(steps).with(misplaced.map(|(instance, why)| Misplaced { instance: instance.clone(), why }))
}

/// Returns the write that makes the projection show `source`, or the cause of the quarantine.
fn show(observed: &Observed, source: &Instance, now: Timestamp) -> Result<Option<Write<Project>>, Quarantine> {
    // The namespace is derived: a client that can write one Instance on the hub could name any project's namespace.
    let derived = observed.facts.as_ref().map(|facts| names::hub_namespace(&facts.uid));
    if derived.is_some() && source.namespace() != derived {
        return Err(Quarantine::Unidentifiable);
    }
    let deployment = observed.deployment.as_deref().ok_or(Quarantine::DeploymentAbsent)?;
    let leaving = deployment.metadata.deletion_timestamp.is_some()
        || source.metadata.deletion_timestamp.is_some()
        || observed.facts.as_ref().is_none_or(|facts| facts.terminating);
    if leaving && observed.projection.is_none() {
        return Ok(None);
    }
    if observed.too_large {
        return Err(Quarantine::TooLarge);
    }
    let bound = observed.bound.as_deref().ok_or(observed.unbound.as_ref().unwrap_or(&Unbound::Unseen));
    let shown = hand_over::shown(unheard::shown(source, deployment), bound, now);
    let copy = Copy {
        source: &shown,
        namespace: &observed.namespace,
        labels: BTreeMap::new(),
        owner: ownership::reference(deployment),
        manager: manager::PROJECTOR,
    };
    let write = instance_copy::ensure(&copy, observed.projection.as_deref());
    // A user's own Instance is not overwritten. It has no mark of a projection, so it is not among the known ones.
    Ok(if observed.projection.is_none() { write.map(Write::yielding) } else { write })
}

/// Returns the snapshot with the projection that a live read found. A projection without its label is in no cache. `None` if the
/// Instance is a user's own.
pub fn with_unlabelled(observed: &Observed, live: Instance) -> Option<Observed> {
    let deployment = observed.deployment.as_deref()?;
    ownership::is_projection_of(&live, deployment)
        .then(|| Observed { projection: Some(Shared::from(live)), ..observed.clone() })
}

/// Deletes a projection without a source. A live read must first find the source gone from the place's hub namespace.
fn remove(observed: &Observed) -> Vec<Step<Project, Hub>> {
    let projection = observed.projection.as_deref().filter(|projection| ownership::is_projection(projection));
    let (Some(projection), Some(facts)) = (projection, &observed.facts) else { return Vec::new() };
    let source = Object::named::<Instance>(&names::hub_namespace(&facts.uid), &observed.name);
    Proof::read(Write::confirm_absent(source), Step::Remote).delete(projection, Step::Local).into_steps()
}

/// Reports on the hub, once, why an Instance is in quarantine.
pub fn report(instance: &Instance, why: Quarantine, now: Timestamp) -> Write<Hub> {
    let text = format!("not shown in any project: {}", why.text());
    let note = Note { severity: Severity::Warning, reason: Reason::Quarantined, action: "Projecting", text: &text };
    event::on(instance, "instance-projector", &note, now)
}

/// Reports in the project, once, that a user's own Instance keeps another one from being shown. `None` if the cause is another
/// one.
pub fn tell_tenant(observed: &Observed, why: Quarantine, now: Timestamp) -> Option<Write<Project>> {
    let deployment = observed.deployment.as_deref().filter(|_| why == Quarantine::PlaceTaken)?;
    let text = format!(
        "Instance {:?} runs and cannot be shown: a user created another one of that name here, which is kept. Delete it to \
         show the running one",
        observed.name
    );
    let note = Note { severity: Severity::Warning, reason: Reason::PlaceTaken, action: "Projecting", text: &text };
    Some(event::on(deployment, "instance-projector", &note, now))
}

#[cfg(test)]
#[path = "projection_tests.rs"]
mod tests;
