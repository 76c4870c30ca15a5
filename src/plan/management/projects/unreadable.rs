//! Events on objects that the operator cannot read. They are reported on the object itself, because no controller handles it.

use jiff::Timestamp;

use crate::{
    api::{
        meta::{annotation, label},
        reason::Reason,
    },
    plan::{
        Hub, Object, ObjectVersion, Write,
        event::{self, Note, Severity},
    },
};

/// Maximum number of characters that an Event repeats of the decoder's error.
const MAX_WORDS: usize = 512;

/// Reports on an object that it cannot be read. `why` is the decoder's error.
pub fn object<P>(object: &Object, version: &ObjectVersion, why: &str, now: Timestamp) -> Write<P> {
    let why: String = why.chars().take(MAX_WORDS).collect();
    let text = format!(
        "this operator cannot read the object, and does not change it or what may depend on it; it was written by another \
         version, or with another CRD: {why}"
    );
    report(object, version, &text, now)
}

/// Reports on a companion that its users are unknown.
pub fn users(companion: &Object, version: &ObjectVersion, now: Timestamp) -> Write<Hub> {
    let text = format!(
        "annotation {} is empty or cannot be read, so the users of this copy are unknown: it is kept; delete it to have it \
         recreated where it is used",
        annotation::REFERENCED_BY
    );
    report(companion, version, &text, now)
}

/// Reports on a hub namespace that the namespace it mirrors is unknown.
pub fn mirrored(namespace: &Object, version: &ObjectVersion, now: Timestamp) -> Write<Hub> {
    let text = format!(
        "labels {} and {} are missing, so the project of this namespace is unknown: its content is kept; restore the \
         labels, or delete the namespace if its project is deleted",
        label::UPSTREAM_CLUSTER,
        label::UPSTREAM_NAMESPACE
    );
    report(namespace, version, &text, now)
}

fn report<P>(object: &Object, version: &ObjectVersion, text: &str, now: Timestamp) -> Write<P> {
    let note = Note { severity: Severity::Warning, reason: Reason::Unreadable, action: "Reading", text };
    event::once(object, version, "reading", (&note, ""), now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{compute::WorkloadDeployment, referenced::SourceKind},
        plan::{Op, Project},
    };

    #[test]
    fn unreadable_object_gets_event_of_bounded_length() {
        let deployment = Object::named::<WorkloadDeployment>("shop", "bad");
        let event: Write<Project> =
            object(&deployment, &ObjectVersion::new("u", "3"), &"x".repeat(9_000), Timestamp::UNIX_EPOCH);
        let Op::Create { body, .. } = &event.op else { panic!("{event:?}") };
        assert_eq!((&body["regarding"]["name"], &body["regarding"]["uid"]), (&"bad".into(), &"u".into()));
        assert_eq!(body["note"].as_str().unwrap().matches('x').count(), MAX_WORDS);
        let companion = Object { kind: SourceKind::Secret.into(), namespace: "ns-1".into(), name: "db".into() };
        let event = users(&companion, &ObjectVersion::new("u", "3"), Timestamp::UNIX_EPOCH);
        let Op::Create { body, .. } = &event.op else { panic!("{event:?}") };
        assert!(body["note"].as_str().unwrap().contains("compute.datumapis.com/referenced-by"));
        assert_eq!((&body["regarding"]["kind"], &body["reason"]), (&"Secret".into(), &"Unreadable".into()));
    }
}
