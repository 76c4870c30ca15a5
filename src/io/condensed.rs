//! Rewrites `managedFields[].fieldsV1` to strings before decoding.
//!
//! An API server keeps, for each field manager, the set of fields that the manager owns, as a tree of objects. Decoded as a tree,
//! such a set takes ten KiB or more, as text half a KiB. A list contains several sets for each object. Decoded as trees, they
//! took most of the memory of a start, and the allocator never returned all of it. With 3,000 deployments the process kept 43 MiB
//! instead of 36. Code that needs a set decodes it with [`crate::plan::diff::unpack`].

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::value::{RawValue, to_raw_value};

/// The fields of a JSON object, undecoded.
type Fields<'a> = BTreeMap<Cow<'a, str>, Cow<'a, RawValue>>;

/// Returns the object with each set of fields as a string. `None` if there is no such set, or if the text is not an object.
pub(super) fn condensed(text: &str) -> Option<String> {
    let mut object = fields(text)?;
    let metadata = object.get_mut("metadata")?;
    let mut fields_of_metadata = fields(metadata.get())?;
    let books = fields_of_metadata.get_mut("managedFields")?;
    let entries: Vec<&RawValue> = serde_json::from_str(books.get()).ok()?;
    let entries: Option<Vec<Box<RawValue>>> = entries.into_iter().map(|entry| with_text(entry.get())).collect();
    *books = Cow::Owned(to_raw_value(&entries?).ok()?);
    let condensed = to_raw_value(&fields_of_metadata).ok()?;
    *metadata = Cow::Owned(condensed);
    serde_json::to_string(&object).ok()
}

/// Returns an entry of one manager, with the set of fields as a string.
fn with_text(entry: &str) -> Option<Box<RawValue>> {
    let mut entry = fields(entry)?;
    if let Some(set) = entry.get_mut("fieldsV1").filter(|set| set.get().starts_with('{')) {
        *set = Cow::Owned(to_raw_value(set.get()).ok()?);
    }
    to_raw_value(&entry).ok()
}

fn fields(object: &str) -> Option<Fields<'_>> {
    let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(object).ok()?;
    Some(fields.into_iter().map(|(name, value)| (name, Cow::Borrowed(value))).collect())
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
