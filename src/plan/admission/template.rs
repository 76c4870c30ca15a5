//! Rules of the template: its labels and annotations, its networks, and the number of references.

use super::{
    field::{Errors, FieldError, Path},
    format::{self, dns_label, is_label_value, qualified_name, source_name},
    ingress, runtime, volumes,
};
use crate::{
    api::{
        compute::{InstanceSpec, InstanceTemplateSpec},
        meta::annotation,
    },
    plan::{
        limits::{self, Excess, MAX_NETWORKS, MAX_REFERENCES, Measure},
        ownership,
        references::{references, uses},
    },
};

/// Validates a template. `path` is its own, and `namespace` is that of the object with the template.
pub(super) fn validate(path: &Path, template: &InstanceTemplateSpec, namespace: &str, errors: &mut Errors) {
    metadata(path, template, errors);
    let (path, spec) = (&path.child("spec"), &template.spec);
    networks(&path.child("networkInterfaces"), spec, namespace, errors);
    volumes::validate(&path.child("volumes"), spec, errors);
    runtime::validate(&path.child("runtime"), spec, errors);
    for used in uses(spec) {
        source_name(&path.child(&used.field), &used.data_ref, errors);
    }
    let count = references(spec).len();
    if count > MAX_REFERENCES {
        let detail = "refer to fewer ConfigMaps and Secrets, or put several into one";
        errors.push(FieldError::too_many(path, count, MAX_REFERENCES, detail));
    }
    for excess in limits::of_template(template) {
        self::excess(&excess, errors);
    }
}

/// Reports a value over its limit.
pub(super) fn excess(excess: &Excess, errors: &mut Errors) {
    let Excess { field, measure, found } = excess;
    let (path, limit, remedy) = (Path::new(field), measure.limit(), measure.remedy());
    match measure {
        // Another rule reports the port.
        Measure::Port(_) => {}
        Measure::Bytes => errors.push(FieldError::too_long_together(&path, *found, limit, &remedy)),
        _ => errors.push(FieldError::too_many(&path, *found, limit, &remedy)),
    }
}

/// Validates labels and annotations: invalid ones, and those that only the operator writes.
fn metadata(path: &Path, template: &InstanceTemplateSpec, errors: &mut Errors) {
    let given = template.metadata.clone().unwrap_or_default();
    let path_of_keys = path.child("annotations");
    let path = path.child("metadata");
    let labels = path.child("labels");
    for (key, value) in given.labels.iter().flatten() {
        let path = &labels.key(key);
        if let Some(why) = qualified_name(key) {
            errors.push(FieldError::invalid(path, key, why));
        } else if ownership::is_reserved_on_instances(key) {
            let why = "the operator writes this label; leave it out";
            errors.push(FieldError::forbidden_content(path, &(key, value), why));
        }
        if !is_label_value(value) {
            errors.push(FieldError::invalid(path, value, format::LABEL_VALUE));
        }
    }
    let annotations = path.child("annotations");
    for (key, value) in given.annotations.iter().flatten() {
        let path = &annotations.key(key);
        // Kubernetes checks keys of annotations in lower case.
        if let Some(why) = qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, key, why));
        } else if key == annotation::REFERENCED_DATA_GATE_START || !ownership::may_travel(key) {
            let why = "the platform writes this annotation; leave it out";
            errors.push(FieldError::forbidden_content(path, &(key, value), why));
        }
    }
    if template.spec.runtime.virtual_machine.is_some() {
        let text = given.annotations.unwrap_or_default().remove(annotation::SSH_KEYS);
        ssh_keys(&path_of_keys.key(annotation::SSH_KEYS), text.as_deref(), errors);
    }
}

/// Validates the SSH keys; blank lines are ignored. Like the Go operator, it names the field without `metadata`.
fn ssh_keys(path: &Path, text: Option<&str>, errors: &mut Errors) {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        errors.push(FieldError::required(path, "a virtual machine needs at least one line user:public-key"));
        return;
    };
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let why = match line.split_once(':') {
            None => "want user:public-key",
            Some((user, _)) if user.trim().is_empty() => "the user is missing before ':'",
            Some((_, key)) if !format::is_authorized_key(key) => "the text after ':' is not a public key",
            Some(_) => continue,
        };
        // The line is not repeated: it may hold a password or a private key by mistake.
        errors.push(FieldError::invalid_hidden(path, &line, format!("line {number}: {why}")));
    }
}

fn networks(path: &Path, spec: &InstanceSpec, namespace: &str, errors: &mut Errors) {
    if spec.network_interfaces.is_empty() {
        errors.push(FieldError::required(path, "name at least one network"));
    }
    if spec.network_interfaces.len() > MAX_NETWORKS {
        let count = spec.network_interfaces.len();
        errors.push(FieldError::too_many(path, count, MAX_NETWORKS, "use fewer networks"));
    }
    for (index, interface) in spec.network_interfaces.iter().enumerate() {
        let path = path.index(index);
        if let Some(policy) = &interface.network_policy {
            ingress::validate(&path.child("networkPolicy"), policy, errors);
        }
        let path = path.child("network");
        dns_label(&path.child("name"), &interface.network.name, errors);
        if let Some(other) = interface.network.namespace.as_deref().filter(|ns| !ns.is_empty() && *ns != namespace) {
            let why = format!("networks are read from the Workload's own namespace {namespace:?}: leave it out");
            errors.push(FieldError::invalid(&path.child("namespace"), other, why));
        }
    }
}
