//! The way from claims to dependencies; see the folder of the same name in the plans.

pub(crate) mod probe;
