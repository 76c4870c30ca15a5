//! The part of a write that an object already has: when it was judged, and in the server's answer.

use serde_json::Value;

use super::{
    Kind, diff,
    hash::{self, Reads},
};

/// The values that an object has in the fields of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Digest of these values. See [`without_defaults`].
    fields: String,
    /// Path of the first field that differs from the write.
    lacking: Option<String>,
}

impl Standing {
    /// Compares `asked` with `object`, which is of this kind. The type, the name and the version are not compared.
    pub fn of(kind: Kind, asked: &Value, object: &Value) -> Self {
        let mut asked = asked.clone();
        if let Some(members) = asked.as_object_mut() {
            members.remove("apiVersion");
            members.remove("kind");
        }
        if let Some(metadata) = asked.get_mut("metadata").and_then(Value::as_object_mut) {
            for address in ["name", "namespace", "uid", "resourceVersion"] {
                metadata.remove(address);
            }
        }
        Self {
            fields: hash::digest_of(&diff::part(kind, object, &asked), &without_defaults),
            lacking: diff::lacking(kind, object, &asked),
        }
    }

    /// Returns the path of the first field that differs from the write.
    pub fn lacking(&self) -> Option<&str> {
        self.lacking.as_deref()
    }

    /// True if both objects have the same values, whether these are the requested ones or not.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.fields == other.fields
    }
}

/// Leaves out default values. A typed reader adds them to the object of a cache, and an answer of the server is compared without
/// such a reader.
fn without_defaults(_: &str, value: &Value) -> Reads {
    let is_default = match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    if is_default { Reads::Nothing } else { Reads::Whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns a spec with these containers.
    fn with(containers: &Value) -> Value {
        json!({ "template": { "spec": { "runtime": { "sandbox": { "containers": containers } } } } })
    }

    #[test]
    fn answer_with_pruned_or_changed_field_names_its_path() {
        const CONTAINERS: &str = ".spec.template.spec.runtime.sandbox.containers";
        let mut asked = json!({
            "apiVersion": "v1", "kind": "Thing", "metadata": { "name": "a", "uid": "u", "labels": { "l": "1" } },
            "spec": with(&json!([{ "name": "c", "image": "i", "args": [] }])),
        });
        asked["spec"]["later"] = json!({ "field": true });
        let answer = |later: Value, containers: Value| {
            let mut spec = with(&containers);
            spec["later"] = later;
            json!({ "metadata": { "resourceVersion": "7", "labels": { "l": "1", "theirs": "2" } }, "spec": spec, "status": {} })
        };
        let later = || json!({ "field": true });
        let container = json!([{ "name": "other" }, { "name": "c", "image": "i", "args": [], "pull": "Always" }]);
        for (later, containers, lacking) in [
            (later(), container.clone(), None),
            (json!({}), container.clone(), Some(".spec.later.field".to_owned())),
            (Value::Null, container, Some(".spec.later".to_owned())),
            (later(), json!([]), Some(CONTAINERS.to_owned())),
            (
                later(),
                json!([{ "name": "c", "image": "mirror/i", "args": [] }]),
                Some(format!("{CONTAINERS}[c].image")),
            ),
            (later(), json!([{ "name": "c", "image": "i" }]), Some(format!("{CONTAINERS}[c].args"))),
        ] {
            let answer = answer(later, containers);
            let standing = Standing::of(Kind::Workload, &asked, &answer);
            assert_eq!(standing.lacking().map(str::to_owned), lacking, "{answer}");
            assert!(standing.is_same_as(&Standing::of(Kind::Workload, &asked, &answer)));
        }
    }

    #[test]
    fn fields_of_others_do_not_change_the_comparison() {
        let condition = |time: &str| json!([{ "type": "Ready", "status": "True" }, { "type": "Theirs", "time": time }]);
        let asked = json!({ "status": { "later": 1, "conditions": [{ "type": "Ready", "status": "True" }] } });
        let stands = |asked: &Value, object: Value| Standing::of(Kind::Workload, asked, &object);
        let of = |status: Value| stands(&asked, json!({ "metadata": { "name": "a" }, "status": status }));
        let pruned = of(json!({ "conditions": condition("1") }));
        assert_eq!(pruned.lacking(), Some(".status.later"));
        assert!(pruned.is_same_as(&of(json!({ "conditions": condition("2"), "theirs": 3 }))));
        assert!(!pruned.is_same_as(&of(json!({ "conditions": [{ "type": "Ready", "status": "False" }] }))));
        assert!(!pruned.is_same_as(&of(json!({ "conditions": condition("1"), "later": 2 }))));
        // The field was pruned, and a typed reader added a default.
        assert!(pruned.is_same_as(&of(json!({ "conditions": condition("1"), "later": 0 }))));
        // A merge patch that removes a field.
        let gone = json!({ "metadata": { "annotations": { "a": null } } });
        let left = stands(&gone, json!({ "metadata": { "annotations": { "a": "1" } } }));
        assert_eq!(left.lacking(), Some(".metadata.annotations.a"));
        assert_eq!(stands(&gone, json!({ "metadata": {} })).lacking(), None);
    }
}
