//! Cities that move between clusters.

pub(crate) mod clusters;
pub(crate) mod labels;
pub(crate) mod move_memory;
pub(crate) mod moves;
