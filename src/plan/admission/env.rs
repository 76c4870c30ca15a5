//! Rules of environment variables, those of Pods (`ValidateEnv` of Kubernetes 1.34).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector};

use super::{
    field::{Errors, FieldError, Path},
    format::{config_map_key, env_name, qualified_name},
};

/// Fields of a Pod that a variable may refer to.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Resources of a container that a variable may refer to.
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Prefixes of further resources: huge pages of some size.
const PAGES: [&str; 2] = ["limits.hugepages-", "requests.hugepages-"];

/// Validates the variables of one container.
pub(super) fn validate(path: &Path, variables: &[EnvVar], errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (index, variable) in variables.iter().enumerate() {
        let path = path.index(index);
        let name = &path.child("name");
        if variable.name.is_empty() {
            errors.push(FieldError::required(name, "name the variable"));
        } else if let Some(why) = env_name(&variable.name) {
            errors.push(FieldError::invalid(name, &variable.name, why));
        } else if !names.insert(&variable.name) {
            errors.push(FieldError::duplicate(name, &variable.name));
        }
        if let Some(source) = &variable.value_from {
            value_from(&path.child("valueFrom"), variable, source, errors);
        }
    }
}

fn value_from(path: &Path, variable: &EnvVar, source: &EnvVarSource, errors: &mut Errors) {
    if let Some(of) = &source.field_ref {
        field(&path.child("fieldRef"), of, errors);
    }
    if let Some(of) = &source.resource_field_ref {
        resource(&path.child("resourceFieldRef"), of, errors);
    }
    if let Some(of) = &source.config_map_key_ref {
        config_map_key(&path.child("configMapKeyRef").child("key"), &of.key, errors);
    }
    if let Some(of) = &source.secret_key_ref {
        config_map_key(&path.child("secretKeyRef").child("key"), &of.key, errors);
    }
    if let Some(of) = &source.file_key_ref {
        let why = "volumes of Instances do not support it; leave it out";
        errors.push(FieldError::forbidden_content(&path.child("fileKeyRef"), of, why));
    }
    let given = [
        source.field_ref.is_some(),
        source.resource_field_ref.is_some(),
        source.config_map_key_ref.is_some(),
        source.secret_key_ref.is_some(),
        source.file_key_ref.is_some(),
    ];
    // The variable's value may be confidential: no message repeats it.
    let invalid = |why: &str| FieldError::invalid_hidden(path, variable, why);
    match given.into_iter().filter(|given| *given).count() {
        0 => errors
            .push(invalid("must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`")),
        _ if variable.value.as_ref().is_some_and(|value| !value.is_empty()) => {
            errors.push(invalid("may not be specified when `value` is not empty"));
        }
        1 => {}
        _ => errors.push(invalid("may not have more than one field specified at a time")),
    }
}

fn field(path: &Path, of: &ObjectFieldSelector, errors: &mut Errors) {
    let shown = &path.child("fieldPath");
    if let Some(version) = of.api_version.as_deref().filter(|version| !["", "v1"].contains(version)) {
        errors.push(FieldError::not_supported(&path.child("apiVersion"), version, &["v1"]));
    }
    if of.field_path.is_empty() {
        errors.push(FieldError::required(shown, "name the field"));
        return;
    }
    let key = of.field_path.strip_suffix("']").and_then(|text| text.split_once("['"));
    let flaw = match key {
        Some(("metadata.labels", key)) => qualified_name(key),
        // Kubernetes checks keys of annotations in lower case.
        Some(("metadata.annotations", key)) => qualified_name(&key.to_lowercase()),
        Some(_) => Some("only metadata.labels and metadata.annotations have keys"),
        None if FIELDS.contains(&of.field_path.as_str()) => None,
        None => {
            errors.push(FieldError::not_supported(shown, &of.field_path, &FIELDS));
            None
        }
    };
    if let Some(why) = flaw {
        errors.push(FieldError::invalid(shown, &of.field_path, why));
    }
}

fn resource(path: &Path, of: &ResourceFieldSelector, errors: &mut Errors) {
    let path = &path.child("resource");
    if of.resource.is_empty() {
        errors.push(FieldError::required(path, "name the resource"));
    } else if !RESOURCES.contains(&of.resource.as_str()) && !PAGES.iter().any(|page| of.resource.starts_with(page)) {
        errors.push(FieldError::not_supported(path, &of.resource, &RESOURCES));
    }
}
