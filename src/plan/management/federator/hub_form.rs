//! Form in which a deployment's spec passes through Karmada unchanged.
//!
//! Karmada passes each object for a cell through Lua, where an empty list and an empty object are the same. It distinguishes them
//! afterwards by path, without the indices of lists (fact 74). Lists of rules, peers, ports and sources may contain `{}`. So an
//! empty list at such a path arrives as an object, and the cell rejects the whole object. Therefore empty lists are left out of a
//! copy. In all of the definitions, an empty list means the same as no list: a network policy without rules is closed. The Go
//! operator leaves them out too.

use serde_json::Value;

/// Returns `spec` without its empty lists, except those that the definition requires.
pub(super) fn without_empty_lists(spec: Value) -> Value {
    match spec {
        Value::Object(fields) => {
            let stays = |(name, value): &(String, Value)| {
                REQUIRED.contains(&name.as_str()) || value.as_array().is_none_or(|list| !list.is_empty())
            };
            fields.into_iter().filter(stays).map(|(name, value)| (name, without_empty_lists(value))).collect()
        }
        Value::Array(entries) => entries.into_iter().map(without_empty_lists).collect(),
        value => value,
    }
}

/// True if a list in `spec` is left out.
pub(super) fn has_empty_lists(spec: &Value) -> bool {
    without_empty_lists(spec.clone()) != *spec
}

/// Lists that the definition requires. No server stores an empty one.
const REQUIRED: [&str; 2] = ["networkInterfaces", "containers"];

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;
    use serde_json::json;

    use super::*;
    use crate::api::compute::WorkloadDeployment;

    #[test]
    fn spec_loses_empty_lists_and_keeps_other_empty_values() {
        let interface = |policy: Value| json!({ "network": { "name": "n" }, "networkPolicy": policy });
        let spec = |policies: &[Value], container: Value| {
            json!({ "template": { "metadata": { "labels": {} }, "spec": {
                "networkInterfaces": policies.iter().cloned().map(interface).collect::<Vec<_>>(),
                "runtime": { "resources": {}, "sandbox": { "containers": [container] } },
            } } })
        };
        let wanted = spec(
            &[
                json!({ "ingress": [{}] }),
                json!({ "ingress": [] }),
                json!({ "ingress": [{ "from": [], "ports": [{}] }] }),
            ],
            json!({ "name": "c", "env": [{ "name": "A", "value": "" }], "args": [], "securityContext": {} }),
        );
        let sent = spec(
            &[json!({ "ingress": [{}] }), json!({}), json!({ "ingress": [{ "ports": [{}] }] })],
            json!({ "name": "c", "env": [{ "name": "A", "value": "" }], "securityContext": {} }),
        );
        assert_eq!(without_empty_lists(wanted), sent);
    }

    /// Checks the definition of each list that is left out if it is empty.
    #[test]
    fn list_required_by_the_definition_is_never_empty() {
        let schema = json!(WorkloadDeployment::crd().spec.versions[0].schema)["openAPIV3Schema"].clone();
        let mut found = Vec::new();
        visit(&schema["properties"]["spec"], "spec", &mut found);
        assert!(found.len() > 20, "{found:?}");
        for (path, required, least) in found {
            let name = path.rsplit('.').next().unwrap();
            assert!(!required || least > 0, "{path} has to be there, and may be empty");
            assert!(!REQUIRED.contains(&name) || least > 0, "{path} may be empty, and is not left out");
        }
    }

    /// Collects the lists of a schema: path, true if it is required, and its minimum number of entries.
    fn visit(schema: &Value, path: &str, found: &mut Vec<(String, bool, u64)>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let below = format!("{path}.{name}");
            if field["type"] == "array" {
                let required = schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
                found.push((below.clone(), required, field["minItems"].as_u64().unwrap_or(0)));
            }
            visit(field, &below, found);
        }
        if schema["items"].is_object() {
            visit(&schema["items"], path, found);
        }
    }
}
