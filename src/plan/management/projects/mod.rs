//! Projects that come and go, and what protects the data of one from another.

pub mod engagement;
pub mod rival;
pub mod unreadable;
