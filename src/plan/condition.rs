//! Conditions. One constructor keeps the transition time unless the status changes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::text::BoundedText;
use crate::api::{
    compute::{Condition, ConditionStatus},
    reason::{Reason, Who},
};

/// The content of a condition, without its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The status of the condition.
    pub status: ConditionStatus,
    /// The reason, for programs.
    pub reason: Reason,
    /// The message, for users.
    pub message: String,
}

impl Verdict {
    /// Returns a verdict with status True.
    pub fn yes(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::True, reason, message: message.into() }
    }

    /// Returns a verdict with status False.
    pub fn no(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::False, reason, message: message.into() }
    }

    /// Returns a verdict with status Unknown.
    pub fn unknown(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::Unknown, reason, message: message.into() }
    }

    /// Returns the condition that replaces the one in `old`. Its transition time is kept unless the status changes.
    pub fn into_condition(self, old: &[Condition], type_: &str, generation: Option<i64>, now: Timestamp) -> Condition {
        let before = find(old, type_).filter(|c| c.status == self.status);
        Condition {
            type_: type_.into(),
            status: self.status,
            observed_generation: generation,
            last_transition_time: before.map_or_else(|| whole_seconds(now), |c| c.last_transition_time.clone()),
            reason: self.reason.as_str().to_owned(),
            message: BoundedText::from(self.message).into_string(),
        }
    }
}

/// Returns our own part of a message. Another component's words follow after the first colon.
pub fn own_words(message: &str) -> &str {
    message.split_once(": ").map_or(message, |(own, _)| own)
}

/// True if two messages differ only in numbers of another component's words, which follow the first colon: a port, a
/// resourceVersion, a time. Each attempt has other numbers, and they are not worth a write.
pub fn differs_in_their_numbers_alone(one: &str, other: &str) -> bool {
    differs_in_theirs_alone(one, other, |theirs| {
        theirs.split(|c: char| c.is_ascii_digit()).filter(|words| !words.is_empty()).collect()
    })
}

/// True if two messages differ only in words with a digit, in another component's words: the id of a request, the name of a pod.
pub fn differs_in_their_marks_alone(one: &str, other: &str) -> bool {
    let has_number = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    differs_in_theirs_alone(one, other, |theirs| {
        theirs.split_whitespace().map(|word| if has_number(word) { "#" } else { word }).collect()
    })
}

/// True if two messages differ only in another component's words, and `kept` returns the same for both.
fn differs_in_theirs_alone(one: &str, other: &str, kept: impl Fn(&str) -> Vec<&str>) -> bool {
    match (one.split_once(": "), other.split_once(": ")) {
        (Some((own, theirs)), Some((other_own, other_theirs))) => {
            own == other_own && one != other && kept(theirs) == kept(other_theirs)
        }
        _ => false,
    }
}

/// Returns who denied a request, by the API server's message: a webhook, a policy or a quota, with its name.
pub fn denier(message: &str) -> Option<String> {
    let named = |before: &str, end: char, what: &str| {
        let (name, _) = message.split_once(before)?.1.split_once(end)?;
        Some(format!("{what} {name}"))
    };
    named("admission webhook \"", '"', "webhook")
        .or_else(|| named("ValidatingAdmissionPolicy '", '\'', "policy"))
        .or_else(|| named("exceeded quota: ", ',', "quota"))
}

/// Returns the condition of this type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// True if the condition of this type has status True.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == ConditionStatus::True)
}

/// True if the condition of this type has status True, and describes this generation of its object.
pub fn is_true_of(conditions: &[Condition], type_: &str, generation: Option<i64>) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == ConditionStatus::True && c.observed_generation == generation)
}

/// Returns the party that acts on a condition that is not True. While a state is unknown, the platform acts: an owner cannot make
/// a server answer. A reason of another component counts as the platform's, which knows that component.
pub fn who_acts(status: ConditionStatus, reason: &Reason) -> Who {
    let who = reason.entry().map_or(Who::Platform, |entry| entry.who);
    if status == ConditionStatus::Unknown && who == Who::Tenant { Who::Platform } else { who }
}

/// Returns the time in whole seconds, as the API stores it. With fractions, each comparison with the stored object would fail.
pub(super) fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_transition_time_changes_only_with_status() {
        let at = |s| Timestamp::from_second(s).unwrap();
        let first = Verdict::no(Reason::from("Waiting"), "a").into_condition(&[], "Ready", Some(1), at(10));
        let same = Verdict::no(Reason::from("Other"), "b").into_condition(
            std::slice::from_ref(&first),
            "Ready",
            Some(2),
            at(20),
        );
        assert_eq!(
            (same.last_transition_time.0, same.reason.as_str(), same.observed_generation),
            (at(10), "Other", Some(2))
        );
        let turned = Verdict::yes(Reason::from("Done"), "c").into_condition(&[same], "Ready", Some(2), at(30));
        assert_eq!(turned.last_transition_time.0, at(30));
    }

    #[test]
    fn unknown_state_is_never_left_to_the_tenant() {
        use ConditionStatus::{False, Unknown};
        for (status, reason, who) in [
            (False, Reason::SourceNotFound, Who::Tenant),
            (Unknown, Reason::SourceNotFound, Who::Platform),
            (Unknown, Reason::DeploymentDenied, Who::Platform),
            (False, Reason::DeploymentDenied, Who::Tenant),
            (False, Reason::ProjectRefused, Who::Platform),
            (False, Reason::NotScheduled, Who::Platform),
            (False, Reason::InstancesProvisioning, Who::Nobody),
            (Unknown, Reason::Pending, Who::Nobody),
            (False, Reason::from("FailedMount"), Who::Platform),
        ] {
            assert_eq!(who_acts(status, &reason), who, "{status:?} {reason}");
        }
    }

    #[test]
    fn condition_of_an_earlier_generation_does_not_count() {
        let ready = Verdict::yes(Reason::Ready, "").into_condition(&[], "Ready", Some(2), Timestamp::UNIX_EPOCH);
        let of = |generation| is_true_of(std::slice::from_ref(&ready), "Ready", generation);
        assert_eq!([Some(1), Some(2), Some(3), None].map(of), [false, true, false, false]);
    }

    #[test]
    fn denier_is_named_by_its_kind() {
        for (message, named) in [
            (
                r#"apply web in shop: admission webhook "guard.example.com" denied the request: no"#,
                Some("webhook guard.example.com"),
            ),
            (
                r#"x "web" is forbidden: ValidatingAdmissionPolicy 'freeze' with binding 'all' denied request: no"#,
                Some("policy freeze"),
            ),
            (r#"x "web" is forbidden: exceeded quota: small, requested: count/x=1"#, Some("quota small")),
            ("spec.x: Invalid value", None),
        ] {
            assert_eq!(denier(message).as_deref(), named);
        }
    }

    #[test]
    fn message_with_other_ids_is_equal() {
        let same = differs_in_their_marks_alone;
        assert!(same(
            "the hub refuses: webhook pod-7f9c denied (id 4f2a-11)",
            "the hub refuses: webhook pod-99ab denied (id aa01-b2)"
        ));
        assert!(!same("the hub refuses: quota exceeded", "the hub refuses: webhook denied"));
        assert!(!same("the hub refuses a-1: no", "the hub refuses a-2: no"), "our own words name what it is about");
    }

    #[test]
    fn message_with_other_numbers_is_equal() {
        let same = differs_in_their_numbers_alone;
        assert!(same("create Secret: dial 10.0.0.1:53211: refused", "create Secret: dial 10.0.0.1:40022: refused"));
        assert!(!same("create Secret: used 5", "create Secret: used 5"), "nothing differs");
        assert!(!same("create Secret: a rule", "create Secret: another rule"));
        assert!(!same("2 of 3: waits", "1 of 3: waits"), "numbers of our own are");
        assert!(!same("waits 5", "waits 6"));
    }

    #[test]
    fn condition_message_is_bounded() {
        let long =
            Verdict::no(Reason::from("X"), "ü".repeat(5000)).into_condition(&[], "Ready", None, Timestamp::UNIX_EPOCH);
        assert_eq!(long.message, BoundedText::from("ü".repeat(5000)).into_string());
    }
}
