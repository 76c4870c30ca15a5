//! New and deleted projects, and the protection of one project's data from another.
//!
//! [`engagement`] decides which projects the operator works on, [`rival`] which of two projects owns a namespace. [`unreadable`]
//! reports objects that cannot be decoded.

pub mod engagement;
pub mod rival;
pub mod unreadable;
