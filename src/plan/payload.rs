//! The content of a ConfigMap or Secret, on its short way from a source to its companion. It never shows itself.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};
use serde_json::{Map, Value, json};

use super::ObjectVersion;
use crate::api::referenced::SourceKind;

/// What is copied of a source: everything but its metadata.
///
/// `Debug` and `Serialize` tell the names of its keys and its size, never values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Payload {
    /// A ConfigMap's texts; a Secret's values in base64.
    data: BTreeMap<String, String>,
    /// A ConfigMap's binary values, in base64.
    binary: BTreeMap<String, String>,
    /// A Secret's type.
    type_: Option<String>,
    immutable: bool,
    /// Bytes of all values.
    size: u64,
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("keys", &self.keys()).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = serializer.serialize_struct("Payload", 2)?;
        shown.serialize_field("keys", &self.keys())?;
        shown.serialize_field("size", &self.size)?;
        shown.end()
    }
}

impl Payload {
    fn keys(&self) -> Vec<&String> {
        self.data.keys().chain(self.binary.keys()).collect()
    }

    /// From an object of this kind, as an API server gives it. `None` when it is none: what does not fit is not reported,
    /// since it may be a value.
    pub fn parse(kind: SourceKind, object: &[u8]) -> Option<(ObjectVersion, Self)> {
        let object: Object = serde_json::from_slice(object).ok()?;
        let (data, binary) = (object.data.unwrap_or_default(), object.binary_data.unwrap_or_default());
        let bytes = |text: &String| text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count();
        let plain: usize = data.values().map(|text| if kind.is_encoded() { bytes(text) } else { text.len() }).sum();
        let encoded: usize = binary.values().map(bytes).sum();
        let size = u64::try_from(plain + encoded).unwrap_or(u64::MAX);
        let version = ObjectVersion::new(&object.metadata.uid, &object.metadata.resource_version);
        let immutable = object.immutable.unwrap_or(false);
        Some((version, Self { data, binary, type_: object.type_.filter(|_| kind.is_encoded()), immutable, size }))
    }

    /// Bytes of all values, as the limits count them.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether an object with this content can be changed into one with that of `next`; else it must be made anew.
    pub fn can_become(&self, next: &Self) -> bool {
        !self.immutable && self.type_ == next.type_
    }

    /// True if an object with this content is one with that of `next` already. Immutable is more than `next` may ask for: the
    /// mark cannot be taken off, and does no harm until the data differ.
    pub fn holds(&self, next: &Self) -> bool {
        (&self.data, &self.binary, &self.type_) == (&next.data, &next.binary, &next.type_)
            && (self.immutable || !next.immutable)
    }

    /// The fields of an object with this content.
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        if !self.data.is_empty() {
            fields.insert("data".into(), json!(self.data));
        }
        if !self.binary.is_empty() {
            fields.insert("binaryData".into(), json!(self.binary));
        }
        if let Some(type_) = &self.type_ {
            fields.insert("type".into(), json!(type_));
        }
        if self.immutable {
            fields.insert("immutable".into(), json!(true));
        }
        fields
    }

    /// The JSON merge patch that turns this content into `next`.
    pub fn patch_to(&self, next: &Self) -> Map<String, Value> {
        let mut patch = Map::new();
        for (field, old, new) in [("data", &self.data, &next.data), ("binaryData", &self.binary, &next.binary)] {
            let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
            let fresh = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
            let changes: Map<String, Value> =
                gone.chain(fresh.map(|(key, value)| (key.clone(), json!(value)))).collect();
            if !changes.is_empty() {
                patch.insert(field.into(), Value::Object(changes));
            }
        }
        if next.immutable != self.immutable {
            patch.insert("immutable".into(), json!(next.immutable));
        }
        patch
    }
}

// Without Debug, like everything that holds values.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    metadata: Metadata,
    data: Option<BTreeMap<String, String>>,
    binary_data: Option<BTreeMap<String, String>>,
    #[serde(rename = "type")]
    type_: Option<String>,
    immutable: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(object: &Value) -> Payload {
        let mut object = object.clone();
        object["metadata"] = json!({ "uid": "u", "resourceVersion": "7" });
        Payload::parse(SourceKind::Secret, object.to_string().as_bytes()).unwrap().1
    }

    #[test]
    fn sizes_are_those_of_the_values() {
        // "canary" in base64 has no padding, "canary!" has two.
        assert_eq!(secret(&json!({ "data": { "a": "Y2FuYXJ5", "b": "Y2FuYXJ5IQ==" } })).size(), 6 + 7);
        let map = json!({ "metadata": {}, "data": { "a": "four" }, "binaryData": { "b": "Y2FuYXJ5" } }).to_string();
        assert_eq!(Payload::parse(SourceKind::ConfigMap, map.as_bytes()).unwrap().1.size(), 4 + 6);
        assert_eq!(Payload::default().size(), 0);
    }

    #[test]
    fn values_are_never_shown() {
        let payload = secret(&json!({ "data": { "password": "Y2FuYXJ5" } }));
        assert_eq!(format!("{payload:?}"), r#"Payload { keys: ["password"], size: 6, .. }"#);
        assert_eq!(json!(payload), json!({ "keys": ["password"], "size": 6 }));
        // Nor is what cannot be read.
        assert!(Payload::parse(SourceKind::Secret, br#"{"metadata":{},"data":"canary"}"#).is_none());
    }

    #[test]
    fn a_patch_carries_the_difference_alone() {
        let old = secret(&json!({ "data": { "same": "QQ==", "changed": "Qg==", "gone": "Qw==" }, "type": "Opaque" }));
        let new = secret(
            &json!({ "data": { "same": "QQ==", "changed": "RA==", "new": "RQ==" }, "type": "Opaque", "immutable": true }),
        );
        let patch = Value::Object(old.patch_to(&new));
        assert_eq!(patch, json!({ "data": { "changed": "RA==", "new": "RQ==", "gone": null }, "immutable": true }));
        assert!(new.patch_to(&new).is_empty());
        assert!(old.can_become(&new) && !new.can_become(&old));
        assert!(!old.can_become(&secret(&json!({ "type": "kubernetes.io/tls" }))));
        let mutable = Payload { immutable: false, ..new.clone() };
        assert!(new.holds(&new) && new.holds(&mutable) && !mutable.holds(&new) && !old.holds(&new));
    }
}
