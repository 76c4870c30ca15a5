//! Controller `referenced-data`: copies the ConfigMaps and Secrets that deployments refer to, from the project to the hub.
//!
//! [`resolve`] judges references and sizes for one deployment. [`companion`] plans one copy, and [`users`] decides who uses it.
//! [`residue`] and [`foreign_claim`] find what former policies left on a copy.

pub mod companion;
pub mod foreign_claim;
pub mod residue;
pub mod resolve;
pub mod users;
