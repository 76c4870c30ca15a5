//! Controller `referenced-data`: copies the ConfigMaps and Secrets that deployments refer to, from the project to the hub.

pub mod companion;
pub mod foreign_claim;
pub mod many_users;
pub mod residue;
pub mod resolve;
