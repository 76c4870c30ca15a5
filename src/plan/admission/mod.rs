//! Admission: decides which writes of tenants an API server must refuse, in pure functions.
//!
//! The rules are those of the Go operator's generation C and the further ones in `docs/admission.md`. If a plan checks the same
//! property, both call the same function. So the plans accept each object that passes here.

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
use crate::api::{
    compute::{InstanceSpec, Workload},
    names::CityCode,
};

/// Suffix of the same length as Kubernetes appends to a `generateName`.
const GENERATED: &str = "xxxxx";

/// Cities that are open to the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// All of them.
    Known(BTreeSet<CityCode>),
    /// They could not be read; with the reason.
    Unknown(String),
}

/// Returns the violations in a new Workload, or those that an update adds.
///
/// `bound` is used only for the cities of [`new_cities`].
pub fn workload(new: &Workload, old: Option<&Workload>, bound: &Bound) -> Vec<FieldError> {
    let mut errors = violations(new);
    if let Some(old) = old {
        errors = errors.added_to(&violations(old));
    }
    placements::unbound(&spec().child("placements"), new, old, bound, &mut errors);
    errors.into_vec(&spec())
}

/// Returns the cities that must be open to the project for the Workload to pass.
pub fn new_cities(new: &Workload, old: Option<&Workload>) -> BTreeSet<CityCode> {
    placements::new_cities(new, old)
}

/// Returns the warnings for the author of a Workload that passes.
pub fn warnings(workload: &Workload) -> Vec<String> {
    let placements = workload.spec.placements.iter().enumerate();
    let scaled = placements.filter(|(_, placement)| placement.scale_settings.asks_for_autoscaling());
    scaled
        .map(|(index, placement)| {
            format!(
                "spec.placements[{index}].scaleSettings: this operator does not autoscale: {:?} runs minReplicas instances \
                 unless its deployments are scaled in the cells",
                placement.name
            )
        })
        .collect()
}

/// Returns the object's name, or one like the name that Kubernetes will generate.
fn name_to_be(metadata: &ObjectMeta) -> String {
    let generated = metadata.generate_name.as_deref().map(|prefix| format!("{prefix}{GENERATED}"));
    metadata.name.clone().filter(|name| !name.is_empty()).or(generated).unwrap_or_default()
}

fn spec() -> Path {
    Path::new("spec")
}

/// Reports fields of a template that only a cell writes, in Instances. The operator would overwrite them.
fn of_cells(path: &Path, spec: &InstanceSpec, errors: &mut Errors) {
    let why = "only a cell writes it, in Instances: leave it out";
    if let Some(controller) = &spec.controller {
        errors.push(FieldError::forbidden_content(&path.child("controller"), controller, why));
    }
    if let Some(location) = &spec.location {
        errors.push(FieldError::forbidden_content(&path.child("location"), location, why));
    }
}

/// Returns all violations in a Workload itself.
fn violations(workload: &Workload) -> Errors {
    let mut errors = Errors::default();
    let name = name_to_be(&workload.metadata);
    format::dns_label(&Path::new("metadata").child("name"), &name, &mut errors);
    let namespace = workload.namespace().unwrap_or_default();
    let template = spec().child("template");
    template::validate(&template, &workload.spec.template, &namespace, &mut errors);
    of_cells(&template.child("spec"), &workload.spec.template.spec, &mut errors);
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
