//! A model of an API server's apply: the merge, the field sets and the pruning of structured-merge-diff v6, for schemas like
//! ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Map, Value, json};

/// Paths of fields, in the steps of `fieldsV1`.
type Set = BTreeSet<Vec<String>>;

/// One object on a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    pub schema: Arc<Value>,
    pub object: Value,
    /// The fields that each field manager has applied.
    pub managers: BTreeMap<String, Set>,
}

impl Server {
    pub fn new(schema: &Arc<Value>) -> Self {
        Self { schema: schema.clone(), object: json!({}), managers: BTreeMap::new() }
    }

    /// Applies as a forced server-side apply, which takes fields from other managers.
    pub fn apply(&mut self, manager: &str, wanted: &Value) {
        let schema = &self.schema.clone();
        let schema = Some(&**schema);
        let before = self.object.clone();
        let merged = merge(schema, Some(&before), Some(wanted)).unwrap_or_default();
        let last = self.managers.remove(manager).unwrap_or_default();
        self.managers.insert(manager.to_owned(), fields(schema, wanted));
        self.object = self.prune(&merged, &last);
        let (old, new) = (leaves(schema, &before), leaves(schema, &self.object));
        let changed: Set =
            new.iter().filter(|(path, value)| old.get(*path) != Some(value)).map(|(p, _)| p.clone()).collect();
        let removed: Set = old.keys().filter(|path| !new.contains_key(*path)).cloned().collect();
        for (other, owned) in &mut self.managers {
            owned.retain(|path| other == manager || !changed.contains(path) && !removed.contains(path));
        }
        self.managers.retain(|_, owned| !owned.is_empty());
    }

    /// Returns the `fieldsV1` of a manager.
    pub fn fields_v1(&self, manager: &str) -> Value {
        let mut book = json!({});
        for path in self.managers.get(manager).into_iter().flatten() {
            let place = path
                .iter()
                .fold(&mut book, |at, step| at.as_object_mut().unwrap().entry(step).or_insert_with(|| json!({})));
            place["."] = json!({});
        }
        leaf_without_dot(book)
    }

    fn prune(&self, merged: &Value, last: &Set) -> Value {
        let schema = Some(&*self.schema);
        if last.is_empty() {
            return merged.clone();
        }
        let last = with_named(schema, last);
        let pruned = remove(schema, merged, &last, &mut Vec::new());
        let all = with_named(schema, &fields(schema, merged));
        let managed: Set = self.managers.values().flatten().cloned().collect();
        let kept: Set =
            with_named(schema, &fields(schema, &pruned)).union(&with_named(schema, &managed)).cloned().collect();
        let pruned = remove(schema, merged, &all.difference(&kept).cloned().collect(), &mut Vec::new());
        let left = with_named(schema, &fields(schema, &pruned));
        let gone = all.difference(&left).filter(|path| last.contains(*path)).cloned().collect();
        remove(schema, merged, &gone, &mut Vec::new())
    }
}

/// The way in which a server treats the members of a value.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Leaf,
    Map,
    List,
}

fn shape(schema: Option<&Value>, value: &Value) -> Shape {
    let says = |key: &str| schema.and_then(|schema| schema[key].as_str());
    match value {
        Value::Object(_) if says("x-kubernetes-map-type") != Some("atomic") => Shape::Map,
        Value::Array(_) if matches!(says("x-kubernetes-list-type"), Some("map" | "set")) => Shape::List,
        _ => Shape::Leaf,
    }
}

fn member<'a>(schema: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    let schema = schema?;
    schema["properties"].get(name).or_else(|| schema.get("additionalProperties"))
}

fn items(schema: Option<&Value>) -> Option<&Value> {
    schema?.get("items")
}

fn step(schema: Option<&Value>, entry: &Value) -> String {
    let keys = schema.and_then(|schema| schema["x-kubernetes-list-map-keys"].as_array());
    match keys {
        Some(keys) => {
            let fields = keys.iter().filter_map(Value::as_str).map(|key| (key.to_owned(), entry[key].clone()));
            format!("k:{}", Value::Object(fields.collect()))
        }
        None => format!("v:{entry}"),
    }
}

fn is_nothing(value: Option<&Value>) -> bool {
    value.is_none_or(|value| match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        value => value.is_null(),
    })
}

fn merge(schema: Option<&Value>, left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    let shown = right.filter(|right| !right.is_null()).or(left)?;
    let shape = shape(schema, shown);
    if shape == Shape::Leaf || is_nothing(left) && is_nothing(right) {
        return right.or(left).cloned();
    }
    if shape == Shape::List {
        let none = Vec::new();
        let list = |value: Option<&'_ Value>| value.and_then(Value::as_array).cloned().unwrap_or_else(|| none.clone());
        let merged = merge_lists(schema, &list(left), &list(right));
        return (!merged.is_empty()).then_some(Value::Array(merged));
    }
    let of = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let (left, right) = (of(left), of(right));
    let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    let merged: Map<String, Value> = names
        .into_iter()
        .filter_map(|name| Some((name.clone(), merge(member(schema, name), left.get(name), right.get(name))?)))
        .collect();
    (!merged.is_empty()).then_some(Value::Object(merged))
}

/// Returns the entries of `right` in their order, with the other entries of `left` between them.
fn merge_lists(schema: Option<&Value>, left: &[Value], right: &[Value]) -> Vec<Value> {
    let steps = |list: &[Value]| -> Vec<String> { list.iter().map(|entry| step(schema, entry)).collect() };
    let (lefts, rights) = (steps(left), steps(right));
    let find = |steps: &[String], list: &[Value], of: &String| {
        steps.iter().position(|step| step == of).map(|place| list[place].clone())
    };
    let both = |of: &String| merge(items(schema), find(&lefts, left, of).as_ref(), find(&rights, right, of).as_ref());
    let mut shared = rights.iter().filter(|step| lefts.contains(step));
    let mut next_shared = shared.next();
    let (mut merged, mut done) = (Vec::new(), BTreeSet::new());
    let (mut l, mut r) = (0, 0);
    while l < lefts.len() || r < rights.len() {
        if l < lefts.len() && r < rights.len() {
            if lefts[l] == rights[r] {
                done.insert(&rights[r]);
                merged.extend(both(&lefts[l]));
                (l, r, next_shared) = (l + 1, r + 1, shared.next());
                continue;
            }
            if rights.contains(&lefts[l]) && next_shared.is_some_and(|next| *next != lefts[l]) {
                l += 1;
                continue;
            }
        }
        if l < lefts.len() {
            if !rights.contains(&lefts[l]) {
                merged.push(left[l].clone());
                l += 1;
                continue;
            } else if done.contains(&lefts[l]) {
                l += 1;
            }
        }
        if r < rights.len() {
            done.insert(&rights[r]);
            merged.extend(both(&rights[r]));
            if next_shared == Some(&rights[r]) {
                next_shared = shared.next();
            }
            r += 1;
        }
    }
    merged
}

/// Returns the paths that an apply of this value owns.
fn fields(schema: Option<&Value>, value: &Value) -> Set {
    leaves(schema, value).into_keys().collect()
}

/// Returns these paths with their values. A path with members has no value.
fn leaves(schema: Option<&Value>, value: &Value) -> BTreeMap<Vec<String>, Value> {
    let mut found = BTreeMap::new();
    collect(schema, value, &mut Vec::new(), &mut found);
    found
}

fn collect(schema: Option<&Value>, value: &Value, path: &mut Vec<String>, found: &mut BTreeMap<Vec<String>, Value>) {
    match (shape(schema, value), value) {
        (Shape::Map, Value::Object(members)) => {
            for (name, value) in members {
                path.push(format!("f:{name}"));
                let is_free = schema.is_none_or(|schema| schema["properties"].get(name).is_none());
                if is_free || value.is_null() || value.as_object().is_some_and(Map::is_empty) {
                    found.insert(path.clone(), Value::Null);
                }
                collect(member(schema, name), value, path, found);
                path.pop();
            }
        }
        (Shape::List, Value::Array(entries)) => {
            for entry in entries {
                path.push(step(schema, entry));
                found.insert(path.clone(), Value::Null);
                collect(items(schema), entry, path, found);
                path.pop();
            }
        }
        _ => drop(found.insert(path.clone(), value.clone())),
    }
}

/// Returns the set, and the named fields on the paths in it.
fn with_named(schema: Option<&Value>, set: &Set) -> Set {
    let mut all = set.clone();
    for path in set {
        let mut at = schema;
        for (depth, step) in path.iter().enumerate() {
            if let Some(name) = step.strip_prefix("f:") {
                if at.is_some_and(|at| at["properties"].get(name).is_some()) {
                    all.insert(path[..=depth].to_vec());
                }
                at = member(at, name);
            } else {
                at = items(at);
            }
        }
    }
    all
}

fn remove(schema: Option<&Value>, value: &Value, set: &Set, path: &mut Vec<String>) -> Value {
    let leads_on = |path: &Vec<String>| {
        set.range(path.clone()..).find(|other| *other != path).is_some_and(|other| other.starts_with(path))
    };
    match (shape(schema, value), value) {
        (Shape::Map, Value::Object(members)) => {
            let mut left = Map::new();
            for (name, value) in members {
                path.push(format!("f:{name}"));
                if !set.contains(path) {
                    let value =
                        if leads_on(path) { remove(member(schema, name), value, set, path) } else { value.clone() };
                    left.insert(name.clone(), value);
                }
                path.pop();
            }
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (Shape::List, Value::Array(entries)) => {
            let mut left = Vec::new();
            for entry in entries {
                path.push(step(schema, entry));
                if !set.contains(path) {
                    left.push(if leads_on(path) { remove(items(schema), entry, set, path) } else { entry.clone() });
                }
                path.pop();
            }
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        (_, Value::Object(_) | Value::Array(_)) => Value::Null,
        (_, value) => value.clone(),
    }
}

fn leaf_without_dot(book: Value) -> Value {
    let Value::Object(members) = book else { return book };
    if members.len() == 1 && members.contains_key(".") {
        return json!({});
    }
    let members = members.into_iter().map(|(step, below)| (step, leaf_without_dot(below)));
    Value::Object(members.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Arc<Value> {
        Arc::new(json!({ "type": "object", "properties": {
            "list": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": { "type": "object", "properties": { "name": { "type": "string" }, "value": { "type": "string" } } },
            },
            "whole": { "type": "array", "items": { "type": "string" } },
        } }))
    }

    fn names(server: &Server) -> Vec<&str> {
        server.object["list"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
    }

    fn list(names: &[&str]) -> Value {
        json!({ "list": names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>() })
    }

    /// The cases are from structured-merge-diff's own tests of list order (`apply_twice_reorder` and others).
    #[test]
    fn model_list_keeps_applied_order_and_entries_of_others() {
        for (before, theirs, applied, after) in [
            (&["a", "b", "c"][..], &[][..], &["c", "b", "a"][..], &["c", "b", "a"][..]),
            (&["a", "b", "c", "d"], &[], &["a", "d", "c", "b"], &["a", "d", "c", "b"]),
            (&["a", "b"], &["c"], &["b", "a"], &["b", "c", "a"]),
            (&["a", "c", "b"], &[], &["a", "b"], &["a", "b"]),
        ] {
            let mut server = Server::new(&schema());
            server.apply("me", &list(before));
            server.apply("other", &list(theirs));
            server.apply("me", &list(applied));
            assert_eq!(names(&server), after, "{before:?} {theirs:?} {applied:?}");
        }
    }

    #[test]
    fn model_field_no_longer_applied_is_removed_unless_shared() {
        let mut server = Server::new(&schema());
        server.apply("me", &json!({ "list": [{ "name": "a", "value": "1" }, { "name": "b" }], "whole": ["x", "y"] }));
        server.apply("other", &list(&["a"]));
        assert_eq!(
            server.fields_v1("me"),
            json!({
                "f:list": {
                    "k:{\"name\":\"a\"}": { ".": {}, "f:name": {}, "f:value": {} },
                    "k:{\"name\":\"b\"}": { ".": {}, "f:name": {} },
                },
                "f:whole": {},
            })
        );
        server.apply("me", &json!({ "whole": ["y"] }));
        assert_eq!(server.object, json!({ "list": [{ "name": "a" }], "whole": ["y"] }));
        server.apply("other", &json!({}));
        assert_eq!(server.object, json!({ "whole": ["y"] }));
    }
}
