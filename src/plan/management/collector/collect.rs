//! The plan of the collector: one for all rows of its [table](super::table).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    report,
    table::{Action, Grace, Item, Observed, Rule},
};
use crate::{
    api::meta::{annotation, label, manager},
    plan::{Hub, Kind, Plan, Proof, Write},
};

/// A copy that is younger than this, and than a sixth of its grace, was recreated by a write under way.
const YOUNG: Duration = Duration::from_mins(2);

/// Instruction to the collector in addition to the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The deletion counts towards the limit of one sweep.
    Counts,
    /// The deletion is due, and depends on the hub namespace. The collector reads it live, and decides again.
    Unread,
    /// A live read found another hub namespace than the one that was judged. Nothing is deleted.
    Changed,
    /// The log reports that due objects are kept, because clean-up is paused.
    Paused,
}

/// Decision of the plan.
pub type Decided = Plan<Action, Signal>;

/// Decides about everything that one owner has left.
pub fn plan(observed: &Observed, now: Timestamp) -> Decided {
    let proof = observed.owner.add_to(Proof::of_target());
    let due = match observed.grace {
        Grace::Nothing => true,
        Grace::OneSweep => observed.seen_before,
        Grace::Noted(grace) if is_young(observed, grace, now) => true,
        Grace::Noted(grace) => {
            let Some(noted) = &observed.noted else { return Plan::nothing() };
            let Some(since) = noted.since else {
                return proof.then(note(observed, &noted.on, now).map(Action::Hub)).into_iter().collect();
            };
            observed.in_sweep && grace.is_some_and(|grace| has_lasted(since, grace, now))
        }
    };
    match due {
        true if observed.paused => Plan::nothing().with([Signal::Paused]),
        true => delete(observed, proof),
        false => Plan::nothing(),
    }
}

fn is_young(observed: &Observed, grace: Option<Duration>, now: Timestamp) -> bool {
    let created = observed.created.zip(grace);
    created.is_some_and(|(created, grace)| !has_lasted(created, YOUNG.min(grace / 6), now))
}

/// Records since when the owner is gone, and reports it.
fn note(observed: &Observed, on: &Item, now: Timestamp) -> [Write<Hub>; 2] {
    let since = json!({ "metadata": { "annotations": { annotation::STRANDED_SINCE: now.to_string() } } });
    [
        Write::amend_version(manager::FEDERATOR, on.object.clone(), since, &on.version),
        report::waits(observed, &on.object, now),
    ]
}

/// Deletes what is left. A protected object loses its protection first, and is judged again at its new version. A hub namespace is
/// deleted once nothing in it is protected any more. The hub's garbage collection deletes Instances.
fn delete(observed: &Observed, proof: Proof<Action>) -> Decided {
    match &observed.present {
        None if observed.rule.depends_on_namespace() => return Plan::nothing().with([Signal::Counts, Signal::Unread]),
        Some(present) if *present != observed.hub_namespace => return Plan::nothing().with([Signal::Changed]),
        _ => {}
    }
    let (protected, free): (Vec<&Item>, Vec<&Item>) = observed.items.iter().partition(|item| item.protected);
    let waits = observed.rule == Rule::Namespace && !protected.is_empty();
    let lifted = protected.into_iter().map(|item| Action::Hub(lift(item)));
    let free = free.into_iter().filter(|item| !waits && item.object.kind != Kind::Instance);
    let deleted = free.flat_map(|item| {
        let proof = item.read.iter().fold(Proof::of_target(), |proof, read| read.add_to(proof));
        proof.delete_version(item.object.clone(), item.version.clone(), Action::Hub)
    });
    let plan: Decided = proof.then(lifted).then(deleted).into_iter().collect();
    let counts = !plan.steps.is_empty();
    plan.with(counts.then_some(Signal::Counts))
}

fn lift(item: &Item) -> Write<Hub> {
    let unprotected = json!({ "metadata": { "labels": { label::DELETION_PROTECTED: Value::Null } } });
    Write::amend_version(manager::FEDERATOR, item.object.clone(), unprotected, &item.version)
}

fn has_lasted(since: Timestamp, period: Duration, now: Timestamp) -> bool {
    SignedDuration::try_from(period).is_ok_and(|period| now.duration_since(since) >= period)
}

#[cfg(test)]
#[path = "collect_tests.rs"]
mod tests;
