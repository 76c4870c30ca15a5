//! The template hash: SHA-256 over canonical JSON. It depends only on the content of the template.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::compute::InstanceTemplateSpec;

/// Prefix of hashes of this scheme. Hashes of the Go operator have no dash.
const SCHEME: &str = "j1-";

/// Returns the hash of a template. Equal templates have equal hashes in every release. Compare hashes only for equality.
pub fn template_hash(template: &InstanceTemplateSpec) -> String {
    // A template is plain data (maps with string keys, lists, strings, numbers), so it always serializes.
    hash_of(&serde_json::to_value(template).unwrap_or_default())
}

fn hash_of(template: &Value) -> String {
    let mut text = String::new();
    canonical(template, &mut text);
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(SCHEME.to_owned(), |hash, byte| format!("{hash}{byte:02x}"))
}

/// Returns the hash that earlier versions of this operator made of a template. They did not know the later fields and left them
/// out. They included an empty instance type.
pub fn hash_before_later_fields(template: &InstanceTemplateSpec) -> String {
    let mut value = serde_json::to_value(template.without_later_fields()).unwrap_or_default();
    if let Some(resources) = value.pointer_mut("/spec/runtime/resources").and_then(Value::as_object_mut) {
        resources.entry("instanceType").or_insert_with(|| Value::from(""));
    }
    hash_of(&value)
}

/// Returns a digest of a JSON value. Empty members count as absent. Compare digests only for equality, within one process.
pub fn digest(value: &Value) -> String {
    let mut text = String::new();
    canonical(&without_empty(value), &mut text);
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(String::new(), |hash, byte| format!("{hash}{byte:02x}"))
}

fn without_empty(value: &Value) -> Value {
    let is_empty = |value: &Value| {
        value.is_null()
            || value.as_object().is_some_and(serde_json::Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty)
    };
    match value {
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| (key.clone(), without_empty(value)));
            members.filter(|(_, value)| !is_empty(value)).collect::<serde_json::Map<_, _>>().into()
        }
        Value::Array(list) => list.iter().map(without_empty).collect(),
        other => other.clone(),
    }
}

/// True if a recorded hash is of this scheme. A hash of another scheme does not show if the template changed.
pub fn is_own_hash(hash: &str) -> bool {
    hash.starts_with(SCHEME)
}

/// Writes JSON with sorted keys and without absent members, so that a new optional field changes no hash.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().filter(|(_, v)| !v.is_null()).collect();
            members.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in members {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for value in list {
                canonical(value, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::compute::InstanceTemplateSpec;
    use serde_json::json;

    fn template(mut edit: impl FnMut(&mut Value)) -> InstanceTemplateSpec {
        let mut value = json!({
            "metadata": { "labels": { "b": "2", "a": "1" } },
            "spec": {
                "runtime": { "resources": { "instanceType": "datumcloud/d1-standard-2" }, "sandbox": { "containers": [{ "name": "c", "image": "i:1" }] } },
                "networkInterfaces": [{ "network": { "name": "default" } }],
            },
        });
        edit(&mut value);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn template_hash_never_changes() {
        // If this value changes, every Instance of every user restarts. It must never change.
        assert_eq!(template_hash(&template(|_| ())), "j1-e95decb02efb34c5");
    }

    #[test]
    fn template_hash_changes_with_content_only() {
        let base = template_hash(&template(|_| ()));
        assert_eq!(base, template_hash(&template(|t| t["spec"]["volumes"] = Value::Null)));
        assert_ne!(
            base,
            template_hash(&template(|t| t["spec"]["runtime"]["sandbox"]["containers"][0]["image"] = json!("i:2")))
        );
        assert_ne!(
            base,
            template_hash(&template(
                |t| t["metadata"]["annotations"] = json!({ "compute.datumapis.com/restartedAt": "now" })
            ))
        );
    }
}
