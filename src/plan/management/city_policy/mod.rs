//! Controller `city-policy`: the policy that sends the deployments of a hub namespace to one city.

pub mod city;
pub mod guard;
pub mod migration;
pub mod policy;
pub mod unneeded;
