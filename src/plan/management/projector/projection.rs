//! Instances on the hub -> their read-only copies, the projections, in the project they belong to.

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

/// Why a hub Instance cannot be shown to its tenant. It stays in quarantine until something of it, or of what it names,
/// changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quarantine {
    /// It does not say which project it belongs to, or its namespace is not the one that project would have.
    Unidentifiable,
    /// It does not say which namespace of the project.
    MissingNamespaceLabel,
    /// It does not say which deployment.
    MissingDeploymentName,
    /// It names a project that is not known.
    ProjectAbsent,
    /// It names a deployment that the project has not.
    DeploymentAbsent,
    /// Somebody has an Instance of his own in the project where it is to be shown.
    PlaceTaken,
    /// The project's API server finds it invalid.
    Refused,
    /// The project's admission denies it, or its API server has answered with another error for longer than the grace. Its
    /// deployment reports it.
    Denied,
    /// It, or what stands in its place, is larger than may be.
    TooLarge,
}

impl Quarantine {
    /// All of them.
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

    /// Label of the gauge.
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
                "its label meta.datumapis.com/upstream-cluster-name is missing or no project's, or it lies in another namespace than that project's"
            }
            Self::MissingNamespaceLabel => "its label meta.datumapis.com/upstream-namespace is missing",
            Self::MissingDeploymentName => "its label compute.datumapis.com/workload-deployment-name is missing",
            Self::ProjectAbsent => {
                "the project that its label meta.datumapis.com/upstream-cluster-name names is not known"
            }
            Self::DeploymentAbsent => "its project has no WorkloadDeployment of the name that it gives",
            Self::PlaceTaken => "its project has an Instance of that name that somebody has made there",
            Self::Refused => "the project's API server refuses the copy",
            Self::Denied => {
                "a quota, a webhook or a policy of the project does not let the copy be written, or the project's API \
                 server answers with an error"
            }
            Self::TooLarge => "it is too large. It runs on its cell as before. Make its template smaller",
        }
    }
}

/// Where a hub Instance comes from and belongs, by its own word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The project.
    pub project: ProjectName,
    /// Its namespace.
    pub namespace: String,
    /// The deployment there.
    pub deployment: String,
}

/// What a hub Instance says of where it belongs.
///
/// # Errors
/// Why it cannot be placed.
pub fn identify(instance: &Instance) -> Result<Origin, Quarantine> {
    let label = |key: &str| instance.labels().get(key).filter(|value| !value.is_empty());
    let project = label(label::UPSTREAM_CLUSTER)
        .and_then(|value| ProjectName::from_label_value(value))
        .ok_or(Quarantine::Unidentifiable)?;
    let namespace = label(label::UPSTREAM_NAMESPACE).ok_or(Quarantine::MissingNamespaceLabel)?;
    let deployment = label(label::WORKLOAD_DEPLOYMENT_NAME).ok_or(Quarantine::MissingDeploymentName)?;
    Ok(Origin { project, namespace: namespace.clone(), deployment: deployment.clone() })
}

/// Everything that is known about one place in a project. All of it is known: the caches behind it are filled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// The namespace in the project.
    pub namespace: String,
    /// Name of the projection, and of what it shows.
    pub name: String,
    /// What is known of that namespace; absent when it is gone.
    pub facts: Option<NamespaceFacts>,
    /// The hub Instance that belongs there.
    pub source: Option<Shared<Instance>>,
    /// Hub Instances that name the place and lie in another namespace than the one that the hub keeps for it.
    pub foreign: Vec<Shared<Instance>>,
    /// The deployment that the source names.
    pub deployment: Option<Shared<WorkloadDeployment>>,
    /// The projection.
    pub projection: Option<Shared<Instance>>,
    /// True if the source or the projection is too large to be kept, and so what stands in it is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub too_large: bool,
    /// Uid of the cell that Karmada has bound the source's deployment to; absent while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbound: Option<Unbound>,
    /// Uids of all Clusters of the hub; absent where one has none, or while they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Shared<BTreeSet<String>>>,
}

/// A hub Instance that cannot be shown, and why.
#[derive(Clone, Debug)]
pub struct Misplaced {
    /// The Instance.
    pub instance: Shared<Instance>,
    /// Why.
    pub why: Quarantine,
}

/// Decides the writes for one place, and says who of those that name it cannot be shown there; nothing of it depends on
/// the time.
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
    // Whose a copy is does not depend on whether it can be shown: it comes first, since the project may refuse the rest.
    let handed = observed.source.as_deref().and_then(|source| hand_over::write(source, observed.bound.as_deref()));
    let steps = handed.map(Step::Remote).into_iter().chain(steps).collect();
    Plan::writes(steps).with(misplaced.map(|(instance, why)| Misplaced { instance: instance.clone(), why }))
}

/// Has the projection show `source`. `Err` says why it cannot.
fn show(observed: &Observed, source: &Instance, now: Timestamp) -> Result<Option<Write<Project>>, Quarantine> {
    // Derived, never believed: whoever can write one Instance on the hub could name any project's namespace.
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
    // One that somebody has made is his, and not written over. It bears no mark of a projection, and so is none that we know.
    Ok(if observed.projection.is_none() { write.map(Write::yielding) } else { write })
}

/// The same place with what a live read has found in it, where that is a projection: one that has lost the label by which
/// projections are watched is in no cache. Nothing where it is somebody's own.
pub fn with_unlabelled(observed: &Observed, live: Instance) -> Option<Observed> {
    let deployment = observed.deployment.as_deref()?;
    ownership::is_projection_of(&live, deployment)
        .then(|| Observed { projection: Some(Shared::from(live)), ..observed.clone() })
}

/// A projection without a source goes, once a live read has shown that the source is gone from the namespace that the
/// hub keeps for exactly this one.
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

/// Tells in the project, once, that an Instance which somebody has made keeps another from being shown; nothing where that is
/// not the cause.
pub fn tell_tenant(observed: &Observed, why: Quarantine, now: Timestamp) -> Option<Write<Project>> {
    let deployment = observed.deployment.as_deref().filter(|_| why == Quarantine::PlaceTaken)?;
    let text = format!(
        "Instance {:?} runs and cannot be shown: somebody has made one of that name here, which is left as it is; once it is \
         deleted the other is shown",
        observed.name
    );
    let note = Note { severity: Severity::Warning, reason: Reason::PlaceTaken, action: "Projecting", text: &text };
    Some(event::on(deployment, "instance-projector", &note, now))
}

#[cfg(test)]
#[path = "projection_tests.rs"]
mod tests;
