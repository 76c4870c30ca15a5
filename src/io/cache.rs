//! The interface between a watch and the cache behind it.

use std::{fmt, sync::Arc};

use kube::{Resource, api::ObjectMeta};

use super::shared::share;

/// Namespace and name of an object. The namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// Makes a key of its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Returns the key of `object`.
    pub fn of<K: Resource>(object: &K) -> Self {
        Self::named(object.meta())
    }

    fn named(metadata: &ObjectMeta) -> Self {
        Self::new(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// An object as the watch or an answer delivered it.
pub struct Incoming<V> {
    /// The key.
    pub key: ObjectKey,
    /// The uid.
    pub uid: String,
    /// The resourceVersion as a number. 0 if it is not a number.
    pub version: u64,
    /// The cached value. `None` if the object could not be decoded: it exists, but its content is unknown.
    pub value: Option<Arc<V>>,
}

impl<V> Incoming<V> {
    /// Makes an entry of the metadata of `object` and the cached value.
    pub fn new<K: Resource>(object: &K, value: Option<V>) -> Self {
        Self::of(object.meta(), value)
    }

    /// Makes an entry of the metadata of an object and the cached value.
    pub fn of(metadata: &ObjectMeta, value: Option<V>) -> Self {
        let key = ObjectKey::named(metadata);
        Self {
            // Thousands of keys in several caches have the same namespace.
            key: ObjectKey { namespace: share(key.namespace), name: key.name },
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0),
            value: value.map(Arc::new),
        }
    }
}

/// A change of a cached object.
pub struct Change<'a, V> {
    /// The key of the object.
    pub key: &'a ObjectKey,
    /// The value before the change.
    pub old: Option<&'a Arc<V>>,
    /// The value after the change.
    pub new: Option<&'a Arc<V>>,
}

/// The state of an object before its current version.
pub enum Before<'a, V> {
    /// The object did not exist.
    Nothing,
    /// The cached value.
    Known(&'a V),
    /// The object may have existed.
    Unknown,
}

/// Lets an object inherit facts of its predecessor that it does not carry itself. The number is its version if no change was
/// missed in between. It is `None` for a complete list, which may skip changes.
pub type Inherit<V> = fn(&mut V, &Before<'_, V>, Option<u64>);

/// A cache that keeps only some of the objects of a watch. An object that cannot be decoded may be one of them.
pub struct Only<V> {
    /// The cache.
    pub cache: Arc<dyn Cache<V>>,
    /// True if an object is kept.
    pub about: fn(&V) -> bool,
}

impl<V> Only<V> {
    fn is_kept(&self, object: &Incoming<V>) -> bool {
        object.value.as_deref().is_none_or(self.about)
    }
}

impl<V> Cache<V> for Only<V> {
    fn wants(&self, key: &ObjectKey) -> bool {
        self.cache.wants(key)
    }

    fn is_older(&self, objects: &[Incoming<V>], version: u64) -> bool {
        self.cache.is_older(objects, version)
    }

    fn replace(&self, mut objects: Vec<Incoming<V>>, version: u64) {
        objects.retain(|object| self.is_kept(object));
        self.cache.replace(objects, version);
    }

    fn observe(&self, object: Incoming<V>) {
        if self.is_kept(&object) {
            self.cache.observe(object);
        } else {
            // An earlier version may have been kept.
            self.cache.forget(&object.key, &object.uid);
            self.cache.pass(object.version);
        }
    }

    fn forget(&self, key: &ObjectKey, uid: &str) {
        self.cache.forget(key, uid);
    }

    fn pass(&self, version: u64) {
        self.cache.pass(version);
    }

    fn set_live(&self, live: bool) {
        self.cache.set_live(live);
    }
}

/// The receiver of what a watch delivers.
pub trait Cache<V>: Send + Sync {
    /// True if objects with this key are cached. All others are dropped at once.
    fn wants(&self, key: &ObjectKey) -> bool;
    /// True if a complete list at `version` is older than the cache: etcd was restored from a backup or replaced.
    fn is_older(&self, objects: &[Incoming<V>], version: u64) -> bool;
    /// Takes a complete list at `version`.
    fn replace(&self, objects: Vec<Incoming<V>>, version: u64);
    /// Takes an object that the watch delivered.
    fn observe(&self, object: Incoming<V>);
    /// True if [`Self::observe`] would drop this version of the object, because this or a later version is cached. Then it records
    /// that the watch has delivered the version. The caller need not decode the object.
    fn is_known(&self, _key: &ObjectKey, _version: u64) -> bool {
        false
    }
    /// Removes the object with this uid.
    fn forget(&self, key: &ObjectKey, uid: &str);
    /// Records that the watch has delivered everything up to this version.
    fn pass(&self, version: u64);
    /// Sets if the watch works.
    fn set_live(&self, live: bool);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn incoming_keys_of_one_namespace_share_its_name() {
        let incoming = |namespace: &str| {
            let mut object = ConfigMap::default();
            (object.metadata.namespace, object.metadata.name) = (Some(namespace.into()), Some("one".into()));
            Incoming::<()>::new(&object, None).key
        };
        let [one, same, other] = ["a", "a", "b"].map(incoming);
        assert!(Arc::ptr_eq(&one.namespace, &same.namespace) && one == same);
        assert_eq!((&*other.namespace, &*other.name), ("b", "one"));
    }
}
