//! Rules of the runtime: containers or a virtual machine.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    env,
    field::{Errors, FieldError, Path},
    format::{PORT, PORTS, dns_label, image, is_c_identifier, port_name},
    ingress::PROTOCOLS,
};
use crate::{
    api::compute::{
        ContainerSecurityContext, EnvFromSource, InstanceSpec, MAX_SOURCES, NamedPort, SandboxContainer,
        VirtualMachineRuntime, Volume, VolumeAttachment,
    },
    plan::cell::amounts::INSTANCE_TYPES,
};

/// The volumes of an Instance by name.
type Volumes<'a> = BTreeMap<&'a str, &'a Volume>;

pub(super) fn validate(path: &Path, spec: &InstanceSpec, errors: &mut Errors) {
    let runtime = &spec.runtime;
    let volumes = spec.volumes.iter().flatten().map(|volume| (volume.name.as_str(), volume)).collect();
    let resources = path.child("resources");
    let types = INSTANCE_TYPES.map(|(name, ..)| name);
    if !types.contains(&runtime.resources.instance_type.as_str()) {
        errors.push(FieldError::not_supported(&resources, &runtime.resources.instance_type, &types));
    }
    if let Some(requests) = runtime.resources.requests.as_ref().filter(|requests| !requests.is_empty()) {
        errors.push(FieldError::forbidden_content(&resources.child("requests"), requests, SIZED_BY_TYPE));
    }
    match (&runtime.sandbox, &runtime.virtual_machine) {
        (None, None) => errors.push(FieldError::required(path, "give one of sandbox and virtualMachine")),
        (Some(_), Some(machine)) => {
            let why = "give either this or sandbox, not both";
            errors.push(FieldError::forbidden_content(&path.child("virtualMachine"), machine, why));
        }
        _ => {}
    }
    if let Some(sandbox) = &runtime.sandbox {
        let path = path.child("sandbox").child("containers");
        if sandbox.containers.is_empty() {
            errors.push(FieldError::required(&path, "give at least one container"));
        }
        let mut names = BTreeSet::new();
        for (index, container) in sandbox.containers.iter().enumerate() {
            let path = path.index(index);
            if !container.name.is_empty() && !names.insert(&container.name) {
                errors.push(FieldError::duplicate(&path.child("name"), &container.name));
            }
            self::container(&path, container, &volumes, errors);
        }
    }
    if let Some(machine) = &runtime.virtual_machine {
        virtual_machine(&path.child("virtualMachine"), machine, &volumes, errors);
    }
}

/// Message about resources besides the instance type; it begins as in the Go operator.
const SIZED_BY_TYPE: &str = "not implemented: the instance type sets the resources; leave it out";

fn container(path: &Path, container: &SandboxContainer, volumes: &Volumes<'_>, errors: &mut Errors) {
    dns_label(&path.child("name"), &container.name, errors);
    if container.image.trim().is_empty() {
        errors.push(FieldError::required(&path.child("image"), "name the image to run"));
    } else if let Some(why) = image(&container.image) {
        errors.push(FieldError::invalid(&path.child("image"), &container.image, why));
    }
    let amounts = container.resources.iter().flat_map(|resources| [&resources.limits, &resources.requests]);
    if amounts.flatten().any(|amounts| !amounts.is_empty()) {
        errors.push(FieldError::forbidden_content(&path.child("resources"), &container.resources, SIZED_BY_TYPE));
    }
    env::validate(&path.child("env"), container.env.as_deref().unwrap_or_default(), errors);
    let sources = container.env_from.as_deref().unwrap_or_default();
    if sources.len() > MAX_SOURCES {
        let detail = "put several ConfigMaps or Secrets into one";
        errors.push(FieldError::too_many(&path.child("envFrom"), sources.len(), MAX_SOURCES, detail));
    }
    for (index, source) in sources.iter().enumerate() {
        env_from(&path.child("envFrom").index(index), source, errors);
    }
    let attachments = container.volume_attachments.as_deref().unwrap_or_default();
    attached(&path.child("volumeAttachments"), attachments, volumes, errors);
    ports(&path.child("ports"), container.ports.as_deref().unwrap_or_default(), errors);
    if let Some(context) = &container.security_context {
        security(&path.child("securityContext"), context, errors);
    }
}

/// Supported seccomp profiles. A profile from a file of the node is not supported.
const SECCOMP: [&str; 2] = ["RuntimeDefault", "Unconfined"];

fn security(path: &Path, context: &ContainerSecurityContext, errors: &mut Errors) {
    if let Some(profile) = context.seccomp_profile.as_ref().filter(|profile| !SECCOMP.contains(&profile.type_.as_str()))
    {
        let path = path.child("seccompProfile").child("type");
        errors.push(FieldError::not_supported(&path, &profile.type_, &SECCOMP));
    }
    let added = || context.capabilities.iter().flat_map(|capabilities| capabilities.add.iter().flatten());
    if context.allow_privilege_escalation == Some(false) && added().any(|capability| capability == "CAP_SYS_ADMIN") {
        let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.push(FieldError::invalid_hidden(path, context, why));
    }
}

fn env_from(path: &Path, source: &EnvFromSource, errors: &mut Errors) {
    match (&source.config_map_ref, &source.secret_ref) {
        (None, None) => errors.push(FieldError::required(path, "give one of configMapRef and secretRef")),
        (Some(_), Some(secret)) => {
            let why = "give either this or configMapRef, not both";
            errors.push(FieldError::forbidden_content(&path.child("secretRef"), secret, why));
        }
        _ => {}
    }
    if let Some(prefix) = source.prefix.as_deref().filter(|prefix| !prefix.is_empty() && !is_c_identifier(prefix)) {
        let why = "want letters, digits and '_', not beginning with a digit";
        errors.push(FieldError::invalid(&path.child("prefix"), prefix, why));
    }
}

fn ports(path: &Path, ports: &[NamedPort], errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = &path.child("name");
        if port.name.is_empty() {
            errors.push(FieldError::required(name, "give it a name"));
        } else if let Some(why) = port_name(&port.name) {
            errors.push(FieldError::invalid(name, &port.name, why));
        } else if !names.insert(&port.name) {
            errors.push(FieldError::duplicate(name, &port.name));
        }
        if !PORTS.contains(&i64::from(port.port)) {
            errors.push(FieldError::invalid(&path.child("port"), port.port.to_string(), PORT));
        }
        let protocol = port.protocol.as_deref().filter(|protocol| !protocol.is_empty());
        if let Some(protocol) = protocol.filter(|protocol| !PROTOCOLS.contains(protocol)) {
            errors.push(FieldError::not_supported(&path.child("protocol"), protocol, &PROTOCOLS));
        }
    }
}

fn virtual_machine(path: &Path, machine: &VirtualMachineRuntime, volumes: &Volumes<'_>, errors: &mut Errors) {
    let attachments = path.child("volumeAttachments");
    let boots = |volume: &&Volume| {
        let populator = volume.disk.as_ref().and_then(|disk| disk.template.spec.populator.as_ref());
        populator.is_some_and(|populator| populator.image.is_some())
    };
    match machine.volume_attachments.first() {
        None => errors.push(FieldError::required(&attachments, "attach a disk to boot from")),
        Some(first) if volumes.get(first.name.as_str()).is_some_and(|volume| !boots(volume)) => {
            let why = "the first volume is the boot disk: an image must populate it";
            errors.push(FieldError::invalid(&attachments.index(0).child("name"), &first.name, why));
        }
        Some(_) => {}
    }
    attached(&attachments, &machine.volume_attachments, volumes, errors);
    ports(&path.child("ports"), machine.ports.as_deref().unwrap_or_default(), errors);
}

fn attached(path: &Path, attachments: &[VolumeAttachment], volumes: &Volumes<'_>, errors: &mut Errors) {
    let mut mounts = BTreeSet::new();
    for (index, attachment) in attachments.iter().enumerate() {
        let path = path.index(index);
        let volume = volumes.get(attachment.name.as_str());
        if attachment.name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), "name the volume to attach"));
        } else if volume.is_none() {
            errors.push(FieldError::not_found(&path.child("name"), &attachment.name, "no volume has this name"));
        }
        let Some(mount) = attachment.mount_path.as_deref().filter(|mount| !mount.is_empty()) else { continue };
        let path = path.child("mountPath");
        if !mounts.insert(mount) {
            errors.push(FieldError::duplicate(&path, mount));
        }
        let disk = volume.and_then(|volume| volume.disk.as_ref());
        if disk.is_some_and(|disk| disk.template.spec.populator.is_none()) {
            errors.push(FieldError::invalid(&path, mount, "a disk without a populator cannot be mounted"));
        }
    }
}
