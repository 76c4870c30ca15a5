//! Failed calls, and the rule when to report them on an object: by their age, not by their class.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::condition::differs_in_their_marks_alone;
use crate::timing::Timing;

/// A failed call, and the time for which its key has failed without a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The error, in words for users of the object.
    pub words: String,
    /// True if a retry cannot succeed: an invalid request, a missing permission, a refusal by admission.
    pub is_final: bool,
    /// The time for which the key has failed.
    pub lasted: Duration,
}

impl Failure {
    /// True if the failure must be reported: a retry cannot succeed, or the failure has lasted longer than the grace period.
    pub fn is_due(&self, timing: &Timing) -> bool {
        self.is_final || timing.outlasts_grace(self.lasted)
    }

    /// Returns the message to report next. `before` is the message that is reported now. A reported message is kept until a
    /// success. If only numbers differ, the old message is kept: each attempt has other numbers, and they are not worth a write.
    pub fn reported(self, before: Option<String>, timing: &Timing) -> Option<String> {
        if !self.is_due(timing) {
            return before;
        }
        let same = before.filter(|before| differs_in_their_marks_alone(before, &self.words));
        Some(same.unwrap_or(self.words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_reported_after_grace_and_kept_until_success() {
        let timing = Timing::default();
        let failure = |words: &str, is_final, seconds| Failure {
            words: words.into(),
            is_final,
            lasted: Duration::from_secs(seconds),
        };
        let before = || Some("patch x: used 5".to_owned());
        for (what, failure, before, expected) in [
            ("it may pass", failure("HTTP 500", false, 19), None, None),
            ("it lasts", failure("HTTP 500", false, 20), None, Some("HTTP 500")),
            ("it does not pass", failure("no quota", true, 0), None, Some("no quota")),
            ("reported before, and young", failure("HTTP 500", false, 3), before(), Some("patch x: used 5")),
            ("only its numbers are others", failure("patch x: used 6", true, 3), before(), Some("patch x: used 5")),
            ("another error lasts", failure("HTTP 500", false, 20), before(), Some("HTTP 500")),
        ] {
            assert_eq!(failure.reported(before, &timing).as_deref(), expected, "{what}");
        }
    }
}
