//! Rules of WorkloadDeployments in a project: who may write what the operator goes by, and whose part one may claim to be.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;

use super::{
    Bound,
    access::User,
    field::{Errors, FieldError, Path},
    format, name_to_be, placements, template,
};
use crate::{
    api::{compute::WorkloadDeployment, meta::annotation, names::CityCode},
    plan::ownership,
};

/// Annotations that decide what is copied where: to write one is a power of its own (fact 19).
pub const POWERS: [&str; 3] =
    [annotation::EXPECTED_REFERENCED_DATA, annotation::REFERENCED_DATA_ERROR, annotation::FEDERATION_NAMESPACE];

/// Most Workloads that a message names.
const MAX_REF_NAMED: usize = 3;

/// Who this operator is on a control plane, as that one knows it.
///
/// A name by itself says little: who may make namespaces and ServiceAccounts in his project can make one of the operator's
/// name there. The uid is of one account alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Name.
    pub username: String,
    /// Unique id; empty where the server gives none, as to who comes with a certificate.
    pub uid: String,
}

impl Own {
    /// Whether this is the operator: a server names one account alike, whoever asks it.
    pub fn is(&self, user: &User) -> bool {
        self.has_name_of(user) && self.uid == user.uid
    }

    /// Whether this is the operator, or somebody of its name: an account that was made anew has another uid.
    pub fn has_name_of(&self, user: &User) -> bool {
        self.username == user.username
    }
}

/// Who this operator is in the project, and who else may act in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    /// As whom this operator writes there, or why that could not be found out.
    pub own: Result<Own, String>,
    /// Names that the configuration gives the same powers.
    pub resolvers: BTreeSet<String>,
}

impl Identities {
    /// Whether this is the operator itself. While nobody knows who that is, whoever may act in its place counts as it.
    fn is_own(&self, user: &User) -> Result<bool, String> {
        match &self.own {
            Ok(own) => Ok(own.is(user)),
            Err(_) if self.resolvers.contains(&user.username) => Ok(true),
            Err(why) => Err(why.clone()),
        }
    }

    /// Whether the user may write the annotations of [`POWERS`]. An error when that depends on who we are, and nobody knows.
    fn may_write(&self, user: &User) -> Result<bool, String> {
        if user.is_master() || self.resolvers.contains(&user.username) {
            return Ok(true);
        }
        self.own.as_ref().map(|own| own.is(user)).map_err(Clone::clone)
    }
}

/// The annotations of [`POWERS`] that a write adds, changes or removes.
pub fn powers_used(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> Vec<&'static str> {
    let of = |deployment: Option<&WorkloadDeployment>, key: &str| {
        deployment.and_then(|deployment| deployment.annotations().get(key).cloned())
    };
    POWERS.into_iter().filter(|key| of(Some(new), key) != of(old, key)).collect()
}

/// Refuses the annotations of [`POWERS`] to whoever may not write them.
pub fn powers(
    new: &WorkloadDeployment,
    old: Option<&WorkloadDeployment>,
    user: &User,
    identities: &Identities,
) -> Vec<FieldError> {
    let path = Path::new("metadata").child("annotations");
    let refusal = |key: &str| match identities.may_write(user) {
        Ok(true) => None,
        Ok(false) => Some(FieldError::forbidden(
            &path.key(key),
            format!(
                "{:?} may not add, change or remove it: it decides what is copied to the cells, and the operator alone writes it",
                user.username
            ),
        )),
        Err(why) => Some(FieldError::internal(
            &path.key(key),
            format!("whether {:?} may write it could not be found out: {why}; try again", user.username),
        )),
    };
    powers_used(new, old).into_iter().filter_map(refusal).collect()
}

/// Whether this is the operator's own write of a part of the Workload that controls it: then the Workload was reviewed
/// when its author wrote it, and everything else is reviewed like a Workload.
///
/// # Errors
/// When that depends on who we are, and nobody knows: why.
pub fn is_part_of_reviewed_workload(
    deployment: &WorkloadDeployment,
    user: &User,
    identities: &Identities,
) -> Result<bool, String> {
    let controlled = ownership::controller_of(deployment)
        .is_some_and(|owner| owner.kind == "Workload" && owner.uid == deployment.spec.workload_ref.uid);
    if controlled { identities.is_own(user) } else { Ok(false) }
}

/// The answer to a write that would be refused to anybody but us, while nobody knows who we are.
pub fn nobody_knows(user: &User, why: &str) -> FieldError {
    let why = format!(
        "whether {:?} is this operator, which may write it, could not be found out: {why}; try again",
        user.username
    );
    FieldError::internal(&Path::new("spec"), why)
}

/// What the rules say of a deployment by itself, as far as an update adds it: a template is held to them wherever it stands.
pub fn template(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> Vec<FieldError> {
    let path = Path::new("spec").child("template");
    let violations = |deployment: &WorkloadDeployment| {
        let mut errors = Errors::default();
        let namespace = deployment.namespace().unwrap_or_default();
        template::validate(&path, &deployment.spec.template, &namespace, &mut errors);
        errors
    };
    // What has not changed adds nothing.
    if old.is_some_and(|old| old.spec.template == new.spec.template) {
        return Vec::new();
    }
    added(violations(new), old.map(violations), &path)
}

/// What the rules say of how a deployment is called, whose part it is and how much it asks for, as far as an update adds it: all
/// of it that becomes a label's value on its Instances.
pub fn shape(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> Vec<FieldError> {
    let path = Path::new("spec");
    let violations = |deployment: &WorkloadDeployment| {
        let (mut errors, spec) = (Errors::default(), &deployment.spec);
        format::dns_label(&Path::new("metadata").child("name"), &name_to_be(&deployment.metadata), &mut errors);
        let workload = path.child("workloadRef");
        format::dns_label(&workload.child("name"), &spec.workload_ref.name, &mut errors);
        format::label_value(&workload.child("uid"), &spec.workload_ref.uid, &mut errors);
        format::dns_label(&path.child("placementName"), &spec.placement_name, &mut errors);
        placements::scale(&path.child("scaleSettings"), &spec.scale_settings, &mut errors);
        placements::at_most(&path.child("replicas"), spec.replicas.unwrap_or_default(), &mut errors);
        errors
    };
    added(violations(new), old.map(violations), &path)
}

/// What is wrong with the number of Instances that somebody scales a deployment to, whoever it is, and whatever made it: no
/// Workload may ask for more either.
pub fn scaled(replicas: i32, before: Option<i32>) -> Vec<FieldError> {
    let path = Path::new("spec");
    let violations = |replicas: i32| {
        let mut errors = Errors::default();
        placements::at_most(&path.child("replicas"), replicas, &mut errors);
        errors
    };
    added(violations(replicas), before.map(violations), &path)
}

fn added(new: Errors, old: Option<Errors>, path: &Path) -> Vec<FieldError> {
    match old {
        Some(old) => new.added_to(&old),
        None => new,
    }
    .into_vec(path)
}

/// Whether a write says anew in which city the deployment is.
pub fn names_city(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> bool {
    old.is_none_or(|old| {
        let city = |deployment: &WorkloadDeployment| CityCode::parse(&deployment.spec.city_code);
        old.spec.city_code != new.spec.city_code && (city(new).is_err() || city(old) != city(new))
    })
}

/// Refuses a city that is not open to the project.
pub fn city(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>, bound: &Bound) -> Option<FieldError> {
    let path = Path::new("spec").child("cityCode");
    names_city(new, old).then(|| placements::one_city(&path, &new.spec.city_code, bound)).flatten()
}

/// Whether a write says anew which Workload the deployment is a part of.
pub fn names_workload(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> bool {
    old.is_none_or(|old| old.spec.workload_ref != new.spec.workload_ref)
}

/// Refuses a deployment that claims to be a part of one Workload under the uid of another. `workloads`: name -> uid of
/// those in its namespace, or why they could not be read. One that is not there may be claimed: it harms nobody.
pub fn workload_ref(
    new: &WorkloadDeployment,
    old: Option<&WorkloadDeployment>,
    workloads: &Result<BTreeMap<String, String>, String>,
) -> Option<FieldError> {
    if !names_workload(new, old) {
        return None;
    }
    let path = Path::new("spec").child("workloadRef").child("uid");
    let given = &new.spec.workload_ref;
    let workloads = match workloads {
        Ok(workloads) => workloads,
        Err(why) => {
            let why = format!("the Workloads of the namespace could not be read: {why}; try again");
            return Some(FieldError::internal(&path, why));
        }
    };
    let others: Vec<&str> = workloads
        .iter()
        .filter(|(name, uid)| **uid == given.uid && **name != given.name)
        .map(|(name, _)| name.as_str())
        .take(MAX_REF_NAMED)
        .collect();
    let why = if let Some(other) = others.first() {
        format!("this is the uid of the Workload {other:?}, not of {:?}", given.name)
    } else {
        workloads.get(&given.name).filter(|uid| **uid != given.uid)?;
        format!("the Workload {:?} has another uid", given.name)
    };
    Some(FieldError::invalid(&path, &given.uid, why))
}

#[cfg(test)]
#[path = "deployment_tests.rs"]
mod tests;
