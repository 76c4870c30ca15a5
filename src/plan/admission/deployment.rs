//! Rules of WorkloadDeployments in a project: the writers of the operator's annotations, and the Workload that a deployment
//! names.

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

/// Annotations that decide where data is copied. Only some users may write them (fact 19).
pub const POWERS: [&str; 3] =
    [annotation::EXPECTED_REFERENCED_DATA, annotation::REFERENCED_DATA_ERROR, annotation::FEDERATION_NAMESPACE];

/// Most Workloads that a message names.
const MAX_REF_NAMED: usize = 3;

/// The operator's user on a control plane, as that control plane authenticates it.
///
/// A name alone is not enough: a tenant who may create namespaces and ServiceAccounts in the project can create one with the
/// operator's name. The uid belongs to one account only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Name.
    pub username: String,
    /// Unique id; empty if the server gives none, as for a client certificate.
    pub uid: String,
}

impl Own {
    /// True if the user is the operator. A server reports one account alike to every client.
    pub fn is(&self, user: &User) -> bool {
        self.has_name_of(user) && self.uid == user.uid
    }

    /// True if the user is the operator or has its name: a recreated account has another uid.
    pub fn has_name_of(&self, user: &User) -> bool {
        self.username == user.username
    }
}

/// The operator's user in the project, and the users with the same permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identities {
    /// The operator's user, or the reason why it is not known.
    pub own: Result<Own, String>,
    /// User names that the configuration gives the same permissions.
    pub resolvers: BTreeSet<String>,
}

impl Identities {
    /// True if the user is the operator. While the operator's user is not known, a resolver counts as the operator.
    fn is_own(&self, user: &User) -> Result<bool, String> {
        match &self.own {
            Ok(own) => Ok(own.is(user)),
            Err(_) if self.resolvers.contains(&user.username) => Ok(true),
            Err(why) => Err(why.clone()),
        }
    }

    /// True if the user may write the annotations of [`POWERS`]. An error if that depends on the operator's user, which is not
    /// known.
    fn may_write(&self, user: &User) -> Result<bool, String> {
        if user.is_master() || self.resolvers.contains(&user.username) {
            return Ok(true);
        }
        self.own.as_ref().map(|own| own.is(user)).map_err(Clone::clone)
    }
}

/// Returns the annotations of [`POWERS`] that a write adds, changes or removes.
pub fn powers_used(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> Vec<&'static str> {
    let value = |deployment: Option<&WorkloadDeployment>, key: &str| {
        deployment.and_then(|deployment| deployment.annotations().get(key).cloned())
    };
    POWERS.into_iter().filter(|key| value(Some(new), key) != value(old, key)).collect()
}

/// Refuses the annotations of [`POWERS`] to users who may not write them.
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
                "{:?} may not add, change or remove it: it controls what is copied to the cells, and only the operator \
                 writes it",
                user.username
            ),
        )),
        Err(why) => Some(FieldError::internal(
            &path.key(key),
            format!("cannot check if {:?} may write it: {why}; try again", user.username),
        )),
    };
    powers_used(new, old).into_iter().filter_map(refusal).collect()
}

/// True if the operator writes a deployment under the Workload that controls it. That Workload was reviewed when its author wrote
/// it. Every other write is reviewed like a Workload.
///
/// # Errors
/// Why the operator's user is not known, if the result depends on it.
pub fn is_part_of_reviewed_workload(
    deployment: &WorkloadDeployment,
    user: &User,
    identities: &Identities,
) -> Result<bool, String> {
    let controlled = ownership::controller_of(deployment)
        .is_some_and(|owner| owner.kind == "Workload" && owner.uid == deployment.spec.workload_ref.uid);
    if controlled { identities.is_own(user) } else { Ok(false) }
}

/// The error for a write that only the operator may make, while the operator's user is not known.
pub fn nobody_knows(user: &User, why: &str) -> FieldError {
    let why = format!("cannot check if {:?} is this operator, which may write it: {why}; try again", user.username);
    FieldError::internal(&Path::new("spec"), why)
}

/// Returns the violations in a deployment's template that an update adds.
pub fn template(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> Vec<FieldError> {
    let path = Path::new("spec").child("template");
    let violations = |deployment: &WorkloadDeployment| {
        let mut errors = Errors::default();
        let namespace = deployment.namespace().unwrap_or_default();
        template::validate(&path, &deployment.spec.template, &namespace, &mut errors);
        errors
    };
    // An unchanged template adds no violation.
    if old.is_some_and(|old| old.spec.template == new.spec.template) {
        return Vec::new();
    }
    added(violations(new), old.map(violations), &path)
}

/// Returns the violations in name, references and scale of a deployment that an update adds. Each Instance carries the names as
/// label values.
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

/// Returns the violations in the number of Instances that a user or an autoscaler sets. No Workload may ask for more either.
pub fn scaled(replicas: i32, before: Option<i32>) -> Vec<FieldError> {
    let path = Path::new("spec");
    let violations = |replicas: i32| {
        let mut errors = Errors::default();
        placements::at_most(&path.child("replicas"), replicas, &mut errors);
        errors
    };
    added(violations(replicas), before.map(violations), &path)
}

/// Returns a warning about a new number of Instances. The request does not show whether a Workload made the deployment.
pub fn scale_warning(replicas: i32, before: Option<i32>) -> Option<String> {
    (before != Some(replicas)).then(|| {
        "If a Workload made this WorkloadDeployment, the operator restores spec.replicas within seconds: change \
         scaleSettings.minReplicas of the Workload's placement instead"
            .to_owned()
    })
}

fn added(new: Errors, old: Option<Errors>, path: &Path) -> Vec<FieldError> {
    match old {
        Some(old) => new.added_to(&old),
        None => new,
    }
    .into_vec(path)
}

/// True if a write names the city of the deployment for the first time, or another city.
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

/// True if a write names the Workload of the deployment for the first time, or another Workload.
pub fn names_workload(new: &WorkloadDeployment, old: Option<&WorkloadDeployment>) -> bool {
    old.is_none_or(|old| old.spec.workload_ref != new.spec.workload_ref)
}

/// Refuses a deployment that names one Workload with the uid of another. `workloads` maps name to uid for its namespace, or
/// is the error of reading them. A Workload that does not exist may be named, which does no harm.
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
