//! The body of an apply.

use std::{
    borrow::Cow,
    ops::{Index, IndexMut},
};

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};

use crate::plan::Shared;

const SPEC: &str = "spec";
const TEMPLATE: &str = "template";

/// Fields of an object as JSON. Writes of a plan with the same template share it, and it is added when a write is sent. Without
/// sharing, a hundred deployments with templates of 128 KiB would exceed the memory of a manager.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// All fields, or all except `spec.template`.
    own: Value,
    template: Option<Shared<Value>>,
}

impl Body {
    /// Shares `template` if the body has an equal one.
    pub(super) fn share(&mut self, template: &Shared<Value>) {
        let Some(spec) = self.own.get_mut(SPEC).and_then(Value::as_object_mut) else { return };
        if spec.get(TEMPLATE) == Some(&**template) {
            spec.remove(TEMPLATE);
            self.template = Some(template.clone());
        }
    }

    /// Returns all fields.
    pub fn to_value(&self) -> Cow<'_, Value> {
        let Some(template) = &self.template else { return Cow::Borrowed(&self.own) };
        let mut whole = self.own.clone();
        whole[SPEC][TEMPLATE] = Value::clone(template);
        Cow::Owned(whole)
    }
}

impl From<Value> for Body {
    fn from(own: Value) -> Self {
        Self { own, template: None }
    }
}

/// Returns a field that is not shared. The shared template is not among them.
impl Index<&str> for Body {
    type Output = Value;

    fn index(&self, field: &str) -> &Value {
        &self.own[field]
    }
}

impl IndexMut<&str> for Body {
    fn index_mut(&mut self, field: &str) -> &mut Value {
        &mut self.own[field]
    }
}

/// Writes all fields, without a copy of them.
impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (Some(template), Some(fields)) = (&self.template, self.own.as_object()) else {
            return self.own.serialize(serializer);
        };
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for (name, field) in fields {
            match field.as_object().filter(|_| name == SPEC) {
                Some(spec) => map.serialize_entry(name, &With { spec, template })?,
                None => map.serialize_entry(name, field)?,
            }
        }
        map.end()
    }
}

/// A spec with its shared template.
struct With<'a> {
    spec: &'a Map<String, Value>,
    template: &'a Value,
}

impl Serialize for With<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.spec.len() + 1))?;
        for (name, field) in self.spec {
            map.serialize_entry(name, field)?;
        }
        map.serialize_entry(TEMPLATE, self.template)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn body_with_shared_template_is_sent_unchanged() {
        let template = json!({ "spec": { "runtime": {} } });
        let whole = json!({ "metadata": { "name": "web" }, "spec": { "cityCode": "dfw", "template": template } });
        let mut body = Body::from(whole.clone());
        body.share(&json!({ "spec": {} }).into());
        assert_eq!(body, Body::from(whole.clone()), "another template");
        body.share(&template.into());
        assert_eq!(body.own["spec"], json!({ "cityCode": "dfw" }));
        assert_eq!(*body.to_value(), whole);
        assert_eq!(serde_json::to_value(&body).unwrap(), whole);
        assert_eq!(body["metadata"]["name"], "web");
    }
}
