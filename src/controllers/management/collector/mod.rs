//! Sweeps: what is left on the hub although its cause is gone.

pub(crate) mod relabel;
pub(crate) mod stranded;
pub(crate) mod strangers;
pub(crate) mod sweep;
pub(crate) mod works;
