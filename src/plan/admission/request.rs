//! One admission request: the facts that it needs, and the verdict.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::{
    Bound,
    access::{self, Access, Answer, Asked, User},
    deployment::{self, Identities},
    field::{ErrorKind, FieldError, Path},
    new_cities,
    sharing::{self, InUse},
    warnings, workload,
};
use crate::{
    api::{
        compute::{InstanceTemplateSpec, Workload, WorkloadDeployment},
        names::ProjectName,
    },
    plan::limits,
};

/// The written object.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A Workload, and its state before an update.
    Workload(Box<Workload>, Option<Box<Workload>>),
    /// A WorkloadDeployment, and its state before an update.
    Deployment(Box<WorkloadDeployment>, Option<Box<WorkloadDeployment>>),
    /// The number of Instances that a WorkloadDeployment is scaled to, and the one before.
    Scale(i32, Option<i32>),
}

/// The facts to read for a request. Other facts are not read, so an outage elsewhere does not refuse it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The cities that are open to the project.
    pub cities: bool,
    /// The Workloads of the namespace.
    pub workloads: bool,
    /// The accesses of the user.
    pub accesses: Asked,
}

impl Needs {
    /// True if no fact is needed.
    pub fn is_empty(&self) -> bool {
        !self.cities && !self.workloads && self.accesses.is_empty()
    }
}

/// The facts that were read. Facts that were not needed are not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The cities that are open to the project.
    pub bound: Bound,
    /// Name -> uid of the Workloads of the namespace, or why they could not be read.
    pub workloads: Result<BTreeMap<String, String>, String>,
    /// Results of the reviews.
    pub answers: BTreeMap<Access, Answer>,
    /// Users of the data in the namespace, if each object goes to one city only. `None` if objects follow their users, or if it
    /// is not known.
    pub claimed: Option<Vec<InUse>>,
    /// The project of the object, if it is known.
    pub project: Option<ProjectName>,
}

impl Facts {
    /// Facts of which none could be read, for this reason.
    pub fn unknown(needs: &Needs, why: &str) -> Self {
        let failed = |access: &Access| (access.clone(), Answer::Failed(why.to_owned()));
        Self {
            bound: Bound::Unknown(why.to_owned()),
            workloads: Err(why.to_owned()),
            answers: needs.accesses.keys().map(failed).collect(),
            claimed: None,
            project: None,
        }
    }
}

/// The verdict on a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Violations; empty if the request is allowed.
    pub errors: Vec<FieldError>,
    /// Warnings for the author.
    pub warnings: Vec<String>,
}

impl Subject {
    /// True if the verdict depends on the operator's own user in the project.
    pub fn needs_identity(&self, user: &User) -> bool {
        match self {
            Self::Workload(..) | Self::Scale(..) => false,
            Self::Deployment(new, old) => {
                let old = old.as_deref();
                let powers = !user.is_master() && !deployment::powers_used(new, old).is_empty();
                let reviewed = || !self.review_needs().is_empty() || self.accesses().is_err();
                let broken = || !deployment::shape(new, old).is_empty() || !deployment::template(new, old).is_empty();
                powers || !self.is_terminating() && (reviewed() || broken())
            }
        }
    }

    /// Returns the facts to read. `identities` is used only if [`Self::needs_identity`] returns true.
    pub fn needs(&self, user: &User, identities: &Identities) -> Needs {
        if self.is_terminating() || self.is_reviewed(user, identities) == Ok(true) {
            return Needs::default();
        }
        self.review_needs()
    }

    /// True if the verdict may depend on [`Facts::claimed`].
    pub fn may_clash(&self) -> bool {
        let (namespace, template) = match self {
            Self::Workload(new, _) => (new.namespace(), &new.spec.template),
            Self::Deployment(new, _) => (new.namespace(), &new.spec.template),
            Self::Scale(..) => return false,
        };
        !self.is_terminating() && namespace.is_some() && sharing::may_clash(template)
    }

    /// Returns the verdict, from the facts of [`Self::needs`].
    pub fn judge(&self, user: &User, identities: &Identities, facts: &Facts) -> Verdict {
        let mut verdict = Verdict::default();
        if let Self::Deployment(new, old) = self {
            // This holds during deletion too: the operator cleans up by these annotations.
            verdict.errors.extend(deployment::powers(new, old.as_deref(), user, identities));
            // An unknown identity is a temporary error. No permanent error may be reported with it.
            if verdict.errors.iter().any(|error| error.kind == ErrorKind::Internal) {
                return verdict;
            }
        }
        if self.is_terminating() {
            return verdict;
        }
        match self.is_reviewed(user, identities) {
            Ok(true) => {}
            Ok(false) => self.review(facts, &mut verdict),
            Err(why) => {
                self.review(facts, &mut verdict);
                if !verdict.errors.is_empty() {
                    verdict.errors = vec![deployment::nobody_knows(user, &why)];
                }
            }
        }
        verdict
    }

    fn review(&self, facts: &Facts, verdict: &mut Verdict) {
        let asked = match self.accesses() {
            Ok(asked) => asked,
            Err(too_many) => return verdict.errors.push(too_many),
        };
        match self {
            Self::Workload(new, old) => {
                verdict.errors.extend(unlabelled(facts.project.as_ref().filter(|_| old.is_none())));
                verdict.errors.extend(workload(new, old.as_deref(), &facts.bound));
                let in_use = facts.claimed.as_ref().map(|in_use| sharing::of_workload(new, old.as_deref(), in_use));
                verdict.errors.extend(in_use.unwrap_or_default());
                verdict.warnings.extend(warnings(new));
            }
            Self::Deployment(new, old) => {
                let old = old.as_deref();
                verdict.errors.extend(unlabelled(facts.project.as_ref().filter(|_| old.is_none())));
                verdict.errors.extend(deployment::shape(new, old));
                verdict.errors.extend(deployment::workload_ref(new, old, &facts.workloads));
                verdict.errors.extend(deployment::city(new, old, &facts.bound));
                verdict.errors.extend(deployment::template(new, old));
                let in_use = facts.claimed.as_ref().map(|in_use| sharing::of_deployment(new, old, in_use));
                verdict.errors.extend(in_use.unwrap_or_default());
            }
            Self::Scale(replicas, before) => {
                verdict.errors.extend(deployment::scaled(*replicas, *before));
                verdict.warnings.extend(deployment::scale_warning(*replicas, *before));
            }
        }
        verdict.errors.extend(access::refusals(&asked, &facts.answers));
    }

    fn review_needs(&self) -> Needs {
        // A request that is refused for its size needs no facts.
        let Ok(accesses) = self.accesses() else { return Needs::default() };
        let (cities, workloads) = match self {
            Self::Workload(new, old) => (!new_cities(new, old.as_deref()).is_empty(), false),
            Self::Deployment(new, old) => {
                let old = old.as_deref();
                (deployment::names_city(new, old), deployment::names_workload(new, old))
            }
            Self::Scale(..) => (false, false),
        };
        Needs { cities, workloads, accesses }
    }

    fn accesses(&self) -> Result<Asked, FieldError> {
        let path = Path::new("spec").child("template");
        let asked = |new: &InstanceTemplateSpec, old: Option<&InstanceTemplateSpec>, namespace: Option<String>| {
            access::asked(&path, new, old, &namespace.unwrap_or_default())
        };
        match self {
            Self::Workload(new, old) => {
                asked(&new.spec.template, old.as_ref().map(|old| &*old.spec.template), new.namespace())
            }
            Self::Deployment(new, old) => {
                asked(&new.spec.template, old.as_ref().map(|old| &*old.spec.template), new.namespace())
            }
            Self::Scale(..) => Ok(Asked::default()),
        }
    }

    /// True if the object is terminating: its deletion must not be blocked.
    fn is_terminating(&self) -> bool {
        match self {
            Self::Workload(new, _) => new.metadata.deletion_timestamp.is_some(),
            Self::Deployment(new, _) => new.metadata.deletion_timestamp.is_some(),
            Self::Scale(..) => false,
        }
    }

    fn is_reviewed(&self, user: &User, identities: &Identities) -> Result<bool, String> {
        match self {
            Self::Workload(..) | Self::Scale(..) => Ok(false),
            Self::Deployment(new, _) => deployment::is_part_of_reviewed_workload(new, user, identities),
        }
    }
}

/// Refuses new objects in a project with a name that is no valid label value. The hub could not have copies of them.
fn unlabelled(project: Option<&ProjectName>) -> Option<FieldError> {
    let why = limits::of_project(project?)?;
    Some(FieldError::forbidden(&Path::new("metadata").child("namespace"), why))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
