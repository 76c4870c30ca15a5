//! How much of a write stands in the object that it is about: where it was judged, and in the server's answer to it.

use serde_json::Value;

use super::{diff, hash};

/// What stands in an object in the places that a write speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Digest of what stands there; see [`as_read`].
    fields: String,
    /// Path of the first field that stands otherwise than the write asks.
    lacking: Option<String>,
}

impl Standing {
    /// How much of what is `asked` for stands in `object`. Its type, its address and its version are not asked for.
    pub fn of(asked: &Value, object: &Value) -> Self {
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
        Self { fields: hash::digest(&as_read(diff::part(object, &asked))), lacking: diff::lacking(object, &asked) }
    }

    /// Path of the first field that stands otherwise than the write asks.
    pub fn lacking(&self) -> Option<&str> {
        self.lacking.as_deref()
    }

    /// Whether the same stands there, as asked for or not.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.fields == other.fields
    }
}

/// A value without what a typed reader puts in where nothing stands: an answer is read as it is, and the object of a cache is not.
fn as_read(value: Value) -> Value {
    let is_default = |value: &Value| match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(_, value)| !is_default(value));
            members.map(|(name, value)| (name, as_read(value))).collect::<serde_json::Map<_, _>>().into()
        }
        Value::Array(entries) => entries.into_iter().map(as_read).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_server_prunes_or_says_otherwise_is_lacking_in_its_answer() {
        let asked = json!({
            "apiVersion": "v1", "kind": "Thing", "metadata": { "name": "a", "uid": "u", "labels": { "l": "1" } },
            "spec": { "kept": 1, "later": { "field": true }, "containers": [{ "name": "c", "image": "i" }], "empty": [] },
        });
        let answer = |spec: Value| json!({ "metadata": { "resourceVersion": "7", "labels": { "l": "1", "theirs": "2" } }, "spec": spec, "status": {} });
        let container = json!([{ "name": "other" }, { "name": "c", "image": "i", "pull": "Always" }]);
        for (spec, lacking) in [
            (json!({ "kept": 1, "later": { "field": true }, "containers": container, "default": 2 }), None),
            (json!({ "kept": 1, "later": {}, "containers": container }), Some(".spec.later.field")),
            (json!({ "kept": 1, "containers": container }), Some(".spec.later.field")),
            (json!({ "kept": 2, "later": { "field": true }, "containers": container }), Some(".spec.kept")),
            (json!({ "kept": 1, "later": { "field": true }, "containers": [] }), Some(".spec.containers")),
        ] {
            let standing = Standing::of(&asked, &answer(spec.clone()));
            assert_eq!(standing.lacking(), lacking, "{spec}");
            assert!(standing.is_same_as(&Standing::of(&asked, &answer(spec))));
        }
    }

    #[test]
    fn what_others_write_beside_it_changes_nothing_of_what_stands() {
        let condition = |time: &str| json!([{ "type": "Ready", "status": "True" }, { "type": "Theirs", "time": time }]);
        let asked = json!({ "status": { "later": 1, "conditions": [{ "type": "Ready", "status": "True" }] } });
        let of = |status: Value| Standing::of(&asked, &json!({ "metadata": { "name": "a" }, "status": status }));
        let pruned = of(json!({ "conditions": condition("1") }));
        assert_eq!(pruned.lacking(), Some(".status.later"));
        assert!(pruned.is_same_as(&of(json!({ "conditions": condition("2"), "theirs": 3 }))));
        assert!(!pruned.is_same_as(&of(json!({ "conditions": [{ "type": "Ready", "status": "False" }] }))));
        assert!(!pruned.is_same_as(&of(json!({ "conditions": condition("1"), "later": 2 }))));
        // Pruned, and read by a type that has a default there.
        assert!(pruned.is_same_as(&of(json!({ "conditions": condition("1"), "later": 0 }))));
        // A merge patch that takes something away.
        let gone = json!({ "metadata": { "annotations": { "a": null } } });
        let left = Standing::of(&gone, &json!({ "metadata": { "annotations": { "a": "1" } } }));
        assert_eq!(left.lacking(), Some(".metadata.annotations.a"));
        assert_eq!(Standing::of(&gone, &json!({ "metadata": {} })).lacking(), None);
    }
}
