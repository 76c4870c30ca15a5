//! Random values that a schema allows, and edited versions of them. They test properties of every list and field of the schema.

use fastrand::Rng;
use serde_json::{Map, Value, json};

/// Names and keys. There are few, so that two values often have the same.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Generates values. The same seed gives the same values.
pub struct Generator(Rng);

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// Returns true in this percentage of cases.
    pub fn in_percent(&mut self, percent: u8) -> bool {
        self.0.u8(0..100) < percent
    }

    /// Returns a value that the schema allows.
    pub fn value(&mut self, schema: &Value) -> Value {
        if let Some(values) = schema["enum"].as_array() {
            return values[self.0.usize(0..values.len())].clone();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return if schema["pattern"].is_string() {
                json!(self.one_of(&["1", "2"]))
            } else {
                json!(self.0.u8(1..4))
            };
        }
        match schema["type"].as_str() {
            Some("object") => self.object(schema),
            Some("array") => {
                let count = self
                    .0
                    .usize(0..4)
                    .max(schema["minItems"].as_u64().and_then(|least| usize::try_from(least).ok()).unwrap_or(0));
                let mut list = Vec::new();
                (0..count).for_each(|_| self.add(schema, &mut list));
                Value::Array(list)
            }
            Some("integer") => json!(self.0.u8(1..4)),
            Some("boolean") => json!(self.0.bool()),
            _ => self.text(schema),
        }
    }

    /// Returns an edited version of a value. List entries are reordered, added and removed, and fields are added, removed and
    /// changed.
    pub fn edited(&mut self, schema: &Value, value: &Value) -> Value {
        match value {
            Value::Object(members) => Value::Object(self.edited_members(schema, members)),
            Value::Array(entries) => {
                let mut entries: Vec<Value> = entries.iter().map(|entry| self.edited_entry(schema, entry)).collect();
                if self.in_percent(30) {
                    self.0.shuffle(&mut entries);
                }
                if !entries.is_empty()
                    && self.in_percent(15)
                    && entries.len() as u64 > schema["minItems"].as_u64().unwrap_or(0)
                {
                    let place = self.0.usize(0..entries.len());
                    entries.remove(place);
                }
                if self.in_percent(15) {
                    self.add(schema, &mut entries);
                }
                Value::Array(entries)
            }
            _ if self.in_percent(10) => self.value(schema),
            _ => value.clone(),
        }
    }

    fn object(&mut self, schema: &Value) -> Value {
        let mut members = Map::new();
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            for _ in 0..self.0.usize(0..3) {
                members.insert(self.one_of(&NAMES).to_owned(), self.value(values));
            }
        }
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            if is_required(schema, name) || self.in_percent(45) {
                members.insert(name.clone(), self.value(member));
            }
        }
        Value::Object(members)
    }

    fn edited_members(&mut self, schema: &Value, members: &Map<String, Value>) -> Map<String, Value> {
        let mut edited = Map::new();
        for (name, value) in members {
            let below = &schema["properties"][name];
            let below = if below.is_null() { &schema["additionalProperties"] } else { below };
            if is_required(schema, name) || !self.in_percent(8) {
                edited.insert(name.clone(), self.edited(below, value));
            }
        }
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            if !members.contains_key(name) && self.in_percent(8) {
                edited.insert(name.clone(), self.value(member));
            }
        }
        edited
    }

    /// Edits an entry, and keeps the fields that identify it.
    fn edited_entry(&mut self, schema: &Value, entry: &Value) -> Value {
        let is_set = schema["x-kubernetes-list-type"] == "set";
        let mut edited = if is_set { entry.clone() } else { self.edited(&schema["items"], entry) };
        for key in keys(schema) {
            edited[key] = entry[key].clone();
        }
        edited
    }

    /// Adds an entry that the list may contain.
    fn add(&mut self, schema: &Value, list: &mut Vec<Value>) {
        if schema["maxItems"].as_u64().is_some_and(|most| list.len() as u64 >= most) {
            return;
        }
        let mut entry = self.value(&schema["items"]);
        for key in keys(schema) {
            entry[key] = json!(self.one_of(&NAMES));
        }
        let is_there = |other: &Value| match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => *other == entry,
            Some("map") => keys(schema).all(|key| other[key] == entry[key]),
            _ => false,
        };
        if !list.iter().any(is_there) {
            list.push(entry);
        }
    }

    fn text(&mut self, schema: &Value) -> Value {
        let is_free = schema["minLength"].is_null() && schema["pattern"].is_null();
        match schema["format"].as_str() {
            Some("date-time") => json!(self.one_of(&["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])),
            _ if is_free && self.in_percent(15) => json!(""),
            _ => json!(self.one_of(&NAMES)),
        }
    }

    fn one_of<'a>(&mut self, values: &[&'a str]) -> &'a str {
        values[self.0.usize(0..values.len())]
    }
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|names| names.iter().any(|required| required == name))
}

fn keys(schema: &Value) -> impl Iterator<Item = &str> {
    schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str)
}
