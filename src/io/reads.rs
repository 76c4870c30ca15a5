//! Counts the objects read from caches, in tests only.

#[cfg(test)]
thread_local! {
    static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Adds to the count.
#[inline]
pub(super) fn count(objects: usize) {
    #[cfg(test)]
    READ.with(|read| read.set(read.get() + objects));
    #[cfg(not(test))]
    let _ = objects;
}

/// Returns the count of this thread since the last call.
#[cfg(test)]
pub(crate) fn take() -> usize {
    READ.with(std::cell::Cell::take)
}
