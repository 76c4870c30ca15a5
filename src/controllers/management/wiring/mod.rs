//! Watches, indexes, triggers and queues: which keys a change enqueues.

pub(crate) mod index;
pub(crate) mod queues;
pub(crate) mod triggers;
pub(crate) mod watches;
