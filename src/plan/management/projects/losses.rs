//! Many objects that were known and that a complete list does not have: an etcd that was restored from an old backup looks like
//! that, and so does a server that shows less than it has. What is concluded from their absence may be wrong for all of them at
//! once, so deletions wait: until they are back, somebody says that it is right, or a while has passed.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::ObjectMeta;

use crate::{
    api::{meta::annotation, reason::Reason},
    plan::{
        Write,
        event::{self, Note, Severity},
    },
};

/// The namespace of a control plane on which a loss is told, and confirmed: every one has it.
pub const TOLD_ON: &str = "kube-system";

/// Whether so many of those that were known are too many to go between two lists in the ordinary way: ten, and a fifth of all.
pub fn is_many(known: usize, missing: usize) -> bool {
    missing >= 10 && missing.saturating_mul(5) >= known
}

/// Whether deletions wait for what is missing. `proved`: the server has been given another history, so that whatever is missing
/// may be missing for that alone; otherwise it is the number that says so.
pub fn is_loss(proved: bool, known: usize, missing: usize) -> bool {
    (proved && missing > 0) || is_many(known, missing)
}

/// What is known of deletions that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Whether many are missing still.
    pub missing: bool,
    /// For how long deletions have waited.
    pub lasted: Duration,
    /// How long they wait at most.
    pub patience: Duration,
    /// Whether somebody has said that what is missing is to be missing.
    pub confirmed: bool,
}

/// Why deletions go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What was missing is back.
    Back,
    /// Somebody has said that it is right.
    Confirmed,
    /// They have waited for long enough.
    Expired,
}

impl End {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Back => "what was missing is back",
            Self::Confirmed => "somebody has confirmed that what is missing is to be missing",
            Self::Expired => "they have waited for long enough",
        }
    }
}

/// Whether deletions go on, and why.
pub fn end(pause: &Pause) -> Option<End> {
    match pause {
        Pause { missing: false, .. } => Some(End::Back),
        Pause { confirmed: true, .. } => Some(End::Confirmed),
        Pause { lasted, patience, .. } if lasted >= patience => Some(End::Expired),
        _ => None,
    }
}

/// Whether somebody has confirmed this loss, and not an earlier one.
pub fn is_confirmed(told_on: &ObjectMeta, token: &str) -> bool {
    told_on.annotations.as_ref().and_then(|all| all.get(annotation::CONFIRM_MISSING)).is_some_and(|of| of == token)
}

/// Says that deletions wait. `what` is missing, `place` is where they wait.
pub fn paused<P>(what: &str, place: &str, token: &str, patience: Duration, now: Timestamp) -> Write<P> {
    let text = format!(
        "{what}: nothing is deleted in {place} until they are back, for {} s at most. If it is right that they are missing, \
         annotate this namespace with {}={token}",
        patience.as_secs(),
        annotation::CONFIRM_MISSING
    );
    tell(Severity::Warning, Reason::DeletionsPaused, &text, now)
}

/// Says that deletions go on.
pub fn resumed<P>(end: End, place: &str, now: Timestamp) -> Write<P> {
    tell(Severity::Normal, Reason::DeletionsResumed, &format!("deletions in {place} go on: {}", end.as_str()), now)
}

fn tell<P>(severity: Severity, reason: Reason, text: &str, now: Timestamp) -> Write<P> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(TOLD_ON.to_owned());
    event::on(&namespace, "deletions", &Note { severity, reason, action: "Deleting", text }, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_or_a_small_part_is_the_ordinary_way_of_things() {
        for (known, missing, many) in
            [(0, 0, false), (9, 9, false), (10, 10, true), (50, 10, true), (51, 10, false), (10_000, 1_999, false)]
        {
            assert_eq!(is_many(known, missing), many, "{missing} of {known}");
        }
    }

    #[test]
    fn where_another_history_is_proved_one_is_enough() {
        for (proved, known, missing, loss) in [
            (true, 9, 9, true),
            (true, 10_000, 1, true),
            (true, 9, 0, false),
            (false, 9, 9, false),
            (false, 10, 10, true),
        ] {
            assert_eq!(is_loss(proved, known, missing), loss, "{proved}: {missing} of {known}");
        }
    }

    #[test]
    fn deletions_go_on_when_they_may_and_not_before() {
        let pause = Pause {
            missing: true,
            lasted: Duration::from_secs(59),
            patience: Duration::from_mins(1),
            confirmed: false,
        };
        for (pause, expected) in [
            (pause, None),
            (Pause { missing: false, ..pause }, Some(End::Back)),
            (Pause { confirmed: true, ..pause }, Some(End::Confirmed)),
            (Pause { lasted: Duration::from_mins(1), ..pause }, Some(End::Expired)),
        ] {
            assert_eq!(end(&pause), expected, "{pause:?}");
        }
    }

    #[test]
    fn what_was_confirmed_before_confirms_nothing_now() {
        let of = |token: &str| ObjectMeta {
            annotations: Some([(annotation::CONFIRM_MISSING.to_owned(), token.to_owned())].into()),
            ..ObjectMeta::default()
        };
        assert!(is_confirmed(&of("now"), "now") && !is_confirmed(&of("before"), "now"));
        assert!(!is_confirmed(&ObjectMeta::default(), ""));
    }
}
