//! Plans of the controller `instance-projector`: the Instances that cells write back, shown in their projects.
//!
//! [`projection`] is the plan for one place. [`quarantine`] has Instances that cannot be shown. The others are about cells that are
//! gone: [`hand_over`] of their copies, [`dead_claim`] for their quota, and [`leftover`] for the rest.

pub mod dead_claim;
pub mod hand_over;
pub mod leftover;
pub mod projection;
pub mod quarantine;
