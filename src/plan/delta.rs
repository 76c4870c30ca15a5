//! One object before and after a change, as caches tell it.

/// One object before and after.
#[derive(Debug)]
pub struct Delta<'a, V> {
    /// Its namespace; empty when cluster-scoped.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// What was known before.
    pub old: Option<&'a V>,
    /// What is known now.
    pub new: Option<&'a V>,
}

impl<'a, V> Delta<'a, V> {
    /// Both, as far as they are known: what it pointed at before is concerned as well.
    pub fn both(&self) -> impl Iterator<Item = &'a V> + use<'a, V> {
        self.old.into_iter().chain(self.new)
    }

    /// The newest that is known of it.
    pub fn newest(&self) -> Option<&'a V> {
        self.new.or(self.old)
    }
}
