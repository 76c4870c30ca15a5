//! Controller `referenced-data`: the ConfigMaps and Secrets that deployments refer to, and their copies on the hub.

pub mod companion;
pub mod foreign_claim;
pub mod many_users;
pub mod residue;
pub mod resolve;
