//! From a change to the keys of those whom it concerns.

pub(crate) mod index;
pub(crate) mod listeners;
pub(crate) mod queues;
pub(crate) mod triggers;
pub(crate) mod watches;
