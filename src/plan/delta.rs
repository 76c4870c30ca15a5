//! One object before and after a change, as caches report it.

/// One object before and after a change.
#[derive(Debug)]
pub struct Delta<'a, V> {
    /// Its namespace. Empty if it is cluster-scoped.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The old value, if known.
    pub old: Option<&'a V>,
    /// The new value, if known.
    pub new: Option<&'a V>,
}

impl<'a, V> Delta<'a, V> {
    /// Returns the known values. The old value matters too: the change concerns the objects that it referenced.
    pub fn both(&self) -> impl Iterator<Item = &'a V> + use<'a, V> {
        self.old.into_iter().chain(self.new)
    }

    /// Returns the newest known value.
    pub fn newest(&self) -> Option<&'a V> {
        self.new.or(self.old)
    }
}
