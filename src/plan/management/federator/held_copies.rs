//! Copies on the hub that are to go and are held by somebody's finalizer: who says so, when, and where.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::plan::management::observed::facts::{CompanionFacts, SharedCompanion, holders};
use crate::{
    api::{reason::Reason, referenced::DataRef},
    plan::{
        Hub, Object, ObjectVersion, Write,
        event::{self, Note, Severity},
    },
};

/// How many problems a message names; the others are counted.
pub(crate) const MAX_NAMED_IN_MESSAGE: usize = 5;

/// What is known of copies that a deployment waits for, are on their way out, and are made anew once they are gone.
#[derive(Default)]
pub(crate) struct HeldCopies {
    /// Who holds those that take too long.
    pub(crate) told: Option<String>,
    /// When the next of them does.
    pub(crate) told_in: Option<Duration>,
}

impl HeldCopies {
    /// Of the copies that are `missing`. `patience`: how long one may take.
    pub(crate) fn of(
        missing: &[DataRef],
        companions: &BTreeMap<DataRef, SharedCompanion>,
        patience: Duration,
        now: Timestamp,
    ) -> Self {
        let (mut held, mut told_in) = (Vec::new(), None::<Duration>);
        for data_ref in missing {
            let Some(going) = companions.get(data_ref).and_then(|companion| companion.going.as_deref()) else {
                continue;
            };
            match patience.saturating_sub(going.lasted(now)) {
                Duration::ZERO => {
                    held.push(format!("that of {data_ref} has {}", holders(&going.finalizers)));
                }
                left => told_in = Some(told_in.map_or(left, |sooner| sooner.min(left))),
            }
        }
        let more = held.len().saturating_sub(MAX_NAMED_IN_MESSAGE);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let named = held.iter().take(MAX_NAMED_IN_MESSAGE).map(String::as_str).collect::<Vec<_>>().join("; ");
        let told = (!held.is_empty())
            .then(|| format!("a copy on the hub is to be made anew, and the old one cannot go: {named}{more}"));
        Self { told, told_in }
    }
}

/// Says on a companion who holds it, once that has lasted: nobody may be left who uses it, and would say so.
pub fn tell(
    companion: &Object,
    version: &ObjectVersion,
    facts: &CompanionFacts,
    patience: Duration,
    now: Timestamp,
) -> Option<Write<Hub>> {
    let going = facts.going.as_deref().filter(|going| going.lasted(now) >= patience)?;
    let text = format!(
        "this copy is deleted and stays, with what it holds, on the hub and perhaps in cells: it has {}",
        holders(&going.finalizers)
    );
    let note = Note { severity: Severity::Warning, reason: Reason::HubCopyHeld, action: "Sweeping", text: &text };
    Some(event::once(companion, version, "sweep", (&note, ""), now))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{api::referenced::SourceKind, plan::Op};

    #[test]
    fn a_copy_that_nobody_uses_and_that_cannot_go_says_who_holds_it() {
        let of = Object { kind: SourceKind::Secret.into(), namespace: "ns-1".into(), name: "db".into() };
        let tell = |deleted: Option<&str>, seconds: i64| {
            let meta = json!({ "uid": "c", "deletionTimestamp": deleted, "finalizers": ["example.com/hold"] });
            let facts = CompanionFacts::of(&serde_json::from_value(meta).unwrap());
            let now = Timestamp::from_second(seconds).unwrap();
            super::tell(&of, &ObjectVersion::new("c", "7"), &facts, Duration::from_mins(2), now)
        };
        let at = Some("1970-01-01T00:00:00Z");
        assert!(tell(None, 1_000).is_none() && tell(at, 119).is_none());
        let Op::Create { body, .. } = tell(at, 120).unwrap().op else { panic!("an Event is made") };
        assert_eq!((&body["regarding"]["name"], &body["reason"]), (&"db".into(), &"HubCopyHeld".into()));
        assert!(body["note"].as_str().unwrap().contains("it has the finalizers example.com/hold"));
    }
}
