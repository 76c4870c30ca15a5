//! The table of rules, continued: volumes, boot disks, and references to data.

use serde_json::{Value, json};

use super::{
    field::ErrorKind::{Duplicate, Forbidden, Invalid, NotFound, NotSupported, Required, TooLong, TooMany},
    samples::{KEY, containers, machine},
    workload_tests::check,
};
use crate::{api::meta::annotation, plan::limits::MAX_REFERENCES};

#[test]
fn reference_with_invalid_name_is_refused() {
    let at = |rest: &str| format!("spec.template.spec.{rest}");
    let long = "x".repeat(244);
    let env = "runtime.sandbox.containers[0].env[0].valueFrom.secretKeyRef.name";
    let from = "runtime.sandbox.containers[0].envFrom[0].configMapRef.name";
    let many: Value = (0..=MAX_REFERENCES).map(|i| json!({ "name": format!("s-{i}") })).collect();
    check(
        &containers(),
        &[
            (&at("runtime.sandbox.containers.0.env.0.valueFrom.secretKeyRef.name"), json!("A"), &[(Invalid, &at(env))]),
            (&at("runtime.sandbox.containers.0.env.0.valueFrom.secretKeyRef.name"), json!(""), &[(Required, &at(env))]),
            (&at("runtime.sandbox.containers.0.envFrom.0.configMapRef.name"), json!(long), &[(TooLong, &at(from))]),
            (
                &at("runtime.sandbox.imagePullSecrets.0.name"),
                json!(""),
                &[(Required, &at("runtime.sandbox.imagePullSecrets[0].name"))],
            ),
            (&at("runtime.sandbox.imagePullSecrets"), many, &[(TooMany, "spec.template.spec")]),
            (&at("volumes.0.configMap.name"), json!("a/b"), &[(Invalid, &at("volumes[0].configMap.name"))]),
            // Every namespace of every cluster has its own ConfigMap of this name.
            (
                &at("volumes.0.configMap.name"),
                json!("kube-root-ca.crt"),
                &[(Invalid, &at("volumes[0].configMap.name"))],
            ),
            (&at("runtime.sandbox.imagePullSecrets.0.name"), json!("kube-root-ca.crt"), &[]),
        ],
    );
}

#[test]
fn references_at_the_limit_fit_into_karmadas_annotation() {
    let entry = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "namespace": crate::api::names::hub_namespace(&"u".repeat(36)), "name": "n".repeat(243) });
    let all: Vec<Value> = vec![entry; MAX_REFERENCES];
    assert!(json!(all).to_string().len() < 200 << 10, "{}", json!(all).to_string().len());
}

#[test]
fn volume_that_breaks_a_rule_is_refused() {
    let at = |rest: &str| format!("spec.template.spec.volumes.{rest}");
    let shown = |rest: &str| format!("spec.template.spec.volumes{rest}");
    let storage = |amount: &str| json!({ "requests": { "storage": amount } });
    let size = shown("[1].disk.template.spec.resources.requests[storage]");
    let not_found = "spec.template.spec.runtime.sandbox.containers[0].volumeAttachments[0].name";
    let mount = "spec.template.spec.runtime.sandbox.containers[0].volumeAttachments[1].mountPath";
    let disk = "1.disk.template.spec.";
    check(
        &containers(),
        &[
            (&at("0.name"), json!(""), &[(Required, &shown("[0].name")), (NotFound, not_found)]),
            (
                &at("0.name"),
                json!("A"),
                &[(Invalid, &shown("[0].name")), (Invalid, &shown("[0].name")), (NotFound, not_found)],
            ),
            (&at("2"), json!({ "name": "data", "secret": { "secretName": "s" } }), &[(Duplicate, &shown("[2].name"))]),
            (&at("2"), json!({ "name": "idle", "secret": { "secretName": "s" } }), &[(Invalid, &shown("[2].name"))]),
            (&at("0.configMap"), Value::Null, &[(Required, &shown("[0]"))]),
            (&at("0.secret"), json!({ "secretName": "s" }), &[(Forbidden, &shown("[0].secret"))]),
            (&at("0.configMap.name"), json!(""), &[(Required, &shown("[0].configMap.name"))]),
            (&at("0.configMap.defaultMode"), json!(0o1000), &[(Invalid, &shown("[0].configMap.defaultMode"))]),
            (&at("0.configMap.items.0.mode"), json!(-1), &[(Invalid, &shown("[0].configMap.items[0].mode"))]),
            (&at("0.configMap.items.0.key"), json!(""), &[(Required, &shown("[0].configMap.items[0].key"))]),
            (&at("0.configMap.items.0.path"), json!(""), &[(Required, &shown("[0].configMap.items[0].path"))]),
            (&at("0.configMap.items.0.path"), json!("../x"), &[(Invalid, &shown("[0].configMap.items[0].path"))]),
            (&at("0.configMap.items.0.path"), json!("/x"), &[(Invalid, &shown("[0].configMap.items[0].path"))]),
            (
                &at("0"),
                json!({ "name": "files", "secret": { "secretName": "s", "defaultMode": 512, "items": [{ "key": "", "path": "x" }] } }),
                &[(Invalid, &shown("[0].secret.defaultMode")), (Required, &shown("[0].secret.items[0].key"))],
            ),
            (
                &at("0"),
                json!({ "name": "files", "disk": { "deviceName": "persistent-disk-1", "template": { "spec": {
                "resources": storage("10Gi"), "populator": { "filesystem": { "type": "ext4" } } } } } }),
                &[(Duplicate, &shown("[1].disk.deviceName"))],
            ),
            (&at(&format!("{disk}type")), json!("ssd"), &[(NotSupported, &shown("[1].disk.template.spec.type"))]),
            (&at(&format!("{disk}resources")), Value::Null, &[(Required, &size)]),
            (&at(&format!("{disk}resources")), storage("9Gi"), &[(Invalid, &size)]),
            (&at(&format!("{disk}resources")), storage("101Gi"), &[(Invalid, &size)]),
            (&at(&format!("{disk}resources")), storage("10241Mi"), &[(Invalid, &size)]),
            (&at(&format!("{disk}resources")), storage("much"), &[(Invalid, &size)]),
            (&at(&format!("{disk}resources")), storage(" 10Gi"), &[(Invalid, &size)]),
            (&at(&format!("{disk}resources")), storage("10240Mi"), &[]),
            (&at(&format!("{disk}populator")), Value::Null, &[(Invalid, mount)]),
            (
                &at(&format!("{disk}populator.image")),
                json!({ "name": "other" }),
                &[(Invalid, &size), (NotSupported, &shown("[1].disk.template.populator.image.name"))],
            ),
        ],
    );
}

#[test]
fn virtual_machine_that_breaks_a_rule_is_refused() {
    let keys = "spec.template.annotations[compute.datumapis.com/ssh-keys]";
    let notes = "spec.template.metadata.annotations";
    let of = |text: &str| json!({ annotation::SSH_KEYS: text });
    let attached = "spec.template.spec.runtime.virtualMachine.volumeAttachments";
    let unattached = "spec.template.spec.volumes[0].name";
    let port = "spec.template.spec.runtime.virtualMachine.ports[0].name";
    let size = "spec.template.spec.volumes[0].disk.template.spec.resources.requests[storage]";
    let first = format!("{attached}[0].name");
    check(
        &machine(),
        &[
            (notes, json!({}), &[(Required, keys)]),
            (notes, of(" "), &[(Required, keys)]),
            (notes, of(KEY), &[(Invalid, keys)]),
            (notes, of(&format!(":{KEY}")), &[(Invalid, keys)]),
            (notes, of(&format!("me:{KEY}\nyou:nonsense")), &[(Invalid, keys)]),
            (attached, json!([]), &[(Invalid, unattached), (Required, attached)]),
            (
                "spec.template.spec.volumes.0.disk.template.spec.populator",
                Value::Null,
                &[(Required, size), (Invalid, &first)],
            ),
            (
                "spec.template.spec.volumes.0.disk.template.spec.resources",
                json!({ "requests": { "storage": "20Gi" } }),
                &[(Invalid, size)],
            ),
            ("spec.template.spec.runtime.virtualMachine.ports.0.name", json!("A"), &[(Invalid, port)]),
        ],
    );
}
