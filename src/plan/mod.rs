//! Pure decisions. A function takes one observed snapshot and returns a [`Plan`]. It uses no async, no client and no clock.
//! The time is an argument.
//!
//! An *unknown* fact (an unfilled cache, an unseen namespace) never reaches these functions as *absent*. The controllers call
//! them only after every store that they read is filled. Otherwise the snapshot names what is unknown.

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
pub mod members;
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

/// Writes to send now, in this order, and the time of the next reconcile without an event.
///
/// `S` is a write, or a [`Step`] on one of two planes. `G` is a signal to the controller, in addition to the writes. Most plans
/// have no signals.
#[derive(Debug)]
pub struct Plan<S, G = Infallible> {
    /// Writes, in an order that is safe to stop after each of them.
    pub steps: Vec<S>,
    /// Time of the next reconcile without an event.
    pub next: Next,
    /// Requests to the controller, in addition to the writes. It remembers or counts something, or reads the content of a
    /// source, or reserves a repair. After a read or a reservation it plans again, and gets other writes.
    pub signals: Vec<G>,
}

/// Time of the next reconcile of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A watched event will enqueue the object again.
    Await,
    /// There may be no event. Reconcile again after this time.
    After(Duration),
}

impl Next {
    /// Returns the sooner of two.
    #[must_use]
    pub fn or_sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(two)) => Self::After(one.min(two)),
            (Self::Await, next) | (next, Self::Await) => next,
        }
    }
}

impl<S, G> Plan<S, G> {
    /// Returns a plan of these writes that then waits for an event.
    pub fn writes(steps: Vec<S>) -> Self {
        Self::until(steps, Next::Await)
    }

    /// Returns a plan of these writes, with the time of the next reconcile.
    pub fn until(steps: Vec<S>, next: Next) -> Self {
        Self { steps, next, signals: Vec::new() }
    }

    /// Returns an empty plan.
    pub fn nothing() -> Self {
        Self::writes(Vec::new())
    }

    /// Returns the plan with additional signals to the controller.
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
