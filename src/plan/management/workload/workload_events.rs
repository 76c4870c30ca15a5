//! Events on a Workload, where its users look first. Each is sent with the status that reports the same.

use jiff::Timestamp;

use crate::{
    api::{
        compute::{Condition, ConditionStatus, Workload},
        meta::condition,
        reason::{Class, Reason},
    },
    plan::{
        Object, ObjectVersion, Project, Write,
        condition::find,
        event::{self, Note, Severity},
    },
};

/// Event source.
const CONTROLLER: &str = "workload";

/// Adds an Event to the write of a status if its condition `Ready` has news: everything is ready, or there is another problem. A
/// problem is reported once an hour for each generation, so one that comes and goes does not fill the list.
pub(super) fn tells(
    write: Write<Project>,
    workload: &Workload,
    conditions: &[Condition],
    now: Timestamp,
) -> Write<Project> {
    let old = workload.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let (before, Some(ready)) = (find(old, condition::READY), find(conditions, condition::READY)) else {
        return write;
    };
    let Some(severity) = news(before, ready) else { return write };
    let note = Note { severity, reason: ready.reason(), action: "Reporting", text: &ready.message };
    let (object, version) = (Object::of(workload), ObjectVersion::of(&workload.metadata));
    let generation = workload.metadata.generation.unwrap_or_default().to_string();
    write.telling(event::once(&object, &version, CONTROLLER, (&note, &generation), now))
}

/// Returns the type of the Event. `None` if nothing is new, or if work goes on as expected.
fn news(before: Option<&Condition>, ready: &Condition) -> Option<Severity> {
    let was_ready = before.is_some_and(|before| before.status == ConditionStatus::True);
    if ready.status == ConditionStatus::True {
        return (!was_ready).then_some(Severity::Normal);
    }
    let reason = ready.reason();
    let is_problem =
        reason != Reason::Suspended && reason.class() != Class::Event && Severity::of(&reason) == Severity::Warning;
    let is_new = before.is_none_or(|before| before.reason != ready.reason);
    (is_problem && is_new).then_some(Severity::Warning)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn ready(status: ConditionStatus, reason: &str) -> Condition {
        Condition {
            type_: condition::READY.to_owned(),
            status,
            observed_generation: Some(1),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            reason: reason.to_owned(),
            message: "the message".to_owned(),
        }
    }

    #[test]
    fn event_is_sent_for_each_news_of_ready() {
        use ConditionStatus::{False, True, Unknown};
        use Severity::{Normal, Warning};
        for (before, after, expected) in [
            (None, (False, "Pending"), None),
            (Some((False, "Pending")), (False, "InstancesProvisioning"), None),
            (Some((False, "InstancesProvisioning")), (True, "ReplicasAvailable"), Some(Normal)),
            (None, (True, "ReplicasAvailable"), Some(Normal)),
            (Some((True, "ReplicasAvailable")), (True, "ReplicasAvailable"), None),
            (Some((True, "ReplicasAvailable")), (False, "SourceNotFound"), Some(Warning)),
            (Some((False, "SourceNotFound")), (False, "SourceNotFound"), None),
            (Some((False, "SourceNotFound")), (False, "NotScheduled"), Some(Warning)),
            (Some((False, "NotScheduled")), (Unknown, "HubUnavailable"), Some(Warning)),
            (Some((True, "ReplicasAvailable")), (False, "Suspended"), None),
            (Some((False, "Pending")), (Unknown, "Resolving"), None),
            (Some((False, "Pending")), (False, "AwaitingPropagation"), None),
        ] {
            let before = before.map(|(status, reason)| ready(status, reason));
            assert_eq!(news(before.as_ref(), &ready(after.0, after.1)), expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn event_of_one_problem_has_one_name_for_each_generation() {
        let name = |reason: &str, generation: i64, seconds: i64| {
            let mut workload: Workload = serde_json::from_value(serde_json::json!({
                "metadata": { "namespace": "demo", "name": "web", "uid": "u", "resourceVersion": "1" },
                "spec": {
                    "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                    "placements": [],
                },
            }))
            .unwrap();
            workload.metadata.generation = Some(generation);
            let write = Write::status("test", &serde_json::json!({ "deployments": 1 }), &workload).unwrap();
            let now = Timestamp::from_second(seconds).unwrap();
            let told = tells(write, &workload, &[ready(ConditionStatus::False, reason)], now).told().unwrap();
            told.object.name
        };
        assert_eq!(name("SourceNotFound", 1, 1), name("SourceNotFound", 1, 9));
        assert_ne!(name("SourceNotFound", 1, 1), name("SourceNotFound", 2, 1));
        assert_ne!(name("SourceNotFound", 1, 1), name("NotScheduled", 1, 1));
    }
}
