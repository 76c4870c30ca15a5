//! Specs that are ours whole, whoever wrote them.

use jiff::Timestamp;

use super::{
    Known, Write,
    event::{self, Note, Severity},
    takeover::{Part, holders},
};
use crate::api::reason::Reason;

/// Takes over what others hold of the spec of `live`, and says so in an Event on it.
pub fn take_over<P, K: Known>(manager: &'static str, controller: &str, live: &K, now: Timestamp) -> Vec<Write<P>> {
    let Some(write) = Write::take_over(manager, &[Part::Spec], live) else { return Vec::new() };
    let text = format!(
        "the fields of its spec that {} wrote are this operator's from now on, and follow what it is made from",
        holders(live, Part::Spec).join(", ")
    );
    let note = Note { severity: Severity::Normal, reason: Reason::FieldsTakenOver, action: "TakingOver", text: &text };
    vec![write, event::on(live, controller, &note, now)]
}
