//! Admission: what of a tenant's objects an API server is to refuse, decided like everything else in pure functions.
//!
//! The rules are those of the Go operator's generation C with the rules beyond it that `docs/admission.md` lists; where a
//! plan judges the same thing, both ask the same function, so that what passes here is not refused later.

pub mod access;
pub mod deployment;
mod env;
pub mod field;
pub mod format;
mod ingress;
mod placements;
pub mod request;
mod runtime;
pub mod sharing;
pub mod template;
mod volumes;

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use self::field::{Errors, FieldError, Path};
use crate::api::{compute::Workload, names::CityCode};

/// What Kubernetes puts behind a `generateName`.
const GENERATED: &str = "xxxxx";

/// The cities that are open to the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// All of them.
    Known(BTreeSet<CityCode>),
    /// They could not be read; why.
    Unknown(String),
}

/// Everything that is wrong with a Workload that is created, or that an update of it adds to what was wrong before.
///
/// `bound` is asked for the cities of [`new_cities`] alone.
pub fn workload(new: &Workload, old: Option<&Workload>, bound: &Bound) -> Vec<FieldError> {
    let mut errors = violations(new);
    if let Some(old) = old {
        errors = errors.added_to(&violations(old));
    }
    placements::unbound(&spec().child("placements"), new, old, bound, &mut errors);
    errors.into_vec(&spec())
}

/// The cities that must be open to the project for the Workload to pass.
pub fn new_cities(new: &Workload, old: Option<&Workload>) -> BTreeSet<CityCode> {
    placements::new_cities(new, old)
}

/// What its author should know of a Workload that passes.
pub fn warnings(workload: &Workload) -> Vec<String> {
    let placements = workload.spec.placements.iter().enumerate();
    let scaled = placements.filter(|(_, placement)| placement.scale_settings.asks_for_autoscaling());
    scaled
        .map(|(index, placement)| {
            format!(
                "spec.placements[{index}].scaleSettings: this operator does not scale by itself: {:?} runs minReplicas instances unless somebody scales its deployments in the cells",
                placement.name
            )
        })
        .collect()
}

/// The name that an object has, or one like that which it is about to get.
fn name_to_be(metadata: &ObjectMeta) -> String {
    let generated = metadata.generate_name.as_deref().map(|prefix| format!("{prefix}{GENERATED}"));
    metadata.name.clone().filter(|name| !name.is_empty()).or(generated).unwrap_or_default()
}

fn spec() -> Path {
    Path::new("spec")
}

/// Everything that is wrong with a Workload by itself.
fn violations(workload: &Workload) -> Errors {
    let mut errors = Errors::default();
    let name = name_to_be(&workload.metadata);
    format::dns_label(&Path::new("metadata").child("name"), &name, &mut errors);
    let namespace = workload.namespace().unwrap_or_default();
    template::validate(&spec().child("template"), &workload.spec.template, &namespace, &mut errors);
    placements::validate(&spec().child("placements"), &name, workload, &mut errors);
    errors
}

#[cfg(test)]
mod data_tests;
#[cfg(test)]
mod definitions;
#[cfg(test)]
mod definitions_tests;
#[cfg(test)]
mod generated_tests;
#[cfg(test)]
mod pod_rules_tests;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod workload_tests;
