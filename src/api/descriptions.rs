//! Descriptions of fields whose types are Kubernetes' own. Their texts speak of Pods, nodes and feature gates, which Instances do
//! not have.

use serde_json::{Value, json};

/// Path from the schema of an Instance's spec to that of a variable.
const VARIABLE: &str = "/properties/runtime/properties/sandbox/properties/containers/items/properties/env/items";

/// Fields of a variable, with their descriptions.
const OF_VARIABLES: [(&str, &str); 11] = [
    ("", "An environment variable, with a value or with a source of it."),
    ("/properties/name", "Name of the variable: printable ASCII without `=`, unique in the container."),
    (
        "/properties/value",
        "Value of the variable. Set this or `valueFrom`. `$(NAME)` is the value of a variable above it.",
    ),
    (
        "/properties/valueFrom",
        "Source of the value. Exactly one of its fields, without `value`. `fileKeyRef` is not supported.",
    ),
    (
        "/properties/valueFrom/properties/configMapKeyRef",
        "A key of a ConfigMap in the Workload's namespace. The operator copies the ConfigMap to the cells.",
    ),
    (
        "/properties/valueFrom/properties/secretKeyRef",
        "A key of a Secret in the Workload's namespace. The operator copies the Secret to the cells.",
    ),
    (
        "/properties/valueFrom/properties/fieldRef",
        "A field of the object that the provider makes for the Instance. The allowed fields are those of a Pod's variable.",
    ),
    (
        "/properties/valueFrom/properties/resourceFieldRef",
        "A limit or request of a container, as for a Pod's variable.",
    ),
    (
        "/properties/valueFrom/properties/fileKeyRef",
        "Not supported: no volume of an Instance has such files. A Workload that sets it is refused.",
    ),
    (
        "/properties/valueFrom/properties/configMapKeyRef/properties/optional",
        "True if the ConfigMap or its key may be missing. Otherwise new Instances wait for it.",
    ),
    (
        "/properties/valueFrom/properties/secretKeyRef/properties/optional",
        "True if the Secret or its key may be missing. Otherwise new Instances wait for it.",
    ),
];

/// Describes the fields of an Instance's spec, which is at `instance` in the schema.
///
/// # Errors
/// The path of a field that the schema does not have.
pub(super) fn add(schema: &mut Value, instance: &str) -> Result<(), String> {
    for (path, text) in OF_VARIABLES {
        let path = format!("{instance}{VARIABLE}{path}");
        let field = schema.pointer_mut(&path).ok_or_else(|| format!("no definition has {path}"))?;
        field["description"] = json!(text);
    }
    Ok(())
}
