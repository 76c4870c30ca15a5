//! How many objects are read from caches: counted in tests, and nowhere else.

#[cfg(test)]
thread_local! {
    static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// So many more have been read.
#[inline]
pub(super) fn count(objects: usize) {
    #[cfg(test)]
    READ.with(|read| read.set(read.get() + objects));
    #[cfg(not(test))]
    let _ = objects;
}

/// How many this thread has read since it was asked last.
#[cfg(test)]
pub(crate) fn take() -> usize {
    READ.with(std::cell::Cell::take)
}
