//! The template hash: SHA-256 over canonical JSON. It depends only on the content of the template.

use serde::Serialize;
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
    let mut text = Vec::new();
    canonical(template, &|_, value| if value.is_null() { Reads::Nothing } else { Reads::Whole }, &mut text);
    let digest = Sha256::digest(&text);
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
    let mut text = Vec::new();
    canonical(value, &|name, value| unless_empty(name, value, reads), &mut text);
    let digest = Sha256::digest(&text);
    digest.iter().take(8).fold(String::new(), |hash, byte| format!("{hash}{byte:02x}"))
}

/// Returns the same as `reads`, but nothing of a member of which only empty values are left.
fn unless_empty(name: &str, value: &Value, reads: &impl Fn(&str, &Value) -> Reads) -> Reads {
    match reads(name, value) {
        Reads::Whole if is_empty(value, reads) => Reads::Nothing,
        reads => reads,
    }
}

fn is_empty(value: &Value, reads: &impl Fn(&str, &Value) -> Reads) -> bool {
    let is_left_out = |(name, value): (&String, &Value)| matches!(unless_empty(name, value, reads), Reads::Nothing);
    match value {
        Value::Null => true,
        Value::Array(entries) => entries.is_empty(),
        Value::Object(members) => members.iter().all(is_left_out),
        _ => false,
    }
}

/// True if a recorded hash is of this scheme. A hash of another scheme does not show if the template changed.
pub fn is_own_hash(hash: &str) -> bool {
    hash.starts_with(SCHEME)
}

/// Writes JSON with sorted keys. A member of which nothing is read is left out, so that a new optional field changes no hash.
fn canonical(value: &Value, reads: &impl Fn(&str, &Value) -> Reads, out: &mut Vec<u8>) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            out.push(b'{');
            for (name, value) in members {
                let read = reads(name, value);
                if matches!(read, Reads::Nothing) {
                    continue;
                }
                scalar(name, out);
                out.push(b':');
                if matches!(read, Reads::Whole) {
                    canonical(value, reads, out);
                }
                out.push(b',');
            }
            out.push(b'}');
        }
        Value::Array(entries) => {
            out.push(b'[');
            for entry in entries {
                canonical(entry, reads, out);
                out.push(b',');
            }
            out.push(b']');
        }
        other => scalar(other, out),
    }
}

fn scalar(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    // Text, numbers and truth values always encode, and memory takes every byte.
    serde_json::to_writer(out, value).unwrap_or_default();
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
