//! Cities that leave a cluster, and what is reported on Clusters.

pub mod cities;
pub mod city_drain;
pub mod placement_status;
pub mod transfer;
