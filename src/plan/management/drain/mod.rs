//! Cities that leave a cluster, and what is reported on Clusters.
//!
//! [`cities`] plans for all Clusters, [`city_drain`] for one city, and [`transfer`] for one hub namespace. [`placement_status`] reads
//! where a city is.

pub mod cities;
pub mod city_drain;
pub mod placement_status;
pub mod transfer;
