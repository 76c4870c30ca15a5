//! Rewrites `managedFields[].fieldsV1` to strings before decoding.
//!
//! An API server keeps, for each field manager, the set of fields that the manager owns, as a tree of objects. Decoded as a tree,
//! such a set takes ten KiB or more, as text half a KiB. A list contains several sets for each object. Decoded as trees, they
//! took most of the memory of a start, and the allocator never returned all of it. With 3,000 deployments the process kept 43 MiB
//! instead of 36. Code that needs a set decodes it with [`crate::plan::diff::unpack`].

use serde::Deserialize;
use serde_json::value::RawValue;

/// The part of an object that has its sets of fields, undecoded.
#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    managed_fields: Vec<Entry<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    #[serde(borrow)]
    fields_v1: Option<&'a RawValue>,
}

/// Returns the object with each set of fields as a string. `None` if there is no such set, or if the text is not an object.
pub(super) fn condensed(text: &str) -> Option<String> {
    let object: Object<'_> = serde_json::from_str(text).ok()?;
    let metadata: Metadata<'_> = serde_json::from_str(object.metadata.get()).ok()?;
    let sets = metadata.managed_fields.iter().filter_map(|entry| entry.fields_v1).map(RawValue::get);
    let (mut condensed, mut rest) = (String::with_capacity(text.len() + text.len() / 4), 0);
    for set in sets.filter(|set| set.starts_with('{')) {
        // The set is a part of the text.
        let start = set.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        condensed.push_str(text.get(rest..start)?);
        condensed.push_str(&serde_json::to_string(set).ok()?);
        rest = start + set.len();
    }
    condensed.push_str(text.get(rest..)?);
    Some(condensed)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn condensed_object_differs_only_in_sets_of_fields() {
        let set = json!({ "f:spec": { "f:ports": { "k:{\"name\":\"http\"}": { ".": {}, "f:\u{e9}\\": {} } } } });
        let object = |set: &Value, other: Value| {
            json!({
                "kind": "Some", "spec": { "fieldsV1": { "a": 1.50 }, "text": "\"}\n{" },
                "metadata": {
                    "name": "web",
                    "managedFields": [{ "manager": "m", "fieldsV1": set, "time": null }, other, { "manager": "none" }],
                },
            })
        };
        let others = json!({ "manager": "n", "fieldsV1": "text already" });
        let condensed = condensed(&object(&set, others.clone()).to_string()).unwrap();
        let read: Value = serde_json::from_str(&condensed).unwrap();
        assert_eq!(read, object(&set.to_string().into(), others));
    }

    #[test]
    fn condensed_object_without_managed_fields_is_none() {
        for text in [
            "[]",
            "7",
            "{",
            r#"{"metadata":7}"#,
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"metadata":{"managedFields":{}}}"#,
        ] {
            assert_eq!(condensed(text), None, "{text}");
        }
    }
}
