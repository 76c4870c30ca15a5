//! Presence on the cell of the ConfigMaps and Secrets that an Instance references. Reports which are missing, and why.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde::Deserialize;

use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::annotation,
        reason::{Class, Reason},
        referenced::{self, DataRef},
    },
    plan::{
        condition::Verdict,
        references::{annotated, references},
    },
};

/// The error that the management side reports in an annotation, if it cannot deliver the data.
#[derive(Deserialize)]
struct Hint {
    reason: String,
    message: String,
}

/// Judges one Instance. Returns `None` if it references no data. `present` holds the companions in its namespace that it
/// references.
///
/// The deployment's annotations may be older than its template. A reference that they do not mention is unresolved, and the
/// Instance waits: no gate opens before its data is there. Only the Go operator does not report skipped optional sources.
/// `waited_out` is true if its time has passed for an Instance on which it [reports nothing](is_silence_of_go).
pub fn judge(
    deployment: &WorkloadDeployment,
    instance: &Instance,
    present: &BTreeSet<DataRef>,
    waited_out: bool,
) -> Option<Verdict> {
    let references = references(&instance.spec);
    if references.is_empty() {
        return None;
    }
    let text = |key: &str| deployment.annotations().get(key).map(String::as_str);
    let data_refs = |key: &str| text(key).map(referenced::from_annotation).unwrap_or_default();
    let (expected, skipped) =
        (data_refs(annotation::EXPECTED_REFERENCED_DATA), data_refs(annotation::SKIPPED_REFERENCED_DATA));
    let from_go = text(annotation::SOURCE_GENERATION).is_none()
        && (text(annotation::EXPECTED_REFERENCED_DATA).is_some()
            || waited_out && is_silence_of_go(deployment, instance));
    let hint: Option<Hint> = text(annotation::REFERENCED_DATA_ERROR).and_then(|text| serde_json::from_str(text).ok());
    let unresolved: Vec<&DataRef> = references
        .iter()
        .filter(|r| !(expected.contains(&r.data_ref) || r.optional && (from_go || skipped.contains(&r.data_ref))))
        .map(|r| &r.data_ref)
        .collect();
    if !unresolved.is_empty() {
        return Some(match hint.as_ref().and_then(|hint| Some((source_reason(&hint.reason)?, &hint.message))) {
            Some((reason, message)) => Verdict::no(reason, message.clone()),
            // The message is the one of the Go operator's cells: the result is not known yet.
            None => Verdict::unknown(Reason::Resolving, format!("waiting for {} to be looked up", list(&unresolved))),
        });
    }
    let needed = needed(deployment, instance);
    let missing: Vec<&DataRef> = needed.iter().filter(|data_ref| !present.contains(data_ref)).collect();
    Some(if missing.is_empty() {
        Verdict::yes(Reason::Ready, format!("All {} ConfigMaps and Secrets are in place", needed.len()))
    } else {
        let why = hint.map(|hint| format!(" ({}: {})", hint.reason, hint.message)).unwrap_or_default();
        Verdict::no(Reason::AwaitingPropagation, format!("waiting for {} to arrive{why}", list(&missing)))
    })
}

/// Returns the companions that an Instance needs on its cell.
pub fn needed(deployment: &WorkloadDeployment, instance: &Instance) -> Vec<DataRef> {
    let expected = annotated(deployment, annotation::EXPECTED_REFERENCED_DATA);
    let refers = references(&instance.spec).into_iter().map(|reference| reference.data_ref);
    refers.filter(|data_ref| expected.contains(data_ref)).collect()
}

/// Returns every reason that `ReferencedDataReady` of an Instance may have.
pub fn reasons() -> impl Iterator<Item = &'static Reason> {
    let is_one = |reason: &&Reason| matches!(reason.class(), Class::Data | Class::Source) || **reason == Reason::Ready;
    Reason::ALL.iter().filter(is_one)
}

/// True if the Go operator brought this deployment and reports nothing about the Instance's references, all of which are
/// optional. It has not resolved them yet, or none exists.
pub fn is_silence_of_go(deployment: &WorkloadDeployment, instance: &Instance) -> bool {
    let keys = [annotation::SOURCE_GENERATION, annotation::EXPECTED_REFERENCED_DATA, annotation::REFERENCED_DATA_ERROR];
    let references = references(&instance.spec);
    !references.is_empty()
        && references.iter().all(|reference| reference.optional)
        && !keys.iter().any(|key| deployment.annotations().contains_key(*key))
}

/// Returns the reason if a condition may carry it. Any client may have written the annotation that it comes from.
fn source_reason(text: &str) -> Option<Reason> {
    Some(Reason::from(text)).filter(|reason| reason.class() == Class::Source && reason.travels())
}

fn list(data_refs: &[&DataRef]) -> String {
    data_refs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> serde_json::Value {
        json!({
            "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [{ "name": "c", "image": "i",
                "envFrom": [
                    { "configMapRef": { "name": "settings" } },
                    { "secretRef": { "name": "db" } },
                    { "secretRef": { "name": "extra", "optional": true } },
                ] }] } },
            "networkInterfaces": [],
        })
    }

    fn reported(annotations: &serde_json::Value, present: &[&str]) -> (String, String) {
        let deployment: WorkloadDeployment = serde_json::from_value(json!({
            "metadata": { "name": "wd", "annotations": annotations },
            "spec": {
                "workloadRef": { "name": "w", "uid": "u" }, "placementName": "p", "cityCode": "DFW",
                "template": { "spec": spec() }, "scaleSettings": { "minReplicas": 1 },
            },
        }))
        .unwrap();
        let instance: Instance =
            serde_json::from_value(json!({ "metadata": { "name": "i" }, "spec": spec() })).unwrap();
        let present = present.iter().map(|data_ref| data_ref.parse().unwrap()).collect();
        let verdict = judge(&deployment, &instance, &present, true).unwrap();
        (verdict.reason.to_string(), verdict.message)
    }

    #[test]
    fn data_missing_companions_are_reported_with_reason() {
        let ours = |expected: &str, skipped: &str, error: &str| {
            let mut all = json!({ annotation::SOURCE_GENERATION: "1" });
            for (key, value) in [
                (annotation::EXPECTED_REFERENCED_DATA, expected),
                (annotation::SKIPPED_REFERENCED_DATA, skipped),
                (annotation::REFERENCED_DATA_ERROR, error),
            ] {
                if !value.is_empty() {
                    all[key] = json!(value);
                }
            }
            all
        };
        let both = r#"["ConfigMap/settings","Secret/db"]"#;
        let extra = r#"["Secret/extra"]"#;
        let not_found = r#"{"reason":"SourceNotFound","message":"there is no Secret db"}"#;
        let forged = r#"{"reason":"Everything is fine","message":"x"}"#;
        let hint = r#"{"reason":"DependenciesNotPropagated","message":"feature off"}"#;
        let cases = [
            (ours("", "", ""), vec![], "Resolving", "ConfigMap/settings, Secret/db, Secret/extra"),
            (ours("", "", not_found), vec![], "SourceNotFound", "there is no Secret db"),
            (ours("", "", forged), vec![], "Resolving", "settings"),
            // The template references more than the annotation mentions.
            (ours(r#"["ConfigMap/settings"]"#, extra, ""), vec!["ConfigMap/settings"], "Resolving", "Secret/db"),
            // It is not known yet if the optional source is delivered.
            (ours(both, "", ""), vec!["ConfigMap/settings", "Secret/db"], "Resolving", "Secret/extra"),
            (
                ours(both, extra, ""),
                vec!["ConfigMap/settings"],
                "AwaitingPropagation",
                "waiting for Secret/db to arrive",
            ),
            (ours(both, extra, hint), vec![], "AwaitingPropagation", "(DependenciesNotPropagated: feature off)"),
            (ours(both, extra, ""), vec!["ConfigMap/settings", "Secret/db"], "Ready", "All 2"),
            // Present copies count, even if their source is missing.
            (ours(both, extra, not_found), vec!["ConfigMap/settings", "Secret/db"], "Ready", "All 2"),
            // The Go operator does not report what it skipped.
            (
                json!({ annotation::EXPECTED_REFERENCED_DATA: both }),
                vec!["ConfigMap/settings", "Secret/db"],
                "Ready",
                "All 2",
            ),
        ];
        for (annotations, present, reason, words) in cases {
            let (reported_reason, message) = reported(&annotations, &present);
            assert!(
                reported_reason == reason && message.contains(words),
                "{annotations}: {reported_reason}: {message}"
            );
        }
    }
}
