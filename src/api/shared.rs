//! Parts of objects, and objects in a snapshot: stored once, shared by all holders, and serialised as the plain value.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, Weak},
};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that several holders share. A clone copies nothing, serialisation writes it in full, and a change separates it from
/// the others.
#[derive(PartialEq, Eq)]
pub struct Shared<T>(Arc<T>);

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Shared<T> {
    /// True if both are one value in memory.
    pub fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns a reference that is valid while others hold the value.
    pub fn downgrade(&self) -> Weak<T> {
        Arc::downgrade(&self.0)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A change to a shared value separates it from the other holders.
impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        T::default().into()
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for Shared<BTreeMap<K, V>> {
    fn from(entries: [(K, V); N]) -> Self {
        BTreeMap::from(entries).into()
    }
}

impl<T> From<Shared<T>> for Arc<T> {
    fn from(shared: Shared<T>) -> Self {
        shared.0
    }
}

impl<T> From<Arc<T>> for Shared<T> {
    fn from(object: Arc<T>) -> Self {
        Self(object)
    }
}

impl<T> From<T> for Shared<T> {
    fn from(object: T) -> Self {
        Self(Arc::new(object))
    }
}

#[allow(clippy::into_iter_without_iter)] // that of the value is found by itself
impl<'a, T> IntoIterator for &'a Shared<T>
where
    &'a T: IntoIterator,
{
    type Item = <&'a T as IntoIterator>::Item;
    type IntoIter = <&'a T as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        (**self).into_iter()
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

/// On the wire it is the plain value.
impl<T: JsonSchema> JsonSchema for Shared<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
