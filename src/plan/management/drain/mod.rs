//! A city moves from one cluster to another.

pub(super) mod attempt;
pub mod labels;
mod move_reports;
pub mod moves;
pub mod split;
pub mod unguarded;
pub mod whereabouts;
