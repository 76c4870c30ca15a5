//! What every cache behind a watch is to its watch, and what passes between them.

use std::{fmt, sync::Arc};

use kube::{Resource, ResourceExt};

use super::shared::share;

/// Namespace and name of an object; the namespace is empty when it is cluster-scoped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key from its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of `object`.
    pub fn of<K: Resource>(object: &K) -> Self {
        Self::new(object.meta().namespace.as_deref().unwrap_or_default(), &object.name_any())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// One object as it came in.
pub struct Incoming<V> {
    /// Its key.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion, as a number; 0 when the server's are none.
    pub version: u64,
    /// What is kept of it. `None` when it could not be read: it is there, but what it says is unknown.
    pub value: Option<Arc<V>>,
}

impl<V> Incoming<V> {
    /// The frame of `object`, around what is kept of it.
    pub fn new<K: Resource>(object: &K, value: Option<V>) -> Self {
        let key = ObjectKey::of(object);
        Self {
            // Thousands of keys, of several caches, have the same namespace.
            key: ObjectKey { namespace: share(key.namespace), name: key.name },
            uid: object.uid().unwrap_or_default(),
            version: object.resource_version().and_then(|v| v.parse().ok()).unwrap_or(0),
            value: value.map(Arc::new),
        }
    }
}

/// What changed: before and after.
pub struct Change<'a, V> {
    /// Whose.
    pub key: &'a ObjectKey,
    /// What was known before.
    pub old: Option<&'a Arc<V>>,
    /// What is known now.
    pub new: Option<&'a Arc<V>>,
}

/// What was known of an object before it came in.
pub enum Before<'a, V> {
    /// It was not there.
    Nothing,
    /// This.
    Known(&'a V),
    /// It may have been there.
    Unknown,
}

/// Has an object keep what its predecessor knew and it does not say itself. The number: its version, where this is the very next
/// change of it; a complete list leaves some out.
pub type Inherit<V> = fn(&mut V, &Before<'_, V>, Option<u64>);

/// A cache that keeps only certain of the objects that a watch brings. What cannot be read may be one of them.
pub struct Only<V> {
    /// Where it is kept.
    pub cache: Arc<dyn Cache<V>>,
    /// Whether an object is kept.
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
            // It may have been one that is kept before.
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

/// Where a watch puts what it brings.
pub trait Cache<V>: Send + Sync {
    /// Whether anything is kept of the object with this key; what is not, is dropped at once.
    fn wants(&self, key: &ObjectKey) -> bool;
    /// True if a complete list at `version` is older than what was seen: the server has been given another history.
    fn is_older(&self, objects: &[Incoming<V>], version: u64) -> bool;
    /// A complete list at `version`.
    fn replace(&self, objects: Vec<Incoming<V>>, version: u64);
    /// The watch delivered this object.
    fn observe(&self, object: Incoming<V>);
    /// The object with this uid is gone.
    fn forget(&self, key: &ObjectKey, uid: &str);
    /// The watch has delivered everything up to this version.
    fn pass(&self, version: u64);
    /// The watch works, or does not.
    fn set_live(&self, live: bool);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn the_names_of_namespaces_are_kept_once() {
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
