//! Objects that are there and could not be read.

use std::sync::Arc;

use super::{IndexValue, ObjectKey, Store};

impl<V, I: IndexValue> Store<V, I> {
    /// Whether some object of this namespace is there but could not be read. Absence then proves nothing.
    pub fn has_unreadable(&self, namespace: &str) -> bool {
        self.read().has_unreadable(namespace)
    }

    /// Whether the object of this name is there but could not be read.
    pub fn is_unreadable(&self, key: &ObjectKey) -> bool {
        self.read().unreadable.contains(key)
    }

    /// Every object that is there but could not be read.
    pub fn unreadable(&self) -> Vec<ObjectKey> {
        self.read().unreadable.iter().cloned().collect()
    }

    /// Names of the objects of this namespace that are there but could not be read.
    pub fn unreadable_in(&self, namespace: &str) -> Vec<Arc<str>> {
        let inner = self.read();
        inner.unreadable.iter().filter(|key| &*key.namespace == namespace).map(|key| key.name.clone()).collect()
    }
}
