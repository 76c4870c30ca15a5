//! Tests of each limit at its value and one above.

use serde_json::{Value, json};

use super::*;

fn workload(spec: &Value) -> Workload {
    serde_json::from_value(json!({ "metadata": { "name": "web", "namespace": "shop" }, "spec": spec })).unwrap()
}

/// Returns a Workload with these containers, volumes and placements.
#[allow(clippy::needless_pass_by_value)] // easier to read at the call
fn of(containers: Value, volumes: Value, placements: Value) -> Workload {
    workload(&json!({
        "template": { "spec": {
            "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": containers } },
            "networkInterfaces": [{ "network": { "name": "default" } }],
            "volumes": volumes,
        } },
        "placements": placements,
    }))
}

fn placement(n: usize, cities: usize) -> Value {
    let cities: Vec<String> = (0..cities).map(|city| format!("c{n}-{city}")).collect();
    json!({ "name": format!("p{n}"), "cityCodes": cities, "scaleSettings": { "minReplicas": 1 } })
}

#[allow(clippy::needless_pass_by_value)] // as above
fn container(variables: Vec<Value>) -> Value {
    json!({ "name": "web", "image": "i", "env": variables })
}

fn plain(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({ "name": format!("V{n}"), "value": "x" })).collect()
}

fn of_one_secret(count: usize) -> Vec<Value> {
    let from = |n: usize| json!({ "secretKeyRef": { "name": "db", "key": format!("k{n}") } });
    (0..count).map(|n| json!({ "name": format!("V{n}"), "valueFrom": from(n) })).collect()
}

/// Returns two containers with this number of entries, including one volume of the caller. There are some of each kind.
fn entries(count: usize) -> Value {
    let ports = json!([{ "name": "http", "port": 80 }]);
    let attachments = json!([{ "name": "a" }, { "name": "b" }]);
    let context = json!({ "capabilities": { "add": ["A"], "drop": ["B", "C"] } });
    let side = json!({ "name": "side", "image": "i", "ports": ports, "volumeAttachments": attachments, "securityContext": context });
    json!([side, container(plain(count - 9))])
}

fn one_container() -> Value {
    json!([container(Vec::new())])
}

/// Returns a Workload with a template of this size.
fn of_bytes(size: usize) -> Workload {
    let with = |text: usize| {
        of(
            json!([container(vec![json!({ "name": "A", "value": "x".repeat(text) })])]),
            json!([]),
            json!([placement(0, 1)]),
        )
    };
    let frame = json_bytes(&with(0).spec.template);
    with(size - frame)
}

#[test]
fn limit_exceeded_by_one_is_reported_with_limit_and_value() {
    let placements = |count: usize| (0..count).map(|n| placement(n, 1)).collect::<Vec<_>>();
    let in_placements = |placements: Vec<Value>| of(one_container(), json!([]), placements.into());
    let in_container = |variables: Vec<Value>| of(json!([container(variables)]), json!([]), json!([placement(0, 1)]));
    for (good, bad, words) in [
        (
            in_placements(placements(MAX_PLACEMENTS)),
            in_placements(placements(MAX_PLACEMENTS + 1)),
            format!("spec.placements has {} placements, {MAX_PLACEMENTS} is the limit", MAX_PLACEMENTS + 1),
        ),
        (
            in_placements(vec![placement(0, MAX_DEPLOYMENTS - 1), placement(1, 1)]),
            in_placements(vec![placement(0, MAX_DEPLOYMENTS), placement(1, 1)]),
            format!("{} deployments, one for each city, {MAX_DEPLOYMENTS} is the limit", MAX_DEPLOYMENTS + 1),
        ),
        (
            of_bytes(MAX_TEMPLATE),
            of_bytes(MAX_TEMPLATE + 1),
            format!("spec.template has {} bytes as JSON, {MAX_TEMPLATE} is the limit", MAX_TEMPLATE + 1),
        ),
        (
            in_container(plain(MAX_ENTRIES - 1)),
            in_container(plain(MAX_ENTRIES)),
            format!(
                "has {} containers, variables, ports, volumes, attachments and capabilities together, {MAX_ENTRIES} is",
                MAX_ENTRIES + 1
            ),
        ),
        (
            of(entries(MAX_ENTRIES), json!([{ "name": "a" }]), json!([placement(0, 1)])),
            of(entries(MAX_ENTRIES), json!([{ "name": "a" }, { "name": "b" }]), json!([placement(0, 1)])),
            format!("together, {MAX_ENTRIES} is the limit"),
        ),
        (
            in_container(of_one_secret(MAX_USES)),
            in_container(of_one_secret(MAX_USES + 1)),
            format!(
                "env[{MAX_USES}].valueFrom.secretKeyRef.name is one of {} fields that refer to Secret/db",
                MAX_USES + 1
            ),
        ),
    ] {
        assert_eq!(super::words(&of_workload(&good)), None);
        let found = of_workload(&bad);
        let text = super::words(&found).unwrap_or_default();
        assert!(found.len() == 1 && text.contains(&words), "{text}: {words}");
    }
}

#[test]
fn port_beyond_32_bits_is_reported_with_its_field() {
    let with = |port: Value| {
        let mut object = json!(of(one_container(), json!([]), json!([placement(0, 1)])));
        object["spec"]["template"]["spec"]["networkInterfaces"][0]["networkPolicy"] =
            json!({ "ingress": [{}, { "ports": [{ "port": "http" }, { "port": port }] }] });
        words(&of_workload(&serde_json::from_value(object).unwrap()))
    };
    // Admission refuses other invalid numbers. They do not harm other tenants.
    for good in [json!(443), json!(70000), json!(-1)] {
        assert_eq!(with(good), None);
    }
    for bad in [json!(3_000_000_000_u32), json!(-3_000_000_000_i64), json!(1e300)] {
        let text = with(bad).unwrap();
        assert!(text.contains("networkInterfaces[0].networkPolicy.ingress[1].ports[1].port is "), "{text}");
    }
}

#[test]
fn project_name_too_long_for_label_is_reported_with_limit() {
    for (name, good) in [("p".repeat(55), true), ("p".repeat(56), false), ("single".into(), true)] {
        let project = ProjectName::new(&name);
        assert_eq!(project.label_value().len() <= MAX_LABEL, good);
        let flaw = of_project(&project);
        assert_eq!(flaw.is_none(), good, "{flaw:?}");
        assert!(flaw.is_none_or(|flaw| flaw.contains("has 56 characters, 55 is the limit")));
    }
}
