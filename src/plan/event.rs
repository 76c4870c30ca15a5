//! Events (`events.k8s.io/v1`) about an object, as `kubectl describe` shows them.

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

use super::{Known, Object, ObjectVersion, Op, Write, hash};
use crate::api::{
    meta,
    reason::{Class, Reason, Who},
};

/// Longest note that the API accepts, in bytes.
const MAX_NOTE: usize = 1024;
/// Longest object name that leaves room for the time and the digest.
const MAX_NAME: usize = 220;

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// An expected change.
    Normal,
    /// A problem that needs attention.
    Warning,
}

impl Severity {
    /// Returns the type of an Event that reports this reason. If no person has to act, it is no problem.
    pub fn of(reason: &Reason) -> Self {
        let is_expected = matches!(reason.class(), Class::Success | Class::Progress)
            || reason.entry().is_some_and(|entry| entry.who == Who::Nobody);
        if is_expected { Self::Normal } else { Self::Warning }
    }
}

/// The content of an Event.
#[derive(Clone, Debug)]
pub struct Note<'a> {
    /// Its type.
    pub severity: Severity,
    /// The reason, for programs.
    pub reason: Reason,
    /// The action in progress.
    pub action: &'static str,
    /// The text for users. Never contains a secret value. Cut to 1024 bytes.
    pub text: &'a str,
}

/// Returns an Event on `live`. A lost Event is no error: the sender continues.
pub fn on<P, K: Known>(live: &K, controller: &str, note: &Note<'_>, now: Timestamp) -> Write<P> {
    about(&Object::of(live), &ObjectVersion::of(live.meta()), controller, note, now)
}

/// Returns an Event on an object of which only the version is known.
pub fn about<P>(
    object: &Object,
    version: &ObjectVersion,
    controller: &str,
    note: &Note<'_>,
    now: Timestamp,
) -> Write<P> {
    // One plan has one time, and may have several Events on one object.
    let digest = hash::digest(&json!([note.reason.as_str(), note.text]));
    named(&format!("{:x}.{}", now.as_nanosecond(), &digest[..8]), object, version, controller, note, now)
}

/// The Event by which an object reports a reason and its subject. There is one at a time. The API server refuses another one
/// until the first expires, by default after an hour. So a controller that reports the same repeatedly needs no memory.
pub fn once<P>(
    object: &Object,
    version: &ObjectVersion,
    controller: &str,
    (note, subject): (&Note<'_>, &str),
    now: Timestamp,
) -> Write<P> {
    let digest = hash::digest(&json!([note.reason.as_str(), version.uid, subject]));
    named(&digest[..16], object, version, controller, note, now)
}

fn named<P>(
    suffix: &str,
    object: &Object,
    version: &ObjectVersion,
    controller: &str,
    note: &Note<'_>,
    now: Timestamp,
) -> Write<P> {
    let (api_version, kind, _) = object.kind.gvk();
    // By convention, Events of cluster-scoped objects are in the namespace `default`.
    let namespace = if object.namespace.is_empty() { "default" } else { &object.namespace };
    let stem: String = object.name.chars().take(MAX_NAME).collect();
    let name = format!("{stem}.{suffix}");
    let body = json!({
        "eventTime": format!("{:.6}", now),
        "type": match note.severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
        "reason": note.reason.as_str(), "action": note.action, "note": cut(note.text),
        "reportingController": format!("{}/{controller}", meta::GROUP),
        "reportingInstance": meta::MANAGED_BY,
        "regarding": {
            "apiVersion": api_version, "kind": kind, "namespace": object.namespace, "name": object.name,
            "uid": version.uid, "resourceVersion": version.resource_version,
        },
    });
    Write::create(meta::MANAGED_BY, Object::named::<Event>(namespace, &name), body)
}

/// Adds a related object to an Event.
pub fn related<P>(mut event: Write<P>, object: Value) -> Write<P> {
    if let Op::Create { body, .. } = &mut event.op {
        body["related"] = object;
    }
    event
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_NOTE)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::compute::Instance,
        plan::{Hub, Op},
    };

    #[test]
    fn event_long_name_and_note_fit_api_limits() {
        let mut instance = Instance::new(
            &"x".repeat(253),
            serde_json::from_value(json!({
                "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [],
            }))
            .unwrap(),
        );
        instance.metadata.namespace = Some("ns-1".into());
        let text = "ü".repeat(2000);
        let note = Note { severity: Severity::Warning, reason: Reason::Repaired, action: "Acting", text: &text };
        let write: Write<Hub> = on(&instance, "test", &note, Timestamp::from_second(5).unwrap());
        let Op::Create { body, .. } = &write.op else { panic!("{write:?}") };
        let name = &write.object.name;
        assert!(name.len() <= 253 && name.contains(".12a05f200."), "{name}");
        assert_eq!(body["note"].as_str().unwrap().len(), MAX_NOTE);
        assert_eq!(body["eventTime"], "1970-01-01T00:00:05.000000Z");
    }

    /// Two Events of one plan had one name, and the API server stored only the first.
    #[test]
    fn events_of_one_plan_have_different_names() {
        let instance = Instance::new(
            "web-0",
            serde_json::from_value(
                json!({ "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] }),
            )
            .unwrap(),
        );
        let name = |reason, text| {
            let note = Note { severity: Severity::Warning, reason, action: "Acting", text };
            let write: Write<Hub> = on(&instance, "test", &note, Timestamp::UNIX_EPOCH);
            write.object.name
        };
        let first = name(Reason::BindingMissing, "a");
        assert_ne!(first, name(Reason::Repaired, "a"), "another reason");
        assert_ne!(first, name(Reason::BindingMissing, "b"), "another text");
    }
}
