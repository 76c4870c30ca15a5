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
    canonical(template, &Present, &mut text);
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

/// The part of a member that a digest depends on.
pub enum Reads {
    /// Its value.
    Whole,
    /// None of it.
    Nothing,
    /// That it is there.
    Presence,
}

/// Returns a digest of a JSON value. Empty members count as absent. Compare digests only for equality.
pub fn digest(value: &Value) -> String {
    digest_of(value, &|_, _| Reads::Whole)
}

/// Returns a digest of a part of a JSON value. `reads`: the part of each member, at any depth, by its name and value.
pub fn digest_of(value: &Value, reads: &impl Fn(&str, &Value) -> Reads) -> String {
    let mut text = String::new();
    canonical(value, &Filled(reads), &mut text);
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(String::new(), |hash, byte| format!("{hash}{byte:02x}"))
}

/// The members that [`canonical`] writes.
trait Selection {
    fn reads(&self, name: &str, value: &Value) -> Reads;
}

/// All members with a value.
struct Present;

impl Selection for Present {
    fn reads(&self, _: &str, value: &Value) -> Reads {
        if value.is_null() { Reads::Nothing } else { Reads::Whole }
    }
}

/// Those of which something is left that is not empty.
struct Filled<'a, F>(&'a F);

impl<F: Fn(&str, &Value) -> Reads> Filled<'_, F> {
    fn is_empty(&self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(members) => {
                members.iter().all(|(name, value)| matches!(self.reads(name, value), Reads::Nothing))
            }
            _ => false,
        }
    }
}

impl<F: Fn(&str, &Value) -> Reads> Selection for Filled<'_, F> {
    fn reads(&self, name: &str, value: &Value) -> Reads {
        match (self.0)(name, value) {
            Reads::Whole if self.is_empty(value) => Reads::Nothing,
            reads => reads,
        }
    }
}

/// True if a recorded hash is of this scheme. A hash of another scheme does not show if the template changed.
pub fn is_own_hash(hash: &str) -> bool {
    hash.starts_with(SCHEME)
}

/// Writes JSON with sorted keys and without the members that are not selected, so that a new optional field changes no hash.
fn canonical(value: &Value, selection: &impl Selection, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in members {
                let reads = selection.reads(name, value);
                if matches!(reads, Reads::Nothing) {
                    continue;
                }
                canonical_text(name, out);
                out.push(':');
                if matches!(reads, Reads::Whole) {
                    canonical(value, selection, out);
                }
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for value in list {
                canonical(value, selection, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::String(text) => canonical_text(text, out),
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Writes a JSON string.
fn canonical_text(text: &str, out: &mut String) {
    if text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        out.push_str(&Value::from(text).to_string());
    } else {
        out.push('"');
        out.push_str(text);
        out.push('"');
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

    /// Names of Events and networks contain it, so it is the same in every release.
    #[test]
    fn digest_never_changes() {
        let value = json!({ "b": [1, null, {}, [], "q\"\\\n\u{e9}"], "a": { "empty": {}, "null": null }, "c": true });
        assert_eq!(digest(&value), digest(&json!({ "b": value["b"], "c": true })), "empty members count as absent");
        assert_eq!(digest(&value), "4c1c8edbf0939aa2");
    }

    #[test]
    fn digest_depends_only_on_what_is_read() {
        let reads = |name: &str, value: &Value| match name {
            "time" => Reads::Presence,
            "version" => Reads::Nothing,
            _ if value == false => Reads::Nothing,
            _ => Reads::Whole,
        };
        let of = |value: Value| digest_of(&value, &reads);
        let base = json!({ "list": [{ "time": "1", "name": "a" }] });
        assert_eq!(of(base.clone()), of(json!({ "list": [{ "time": "2", "name": "a", "version": 7 }] })));
        assert_ne!(of(base.clone()), of(json!({ "list": [{ "name": "a" }] })));
        assert_eq!(
            of(base.clone()),
            of(json!({ "list": [{ "time": "", "name": "a", "off": false }], "o": { "version": 1 } }))
        );
        assert_ne!(of(base), of(json!({ "list": [{ "time": "1", "name": "b" }] })));
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
