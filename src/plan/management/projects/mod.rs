//! New and deleted projects, and the protection of one project's data from another.

pub mod engagement;
pub mod rival;
pub mod unreadable;
