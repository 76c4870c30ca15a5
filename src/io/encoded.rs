//! An object as the server sent it. Its text is split into members once, and each member is decoded where it is needed.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, Time};
use kube::{Resource, api::ObjectMeta};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, Visitor, value::MapDeserializer},
};
use serde_json::{Error, Map, Value, value::RawValue};

const METADATA: &str = "metadata";
const MANAGED_FIELDS: &str = "managedFields";

/// Members of a JSON object in their order. Their values are not decoded.
#[derive(Clone, Default)]
struct Members(Vec<(Box<str>, Box<RawValue>)>);

impl Members {
    fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(member, _)| &**member == name).map(|(_, value)| &**value)
    }

    /// Decodes a member. `None` if it is absent.
    fn decode<'a, T: Deserialize<'a>>(&'a self, name: &str) -> Result<Option<T>, Error> {
        self.get(name).map_or(Ok(None), |value| serde_json::from_str(value.get()))
    }

    /// Decodes all members as one value, except the member `without`.
    fn decode_all<T: DeserializeOwned>(&self, without: &str) -> Result<T, Error> {
        let members = self.0.iter().filter(|(name, _)| &**name != without);
        T::deserialize(MapDeserializer::new(members.map(|(name, value)| (&**name, &**value))))
    }

    /// Decodes the members that `asked` has.
    fn part(&self, asked: &Map<String, Value>) -> Option<Map<String, Value>> {
        let members = self.0.iter().filter(|(name, _)| asked.contains_key(&**name));
        members.map(|(name, value)| Some((name.to_string(), serde_json::from_str(value.get()).ok()?))).collect()
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Split;
        impl<'de> Visitor<'de> for Split {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::with_capacity(map.size_hint().unwrap_or(8));
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Split)
    }
}

/// An object as the server sent it.
///
/// kube's `DeserializeGuard` decodes each object into a tree of values first. That took one seventh of the manager's CPU time while
/// many deployments were created.
///
/// An API server keeps, for each field manager, the set of fields that the manager owns, as a tree of objects. Decoded as a tree,
/// such a set takes ten KiB or more, as text half a KiB. So the sets of a decoded object are text. Code that needs a set decodes it
/// with [`crate::plan::diff::unpack`].
#[derive(Clone)]
pub struct Encoded {
    /// Name, namespace, uid and resourceVersion.
    identity: ObjectMeta,
    metadata: Members,
    /// All members except the metadata.
    rest: Members,
}

/// Shows none of its content, which may be that of a Secret.
impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Encoded").field(&self.identity).finish()
    }
}

impl<'de> Deserialize<'de> for Encoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Split;
        impl<'de> Visitor<'de> for Split {
            type Value = (Members, Members);

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut metadata, mut rest) = (Members::default(), Vec::with_capacity(4));
                while let Some(name) = map.next_key::<Box<str>>()? {
                    if &*name == METADATA {
                        metadata = map.next_value()?;
                    } else {
                        rest.push((name, map.next_value()?));
                    }
                }
                Ok((metadata, Members(rest)))
            }
        }
        let (metadata, rest) = deserializer.deserialize_map(Split)?;
        let text = |name| metadata.decode(name).map_err(D::Error::custom).map(Option::flatten);
        let identity = ObjectMeta {
            name: text("name")?,
            namespace: text("namespace")?,
            uid: text("uid")?,
            resource_version: text("resourceVersion")?,
            ..ObjectMeta::default()
        };
        Ok(Self { identity, metadata, rest })
    }
}

impl Encoded {
    /// Splits the text of an object.
    ///
    /// # Errors
    /// If the text is not an object, or if its name, namespace, uid or version is not text.
    pub fn of(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text)
    }

    /// Returns the object without anything but its metadata.
    #[must_use]
    pub fn metadata_alone(self) -> Self {
        Self { rest: Members::default(), ..self }
    }

    /// Returns its name, namespace, uid and resourceVersion.
    pub fn identity(&self) -> &ObjectMeta {
        &self.identity
    }

    pub(super) fn identity_mut(&mut self) -> &mut ObjectMeta {
        &mut self.identity
    }

    /// True if it is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.metadata.get("deletionTimestamp").is_some_and(|time| time.get() != "null")
    }

    /// True if it has a finalizer.
    pub fn has_finalizers(&self) -> bool {
        let finalizers = self.metadata.decode::<Vec<IgnoredAny>>("finalizers");
        finalizers.ok().flatten().is_some_and(|finalizers| !finalizers.is_empty())
    }

    /// Returns the members that `asked` has, and of the metadata the members that the metadata of `asked` has. `None` if one of
    /// them cannot be decoded.
    pub fn part(&self, asked: &Map<String, Value>) -> Option<Value> {
        let mut part = self.rest.part(asked)?;
        if let Some(asked) = asked.get(METADATA) {
            part.insert(METADATA.to_owned(), self.metadata.part(asked.as_object()?)?.into());
        }
        Some(part.into())
    }

    /// Decodes the object. The sets of fields of its managers are text.
    ///
    /// # Errors
    /// The decoder's message.
    pub fn decode<K: Resource + DeserializeOwned>(&self) -> Result<K, Error> {
        // A type requires its metadata.
        let none: &RawValue = serde_json::from_str("{}")?;
        let members = self.rest.0.iter().map(|(name, value)| (&**name, &**value)).chain([(METADATA, none)]);
        let mut object = K::deserialize(MapDeserializer::new(members))?;
        let mut metadata: ObjectMeta = self.metadata.decode_all(MANAGED_FIELDS)?;
        let entries: Option<Option<Vec<Entry<'_>>>> = self.metadata.decode(MANAGED_FIELDS)?;
        let entries = entries.flatten().map(|entries| entries.into_iter().map(Entry::decode).collect());
        metadata.managed_fields = entries.transpose()?;
        *object.meta_mut() = metadata;
        Ok(object)
    }
}

/// The entry of a field manager. Its set of fields is not decoded.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    api_version: Option<String>,
    fields_type: Option<String>,
    #[serde(borrow)]
    fields_v1: Option<&'a RawValue>,
    manager: Option<String>,
    operation: Option<String>,
    subresource: Option<String>,
    time: Option<Time>,
}

impl Entry<'_> {
    fn decode(self) -> Result<ManagedFieldsEntry, Error> {
        let Self { api_version, fields_type, fields_v1, manager, operation, subresource, time } = self;
        let set = |set: &RawValue| match set.get() {
            tree if tree.starts_with('{') => Ok(Value::String(tree.to_owned())),
            other => serde_json::from_str(other),
        };
        Ok(ManagedFieldsEntry {
            api_version,
            fields_type,
            fields_v1: fields_v1.map(set).transpose()?.map(FieldsV1),
            manager,
            operation,
            subresource,
            time,
        })
    }
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::json;

    use super::*;
    use crate::api::compute::WorkloadDeployment;

    fn deployment() -> Value {
        let set = json!({ "f:spec": { "f:ports": { "k:{\"name\":\"http\"}": { ".": {}, "f:\u{e9}\\": {} } } } });
        json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "a": "b" },
                "managedFields": [
                    { "manager": "m", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": set, "time": null },
                    { "manager": "n", "fieldsV1": "text already", "time": "2026-01-01T00:00:00Z" },
                    { "manager": "none", "subresource": "status", "apiVersion": "v1" },
                ],
            },
            "spec": {
                "workloadRef": { "name": "web", "uid": "w" }, "placementName": "p", "cityCode": "dfw", "replicas": 2,
                "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                "scaleSettings": { "minReplicas": 2 },
            },
            "status": { "replicas": 2, "conditions": [] },
            "later": { "text": "\"}\n{" },
        })
    }

    /// Returns the object with its first set of fields as text.
    fn with_text(mut object: Value) -> Value {
        let set = &mut object["metadata"]["managedFields"][0]["fieldsV1"];
        *set = set.to_string().into();
        object
    }

    #[test]
    fn decoded_object_differs_only_in_sets_of_fields() {
        let text = deployment().to_string();
        let decoded: WorkloadDeployment = Encoded::of(&text).unwrap().decode().unwrap();
        let expected: WorkloadDeployment = serde_json::from_value(with_text(deployment())).unwrap();
        assert_eq!(decoded, expected);
        let decoded: DynamicObject = Encoded::of(&text).unwrap().decode().unwrap();
        let expected: DynamicObject = serde_json::from_value(with_text(deployment())).unwrap();
        assert_eq!(decoded, expected);
        for metadata in [json!({}), json!({ "managedFields": null }), json!({ "managedFields": [] })] {
            let text = json!({ "spec": deployment()["spec"], "metadata": metadata }).to_string();
            let decoded: WorkloadDeployment = Encoded::of(&text).unwrap().decode().unwrap();
            assert_eq!(decoded, serde_json::from_str(&text).unwrap(), "{metadata}");
        }
    }

    #[test]
    fn text_that_is_no_object_is_an_error() {
        for text in ["[]", "7", "{", r#"{"metadata":7}"#, r#"{"metadata":{"name":["no","name"]}}"#] {
            assert!(Encoded::of(text).is_err(), "{text}");
        }
        let unsound = Encoded::of(r#"{"metadata":{"name":"web","managedFields":{}}}"#).unwrap();
        assert_eq!(unsound.identity().name.as_deref(), Some("web"));
        assert!(unsound.decode::<DynamicObject>().is_err());
    }

    #[test]
    fn part_has_the_members_that_are_asked_for() {
        let encoded = Encoded::of(&deployment().to_string()).unwrap();
        let asked = json!({ "metadata": { "labels": { "a": "c" }, "annotations": {} }, "status": {}, "other": {} });
        let expected = json!({ "metadata": { "labels": { "a": "b" } }, "status": deployment()["status"] });
        assert_eq!(encoded.part(asked.as_object().unwrap()), Some(expected));
        let alone = encoded.metadata_alone();
        assert_eq!(alone.part(asked.as_object().unwrap()), Some(json!({ "metadata": { "labels": { "a": "b" } } })));
    }

    #[test]
    fn debug_output_shows_no_content() {
        let encoded = Encoded::of(r#"{"metadata":{"name":"db"},"data":{"password":"c2VjcmV0"}}"#).unwrap();
        let shown = format!("{encoded:?}");
        assert!(shown.contains("db") && !shown.contains("c2VjcmV0"), "{shown}");
    }

    #[test]
    fn deletion_and_finalizers_are_read_without_decoding_the_object() {
        for (metadata, expected) in [
            (json!({}), (false, false)),
            (json!({ "deletionTimestamp": null, "finalizers": [] }), (false, false)),
            (json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": null }), (true, false)),
            (json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"] }), (true, true)),
        ] {
            let encoded = Encoded::of(&json!({ "metadata": metadata }).to_string()).unwrap();
            assert_eq!((encoded.is_terminating(), encoded.has_finalizers()), expected, "{metadata}");
        }
    }
}
