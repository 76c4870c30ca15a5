//! Specs and statuses that belong to this operator as a whole. It takes over the fields of other writers.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Known, Next, Write,
    event::{self, Note, Severity},
    takeover::{Due, Part, due, holders},
};
use crate::api::reason::Reason;

/// The take-over of fields that other managers own.
pub struct Taking<P> {
    /// The write that transfers the ownership.
    pub write: Option<Write<P>>,
    /// Time of the next reconcile, if the take-over must wait.
    pub next: Next,
}

/// Takes over the spec fields of `live` that other managers own, and reports it in an Event.
pub fn take_over<P, K: Known>(
    manager: &'static str,
    controller: &str,
    live: &K,
    pause: Duration,
    now: Timestamp,
) -> Taking<P> {
    let taking = take(manager, Part::Spec, live, pause, now);
    let report = |write: Write<P>| {
        let text = format!(
            "the operator took over the fields of the spec that {} wrote, and sets them from the source object",
            holders(live, Part::Spec).join(", ")
        );
        let note =
            Note { severity: Severity::Normal, reason: Reason::FieldsTakenOver, action: "TakingOver", text: &text };
        write.telling(event::on(live, controller, &note, now))
    };
    Taking { write: taking.write.map(report), next: taking.next }
}

/// Takes over the status fields of `live` that other managers own. Otherwise a condition that we no longer write would stay, and
/// a condition that is partly theirs could not be removed. The take-over of a status is counted, and makes no Event.
pub fn take_over_status<P, K: Known>(manager: &'static str, live: &K, pause: Duration, now: Timestamp) -> Taking<P> {
    take(manager, Part::Status, live, pause, now)
}

fn take<P, K: Known>(manager: &'static str, part: Part, live: &K, pause: Duration, now: Timestamp) -> Taking<P> {
    match due(live, part, manager, pause, now) {
        Due::Never => Taking { write: None, next: Next::Await },
        Due::Now => Taking { write: Write::take_over(manager, part.alone(), live), next: Next::Await },
        Due::After(left) => Taking { write: None, next: Next::After(left) },
    }
}
