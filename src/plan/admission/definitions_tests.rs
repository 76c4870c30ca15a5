//! Objects that pass the rules, against the definitions in `crds/`. No API server refuses the Workload, a deployment made of it,
//! an Instance of one, or their statuses.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use jiff::Timestamp;
use kube::ResourceExt;
use proptest::prelude::*;
use regex::Regex;
use serde_json::{Value, json};

use super::{
    Bound,
    definitions::Definitions,
    format,
    generated_tests::{self, bound, config},
    samples::{self, containers, set},
};
use crate::{
    api::{
        compute::{MAX_SOURCES, Workload, WorkloadDeployment, WorkloadDeploymentSpec},
        crds,
    },
    plan::{
        Write,
        cell::{Features, instances},
        management::workload::fan_out,
    },
    timing::Timing,
};

static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(|| {
    let files = crds::files().unwrap();
    Definitions::new(
        files.iter().filter(|(name, _)| name.starts_with("compute.datumapis.com_")).map(|(_, text)| text.as_str()),
    )
});

/// Fields of a template that only the definitions restrict. All three definitions have the same schema for them, and an API
/// server applies it before it calls a webhook.
const BY_DEFINITION: [&str; 5] = [
    "networkInterfaces[].name",
    "networkInterfaces[].addresses",
    "networkInterfaces[].ipFamilies",
    "runtime.class",
    "runtime.sandbox.containers[].securityContext",
];

fn refused(object: &Value) -> Vec<(String, String)> {
    match (object["spec"].is_null(), object["status"].is_null()) {
        (false, _) => DEFINITIONS.refused(object),
        (true, false) => DEFINITIONS.refused_below(object, "status"),
        // Some writes carry only metadata.
        (true, true) => Vec::new(),
    }
}

/// Returns the objects that these writes apply.
fn asked<P>(writes: &[Write<P>]) -> impl Iterator<Item = Value> {
    writes.iter().filter_map(|write| Some(write.op.asked()?.into_owned()))
}

/// Returns the writes for a Workload before anything runs: its deployments, its status, and for each deployment the first
/// Instance and the status.
fn derived(mut workload: Workload) -> Vec<Value> {
    workload.metadata.uid = Some("a3f0c7d2-7c58-4c0e-9d3c-2f7a1f0b5e11".into());
    workload.metadata.generation = Some(1);
    let mut observed = fan_out::Observed {
        workload: workload.into(),
        deployments: Vec::new(),
        named: BTreeMap::new(),
        bound: bound(),
        namespace_uid: Some("0b0f9a3e-6f0e-4b39-9a57-0d8f7f6f3b11".into()),
        networks: None,
        locations_fail: None,
        unreadable: Vec::new(),
        contested: false,
        timing: Timing::default(),
    };
    let mut bodies: Vec<Value> = asked(&fan_out::plan(&observed, NOW).steps).collect();
    let made = bodies.iter().filter(|body| body["kind"] == "WorkloadDeployment");
    let made = made.map(|body| serde_json::from_value::<WorkloadDeployment>(body.clone()).unwrap());
    for (n, mut deployment) in made.collect::<Vec<_>>().into_iter().enumerate() {
        deployment.metadata.uid = Some(format!("5d1c8a44-52f7-4f0a-8f7e-{n:012}"));
        deployment.metadata.generation = Some(1);
        observed.named.insert(deployment.name_any(), deployment.clone().into());
        observed.deployments.push(deployment.clone().into());
        bodies.extend(on_cell(deployment));
    }
    bodies.extend(asked(&fan_out::plan(&observed, NOW).steps));
    bodies
}

/// Returns the writes of a cell for a deployment before anything runs: the first Instance, and the status.
fn on_cell(deployment: WorkloadDeployment) -> Vec<Value> {
    let observed = instances::Observed {
        deployment: deployment.into(),
        instances: Vec::new(),
        in_the_way: Vec::new(),
        unreadable: BTreeSet::new(),
        features: Features { networks: false, quota: true, abandon_claims: false, data: true },
        networks: None,
        failing: false,
        timing: Timing::default(),
    };
    asked(&instances::plan(&observed, NOW).steps).collect()
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn of_each_kind(bodies: &[Value]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for body in bodies {
        *counts.entry(body["kind"].as_str().unwrap()).or_default() += 1;
    }
    counts
}

/// Returns the path with each list index removed.
fn without_indices(path: &str) -> String {
    Regex::new(r"\[[0-9]+\]").unwrap().replace_all(path, "[]").into_owned()
}

/// True if name and labels are valid; API servers check them alike for every kind.
fn has_good_names(object: &Value) -> bool {
    let labels = object["metadata"]["labels"].as_object();
    let name = object["metadata"]["name"].as_str().unwrap();
    (name.len() <= 253 && Regex::new("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$").unwrap().is_match(name))
        && labels.into_iter().flatten().all(|(key, value)| {
            format::qualified_name(key).is_none() && format::is_label_value(value.as_str().unwrap())
        })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn generated_workload_that_passes_is_accepted_by_the_definitions(mut object in samples::workload()) {
        object["kind"] = json!("Workload");
        let Ok(workload) = serde_json::from_value::<Workload>(object.clone()) else { return Ok(()) };
        if !super::workload(&workload, None, &Bound::Known(bound())).is_empty() {
            return Ok(());
        }
        let by_definition = refused(&object);
        for (field, why) in &by_definition {
            let in_template = without_indices(field.strip_prefix(".spec.template.spec.").unwrap_or_default());
            // The generator gave a list where an object is expected; no API server passes that on.
            let is_of_another_type = why.ends_with("is of another type");
            let is_known = is_of_another_type || BY_DEFINITION.iter().any(|known| in_template.starts_with(known));
            prop_assert!(is_known, "{}: {}: {}", field, why, object);
        }
        if by_definition.is_empty() {
            for body in derived(workload) {
                prop_assert_eq!(refused(&body), [], "{}", body);
                prop_assert!(has_good_names(&body), "{}", body);
            }
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn generated_deployment_that_passes_is_accepted_by_the_definitions(deployment in generated_tests::deployment()) {
        let Some(mut deployment) = deployment else { return Ok(()) };
        let mut object = json!(deployment);
        object["kind"] = json!("WorkloadDeployment");
        if !generated_tests::violations(&deployment, None).is_empty() || !refused(&object).is_empty() {
            return Ok(());
        }
        deployment.metadata.uid = Some("5d1c8a44-52f7-4f0a-8f7e-000000000000".into());
        for body in on_cell(deployment) {
            prop_assert_eq!(refused(&body), [], "{}", body);
            prop_assert!(has_good_names(&body), "{}", body);
        }
    }
}

#[test]
fn derived_object_is_checked_against_the_whole_definition() {
    let bodies = derived(serde_json::from_value(containers()).unwrap());
    let counts = of_each_kind(&bodies);
    assert_eq!(counts, [("Instance", 1), ("Workload", 2), ("WorkloadDeployment", 2)].into(), "{bodies:#?}");
    for kind in ["Instance", "WorkloadDeployment"] {
        let mut body = bodies.iter().find(|body| body["kind"] == kind && !body["spec"].is_null()).unwrap().clone();
        let template = if kind == "Instance" { &mut body["spec"] } else { &mut body["spec"]["template"]["spec"] };
        template["networkInterfaces"] = json!([]);
        assert_eq!(refused(&body).len(), 1, "{kind}");
    }
}

#[test]
fn template_schema_is_equal_in_all_definitions() {
    fn bare(mut schema: Value) -> Value {
        if let Some(parts) = schema.as_object_mut() {
            // `description` may also be the name of a field; then it is no text.
            parts.retain(|key, value| key != "description" || !value.is_string());
        }
        match schema {
            Value::Object(parts) => parts.into_iter().map(|(key, value)| (key, bare(value))).collect(),
            Value::Array(items) => items.into_iter().map(bare).collect(),
            other => other,
        }
    }
    /// Removes the rules that `schema` has and `other` lacks.
    fn without_rules_beside(schema: &mut Value, other: &Value) {
        match schema {
            Value::Object(parts) => {
                let is_rule = |key: &String| STATED_FOR_WORKLOADS.contains(&key.as_str());
                parts.retain(|key, _| !is_rule(key) || other.get(key).is_some());
                parts.iter_mut().for_each(|(key, part)| without_rules_beside(part, &other[key]));
            }
            Value::Array(items) => {
                items.iter_mut().enumerate().for_each(|(index, item)| without_rules_beside(item, &other[index]));
            }
            _ => {}
        }
    }
    let schema_of = |kind, path| bare(DEFINITIONS.schema(kind).pointer(path).unwrap().clone());
    let of_instance = schema_of("Instance", "/properties/spec");
    let template = "/properties/spec/properties/template/properties/spec";
    assert_eq!(schema_of("WorkloadDeployment", template), of_instance);
    let mut of_workload = schema_of("Workload", template);
    assert_ne!(of_workload, of_instance, "the rules that hold for new Workloads alone");
    without_rules_beside(&mut of_workload, &of_instance);
    assert_eq!(of_workload, of_instance);
}

/// Keywords in which the definition of Workloads is stricter.
const STATED_FOR_WORKLOADS: [&str; 11] = [
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minLength",
    "minProperties",
    "minimum",
    "not",
    "pattern",
    "x-kubernetes-validations",
];

/// For every kind of rule in a schema, the smallest change that breaks it.
#[test]
fn definition_of_workloads_states_the_rules_of_pods_by_itself() {
    let container = "spec.template.spec.runtime.sandbox.containers.0";
    let env = format!("{container}.env.0");
    let policy = "spec.template.spec.networkInterfaces.0.networkPolicy";
    let item = "spec.template.spec.volumes.0.configMap.items.0";
    let secret = json!({ "name": "db", "key": "p" });
    let port = |port: Value| json!({ "ingress": [{ "ports": [port] }] });
    let peer = |peer: Value| json!({ "ingress": [{ "from": [peer] }] });
    for (path, value) in [
        (&*format!("{container}.image"), json!("nginx:1\n")),
        (&format!("{container}.image"), json!(" nginx:1")),
        (&env, json!({ "name": "", "value": "x" })),
        (&env, json!({ "name": "A=B", "value": "x" })),
        (&env, json!({ "name": "A", "value": "x", "valueFrom": { "secretKeyRef": secret } })),
        (&env, json!({ "name": "A", "valueFrom": {} })),
        (&env, json!({ "name": "A", "valueFrom": { "secretKeyRef": secret, "configMapKeyRef": secret } })),
        (&format!("{env}.valueFrom.secretKeyRef.key"), json!("a key/with blanks")),
        (&format!("{env}.valueFrom.secretKeyRef.key"), json!("..data")),
        (&format!("{container}.ports.0.protocol"), json!("tcp")),
        (&format!("{container}.securityContext"), json!({ "seccompProfile": { "type": "Localhost" } })),
        (policy, port(json!({ "protocol": "ICMP" }))),
        (policy, port(json!({ "port": 0 }))),
        (policy, port(json!({ "port": 3_000_000_000_u32 }))),
        (policy, port(json!({ "port": "443" }))),
        (policy, port(json!({ "port": 443, "endPort": 70000 }))),
        (policy, peer(json!({}))),
        (policy, peer(json!({ "ipBlock": { "cidr": "10.0.0.0/33" } }))),
        (policy, peer(json!({ "ipBlock": { "cidr": "10.0.0.1" } }))),
        (policy, peer(json!({ "ipBlock": { "cidr": "10.0.0.0/16", "except": ["nowhere"] } }))),
        (&format!("{item}.path"), json!("..data")),
        (&format!("{item}.path"), json!("/a")),
        (&format!("{item}.path"), json!("a/../b")),
        (&format!("{item}.key"), json!("")),
        (&format!("{item}.mode"), json!(0o1000)),
    ] {
        let mut object = set(containers(), path, value.clone());
        object["kind"] = json!("Workload");
        assert_eq!(DEFINITIONS.refused(&object).len(), 1, "{path} = {value}: {:?}", DEFINITIONS.refused(&object));
        let workload: Workload = serde_json::from_value(object.clone()).unwrap();
        assert_ne!(super::workload(&workload, None, &Bound::Known(bound())), [], "{path} = {value} by the rules");
        // A stored Workload may have the violation, and its deployments must still be accepted.
        for mut made in derived(workload).into_iter().filter(|made| made["kind"] != "Workload") {
            made["metadata"] = json!({});
            assert_eq!(refused(&made), [], "{path} = {value}");
        }
    }
    for (path, good) in
        [("path", "a/..b"), ("path", "..2/../a"), ("path", ".a"), ("path", "a//b/"), ("path", "a/..."), ("key", "a b")]
    {
        let mut object = set(containers(), &format!("{item}.{path}"), json!(good));
        object["kind"] = json!("Workload");
        let by_rules = super::workload(&serde_json::from_value(object.clone()).unwrap(), None, &Bound::Known(bound()));
        assert_eq!(DEFINITIONS.refused(&object).is_empty(), by_rules.is_empty(), "{good}");
    }
}

/// Each rule that compares fields, with the smallest change that breaks it. Admission refuses the same.
#[test]
fn definition_of_workloads_states_choices_and_unique_names() {
    let template = "spec.template.spec";
    let container = format!("{template}.runtime.sandbox.containers.0");
    let scale = "spec.placements.0.scaleSettings";
    let source = json!({ "configMapRef": { "name": "a" }, "secretRef": { "name": "a" } });
    let placement = json!({ "name": "main", "cityCodes": ["ord"], "scaleSettings": { "minReplicas": 1 } });
    let target = format!("{scale}.metrics.0.resource.target");
    for (path, value, at) in [
        ("spec.placements.1", placement, ".spec.placements"),
        ("spec.placements.0.cityCodes", json!([]), ".spec.placements"),
        ("spec.placements.0.cityCodes", json!(["dfw", "dfw"]), ".spec.placements[0].cityCodes[1]"),
        (&format!("{scale}.maxReplicas"), json!(1), ".spec.placements"),
        (&target, json!({}), ".spec.placements"),
        (&target, json!({ "value": "1", "averageUtilization": 50 }), ".spec.placements"),
        (&format!("{template}.controller"), json!({ "templateHash": "h" }), ".spec.template.spec"),
        (&format!("{template}.location"), json!({ "name": "dfw" }), ".spec.template.spec"),
        (&format!("{template}.runtime.sandbox"), Value::Null, ".spec.template.spec.runtime"),
        (
            &format!("{template}.runtime.virtualMachine"),
            json!({ "volumeAttachments": [{ "name": "data" }] }),
            ".spec.template.spec.runtime",
        ),
        (&format!("{template}.volumes.0.secret"), json!({ "secretName": "a" }), "spec.volumes[0]"),
        (&format!("{template}.volumes.0.configMap"), Value::Null, "spec.volumes[0]"),
        (&format!("{container}.envFrom.0"), json!({}), "containers[0].envFrom"),
        (&format!("{container}.envFrom.0"), source, "containers[0].envFrom"),
        (
            &format!("{container}.envFrom"),
            vec![json!({ "configMapRef": { "name": "a" } }); MAX_SOURCES + 1].into(),
            "containers[0].envFrom",
        ),
    ] {
        let mut object = set(containers(), path, value.clone());
        object["kind"] = json!("Workload");
        let found = DEFINITIONS.refused(&object);
        assert!(found.len() == 1 && found[0].0.ends_with(at), "{path} = {value}: {found:?}");
        let workload: Workload = serde_json::from_value(object).unwrap();
        assert_ne!(super::workload(&workload, None, &Bound::Known(bound())), [], "{path} = {value} by the rules");
    }
}

/// A client such as kstatus takes an object without `observedGeneration` for one that is up to date.
#[test]
fn new_object_has_a_status_that_is_no_report() {
    for kind in ["Workload", "WorkloadDeployment"] {
        let status = DEFINITIONS.schema(kind).pointer("/properties/status").unwrap();
        let given = json!({ "kind": kind, "status": status["default"] });
        assert_eq!((&given["status"]["observedGeneration"], refused(&given)), (&json!(-1), vec![]), "{kind}");
    }
    let mut object = json!({ "metadata": { "name": "web-main-dfw" }, "spec": WorkloadDeploymentSpec::default() });
    let deployment = |object: &Value| serde_json::from_value::<WorkloadDeployment>(object.clone()).unwrap();
    assert_eq!(deployment(&object).report(), None);
    let default = DEFINITIONS.schema("WorkloadDeployment").pointer("/properties/status/default").unwrap();
    object["status"] = default.clone();
    assert_eq!(deployment(&object).report(), None);
    object["status"]["desiredReplicas"] = json!(1);
    assert_eq!(deployment(&object).report().map(|status| status.observed_generation), Some(None));
    object["status"]["observedGeneration"] = json!(1);
    assert_eq!(deployment(&object).report().map(|status| status.observed_generation), Some(Some(1)));
}

/// Keywords that the derive macros add without a meaning.
#[test]
fn schemas_have_no_artefacts() {
    fn check(path: &str, schema: &Value) {
        assert_eq!((&schema["nullable"], &schema["anyOf"]), (&Value::Null, &Value::Null), "{path}");
        for bound in ["minimum", "maximum"] {
            assert!(schema[bound].is_null() || schema[bound].is_i64(), "{path}: {bound} is {}", schema[bound]);
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            check(&format!("{path}.{name}"), property);
        }
        for part in ["items", "additionalProperties"].into_iter().filter(|part| schema[*part].is_object()) {
            check(&format!("{path}[]"), &schema[part]);
        }
    }
    for kind in ["Workload", "WorkloadDeployment", "Instance"] {
        check(kind, DEFINITIONS.schema(kind));
    }
}

/// For each kind of rule in definitions, the smallest change that they refuse, and changes that they accept.
#[test]
fn definition_checks_agree_with_an_api_server() {
    let container = "spec.template.spec.runtime.sandbox.containers.0";
    let disk = "spec.template.spec.volumes.1.disk.template.spec";
    for (path, value, at) in [
        ("spec", Value::Null, Some(".spec")),
        ("spec.placements", json!([]), Some(".spec.placements")),
        ("spec.placements.0.name", json!(1), Some(".spec.placements[0].name")),
        ("spec.placements.0.name", Value::Null, Some(".spec.placements[0].name")),
        ("spec.placements.0.newer", json!(1), None),
        ("spec.placements.0.cityCodes", json!(["dfw", "dfw"]), Some(".spec.placements[0].cityCodes[1]")),
        ("spec.placements.0.cityCodes", json!(["dfw", "DFW"]), None),
        ("spec.placements.0.scaleSettings.instanceManagementPolicy", Value::Null, None),
        ("spec.placements.0.scaleSettings.maxReplicas", Value::Null, None),
        (
            "spec.placements.0.scaleSettings",
            json!({ "minReplicas": 1001 }),
            Some(".spec.placements[0].scaleSettings.minReplicas"),
        ),
        (
            "spec.placements.0.scaleSettings.maxReplicas",
            json!(1_i64 << 31),
            Some(".spec.placements[0].scaleSettings.maxReplicas"),
        ),
        (&format!("{container}.env.1"), json!({ "name": "P" }), Some("containers[0].env[1]")),
        (&format!("{container}.env.1"), json!({ "name": "Q" }), None),
        (
            &format!("{container}.securityContext"),
            json!({ "capabilities": { "add": ["A", "A"] } }),
            Some("capabilities.add[1]"),
        ),
        (
            &format!("{disk}.resources.requests.storage"),
            json!(" 1Gi"),
            Some("disk.template.spec.resources.requests.storage"),
        ),
        (&format!("{disk}.resources.requests.storage"), json!(1), None),
        (
            &format!("{disk}.resources.requests.storage"),
            json!(true),
            Some("disk.template.spec.resources.requests.storage"),
        ),
        (&format!("{disk}.populator.filesystem.type"), json!("xfs"), Some("populator.filesystem.type")),
        ("spec.template.spec.networkInterfaces.0.name", json!("x".repeat(16)), Some("networkInterfaces[0].name")),
        ("spec.template.spec.networkInterfaces.0.name", json!("ü".repeat(15)), None),
        ("spec.template.spec.networkInterfaces.0.ipFamilies", json!([]), Some("networkInterfaces[0].ipFamilies")),
        ("status", Value::Null, None),
        (
            "status",
            json!({ "conditions": [{ "type": "A", "status": "True", "reason": "B", "message": "", "lastTransitionTime": "never" }] }),
            Some(".status.conditions[0].lastTransitionTime"),
        ),
    ] {
        let mut object = set(containers(), path, value.clone());
        object["kind"] = json!("Workload");
        let found = DEFINITIONS.refused(&object);
        let is_as_expected = match at {
            None => found.is_empty(),
            Some(at) => found.len() == 1 && found[0].0.ends_with(at),
        };
        assert!(is_as_expected, "{path} = {value}: {found:?}");
    }
}
