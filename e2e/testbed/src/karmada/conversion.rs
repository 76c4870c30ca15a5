//! Converts the table that a script returns, as Karmada does (facts 74 and 75).
//!
//! An empty Lua table is neither a list nor an object, so each becomes `[]`. Karmada then looks up the path in the objects that
//! the script was given, without list indices. If any of them has `{}` at that path, the value becomes `{}`. If one has `[]`, it
//! stays. All others are removed one by one, by a library that fails for paths with one of `| # @ * ?`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

/// The expected form of a script's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An object: an empty table is `{}`.
    Object,
    /// A list: an empty table is `[]`.
    List,
}

/// Special characters in the paths of that library.
const OF_PATHS: [char; 5] = ['|', '#', '@', '*', '?'];

/// Returns the answer of a script as JSON. Each empty table becomes `[]`.
pub(super) fn encoded(answer: &mlua::Value) -> Result<Value> {
    encode(answer, &mut BTreeSet::new())
}

fn encode(value: &mlua::Value, seen: &mut BTreeSet<usize>) -> Result<Value> {
    Ok(match value {
        mlua::Value::Nil => Value::Null,
        mlua::Value::Boolean(value) => (*value).into(),
        mlua::Value::Integer(value) => (*value).into(),
        mlua::Value::Number(value) => number(*value),
        mlua::Value::String(value) => value.to_str().context("not UTF-8")?.to_owned().into(),
        mlua::Value::Table(table) => {
            ensure!(seen.insert(table.to_pointer() as usize), "cannot encode recursively nested tables to JSON");
            encode_table(table, seen)?
        }
        other => bail!("cannot encode {} to JSON", other.type_name()),
    })
}

/// Returns whole numbers without a fraction, as Go prints a float.
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "within the exact range of a float")]
        return (value as i64).into();
    }
    value.into()
}

fn encode_table(table: &mlua::Table, seen: &mut BTreeSet<usize>) -> Result<Value> {
    let (mut list, mut object) = (Vec::new(), Map::new());
    for pair in table.pairs::<mlua::Value, mlua::Value>() {
        let (key, value) = pair?;
        let value = encode(&value, seen)?;
        match key {
            mlua::Value::Integer(index) => list.push((index.into(), value)),
            mlua::Value::Number(index) => list.push((number(index), value)),
            mlua::Value::String(key) => drop(object.insert(key.to_str()?.to_owned(), value)),
            _ => bail!("cannot encode mixed or invalid key types"),
        }
    }
    if !object.is_empty() {
        ensure!(list.is_empty(), "cannot encode mixed or invalid key types");
        return Ok(object.into());
    }
    list.sort_by_key(|(index, _)| index.as_u64());
    let in_order = list.iter().zip(1_u64..).all(|((index, _), expected)| index.as_u64() == Some(expected));
    ensure!(in_order, "cannot encode sparse array");
    Ok(list.into_iter().map(|(_, value)| value).collect())
}

/// Returns the answer with its empty tables resolved by `references`, the objects that the script was given.
///
/// # Errors
/// Returns an error if a value at a path with a special character would have to be removed.
pub(super) fn told_apart(mut answer: Value, shape: Shape, references: &[&Value]) -> Result<Value> {
    if answer.as_array().is_some_and(Vec::is_empty) {
        return Ok(if shape == Shape::Object { Map::new().into() } else { answer });
    }
    let mut known = Known::default();
    for reference in references {
        known.note(reference, &mut Vec::new());
    }
    let mut found = Found::default();
    found.note(&answer, &mut Vec::new(), &mut Vec::new(), &known);
    for path in &found.objects {
        if let Some(place) = step_to(&mut answer, path) {
            *place = Map::new().into();
        }
    }
    // Karmada has no order here. A removal from a list shifts the rest of it, there too.
    for path in &found.unmatched {
        let is_complex = path.iter().any(|part| part.contains(OF_PATHS));
        ensure!(!is_complex, "cannot delete value from a complex path: {}", path.join("."));
        remove(&mut answer, path);
    }
    Ok(answer)
}

/// Paths with an empty value, without list indices.
#[derive(Default)]
struct Known {
    lists: BTreeSet<Vec<String>>,
    objects: BTreeSet<Vec<String>>,
}

impl Known {
    fn note(&mut self, value: &Value, path: &mut Vec<String>) {
        match value {
            Value::Array(list) if list.is_empty() => drop(self.lists.insert(path.clone())),
            Value::Object(object) if object.is_empty() => drop(self.objects.insert(path.clone())),
            Value::Array(list) => list.iter().for_each(|entry| self.note(entry, path)),
            Value::Object(object) => {
                for (key, value) in object {
                    path.push(key.clone());
                    self.note(value, path);
                    path.pop();
                }
            }
            _ => {}
        }
    }
}

/// Paths of empty tables in an answer that may not stay `[]`, with indices.
#[derive(Default)]
struct Found {
    /// Paths that had an object in a reference.
    objects: Vec<Vec<String>>,
    /// Paths that were not empty in any reference.
    unmatched: Vec<Vec<String>>,
}

impl Found {
    fn note(&mut self, value: &Value, path: &mut Vec<String>, at: &mut Vec<String>, known: &Known) {
        match value {
            Value::Array(list) if list.is_empty() => {
                if known.objects.contains(path) {
                    self.objects.push(at.clone());
                } else if !known.lists.contains(path) {
                    self.unmatched.push(at.clone());
                }
            }
            Value::Array(list) => {
                for (index, entry) in list.iter().enumerate() {
                    at.push(index.to_string());
                    self.note(entry, path, at, known);
                    at.pop();
                }
            }
            Value::Object(object) => {
                for (key, value) in object {
                    path.push(key.clone());
                    at.push(key.clone());
                    self.note(value, path, at, known);
                    at.pop();
                    path.pop();
                }
            }
            _ => {}
        }
    }
}

fn step_to<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, part| match value {
        Value::Object(object) => object.get_mut(part),
        Value::Array(list) => list.get_mut(part.parse::<usize>().ok()?),
        _ => None,
    })
}

fn remove(value: &mut Value, path: &[String]) {
    let Some((last, above)) = path.split_last() else { return };
    match step_to(value, above) {
        Some(Value::Object(object)) => drop(object.remove(last)),
        Some(Value::Array(entries)) => {
            if let Some(index) = last.parse().ok().filter(|index| *index < entries.len()) {
                entries.remove(index);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the result of a hook that returns its object unchanged.
    fn through(desired: &Value, observed: &Value) -> Value {
        let script = "function F(o) return o end";
        super::super::lua::call(script, "F", &[desired, observed], Shape::Object, &[desired, observed]).unwrap()
    }

    #[test]
    fn empty_values_are_resolved_by_the_references() {
        let lists = |all: &[&Value]| json!({ "interfaces": all.iter().map(|one| json!({ "ingress": one })).collect::<Vec<_>>() });
        let (open, shut) = (json!([{}]), json!([]));
        let nothing = json!({});
        for (name, desired, observed, sent) in [
            ("shut", lists(&[&shut]), nothing.clone(), lists(&[&shut])),
            ("open", lists(&[&open]), nothing.clone(), lists(&[&open])),
            ("shut where it was open", lists(&[&shut]), lists(&[&open]), lists(&[&nothing])),
            ("one of each", lists(&[&open, &shut]), nothing.clone(), lists(&[&open, &nothing])),
            ("an object", json!({ "a": {}, "b": "" }), nothing.clone(), json!({ "a": {}, "b": "" })),
            ("null", json!({ "a": { "b": null }, "c": 1 }), nothing.clone(), json!({ "c": 1 })),
        ] {
            assert_eq!(through(&desired, &observed), sent, "{name}");
        }
    }

    #[test]
    fn empty_values_without_references_are_removed_except_at_complex_paths() {
        let call =
            |object: &Value| super::super::lua::call("function F(o) return o end", "F", &[object], Shape::Object, &[]);
        let named = |name: &str| json!({ "k": { format!("k:{{\"name\":\"{name}\"}}"): { "f:value": {} } }, "n": 1 });
        for name in ["A", "A.B", "A-B", "A:B", "A$B"] {
            let left = call(&named(name)).unwrap();
            assert_eq!((left["n"].clone(), left["k"].to_string().contains("f:value")), (json!(1), false), "{name}");
        }
        for name in ["A@B", "A#B", "A|B", "A*B", "A?B"] {
            let refused = call(&named(name)).unwrap_err().to_string();
            assert!(refused.starts_with("cannot delete value from a complex path"), "{name}: {refused}");
        }
    }

    #[test]
    fn empty_answer_takes_the_expected_shape() {
        let call = |shape| super::super::lua::call("function F() return {} end", "F", &[], shape, &[]).unwrap();
        assert_eq!((call(Shape::Object), call(Shape::List)), (json!({}), json!([])));
    }

    #[test]
    fn lua_tables_neither_list_nor_object_are_refused() {
        for answer in ["{ 1, a = 2 }", "{ [1] = 1, [3] = 3 }", "{ [true] = 1 }"] {
            let script = format!("function F() return {answer} end");
            assert!(super::super::lua::call(&script, "F", &[], Shape::Object, &[]).is_err(), "{answer}");
        }
        let twice = "function F() local t = { 1 } return { a = t, b = t } end";
        assert!(super::super::lua::call(twice, "F", &[], Shape::Object, &[]).is_err());
    }
}
