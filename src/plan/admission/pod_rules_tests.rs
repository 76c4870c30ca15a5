//! The table of rules, continued: values that a Pod or a NetworkPolicy could not have either.

use serde_json::{Value, json};

use super::{
    field::{
        self,
        ErrorKind::{Duplicate, Forbidden, Invalid, NotSupported, Required, TooLong},
    },
    samples::{containers, set},
    workload_tests::{Case, bound, check, parse},
};

const CONTAINER: &str = "spec.template.spec.runtime.sandbox.containers.0";
const SHOWN: &str = "spec.template.spec.runtime.sandbox.containers[0]";
const INGRESS: &str = "spec.template.spec.networkInterfaces.0.networkPolicy";
const SHOWN_INGRESS: &str = "spec.template.spec.networkInterfaces[0].networkPolicy.ingress[0]";

/// A table of variables: each is the second in `env`, with the errors below it.
fn variables(cases: &[(Value, &[(field::ErrorKind, &str)])]) {
    for (variable, expected) in cases {
        let expected: Vec<_> = expected.iter().map(|(kind, at)| (*kind, format!("{SHOWN}.env[1].{at}"))).collect();
        let expected: Vec<_> = expected.iter().map(|(kind, at)| (*kind, at.as_str())).collect();
        let case: Case<'_> = (&format!("{CONTAINER}.env.1"), variable.clone(), &expected);
        check(&containers(), &[case]);
    }
}

#[test]
fn variable_name_of_no_pod_is_refused() {
    variables(&[
        (json!({ "name": "A.B-c:d@e", "value": "several\nlines, and ünïćøde" }), &[]),
        (json!({ "name": "1 |*?#", "value": "" }), &[]),
        (json!({ "name": "", "value": "x" }), &[(Required, "name")]),
        (json!({ "name": "A=B", "value": "x" }), &[(Invalid, "name")]),
        (json!({ "name": "A\n", "value": "x" }), &[(Invalid, "name")]),
        (json!({ "name": "Ä" }), &[(Invalid, "name")]),
        (json!({ "name": "P", "value": "x" }), &[(Duplicate, "name")]),
    ]);
}

#[test]
fn variable_with_no_or_two_sources_is_refused() {
    let secret = json!({ "name": "db", "key": "p" });
    let from = |source: Value| json!({ "name": "A", "valueFrom": source });
    let both = json!({ "name": "A", "value": "hunter2", "valueFrom": { "secretKeyRef": secret } });
    variables(&[
        (both.clone(), &[(Invalid, "valueFrom")]),
        (json!({ "name": "A", "value": "", "valueFrom": { "secretKeyRef": secret } }), &[]),
        (from(json!({})), &[(Invalid, "valueFrom")]),
        (
            from(json!({ "secretKeyRef": secret, "configMapKeyRef": { "name": "settings", "key": "a" } })),
            &[(Invalid, "valueFrom")],
        ),
        (
            from(json!({ "fileKeyRef": { "volumeName": "v", "path": "p", "key": "k" } })),
            &[(Forbidden, "valueFrom.fileKeyRef")],
        ),
    ]);
    let found = super::workload(&parse(set(containers(), &format!("{CONTAINER}.env.1"), both)), None, &bound());
    let text = field::joined(&found);
    assert!(text.ends_with("Invalid value: may not be specified when `value` is not empty"), "{text}");
}

#[test]
fn variable_of_a_key_or_field_that_cannot_be_is_refused() {
    let key = |key: &str| json!({ "name": "A", "valueFrom": { "configMapKeyRef": { "name": "s", "key": key } } });
    let secret = |key: &str| json!({ "name": "A", "valueFrom": { "secretKeyRef": { "name": "s", "key": key } } });
    let field = |path: &str| json!({ "name": "A", "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let amount = |of: &str| json!({ "name": "A", "valueFrom": { "resourceFieldRef": { "resource": of } } });
    let path = "valueFrom.fieldRef.fieldPath";
    variables(&[
        (secret(".a_b-c"), &[]),
        (key("a key/with blanks"), &[(Invalid, "valueFrom.configMapKeyRef.key")]),
        (key("ü"), &[(Invalid, "valueFrom.configMapKeyRef.key")]),
        (key(""), &[(Required, "valueFrom.configMapKeyRef.key")]),
        (key("."), &[(Invalid, "valueFrom.configMapKeyRef.key")]),
        (key("..data"), &[(Invalid, "valueFrom.configMapKeyRef.key")]),
        (secret(&"k".repeat(254)), &[(TooLong, "valueFrom.secretKeyRef.key")]),
        (field("metadata.name"), &[]),
        (field("metadata.labels['app']"), &[]),
        (field("metadata.annotations['Example.com/Note']"), &[]),
        (field(""), &[(Required, path)]),
        (field("spec.containers"), &[(NotSupported, path)]),
        (field("metadata.labels"), &[(NotSupported, path)]),
        (field("metadata.labels['a b']"), &[(Invalid, path)]),
        (field("metadata.name['a']"), &[(Invalid, path)]),
        (amount("limits.cpu"), &[]),
        (amount("requests.hugepages-2Mi"), &[]),
        (amount(""), &[(Required, "valueFrom.resourceFieldRef.resource")]),
        (amount("limits.gpu"), &[(NotSupported, "valueFrom.resourceFieldRef.resource")]),
    ]);
}

#[test]
fn image_with_whitespace_is_refused() {
    let (at, shown) = (format!("{CONTAINER}.image"), format!("{SHOWN}.image"));
    let image = "docker.io/library/nginx:1.29";
    for bad in [format!("{image}\n"), format!(" {image}"), format!("{image}\t"), "ngi nx".into(), "nginx\u{a0}".into()]
    {
        check(&containers(), &[(&at, json!(bad), &[(Invalid, &shown)])]);
    }
    check(
        &containers(),
        &[(&at, json!(format!("[2001:db8::1]:5000/{image}")), &[]), (&at, json!("\n"), &[(Required, &shown)])],
    );
}

#[test]
fn port_of_a_container_names_a_protocol_of_pods() {
    let (at, shown) = (format!("{CONTAINER}.ports.0.protocol"), format!("{SHOWN}.ports[0].protocol"));
    check(
        &containers(),
        &[
            (&at, json!("UDP"), &[]),
            (&at, json!("SCTP"), &[]),
            (&at, json!("tcp"), &[(NotSupported, &shown)]),
            (&at, json!("ICMP"), &[(NotSupported, &shown)]),
        ],
    );
}

#[test]
fn security_context_that_no_pod_has_is_refused() {
    let (at, shown) = (format!("{CONTAINER}.securityContext"), format!("{SHOWN}.securityContext"));
    let with = |escalate: bool| json!({ "allowPrivilegeEscalation": escalate, "capabilities": { "add": ["*", "CAP_SYS_ADMIN"] } });
    let profile = |of: &str| json!({ "seccompProfile": { "type": of } });
    check(
        &containers(),
        &[
            (&at, with(true), &[]),
            (&at, with(false), &[(Invalid, &shown)]),
            (&at, profile("Unconfined"), &[]),
            (&at, profile("Localhost"), &[(NotSupported, &format!("{shown}.seccompProfile.type"))]),
        ],
    );
}

/// A table of ingress rules, with the errors below each.
fn rules(cases: &[(Value, &[(field::ErrorKind, &str)])]) {
    for (rule, expected) in cases {
        let expected: Vec<_> = expected.iter().map(|(kind, at)| (*kind, format!("{SHOWN_INGRESS}.{at}"))).collect();
        let expected: Vec<_> = expected.iter().map(|(kind, at)| (*kind, at.as_str())).collect();
        check(&containers(), &[(INGRESS, json!({ "ingress": [rule] }), &expected)]);
    }
}

#[test]
fn ports_of_an_ingress_rule_are_those_of_a_network_policy() {
    let port = |port: Value| json!({ "ports": [port] });
    rules(&[
        (json!({}), &[]),
        (port(json!({})), &[]),
        (port(json!({ "protocol": "SCTP", "port": 9000, "endPort": 9000 })), &[]),
        (port(json!({ "port": "http" })), &[]),
        (port(json!({ "protocol": "tcp", "port": 443 })), &[(NotSupported, "ports[0].protocol")]),
        (port(json!({ "protocol": "ICMP" })), &[(NotSupported, "ports[0].protocol")]),
        (port(json!({ "protocol": "" })), &[(NotSupported, "ports[0].protocol")]),
        (port(json!({ "port": 0 })), &[(Invalid, "ports[0].port")]),
        (port(json!({ "port": 65536 })), &[(Invalid, "ports[0].port")]),
        (port(json!({ "port": 3_000_000_000_u32 })), &[(Invalid, "ports[0].port")]),
        (port(json!({ "port": u64::MAX })), &[(Invalid, "ports[0].port")]),
        (port(json!({ "port": 1e300 })), &[(Invalid, "ports[0].port")]),
        (port(json!({ "port": "443" })), &[(Invalid, "ports[0].port")]),
        (port(json!({ "port": 9000, "endPort": 80 })), &[(Invalid, "ports[0].endPort")]),
        (port(json!({ "port": 9000, "endPort": 70000 })), &[(Invalid, "ports[0].endPort")]),
        (port(json!({ "port": "http", "endPort": 443 })), &[(Invalid, "ports[0].endPort")]),
        (port(json!({ "endPort": 443 })), &[(Invalid, "ports[0].endPort")]),
    ]);
}

#[test]
fn peers_of_an_ingress_rule_are_those_of_a_network_policy() {
    let from = |block: Value| json!({ "from": [{ "ipBlock": block }] });
    let hole = |hole: &str| from(json!({ "cidr": "10.0.0.0/16", "except": ["10.0.1.0/24", hole] }));
    rules(&[
        (from(json!({ "cidr": "2001:db8::/64" })), &[]),
        (hole("10.0.2.0/24"), &[]),
        (json!({ "from": [{}] }), &[(Required, "from[0]")]),
        (from(json!({ "cidr": "" })), &[(Required, "from[0].ipBlock.cidr")]),
        (from(json!({ "cidr": "10.0.0.0/33" })), &[(Invalid, "from[0].ipBlock.cidr")]),
        (from(json!({ "cidr": "10.0.0.1" })), &[(Invalid, "from[0].ipBlock.cidr")]),
        (hole("192.168.0.0/24"), &[(Invalid, "from[0].ipBlock.except[1]")]),
        (hole("10.0.0.0/16"), &[(Invalid, "from[0].ipBlock.except[1]")]),
        (hole("nowhere"), &[(Invalid, "from[0].ipBlock.except[1]")]),
    ]);
}

#[test]
fn path_of_an_item_does_not_begin_with_two_dots() {
    let (at, shown) = (
        "spec.template.spec.volumes.0.configMap.items.0.path",
        "spec.template.spec.volumes[0].configMap.items[0].path",
    );
    check(
        &containers(),
        &[
            (at, json!("..data"), &[(Invalid, shown)]),
            (at, json!("..2026_01_01"), &[(Invalid, shown)]),
            (at, json!("a/..data"), &[]),
        ],
    );
}

#[test]
fn stored_violation_of_a_pod_rule_does_not_lock_the_workload() {
    let old = set(containers(), &format!("{CONTAINER}.env.1"), json!({ "name": "A=B", "value": "x" }));
    let old = set(old, &format!("{CONTAINER}.image"), json!("nginx:1\n"));
    let old = set(old, INGRESS, json!({ "ingress": [{ "ports": [{ "port": 3_000_000_000_u32 }] }] }));
    let scaled = set(old.clone(), "spec.placements.0.scaleSettings", json!({ "minReplicas": 5 }));
    assert_eq!(super::workload(&parse(scaled), Some(&parse(old.clone())), &bound()), []);
    let worse = set(old.clone(), &format!("{CONTAINER}.env.2"), json!({ "name": "C=D", "value": "x" }));
    let found = super::workload(&parse(worse), Some(&parse(old)), &bound());
    assert_eq!(found.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), [format!("{SHOWN}.env[2].name")]);
}

#[test]
fn invalid_port_number_survives_decoding_and_encoding() {
    let policy =
        json!({ "ingress": [{ "ports": [{ "port": 3_000_000_000_u32 }, { "port": "http" }, { "port": 1e300 }] }] });
    let workload = parse(set(containers(), INGRESS, policy.clone()));
    assert_eq!(json!(workload)["spec"]["template"]["spec"]["networkInterfaces"][0]["networkPolicy"], policy);
}
