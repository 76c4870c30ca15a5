//! Equal values, kept once.

use std::{
    collections::HashSet,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

/// Fewest values among which it is worth looking for those that nobody has any more.
const FEW: usize = 64;

/// Values that are in use somewhere, so that equal ones are one. What nobody has any more is dropped on the way, and by
/// [`Self::clean`].
pub struct Pool<T: ?Sized> {
    inner: Mutex<Inner<T>>,
}

struct Inner<T: ?Sized> {
    known: HashSet<Arc<T>>,
    /// How often the pool has been asked since it was last cleaned.
    asked: usize,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { known: HashSet::new(), asked: 0 }) }
    }
}

impl<T: Hash + Eq + ?Sized> Pool<T> {
    /// The value that is equal to this one and that others have as well, if there is one; else this one.
    pub fn share(&self, value: Arc<T>) -> Arc<T> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.asked += 1;
        // As often as there are values: so the whole costs no more than a constant for each that is asked for.
        if inner.asked > inner.known.len().max(FEW) {
            inner.clean();
        }
        if let Some(known) = inner.known.get(&*value) {
            return known.clone();
        }
        inner.known.insert(value.clone());
        value
    }

    /// The value that is equal to this one, if somebody has it.
    pub fn get(&self, value: &T) -> Option<Arc<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).known.get(value).cloned()
    }

    /// Drops what nobody has any more: where nothing is asked for, nothing else does.
    pub fn clean(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).clean();
    }

    /// How many values are held.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).known.len()
    }
}

impl<T: Hash + Eq + ?Sized> Inner<T> {
    fn clean(&mut self) {
        self.asked = 0;
        self.known.retain(|known| Arc::strong_count(known) > 1);
        self.known.shrink_to(FEW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_for_as_long_as_somebody_has_them() {
        let pool = Pool::<str>::default();
        let first = pool.share("one".into());
        assert!(Arc::ptr_eq(&first, &pool.share("one".into())));
        assert!(!Arc::ptr_eq(&first, &pool.share("two".into())));
        let all: Vec<Arc<str>> = (0..1000).map(|n| pool.share(n.to_string().into())).collect();
        assert!(pool.count() >= 1001, "what is in use is kept: {}", pool.count());
        drop(all);
        for _ in 0..2100 {
            pool.share("one".into());
        }
        assert_eq!(pool.count(), 1, "what nobody has any more is dropped");
        drop(first);
        pool.clean();
        assert_eq!(pool.count(), 0, "also where nothing is asked for");
    }
}
