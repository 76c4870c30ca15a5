//! What is left on the hub although its cause is gone.

pub mod stranded;
pub mod sweep;
pub mod unlabelled;
pub mod works;
