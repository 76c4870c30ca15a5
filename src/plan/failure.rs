//! A call that fails, and when that is reported on the object that its user looks at: by its age, whatever its class.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::condition::differs_in_their_marks_alone;
use crate::timing::Timing;

/// A call that failed, and for how long work on its key has failed without a success in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The error, in words for those who read the object.
    pub words: String,
    /// True if it does not end by itself: an invalid request, a right that is missing, a refusal by admission.
    pub is_final: bool,
    /// For how long work on the key has failed.
    pub lasted: Duration,
}

impl Failure {
    /// True if it is to be reported: it does not end by itself, or it has outlasted the grace.
    pub fn is_due(&self, timing: &Timing) -> bool {
        self.is_final || timing.outlasts_grace(self.lasted)
    }

    /// The words to report where `before` is reported so far. What is reported stays until a success. Of words that differ in
    /// their numbers alone the first stay: each attempt has others, and none is worth a write.
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
    fn failure_is_reported_by_its_age_and_stays_until_a_success() {
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
