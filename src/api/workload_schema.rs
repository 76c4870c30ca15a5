//! Rules in the CustomResourceDefinition of Workloads, so that they hold where no webhook runs.
//!
//! Only this definition has them. A Workload is never copied, and API servers accept an update of a stored one whose violation
//! does not change (Kubernetes 1.30 and later). WorkloadDeployments and Instances derive from stored Workloads, on planes that
//! recreate them. A definition there that is stricter than an earlier one would end what runs.

use serde_json::{Value, json};

use super::compute::MAX_SOURCES;

/// Path from the schema of a Workload to that of its template's spec.
const SPEC: &str = "/properties/spec/properties/template/properties/spec/properties";
const PLACEMENTS: &str = "/properties/spec/properties/placements";
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
    let of_template = rules().into_iter().map(|(path, rules)| (format!("{SPEC}{path}"), rules));
    for (path, rules) in of_template.chain(of_placements()).chain(of_choices()) {
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

/// Most placements, and most characters of a name. Both are far above what the operator accepts. They bound the cost of a rule, for
/// which the API server wants a bound.
const MOST_PLACEMENTS: usize = 256;
const LONGEST_NAME: usize = 253;
const MOST_METRICS: usize = 64;
/// Most entries of the template's lists in which a rule looks at each entry.
const MOST_CONTAINERS: usize = 512;
const MOST_VOLUMES: usize = 1024;

/// Returns a rule of an object in the Common Expression Language. Like admission, it refuses only what an update adds: `before`
/// accepts a violation that the stored object, `old`, had already.
fn rule(holds: &str, before: &str, message: &str) -> Value {
    json!({
        "rule": format!("{holds} || (oldSelf.hasValue() && {})", before.replace("old.", "oldSelf.value().")),
        "message": message,
        "optionalOldSelf": true,
    })
}

/// Returns a rule for each entry `e` of a list without keys. The API server skips it if an update does not change the list. It
/// cannot accept more: the API server knows no bound for the stored list in a rule, and refuses a rule without one.
fn of_each(holds: &str, message: &str) -> Value {
    json!({ "rule": format!("self.all(e, {holds})"), "message": message })
}

/// Returns an expression that is true if exactly one of the fields is set.
fn one_of(object: &str, fields: &[&str]) -> String {
    let given: Vec<String> = fields.iter().map(|field| format!("has({object}.{field})")).collect();
    format!("[{}].exists_one(given, given)", given.join(", "))
}

fn of_placements() -> Vec<(String, Value)> {
    let scale = "e.scaleSettings";
    let target = one_of("m.resource.target", &["value", "averageValue", "averageUtilization"]);
    let names =
        of_each("e.name == '' || self.exists_one(o, o.name == e.name)", "each placement needs a name of its own");
    let cities = of_each("e.cityCodes.size() > 0", "name at least one city in each placement");
    let most = of_each(
        &format!("!has({scale}.maxReplicas) || {scale}.maxReplicas >= {scale}.minReplicas"),
        "maxReplicas must not be below minReplicas",
    );
    let metrics = of_each(
        &format!("!has({scale}.metrics) || {scale}.metrics.all(m, {target})"),
        "give each metric exactly one of value, averageValue and averageUtilization",
    );
    let at = |field: &str| format!("{PLACEMENTS}/items/properties/{field}");
    vec![
        (
            PLACEMENTS.to_owned(),
            json!({ "maxItems": MOST_PLACEMENTS, "x-kubernetes-validations": [names, cities, most, metrics] }),
        ),
        (at("name"), json!({ "maxLength": LONGEST_NAME })),
        (at("scaleSettings/properties/metrics"), json!({ "maxItems": MOST_METRICS })),
    ]
}

/// Returns the rules for fields that exclude one another, and for fields that only a cell writes.
fn of_choices() -> Vec<(String, Value)> {
    let spec = SPEC.trim_end_matches("/properties");
    let absent = |field: &str| {
        rule(
            &format!("!has(self.{field})"),
            &format!("has(old.{field})"),
            &format!("leave out {field}: only a cell writes it, in Instances"),
        )
    };
    let runtime = ["sandbox", "virtualMachine"];
    let volume = ["disk", "configMap", "secret"];
    let source = ["configMapRef", "secretRef"];
    let rules = |rules: &[Value]| json!({ "x-kubernetes-validations": rules });
    vec![
        (spec.to_owned(), rules(&[absent("controller"), absent("location")])),
        (
            format!("{SPEC}/runtime"),
            rules(&[rule(
                &one_of("self", &runtime),
                &format!("!{}", one_of("old", &runtime)),
                "give exactly one of sandbox and virtualMachine",
            )]),
        ),
        (format!("{SPEC}/volumes"), json!({ "maxItems": MOST_VOLUMES })),
        (
            format!("{SPEC}/volumes/items"),
            rules(&[rule(
                &one_of("self", &volume),
                &format!("!{}", one_of("old", &volume)),
                "give each volume exactly one of disk, configMap and secret",
            )]),
        ),
        (format!("{SPEC}/runtime/properties/sandbox/properties/containers"), json!({ "maxItems": MOST_CONTAINERS })),
        (
            format!("{SPEC}{CONTAINERS}/envFrom"),
            json!({ "maxItems": MAX_SOURCES, "x-kubernetes-validations": [of_each(
                &one_of("e", &source),
                "give each source exactly one of configMapRef and secretRef",
            )] }),
        ),
    ]
}
