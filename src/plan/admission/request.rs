//! One admission request: what has to be known to judge it, and the judgement.

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

/// What is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A Workload, and its state before an update.
    Workload(Box<Workload>, Option<Box<Workload>>),
    /// A WorkloadDeployment, and its state before an update.
    Deployment(Box<WorkloadDeployment>, Option<Box<WorkloadDeployment>>),
    /// The number of Instances that a WorkloadDeployment is scaled to, and the one before.
    Scale(i32, Option<i32>),
}

/// What has to be read to judge a request. What it does not need is not read: nothing that is away refuses it.
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
    /// Whether nothing has to be read.
    pub fn is_empty(&self) -> bool {
        !self.cities && !self.workloads && self.accesses.is_empty()
    }
}

/// What was read. What was not needed is in no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The cities that are open to the project.
    pub bound: Bound,
    /// Name -> uid of the Workloads of the namespace, or why they could not be read.
    pub workloads: Result<BTreeMap<String, String>, String>,
    /// What came of the reviews.
    pub answers: BTreeMap<Access, Answer>,
    /// Who uses what in the namespace, where each object goes to one city alone; nothing where they follow their users, or
    /// that is not known.
    pub claimed: Option<Vec<InUse>>,
    /// The project that it is written in, where that is known.
    pub project: Option<ProjectName>,
}

impl Facts {
    /// Nothing could be read, for this reason.
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

/// The judgement of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong with it; nothing when it is allowed.
    pub errors: Vec<FieldError>,
    /// What its author should know all the same.
    pub warnings: Vec<String>,
}

impl Subject {
    /// Whether the judgement depends on who this operator is in the project.
    pub fn needs_identity(&self, user: &User) -> bool {
        match self {
            Self::Workload(..) | Self::Scale(..) => false,
            Self::Deployment(new, old) => {
                let old = old.as_deref();
                let powers = !user.is_master() && !deployment::powers_used(new, old).is_empty();
                let reviewed = || !self.review_needs().is_empty() || self.accesses().is_err();
                let broken = || !deployment::shape(new, old).is_empty() || !deployment::template(new, old).is_empty();
                powers || !self.is_going() && (reviewed() || broken())
            }
        }
    }

    /// What has to be read. `identities` counts only where [`Self::needs_identity`] says so.
    pub fn needs(&self, user: &User, identities: &Identities) -> Needs {
        if self.is_going() || self.is_reviewed(user, identities) == Ok(true) {
            return Needs::default();
        }
        self.review_needs()
    }

    /// Whether [`Facts::claimed`] may matter.
    pub fn may_clash(&self) -> bool {
        let (namespace, template) = match self {
            Self::Workload(new, _) => (new.namespace(), &new.spec.template),
            Self::Deployment(new, _) => (new.namespace(), &new.spec.template),
            Self::Scale(..) => return false,
        };
        !self.is_going() && namespace.is_some() && sharing::may_clash(template)
    }

    /// The judgement, from what was read of [`Self::needs`].
    pub fn judge(&self, user: &User, identities: &Identities, facts: &Facts) -> Verdict {
        let mut verdict = Verdict::default();
        if let Self::Deployment(new, old) = self {
            // Also when it is being deleted: the operator clears away by what these annotations say.
            verdict.errors.extend(deployment::powers(new, old.as_deref(), user, identities));
            // Whoever it is, it may be tried again: nothing that is wrong for good may stand beside that.
            if verdict.errors.iter().any(|error| error.kind == ErrorKind::Internal) {
                return verdict;
            }
        }
        if self.is_going() {
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
            Self::Scale(replicas, before) => verdict.errors.extend(deployment::scaled(*replicas, *before)),
        }
        verdict.errors.extend(access::refusals(&asked, &facts.answers));
    }

    fn review_needs(&self) -> Needs {
        // Nothing is read for what is refused for its mere size.
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

    /// What is on its way out must not be held up.
    fn is_going(&self) -> bool {
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

/// Refuses what is made in a project whose name no label on the hub can carry: nothing of it could ever arrive there.
fn unlabelled(project: Option<&ProjectName>) -> Option<FieldError> {
    let why = limits::of_project(project?)?;
    Some(FieldError::forbidden(&Path::new("metadata").child("namespace"), why))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
