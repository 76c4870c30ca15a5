//! A table of every rule: the smallest change that breaks it, and the exact errors.

use serde_json::{Value, json};

use super::{
    field::ErrorKind,
    samples::{KEY, containers, machine, set},
    *,
};

use crate::api::meta::annotation;

pub(super) fn parse(value: Value) -> Workload {
    serde_json::from_value(value).unwrap()
}

pub(super) fn bound() -> Bound {
    Bound::Known(["dfw", "ord"].map(|city| CityCode::parse(city).unwrap()).into())
}

/// Path of a change, its value, and the expected errors.
pub(super) type Case<'a> = (&'a str, Value, &'a [(ErrorKind, &'a str)]);

/// Checks each change by itself on a valid Workload.
pub(super) fn check(base: &Value, cases: &[Case<'_>]) {
    assert_eq!(workload(&parse(base.clone()), None, &bound()), [], "the base of the table");
    for (path, value, expected) in cases {
        let found = workload(&parse(set(base.clone(), path, value.clone())), None, &bound());
        let shown: Vec<(ErrorKind, &str)> = found.iter().map(|error| (error.kind, error.field.as_str())).collect();
        assert_eq!(shown, *expected, "{path} = {value}: {}", field::joined(&found));
    }
}

use ErrorKind::{Duplicate, Forbidden, Invalid, NotFound, NotSupported, Required, TooLong};

#[test]
fn workload_with_invalid_names_labels_or_annotations_is_refused() {
    let key = format!("spec.template.metadata.labels[{}]", crate::api::meta::label::WORKLOAD_UID);
    let gate = format!("spec.template.metadata.annotations[{}]", annotation::REFERENCED_DATA_GATE_START);
    let labels = |key: &str, value: &str| json!({ key: value });
    let at = "spec.template.metadata.labels";
    let notes = "spec.template.metadata.annotations";
    check(
        &containers(),
        &[
            ("metadata.name", json!("web.shop"), &[(Invalid, "metadata.name")]),
            ("metadata.name", json!("w".repeat(64)), &[(TooLong, "metadata.name")]),
            ("metadata.name", json!("w".repeat(60)), &[(TooLong, "spec.placements[0].cityCodes[0]")]),
            ("metadata.name", json!(""), &[(Required, "metadata.name")]),
            ("metadata", json!({ "namespace": "shop", "generateName": "web-" }), &[]),
            ("metadata", json!({ "namespace": "shop", "generateName": "w".repeat(59) }), &[(TooLong, "metadata.name")]),
            (
                "spec.template.spec.controller",
                json!({ "templateHash": "h" }),
                &[(Forbidden, "spec.template.spec.controller")],
            ),
            ("spec.template.spec.location", json!({ "name": "dfw" }), &[(Forbidden, "spec.template.spec.location")]),
            (at, labels("a b", "x"), &[(Invalid, "spec.template.metadata.labels[a b]")]),
            (at, labels("app", "no spaces"), &[(Invalid, "spec.template.metadata.labels[app]")]),
            (at, labels(crate::api::meta::label::WORKLOAD_UID, "u"), &[(Forbidden, &key)]),
            (
                at,
                labels("karmada.io/managed", "true"),
                &[(Forbidden, "spec.template.metadata.labels[karmada.io/managed]")],
            ),
            (notes, labels("a b", "x"), &[(Invalid, "spec.template.metadata.annotations[a b]")]),
            (notes, labels("Example.com/A", "x"), &[]),
            (notes, labels(annotation::REFERENCED_DATA_GATE_START, "x"), &[(Forbidden, &gate)]),
            (notes, labels("a", &"x".repeat(128 << 10)), &[(TooLong, "spec.template")]),
        ],
    );
}

#[test]
fn workload_with_invalid_networks_or_runtime_is_refused() {
    let spec = "spec.template.spec";
    let at = |rest: &str| format!("{spec}.{rest}");
    let machine = json!({ "volumeAttachments": [{ "name": "data" }] });
    check(
        &containers(),
        &[
            (&at("networkInterfaces"), json!([]), &[(Required, &at("networkInterfaces"))]),
            (
                &at("networkInterfaces.0.network.name"),
                json!(""),
                &[(Required, &at("networkInterfaces[0].network.name"))],
            ),
            (
                &at("networkInterfaces.0.network.name"),
                json!("A"),
                &[(Invalid, &at("networkInterfaces[0].network.name"))],
            ),
            (&at("networkInterfaces.0.network.namespace"), json!("shop"), &[]),
            (
                &at("networkInterfaces.0.network.namespace"),
                json!("o"),
                &[(Invalid, &at("networkInterfaces[0].network.namespace"))],
            ),
            (&at("runtime.resources.instanceType"), json!("big"), &[(NotSupported, &at("runtime.resources"))]),
            (
                &at("runtime.resources.requests"),
                json!({ "cpu": "1" }),
                &[(Forbidden, &at("runtime.resources.requests"))],
            ),
            (
                &at("runtime.virtualMachine"),
                machine,
                &[
                    (Required, "spec.template.annotations[compute.datumapis.com/ssh-keys]"),
                    (Forbidden, &at("runtime.virtualMachine")),
                    (Invalid, &at("runtime.virtualMachine.volumeAttachments[0].name")),
                ],
            ),
            (
                &at("runtime.sandbox.containers"),
                json!([]),
                &[
                    (Invalid, &at("volumes[0].name")),
                    (Invalid, &at("volumes[1].name")),
                    (Required, &at("runtime.sandbox.containers")),
                ],
            ),
        ],
    );
    check(
        &containers(),
        &[(
            &at("runtime.sandbox"),
            Value::Null,
            &[(Invalid, &at("volumes[0].name")), (Invalid, &at("volumes[1].name")), (Required, &at("runtime"))],
        )],
    );
}

#[test]
fn workload_with_invalid_container_is_refused() {
    let spec = "spec.template.spec";
    let at = |rest: &str| format!("{spec}.{rest}");
    let ports = |list: &[(&str, i64)]| -> Value { list.iter().map(|(n, p)| json!({ "name": n, "port": p })).collect() };
    let c = |rest: &str| format!("{spec}.runtime.sandbox.containers.0.{rest}");
    let shown = |rest: &str| format!("{spec}.runtime.sandbox.containers[0].{rest}");
    check(
        &containers(),
        &[
            (&c("name"), json!(""), &[(Required, &shown("name"))]),
            (&c("name"), json!("A"), &[(Invalid, &shown("name"))]),
            (
                &at("runtime.sandbox.containers.1"),
                json!({ "name": "web", "image": "i" }),
                &[(Duplicate, &at("runtime.sandbox.containers[1].name"))],
            ),
            (&c("image"), json!(" "), &[(Required, &shown("image"))]),
            (&c("resources"), json!({ "limits": { "cpu": "1" } }), &[(Forbidden, &shown("resources"))]),
            (&c("resources"), json!({ "requests": {} }), &[]),
            (&c("ports"), ports(&[("", 1)]), &[(Required, &shown("ports[0].name"))]),
            (&c("ports"), ports(&[("8080", 1)]), &[(Invalid, &shown("ports[0].name"))]),
            (&c("ports"), ports(&[("a", 1), ("a", 2)]), &[(Duplicate, &shown("ports[1].name"))]),
            (
                &c("ports"),
                ports(&[("a", 0), ("b", 65536)]),
                &[(Invalid, &shown("ports[0].port")), (Invalid, &shown("ports[1].port"))],
            ),
            (&c("envFrom"), json!([{}]), &[(Required, &shown("envFrom[0]"))]),
            (
                &c("envFrom"),
                json!([{ "configMapRef": { "name": "a" }, "secretRef": { "name": "b" } }]),
                &[(Forbidden, &shown("envFrom[0].secretRef"))],
            ),
            (&c("envFrom.0.prefix"), json!("1_"), &[(Invalid, &shown("envFrom[0].prefix"))]),
            (&c("volumeAttachments.2"), json!({ "name": "none" }), &[(NotFound, &shown("volumeAttachments[2].name"))]),
            (&c("volumeAttachments.2"), json!({ "name": "" }), &[(Required, &shown("volumeAttachments[2].name"))]),
            (
                &c("volumeAttachments.1.mountPath"),
                json!("/files"),
                &[(Duplicate, &shown("volumeAttachments[1].mountPath"))],
            ),
        ],
    );
}

#[test]
fn workload_with_invalid_placements_or_scale_is_refused() {
    let at = |rest: &str| format!("spec.placements.{rest}");
    let shown = |rest: &str| format!("spec.placements[0].{rest}");
    let settings = |metric: Value| json!({ "minReplicas": 1, "maxReplicas": 2, "metrics": [{ "resource": metric }] });
    let target = "scaleSettings.metrics[0].resource.target";
    let of = |name: &str, cities: &[&str]| json!({ "name": name, "cityCodes": cities, "scaleSettings": { "minReplicas": 1 } });
    check(
        &containers(),
        &[
            ("spec.placements", json!([]), &[(Required, "spec.placements")]),
            (&at("0.name"), json!(""), &[(Required, &shown("name"))]),
            (&at("0.name"), json!("A"), &[(Invalid, &shown("name"))]),
            (&at("0.name"), json!("m".repeat(64)), &[(TooLong, &shown("name"))]),
            (&at("0.name"), json!("m".repeat(56)), &[(TooLong, &shown("cityCodes[0]"))]),
            (&at("1"), of("main", &["ord"]), &[(Duplicate, "spec.placements[1].name")]),
            (
                "spec.placements",
                json!([of("a-dfw", &["ord"]), of("a", &["dfw-ord"])]),
                &[(Invalid, "spec.placements[1].name"), (NotSupported, "spec.placements[1].cityCodes[0]")],
            ),
            (&at("0.cityCodes"), json!([]), &[(Required, &shown("cityCodes"))]),
            (&at("0.cityCodes"), json!(["d/f"]), &[(Invalid, &shown("cityCodes[0]"))]),
            (&at("0.cityCodes"), json!(["dfw", "ord", "DFW"]), &[(Duplicate, &shown("cityCodes[2]"))]),
            (&at("0.cityCodes"), json!(["dfw", "lhr"]), &[(NotSupported, &shown("cityCodes[1]"))]),
            (&at("0.scaleSettings"), json!({ "minReplicas": 0 }), &[(Invalid, &shown("scaleSettings.minReplicas"))]),
            (&at("0.scaleSettings"), json!({ "minReplicas": 1001 }), &[(Invalid, &shown("scaleSettings.minReplicas"))]),
            (&at("0.scaleSettings.maxReplicas"), json!(1), &[(Invalid, &shown("scaleSettings.maxReplicas"))]),
            (&at("0.scaleSettings.maxReplicas"), json!(1001), &[(Invalid, &shown("scaleSettings.maxReplicas"))]),
            (&at("0.scaleSettings.metrics"), json!([]), &[(Required, &shown("scaleSettings.metrics"))]),
            (
                &at("0.scaleSettings"),
                settings(json!({ "name": "memory", "target": { "value": "1" } })),
                &[(NotSupported, &shown("scaleSettings.metrics[0].resource.name"))],
            ),
            (&at("0.scaleSettings"), settings(json!({ "name": "cpu", "target": {} })), &[(Required, &shown(target))]),
            (
                &at("0.scaleSettings"),
                settings(json!({ "name": "cpu", "target": { "value": "0" } })),
                &[(Invalid, &shown(&format!("{target}.value")))],
            ),
            (
                &at("0.scaleSettings"),
                settings(json!({ "name": "cpu", "target": { "value": "1", "averageUtilization": 5 } })),
                &[(Forbidden, &shown(&format!("{target}.averageUtilization")))],
            ),
        ],
    );
}

#[test]
fn unreadable_cities_refuse_only_new_cities() {
    let away = Bound::Unknown("no answer".into());
    let new = parse(containers());
    let found = workload(&new, None, &away);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].kind, found[0].field.as_str()), (ErrorKind::Internal, "spec.placements[0].cityCodes[0]"));
    // A city that was there before is not checked, bound or not, in any spelling.
    let respelt = parse(set(containers(), "spec.placements.0.cityCodes.0", json!("dfw")));
    assert_eq!(workload(&new, Some(&respelt), &away), []);
    assert!(new_cities(&new, Some(&respelt)).is_empty());
    let list = workload(&parse(set(containers(), "spec.placements.0.cityCodes.0", json!("LHR"))), None, &bound());
    assert!(list[0].to_string().contains("\"LHR\": supported values: \"dfw\", \"ord\""), "{}", list[0]);
}

#[test]
fn stored_violation_does_not_lock_the_workload() {
    let mut old = containers();
    old = set(old, "spec.placements.0.cityCodes", json!(["dfw", "DFW", "gone"]));
    old = set(old, "spec.template.spec.networkInterfaces.0.network.namespace", json!("other"));
    old = set(old, "spec.template.metadata.labels", json!({ "karmada.io/managed": "true" }));
    let scaled = set(old.clone(), "spec.placements.0.scaleSettings", json!({ "minReplicas": 5 }));
    assert_eq!(workload(&parse(scaled.clone()), Some(&parse(old.clone())), &bound()), []);
    assert_eq!(workload(&parse(scaled), None, &bound()).len(), 4);
    let worse = set(old.clone(), "spec.placements.0.cityCodes", json!(["dfw", "DFW", "gone", "DFw"]));
    let found = workload(&parse(worse), Some(&parse(old)), &bound());
    assert_eq!(found.len(), 1, "{}", field::joined(&found));
    assert_eq!(found[0].field, "spec.placements[0].cityCodes[3]");
}

#[test]
fn workload_with_autoscaling_gets_a_warning() {
    assert_eq!(warnings(&parse(containers())).len(), 1);
    let fixed = set(containers(), "spec.placements.0.scaleSettings", json!({ "minReplicas": 1 }));
    assert!(warnings(&parse(fixed)).is_empty());
}

#[test]
fn sample_workload_is_accepted() {
    let text = include_str!("../../../config/samples/workload.yaml");
    let sample = text.split("---").find(|part| part.contains("kind: Workload")).unwrap();
    let sample: Workload = serde_saphyr::from_str(sample).unwrap();
    assert_eq!(workload(&sample, None, &bound()), []);
}

#[test]
fn invalid_ssh_key_is_not_repeated_in_the_error() {
    let notes = json!({ annotation::SSH_KEYS: format!("me:{KEY}\nme:-----BEGIN hunter2") });
    let found = workload(&parse(set(machine(), "spec.template.metadata.annotations", notes)), None, &bound());
    let text = field::joined(&found);
    assert!(text.contains("Invalid value: line 2: ") && !text.contains("hunter2"), "{text}");
}

#[test]
fn reserved_label_of_a_stored_workload_cannot_be_changed() {
    let key = crate::api::meta::label::WORKLOAD_UID;
    let with = |uid: &str| parse(set(containers(), "spec.template.metadata.labels", json!({ key: uid })));
    assert_eq!(workload(&with("u-1"), Some(&with("u-1")), &bound()), []);
    let found = workload(&with("u-2"), Some(&with("u-1")), &bound());
    assert_eq!(found.iter().map(|error| error.kind).collect::<Vec<_>>(), [Forbidden]);
}

#[test]
fn workload_over_a_limit_is_refused_and_one_that_is_stored_may_only_shrink() {
    let placements = |count: usize| {
        let of =
            |n: usize| json!({ "name": format!("p{n}"), "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 1 } });
        parse(set(containers(), "spec.placements", (0..count).map(of).collect::<Vec<_>>().into()))
    };
    let text = |bytes: usize| {
        parse(set(containers(), "spec.template.metadata.annotations", json!({ "a": "x".repeat(bytes) })))
    };
    let variables = |count: usize| {
        let of = |n: usize| json!({ "name": format!("V{n}") });
        let env = (0..count).map(of).collect::<Vec<_>>();
        parse(set(containers(), "spec.template.spec.runtime.sandbox.containers.0.env", env.into()))
    };
    let kinds = |new: &Workload, old: Option<&Workload>| {
        let errors = workload(new, old, &bound());
        errors.iter().map(|error| (error.kind, error.field.clone())).collect::<Vec<_>>()
    };
    let many = ErrorKind::TooMany;
    for (good, over, under, more, kind, field) in [
        (placements(32), placements(80), placements(70), placements(81), many, "spec.placements"),
        (text(100 << 10), text(200 << 10), text(150 << 10), text(201 << 10), TooLong, "spec.template"),
        (variables(500), variables(600), variables(550), variables(601), many, "spec.template.spec"),
    ] {
        assert_eq!(kinds(&good, None), []);
        for old in [None, Some(&good)] {
            assert_eq!(kinds(&over, old), [(kind, field.to_owned())]);
        }
        assert_eq!((kinds(&under, Some(&over)), kinds(&good, Some(&over))), (vec![], vec![]));
        assert_eq!(kinds(&more, Some(&over)), [(kind, field.to_owned())]);
    }
}

#[test]
fn template_over_the_network_limit_may_only_shrink() {
    let with = |count: usize| {
        let networks: Vec<Value> = (0..count).map(|n| json!({ "network": { "name": format!("n-{n}") } })).collect();
        parse(set(containers(), "spec.template.spec.networkInterfaces", networks.into()))
    };
    assert_eq!(workload(&with(crate::plan::limits::MAX_NETWORKS), None, &bound()), []);
    let kinds = |new, old| workload(new, old, &bound()).iter().map(|error| error.kind).collect::<Vec<_>>();
    let (old, fewer, more) = (with(100), with(99), with(101));
    assert_eq!(kinds(&old, None), [ErrorKind::TooMany]);
    assert_eq!((kinds(&fewer, Some(&old)), kinds(&more, Some(&old))), (vec![], vec![ErrorKind::TooMany]));
}
