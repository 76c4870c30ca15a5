//! The content of a ConfigMap or Secret, between the read of a source and the write of its companion. It is never shown.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};
use serde_json::{Map, Value, json};

use super::ObjectVersion;
use crate::api::referenced::SourceKind;

/// The copied part of a source: everything except its metadata.
///
/// `Debug` and `Serialize` show the names of the keys and the size, never values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Payload {
    /// Text values of a ConfigMap, or the base64 values of a Secret.
    data: BTreeMap<String, String>,
    /// Binary values of a ConfigMap, in base64.
    binary: BTreeMap<String, String>,
    /// The type of a Secret.
    type_: Option<String>,
    immutable: bool,
    /// Size of all values in bytes.
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

    /// Decodes an object of this kind from an API server's answer. Returns `None` for an invalid object. The invalid part is not
    /// reported, because it may be a value.
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

    /// Returns the size of all values in bytes, as the limits count it.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// True if an update can turn this content into `next`. Otherwise the object must be recreated.
    pub fn can_become(&self, next: &Self) -> bool {
        !self.immutable && self.type_ == next.type_
    }

    /// True if this content already equals `next`. It may be immutable although `next` is not: the mark cannot be removed, and
    /// matters only when the data differ.
    pub fn holds(&self, next: &Self) -> bool {
        (&self.data, &self.binary, &self.type_) == (&next.data, &next.binary, &next.type_)
            && (self.immutable || !next.immutable)
    }

    /// Returns the fields of an object with this content.
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

    /// Returns the JSON merge patch that turns this content into `next`.
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

// No Debug, as for all types that hold values.
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
    fn payload_size_counts_decoded_values() {
        // In base64, "canary" has no padding, and "canary!" has two characters of padding.
        assert_eq!(secret(&json!({ "data": { "a": "Y2FuYXJ5", "b": "Y2FuYXJ5IQ==" } })).size(), 6 + 7);
        let map = json!({ "metadata": {}, "data": { "a": "four" }, "binaryData": { "b": "Y2FuYXJ5" } }).to_string();
        assert_eq!(Payload::parse(SourceKind::ConfigMap, map.as_bytes()).unwrap().1.size(), 4 + 6);
        assert_eq!(Payload::default().size(), 0);
    }

    #[test]
    fn payload_debug_and_json_show_no_values() {
        let payload = secret(&json!({ "data": { "password": "Y2FuYXJ5" } }));
        assert_eq!(format!("{payload:?}"), r#"Payload { keys: ["password"], size: 6, .. }"#);
        assert_eq!(json!(payload), json!({ "keys": ["password"], "size": 6 }));
        // An invalid object is not shown either.
        assert!(Payload::parse(SourceKind::Secret, br#"{"metadata":{},"data":"canary"}"#).is_none());
    }

    #[test]
    fn payload_patch_contains_only_the_difference() {
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
