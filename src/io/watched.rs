//! Types that can be watched.

use std::{borrow::Cow, fmt::Debug, marker::PhantomData};

use kube::{
    Resource,
    api::{DynamicObject, ObjectMeta},
    core::PartialObjectMeta,
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

use super::encoded::Encoded;

/// A type that can be watched: a kind behind a guard, or only its metadata.
pub trait Watched:
    Resource<DynamicType: Clone + Send + Sync + 'static> + Clone + Debug + DeserializeOwned + Send + 'static
{
    /// The decoded object.
    type Object: Resource + DeserializeOwned;
    /// Returns the object.
    ///
    /// # Errors
    /// The decoder's message, if it could not be decoded.
    fn open(self) -> Result<Self::Object, String>;
}

/// An object of a kind as the server sent it. It is decoded when it is opened, so that one that cannot be decoded does not end its
/// watch. An object that the cache already has is never opened.
#[derive(Clone, Debug)]
pub struct Guarded<K> {
    object: Encoded,
    kind: PhantomData<fn() -> K>,
}

impl<'de, K> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { object: Encoded::deserialize(deserializer)?, kind: PhantomData })
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.object.identity()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.object.identity_mut()
    }
}

impl<K> Watched for Guarded<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    type Object = K;

    fn open(self) -> Result<K, String> {
        self.object.decode().map_err(|error| error.to_string())
    }
}

/// Requests only metadata. (With a guard around it, kube would fetch whole objects.)
impl<K> Watched for PartialObjectMeta<K>
where
    K: Resource<DynamicType: Clone + Send + Sync + 'static> + Clone + Debug + Send + 'static,
{
    type Object = Self;

    fn open(self) -> Result<Self, String> {
        Ok(self)
    }
}

/// The metadata of an object of any kind.
pub type Metadata = PartialObjectMeta<DynamicObject>;

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        ResourceExt,
        core::{ObjectList, WatchEvent},
    };
    use serde_json::json;

    use super::*;

    fn sound_and_unsound() -> [String; 2] {
        let object = |name: &str, data: serde_json::Value| {
            let metadata = json!({ "name": name, "resourceVersion": "7" });
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }).to_string()
        };
        [object("sound", json!({ "k": "v" })), object("unsound", json!({ "k": { "not": "a string" } }))]
    }

    fn opened(object: Guarded<ConfigMap>) -> (String, Result<Option<String>, String>) {
        (object.name_any(), object.open().map(|map| map.data.and_then(|mut data| data.remove("k"))))
    }

    /// API servers write the type first and the object after it.
    #[test]
    fn guarded_unsound_object_does_not_end_a_watch_or_list() {
        let [sound, unsound] = sound_and_unsound();
        let is_told = |error: &String| error.contains("expected a string");
        let event = |object: &str| {
            let line = format!(r#"{{"type":"MODIFIED","object":{object}}}"#);
            match serde_json::from_str(&line).unwrap() {
                WatchEvent::Modified(object) => opened(object),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(event(&sound), ("sound".into(), Ok(Some("v".into()))));
        let (name, read) = event(&unsound);
        assert!(name == "unsound" && read.as_ref().is_err_and(is_told), "{name}: {read:?}");

        let list = format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{sound},{unsound}]}}"#
        );
        let list: ObjectList<Guarded<ConfigMap>> = serde_json::from_str(&list).unwrap();
        assert_eq!(list.metadata.resource_version.as_deref(), Some("9"));
        let read: Vec<_> = list.items.into_iter().map(opened).collect();
        assert_eq!(read[0], ("sound".into(), Ok(Some("v".into()))));
        assert!(read[1].0 == "unsound" && read[1].1.as_ref().is_err_and(is_told), "{read:?}");
    }

    #[test]
    fn guarded_object_without_readable_metadata_fails_the_answer() {
        let line = r#"{"type":"ADDED","object":{"metadata":{"name":["no","name"]}}}"#;
        assert!(serde_json::from_str::<WatchEvent<Guarded<ConfigMap>>>(line).is_err());
    }
}
