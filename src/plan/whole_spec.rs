//! Specs and statuses that are ours whole, whoever wrote them.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Known, Next, Write,
    event::{self, Note, Severity},
    takeover::{Due, Part, due, holders},
};
use crate::api::reason::Reason;

/// What is to be done about what others hold of an object.
pub struct Taking<P> {
    /// The write by which it passes to us.
    pub write: Option<Write<P>>,
    /// When to look again, where it has to wait.
    pub next: Next,
}

/// Takes over what others hold of the spec of `live`, and says so in an Event on it.
pub fn take_over<P, K: Known>(
    manager: &'static str,
    controller: &str,
    live: &K,
    pause: Duration,
    now: Timestamp,
) -> Taking<P> {
    let taking = take(manager, Part::Spec, live, pause, now);
    let tell = |write: Write<P>| {
        let text = format!(
            "the fields of its spec that {} wrote are this operator's from now on, and follow what it is made from",
            holders(live, Part::Spec).join(", ")
        );
        let note =
            Note { severity: Severity::Normal, reason: Reason::FieldsTakenOver, action: "TakingOver", text: &text };
        write.telling(event::on(live, controller, &note, now))
    };
    Taking { write: taking.write.map(tell), next: taking.next }
}

/// Takes over what others hold of the status of `live`: a condition that we write no more would stay for ever, and one of
/// which they hold a part could not even be removed. Who wrote a status is of no interest to anybody, so it is counted alone.
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
