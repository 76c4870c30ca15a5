//! The cause of a write that deletes something, or that restores an older state.

use super::{Known, Object, ObjectVersion, Op, Write};

/// A live read that must confirm the judged state. It is a separate step, or the cause in a [`Proof`].
#[derive(Debug)]
pub struct Confirm<P>(Write<P>);

impl<P> Clone for Confirm<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P> From<Confirm<P>> for Write<P> {
    fn from(confirm: Confirm<P>) -> Self {
        confirm.0
    }
}

impl<P> Confirm<P> {
    pub(super) fn new(object: Object, op: Op) -> Self {
        Self(Write::new(object, op))
    }
}

/// Steps that depend on one cause. The live reads that prove the cause come first.
///
/// The rule: a write that deletes something, or that restores an older state, proves its cause. Every delete carries the uid and
/// the resourceVersion of its target, but these only prove the target. The cause is mostly another object in another cache, and
/// that cache may be older. After a failover, a leader with one broken connection may combine a current target with a cause that
/// is a minute old. So [`Write`] has no public delete. Only this type creates deletes, and each of its constructors names the
/// cause.
///
/// A failed read is no error to report: the cache is stale. The following steps are not sent, and the key is requeued with
/// back-off. Steps that do not depend on the cause therefore come earlier in a plan.
#[must_use = "the steps are to become part of a plan"]
#[derive(Clone, Debug)]
pub struct Proof<S> {
    reads: Vec<S>,
    steps: Vec<S>,
}

impl<S> Proof<S> {
    /// Reads the cause live. `at` names the plane, as for every other write of the plan.
    pub fn read<P>(cause: Confirm<P>, at: impl FnOnce(Write<P>) -> S) -> Self {
        Self::of_target().and(cause, at)
    }

    /// Adds a second cause, which is read live after the first.
    pub fn and<P>(mut self, cause: Confirm<P>, at: impl FnOnce(Write<P>) -> S) -> Self {
        self.reads.push(at(cause.into()));
        self
    }

    /// The target itself carries the cause. The uid and resourceVersion of the delete are the proof.
    pub fn of_target() -> Self {
        Self { reads: Vec::new(), steps: Vec::new() }
    }

    /// The cause was read live for this decision, and is part of the snapshot.
    pub fn in_snapshot() -> Self {
        Self::of_target()
    }

    /// A delete for a wrong cause loses nothing. Running Instances are not affected, and the next reconcile recreates the object.
    pub fn not_needed() -> Self {
        Self::of_target()
    }

    /// Deletes exactly the judged version of `live`. Adds nothing if `live` is already terminating.
    pub fn delete<K: Known, P>(self, live: &K, at: impl FnOnce(Write<P>) -> S) -> Self {
        if live.meta().deletion_timestamp.is_some() {
            return self;
        }
        self.delete_version(Object::of(live), ObjectVersion::of(live.meta()), at)
    }

    /// Deletes exactly this version of an object that is not cached.
    pub fn delete_version<P>(self, object: Object, version: ObjectVersion, at: impl FnOnce(Write<P>) -> S) -> Self {
        let ObjectVersion { uid, resource_version } = version;
        self.then([at(Write::new(object, Op::Delete { uid, resource_version }))])
    }

    /// Adds steps that depend on the cause.
    pub fn then(mut self, steps: impl IntoIterator<Item = S>) -> Self {
        self.steps.extend(steps);
        self
    }

    /// True if no step depends on the cause.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the reads and the steps that depend on them. Empty if no step depends on them.
    pub fn into_steps(self) -> Vec<S> {
        if self.is_empty() { Vec::new() } else { self.reads.into_iter().chain(self.steps).collect() }
    }
}

impl<S> IntoIterator for Proof<S> {
    type Item = S;
    type IntoIter = std::vec::IntoIter<S>;

    fn into_iter(self) -> Self::IntoIter {
        self.into_steps().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::identity;

    use k8s_openapi::api::core::v1::Namespace;
    use kube::core::ObjectMeta;

    use super::*;
    use crate::plan::{Hub, Project, Step};

    fn live(terminating: bool) -> Namespace {
        let deletion_timestamp = terminating.then(|| serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap());
        let (uid, resource_version) = (Some("u".into()), Some("7".into()));
        let metadata =
            ObjectMeta { name: Some("n".into()), uid, resource_version, deletion_timestamp, ..ObjectMeta::default() };
        Namespace { metadata, ..Namespace::default() }
    }

    #[test]
    fn proof_reads_come_before_dependent_steps() {
        let cause = || Write::confirm_absent(Object::named::<Namespace>("", "cause"));
        let second = Write::confirm_gone(Object::named::<Namespace>("", "second"), "s");
        let proof: Proof<Step<Project, Hub>> = Proof::read(cause(), Step::Local).delete(&live(false), Step::Remote);
        let steps = proof.and(second, Step::Remote).into_steps();
        let [Step::Local(first), Step::Remote(second), Step::Remote(delete)] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!((&first.op, &second.op), (&Op::ConfirmAbsent, &Op::ConfirmGone { uid: "s".into() }));
        assert_eq!(delete.op, Op::Delete { uid: "u".into(), resource_version: "7".into() });
        let nothing: Vec<Write<Project>> = Proof::read(cause(), identity).delete(&live(true), identity).into_steps();
        assert!(nothing.is_empty(), "a terminating target needs no read: {nothing:?}");
    }
}
