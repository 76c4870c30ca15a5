//! Terminating copies on the hub that a finalizer holds, and the reports about them.

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

/// Maximum number of problems that a message names. The others are counted.
pub(crate) const MAX_NAMED_IN_MESSAGE: usize = 5;

/// Terminating copies that a deployment waits for. They are recreated after their deletion.
#[derive(Default)]
pub(crate) struct HeldCopies {
    /// Message about the copies that are held for too long.
    pub(crate) told: Option<String>,
    /// Time until the next copy is.
    pub(crate) told_in: Option<Duration>,
}

impl HeldCopies {
    /// Checks the copies that are `missing`. `patience`: how long a deletion may take.
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
                    held.push(format!("{data_ref} has {}", holders(&going.finalizers)));
                }
                left => told_in = Some(told_in.map_or(left, |sooner| sooner.min(left))),
            }
        }
        let more = held.len().saturating_sub(MAX_NAMED_IN_MESSAGE);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let named = held.iter().take(MAX_NAMED_IN_MESSAGE).map(String::as_str).collect::<Vec<_>>().join("; ");
        let told = (!held.is_empty())
            .then(|| format!("a copy on the hub must be recreated, and its deletion is blocked: {named}{more}"));
        Self { told, told_in }
    }
}

/// Reports on a companion which finalizers hold it, once it has been terminating for `patience`. It may have no user that would
/// report it.
pub fn tell(
    companion: &Object,
    version: &ObjectVersion,
    facts: &CompanionFacts,
    patience: Duration,
    now: Timestamp,
) -> Option<Write<Hub>> {
    let going = facts.going.as_deref().filter(|going| going.lasted(now) >= patience)?;
    let text = format!(
        "this copy is terminating, and its data remains on the hub and perhaps in cells: it has {}",
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
    fn unused_copy_that_is_held_reports_its_finalizers() {
        let companion = Object { kind: SourceKind::Secret.into(), namespace: "ns-1".into(), name: "db".into() };
        let tell = |deleted: Option<&str>, seconds: i64| {
            let meta = json!({ "uid": "c", "deletionTimestamp": deleted, "finalizers": ["example.com/hold"] });
            let facts = CompanionFacts::of(&serde_json::from_value(meta).unwrap());
            let now = Timestamp::from_second(seconds).unwrap();
            super::tell(&companion, &ObjectVersion::new("c", "7"), &facts, Duration::from_mins(2), now)
        };
        let at = Some("1970-01-01T00:00:00Z");
        assert!(tell(None, 1_000).is_none() && tell(at, 119).is_none());
        let Op::Create { body, .. } = tell(at, 120).unwrap().op else { panic!("no Event") };
        assert_eq!((&body["regarding"]["name"], &body["reason"]), (&"db".into(), &"HubCopyHeld".into()));
        assert!(body["note"].as_str().unwrap().contains("it has the finalizers example.com/hold"));
    }
}
