//! Cities that move between clusters.

pub(crate) mod city_watch;
pub(crate) mod drains;
