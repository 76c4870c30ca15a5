//! Objects that exist but could not be decoded.

use std::sync::Arc;

use super::{IndexValue, ObjectKey, Store};

impl<V, I: IndexValue> Store<V, I> {
    /// True if some object of this namespace exists but could not be decoded. Then absence proves nothing.
    pub fn has_unreadable(&self, namespace: &str) -> bool {
        self.read().has_unreadable(namespace)
    }

    /// True if the object of this name exists but could not be decoded.
    pub fn is_unreadable(&self, key: &ObjectKey) -> bool {
        self.read().unreadable.contains(key)
    }

    /// Returns every object that exists but could not be decoded.
    pub fn unreadable(&self) -> Vec<ObjectKey> {
        self.read().unreadable.iter().cloned().collect()
    }

    /// Returns the names of the objects of this namespace that exist but could not be decoded.
    pub fn unreadable_in(&self, namespace: &str) -> Vec<Arc<str>> {
        let inner = self.read();
        inner.unreadable.iter().filter(|key| &*key.namespace == namespace).map(|key| key.name.clone()).collect()
    }
}
