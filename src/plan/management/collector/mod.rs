//! Garbage collection of objects on the hub, or on clusters, after their owner is gone.
//!
//! [`table`] defines the owner of each object, how long the object is kept without it, and how many one sweep deletes.
//! [`collect`] is the plan for all of its rows. [`bindings`] and [`works`] recognise the objects that Karmada made for ours.
//! [`relabel`] restores the labels by which our objects are found. [`report`] has the Events.

pub mod bindings;
pub mod collect;
pub mod relabel;
pub mod report;
pub mod table;
pub mod works;
