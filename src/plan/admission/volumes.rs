//! Rules of the volumes of an Instance.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::KeyToPath;

use super::{
    field::{Errors, FieldError, Path},
    format::{dns_label, relative_path},
};
use crate::{
    api::compute::{DiskPopulator, DiskSource, InstanceSpec, Volume},
    plan::quantity::thousandths,
};

const DISK_TYPES: [&str; 1] = ["pd-standard"];
const IMAGES: [&str; 1] = ["datumcloud/ubuntu-2204-lts"];

/// Thousandths of a byte in a GiB, the unit of quantities.
const GI: i128 = 1000 << 30;
/// Supported sizes of a disk, in GiB.
const DISK_GI: std::ops::RangeInclusive<i128> = 10..=100;
/// Size of an image in GiB: the default size of its disk, and the least one.
const IMAGE_GI: i128 = 25;

pub(super) fn validate(path: &Path, spec: &InstanceSpec, errors: &mut Errors) {
    let attached = attached(spec);
    let (mut names, mut devices) = (BTreeSet::new(), BTreeSet::new());
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let path = path.index(index);
        let name = &path.child("name");
        dns_label(name, &volume.name, errors);
        if !volume.name.is_empty() && !names.insert(&volume.name) {
            errors.push(FieldError::duplicate(name, &volume.name));
        } else if !volume.name.is_empty() && !attached.contains(volume.name.as_str()) {
            errors.push(FieldError::invalid(
                name,
                &volume.name,
                "this volume is not attached: attach it, or leave it out",
            ));
        }
        one_source(&path, volume, errors);
        if let Some(disk) = &volume.disk {
            let device = disk.device_name.clone().unwrap_or_else(|| format!("persistent-disk-{index}"));
            let path = path.child("disk");
            if !devices.insert(device.clone()) {
                errors.push(FieldError::duplicate(&path.child("deviceName"), device));
            }
            self::disk(&path.child("template"), disk, errors);
        }
        if let Some(map) = &volume.config_map {
            let path = path.child("configMap");
            mode(&path.child("defaultMode"), map.default_mode, errors);
            items(&path.child("items"), map.items.as_deref().unwrap_or_default(), errors);
        }
        if let Some(secret) = &volume.secret {
            let path = path.child("secret");
            mode(&path.child("defaultMode"), secret.default_mode, errors);
            items(&path.child("items"), secret.items.as_deref().unwrap_or_default(), errors);
        }
    }
}

/// Returns the volumes that a container or the machine attaches.
fn attached(spec: &InstanceSpec) -> BTreeSet<&str> {
    let containers = spec.runtime.sandbox.iter().flat_map(|sandbox| &sandbox.containers);
    let in_containers = containers.flat_map(|container| container.volume_attachments.iter().flatten());
    let in_machine = spec.runtime.virtual_machine.iter().flat_map(|machine| &machine.volume_attachments);
    in_containers.chain(in_machine).map(|attachment| attachment.name.as_str()).collect()
}

fn one_source(path: &Path, volume: &Volume, errors: &mut Errors) {
    let sources = [
        ("disk", volume.disk.is_some()),
        ("configMap", volume.config_map.is_some()),
        ("secret", volume.secret.is_some()),
    ];
    let mut given = sources.into_iter().filter(|(_, given)| *given).map(|(name, _)| name);
    let Some(first) = given.next() else {
        errors.push(FieldError::required(path, "give one of disk, configMap and secret"));
        return;
    };
    for other in given {
        let why = format!("a volume has one source, and this one has {first} already");
        errors.push(FieldError::forbidden_content(&path.child(other), volume, why));
    }
}

/// Validates a disk. Like the Go operator, it names the populator without `spec`.
fn disk(path: &Path, disk: &DiskSource, errors: &mut Errors) {
    let spec = &disk.template.spec;
    if !DISK_TYPES.contains(&spec.type_.as_str()) {
        errors.push(FieldError::not_supported(&path.child("spec").child("type"), &spec.type_, &DISK_TYPES));
    }
    let image = spec.populator.as_ref().and_then(|populator| populator.image.as_ref());
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let storage_path = path.child("spec").child("resources").child("requests").key("storage");
    match (requests.and_then(|requests| requests.get("storage")), image) {
        (None, None) => errors.push(FieldError::required(&storage_path, "set the size of the disk, 10Gi to 100Gi")),
        (None, Some(_)) => {}
        (Some(storage), image) => {
            let least = if image.is_some() { IMAGE_GI } else { *DISK_GI.start() };
            let most = *DISK_GI.end();
            let fits =
                thousandths(storage).is_some_and(|amount| amount % GI == 0 && (least..=most).contains(&(amount / GI)));
            if !fits {
                let why = format!("want {least}Gi to {most}Gi in whole Gi");
                errors.push(FieldError::invalid(&storage_path, &storage.0, why));
            }
        }
    }
    if let Some(populator) = &spec.populator {
        self::populator(&path.child("populator"), populator, errors);
    }
}

/// Validates a populator. Image and file system together are accepted, as in the Go operator. The definition restricts the file
/// systems.
fn populator(path: &Path, populator: &DiskPopulator, errors: &mut Errors) {
    if let Some(image) = populator.image.as_ref().filter(|image| !IMAGES.contains(&image.name.as_str())) {
        errors.push(FieldError::not_supported(&path.child("image").child("name"), &image.name, &IMAGES));
    }
}

fn mode(path: &Path, mode: Option<i32>, errors: &mut Errors) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        errors.push(FieldError::invalid(path, mode.to_string(), "want 0 to 0777 (511 in decimal)"));
    }
}

fn items(path: &Path, items: &[KeyToPath], errors: &mut Errors) {
    for (index, item) in items.iter().enumerate() {
        let path = path.index(index);
        if item.key.is_empty() {
            errors.push(FieldError::required(&path.child("key"), "name the key"));
        }
        let file = &path.child("path");
        if item.path.is_empty() {
            errors.push(FieldError::required(file, "set the path of the file"));
        } else if let Some(why) = relative_path(&item.path) {
            errors.push(FieldError::invalid(file, &item.path, why));
        }
        mode(&path.child("mode"), item.mode, errors);
    }
}
