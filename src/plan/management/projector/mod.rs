//! Plans of the controller `instance-projector`: the Instances that cells write back, shown in their projects.

pub mod dead_claim;
pub mod hand_over;
pub mod leftover;
pub mod projection;
pub mod quarantine;
