//! Controller `city-policy`: the policy that sends the deployments of a hub namespace to one city.
//!
//! [`policy`] is the plan, and [`city`] its snapshot. [`guard`] keeps the city on its cluster, [`unneeded`] deletes the policy, and
//! [`migration`] leads it from the Go operator's claims to dependencies.

pub mod city;
pub mod guard;
pub mod migration;
pub mod policy;
pub mod unneeded;
