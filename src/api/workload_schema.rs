//! Rules in the CustomResourceDefinition of Workloads, so that they hold where no webhook runs.
//!
//! Only this definition has them. A Workload is never copied, and API servers accept an update of a stored one whose violation
//! does not change (Kubernetes 1.30 and later). WorkloadDeployments and Instances derive from stored Workloads, on planes that
//! recreate them. A definition there that is stricter than an earlier one would end what runs.

use serde_json::{Value, json};

/// Path from the schema of a Workload to that of its template's spec.
const SPEC: &str = "/properties/spec/properties/template/properties/spec/properties";
const CONTAINERS: &str = "/runtime/properties/sandbox/properties/containers/items/properties";
const INGRESS: &str = "/networkInterfaces/items/properties/networkPolicy/properties/ingress/items/properties";

/// Printable ASCII without `=`.
const VARIABLE: &str = "^[ -<>-~]+$";
/// Printable ASCII without spaces.
const IMAGE: &str = "^[!-~]+$";
/// The key of a ConfigMap or Secret: it is not `.` and does not begin with `..`.
const KEY: &str = r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$";
/// A relative path that does not begin with `..` and has no part `..`.
const PATH: &str = r"^([^/.][^/]*|\.([^/.][^/]*)?)(/([^/.][^/]*|\.([^/.][^/]*)?|\.\.[^/]+)?)*$";
/// The name of a port: at least one letter, no dash at either end, no two dashes in a row.
const PORT_NAME: &str = "^([a-z0-9]-?)*[a-z](-?[a-z0-9])*$";
const PROTOCOL: &str = "^(TCP|UDP|SCTP)$";

/// Adds the rules to the schema of Workloads.
///
/// # Errors
/// The path of a field that the schema does not have.
pub(super) fn add(schema: &mut Value) -> Result<(), String> {
    for (path, rules) in rules() {
        let path = format!("{SPEC}{path}");
        let field = schema.pointer_mut(&path).and_then(Value::as_object_mut);
        let field = field.ok_or_else(|| format!("the definition of Workloads has no {path}"))?;
        field.extend(rules.as_object().cloned().unwrap_or_default());
    }
    Ok(())
}

fn rules() -> Vec<(String, Value)> {
    let mut rules = of_containers();
    rules.extend(of_ingress());
    for source in ["configMap", "secret"] {
        let at = |field: &str| format!("/volumes/items/properties/{source}/properties/{field}");
        let mode = json!({ "minimum": 0, "maximum": 0o777 });
        rules.extend([
            (at("defaultMode"), mode.clone()),
            (at("items/items/properties/mode"), mode),
            (at("items/items/properties/key"), json!({ "minLength": 1 })),
            (at("items/items/properties/path"), json!({ "pattern": PATH })),
        ]);
    }
    rules
}

fn of_containers() -> Vec<(String, Value)> {
    let at = |field: &str| format!("{CONTAINERS}{field}");
    let key = json!({ "pattern": KEY, "maxLength": 253 });
    let protocol = json!({ "pattern": format!("^$|{PROTOCOL}") });
    // An empty value beside a source counts as no value.
    let both = json!({ "required": ["value", "valueFrom"], "properties": { "value": { "minLength": 1 } } });
    let from = "/env/items/properties/valueFrom";
    vec![
        (at("/image"), json!({ "pattern": IMAGE })),
        (at("/env/items"), json!({ "not": both })),
        (at("/env/items/properties/name"), json!({ "pattern": VARIABLE })),
        (at(from), json!({ "minProperties": 1, "maxProperties": 1 })),
        (at(&format!("{from}/properties/configMapKeyRef/properties/key")), key.clone()),
        (at(&format!("{from}/properties/secretKeyRef/properties/key")), key),
        (at("/ports/items/properties/protocol"), protocol.clone()),
        (
            at("/securityContext/properties/seccompProfile/properties/type"),
            json!({ "pattern": "^(RuntimeDefault|Unconfined)$" }),
        ),
        ("/runtime/properties/virtualMachine/properties/ports/items/properties/protocol".into(), protocol),
    ]
}

fn of_ingress() -> Vec<(String, Value)> {
    let at = |field: &str| format!("{INGRESS}{field}");
    let cidr = json!({ "format": "cidr" });
    let number = json!({ "minimum": 1, "maximum": 65535 });
    let port = json!({ "minimum": 1, "maximum": 65535, "maxLength": 15, "pattern": PORT_NAME });
    vec![
        (at("/ports/items/properties/protocol"), json!({ "pattern": PROTOCOL })),
        (at("/ports/items/properties/port"), port),
        (at("/ports/items/properties/endPort"), number),
        (at("/from/items"), json!({ "minProperties": 1 })),
        (at("/from/items/properties/ipBlock/properties/cidr"), cidr.clone()),
        (at("/from/items/properties/ipBlock/properties/except/items"), cidr),
    ]
}
