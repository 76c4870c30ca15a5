//! Pure decisions: one observed snapshot in, a [`Plan`] out. No async, no client, no clock; time is an argument.
//!
//! What is *unknown* (a cache not filled, a namespace not seen) never reaches these functions as *absent*: the
//! controllers call them only once every store they read is filled, or the snapshot says what is not known.

pub mod admission;
pub mod cell;
pub mod condition;
pub mod contest;
mod delta;
pub mod diff;
pub mod event;
mod failure;
pub mod hash;
#[cfg(test)]
mod hostile;
pub mod instance_copy;
mod kind;
pub mod limits;
pub mod management;
mod namespace;
pub mod ownership;
pub mod payload;
pub mod quantity;
#[cfg(test)]
mod recorded;
pub mod references;
mod schema;
mod standing;
pub mod takeover;
pub mod text;
pub mod whole_spec;
mod write;

pub use crate::api::shared::Shared;
pub use delta::Delta;
pub use failure::Failure;
pub use kind::{Kind, Known, Object, ObjectVersion};
pub use namespace::{Keeper, NamespaceFacts};
pub use standing::Standing;
pub use write::{Body, Cell, Confirm, Discovery, Hub, Op, Plane, Project, Proof, Step, Write};

use std::{convert::Infallible, time::Duration};

/// What to do now, in this order, and when to look again if nothing happens.
///
/// `S` is a write, or a [`Step`] on one of two planes. `G` is what the plan signals to its controller beside the writes;
/// most plans signal nothing.
#[derive(Debug)]
pub struct Plan<S, G = Infallible> {
    /// Writes, in the order that is safe to be cut after any of them.
    pub steps: Vec<S>,
    /// When to look again without an event.
    pub next: Next,
    /// What the controller is to do beside the writes: remember or count something, or first get what the plan lacks (the
    /// content of a source, a share of the repairs) and ask again, which gives other writes.
    pub signals: Vec<G>,
}

/// When to look at an object again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A watched event will enqueue the object again.
    Await,
    /// No event can be relied on: look again after this long.
    After(Duration),
}

impl Next {
    /// The sooner of two.
    #[must_use]
    pub fn or_sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(two)) => Self::After(one.min(two)),
            (Self::Await, next) | (next, Self::Await) => next,
        }
    }
}

impl<S, G> Plan<S, G> {
    /// These writes, then wait for an event.
    pub fn writes(steps: Vec<S>) -> Self {
        Self::until(steps, Next::Await)
    }

    /// These writes, then look again as `next` says.
    pub fn until(steps: Vec<S>, next: Next) -> Self {
        Self { steps, next, signals: Vec::new() }
    }

    /// Nothing to do.
    pub fn nothing() -> Self {
        Self::writes(Vec::new())
    }

    /// The same plan, which signals this to the controller as well.
    #[must_use]
    pub fn with(mut self, signals: impl IntoIterator<Item = G>) -> Self {
        self.signals.extend(signals);
        self
    }
}

impl<S, G> FromIterator<S> for Plan<S, G> {
    fn from_iter<I: IntoIterator<Item = S>>(steps: I) -> Self {
        Self::writes(steps.into_iter().collect())
    }
}
