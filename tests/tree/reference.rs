//! Pages that list what the code defines: fields of the API, labels, annotations and finalizers.

use std::{collections::BTreeSet, fmt::Write, fs};

use serde_json::Value;
use testbed::manifests;

use super::root;

/// Beginning of the page `docs/reference/api.md`.
const HEAD: &str = "# API

Every field of the three kinds of `compute.datumapis.com/v1alpha`, from the definitions in `crds/`. A test compares, and
`WRITE_API=1 cargo test --test tree api_page` writes the page. `kubectl explain` shows the same texts. The rules for values are in
[what admission refuses](../admission.md).

`[]` is an item of a list, and `{}` the value of any key of a map.
";

/// A kind: its definition, its introduction, and the fields that another kind has too.
type Kind = (&'static str, &'static str, &'static [&'static str]);

const KINDS: [Kind; 3] = [
    (
        "workloads",
        "Tenants write Workloads. [Your first Workload](../tenants/first-workload.md) explains the fields in use.",
        &[],
    ),
    (
        "workloaddeployments",
        "The operator writes a WorkloadDeployment for each city of a placement. Its template is that of the Workload.",
        &["spec.template"],
    ),
    (
        "instances",
        "The cell creates Instances, and the project shows them. Runtime, interfaces and volumes are those of the template.",
        &["spec.runtime", "spec.networkInterfaces", "spec.volumes"],
    ),
];

/// Returns the type of a field, with its bounds.
fn type_of(schema: &Value, is_required: bool) -> String {
    let name = |schema: &Value| match schema["type"].as_str() {
        _ if schema["x-kubernetes-int-or-string"] == true => "integer or string".to_owned(),
        Some(name) => name.to_owned(),
        None => "any".to_owned(),
    };
    let mut text = match schema["type"].as_str() {
        Some("array") => format!("list of {}", name(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map of {}", name(&schema["additionalProperties"]))
        }
        _ => name(schema),
    };
    let number = |value: &Value| value.as_f64().map(|number| number.to_string());
    match (number(&schema["minimum"]), number(&schema["maximum"])) {
        (Some(least), Some(most)) => {
            let _ = write!(text, ", {least} to {most}");
        }
        (Some(least), None) => {
            let _ = write!(text, ", at least {least}");
        }
        _ => {}
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> =
            values.iter().map(|value| format!("`{}`", value.as_str().unwrap_or_default())).collect();
        let _ = write!(text, ": {}", values.join(", "));
    }
    if let Some(default @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) = schema.get("default") {
        let _ = write!(text, ", default `{}`", default.to_string().trim_matches('"'));
    }
    if is_required {
        text += ", required";
    }
    text
}

/// Returns a text for the cell of a table.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let spans = words.join(" ").replace('|', "\\|");
    // Outside of code, an angle bracket would begin a tag, and a bracket a link.
    let parts = spans.split('`').enumerate();
    let escaped = parts.map(|(nth, part)| {
        if nth % 2 == 0 { part.replace('<', "&lt;").replace('[', "\\[").replace('*', "\\*") } else { part.to_owned() }
    });
    escaped.collect::<Vec<_>>().join("`")
}

/// Adds a row for each field below a schema.
fn rows(schema: &Value, path: &str, left_out: &[&str], page: &mut String) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let text = cell(field["description"].as_str().unwrap_or_default());
        let _ = writeln!(page, "| `{path}` | {} | {text} |", type_of(field, required.contains(&name.as_str())));
        if !left_out.contains(&path.as_str()) {
            rows(field, &path, left_out, page);
            rows(&field["items"], &format!("{path}[]"), left_out, page);
            rows(&field["additionalProperties"], &format!("{path}{{}}"), left_out, page);
        }
    }
}

/// Returns the page of the API.
fn api() -> String {
    let mut page = HEAD.to_owned();
    for (plural, introduction, left_out) in KINDS {
        let file = root().join(format!("crds/compute.datumapis.com_{plural}.yaml"));
        let [definition] = &manifests::documents(&fs::read_to_string(file).unwrap()).unwrap()[..] else {
            panic!("one")
        };
        let names = &definition["spec"]["names"];
        let list = |key: &str| {
            let all: Vec<String> = names[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(|name| format!("`{name}`"))
                .collect();
            all.join(", ")
        };
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let _ = write!(
            page,
            "\n## {}\n\n{}\n\n{introduction} Short names: {}.\n",
            names["kind"].as_str().unwrap(),
            schema["description"].as_str().unwrap(),
            list("shortNames")
        );
        let _ = writeln!(page, "\n| field | type | meaning |\n|---|---|---|");
        for part in ["spec", "status"] {
            rows(&schema["properties"][part], part, left_out, &mut page);
        }
    }
    page
}

#[test]
fn api_page_equals_the_definitions() {
    let (file, wanted) = (root().join("docs/reference/api.md"), api());
    if std::env::var_os("WRITE_API").is_some() {
        fs::write(&file, &wanted).unwrap();
    }
    let page = fs::read_to_string(&file).unwrap_or_default();
    assert!(page == wanted, "run `WRITE_API=1 cargo test --test tree api_page` and commit what it writes");
    let fields = page.lines().filter(|line| line.starts_with("| `")).count();
    assert!(fields > 200, "the reader of definitions sees only {fields} fields: it is broken");
}

#[test]
fn text_for_a_cell_keeps_code_and_escapes_the_rest() {
    assert_eq!(cell("a <b>\n `c <d> | e`  [f] *"), "a &lt;b> `c <d> \\| e` \\[f] \\*");
}

#[test]
fn labels_page_lists_every_key_of_the_operator() {
    let code = fs::read_to_string(root().join("src/api/meta.rs")).unwrap();
    let code = code.split("\npub mod manager {").next().unwrap();
    let own = ["compute.datumapis.com/", "meta.datumapis.com/", "topology.datum.net/", "app.kubernetes.io/"];
    let is_own = |key: &&str| own.iter().any(|group| key.starts_with(group)) || key.starts_with("quota.compute.");
    let defined: BTreeSet<&str> =
        code.split("&str = \"").skip(1).filter_map(|rest| rest.split('"').next()).filter(is_own).collect();
    let page = fs::read_to_string(root().join("docs/reference/labels.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let listed: Vec<&str> = rows.collect();
    let once: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(once.len(), listed.len(), "a key is listed twice");
    assert_eq!(once, defined, "docs/reference/labels.md lists the keys of src/api/meta.rs");
    assert!(defined.len() > 40, "the reader of keys sees only {}: it is broken", defined.len());
}
