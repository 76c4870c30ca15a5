//! Garbage collection: what is on the hub, or on clusters, although its owner is gone.
//!
//! [`table`] says which owner an object has, how long the object is kept without it, and how many one sweep deletes. [`collect`]
//! is the plan for all of its rows. [`bindings`] and [`works`] say which of Karmada's objects were made for ours, [`relabel`]
//! gives an object of ours the labels back by which it is found, and [`report`] has the Events.

pub mod bindings;
pub mod collect;
pub mod relabel;
pub mod report;
pub mod table;
pub mod works;
