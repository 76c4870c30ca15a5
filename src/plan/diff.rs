//! Whether a server-side apply would change anything, decided without asking the server.
//!
//! An apply that changes nothing makes no event but costs the server as much as a real write, so it is not sent.
//! It changes something when the live object does not have a field that we want, or when it still has one that we applied
//! before and want no longer; the latter is read from our own entry in `managedFields`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
use kube::Resource;
use serde::Serialize;
use serde_json::{Map, Value};

use super::quantity;
use crate::api::compute::Quantity;

/// Whether applying `fields` as `manager` would change `live`, its status aside.
pub fn differs<K: Resource + Serialize>(fields: &Value, live: &K, manager: &str) -> bool {
    differs_in(None, fields, live, manager)
}

/// Whether applying `fields` as `manager` to the status subresource would change `live`.
pub fn status_differs<K: Resource + Serialize>(fields: &Value, live: &K, manager: &str) -> bool {
    differs_in(Some("status"), fields, live, manager)
}

/// What `manager` applied through one subresource says nothing of what it applied through another.
fn differs_in<K: Resource + Serialize>(subresource: Option<&str>, fields: &Value, live: &K, manager: &str) -> bool {
    let Ok(mut object) = serde_json::to_value(live) else { return true };
    if !contains_finalizers(&object, fields) {
        return true;
    }
    // They have been compared, and are no list like the others.
    if let Some(finalizers) = fields.pointer("/metadata/finalizers") {
        object["metadata"]["finalizers"] = finalizers.clone();
    }
    if !contains(&object, fields) {
        return true;
    }
    let owned = live.meta().managed_fields.iter().flatten().find(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref() == subresource
    });
    owned.and_then(|entry| entry.fields_v1.as_ref()).is_some_and(|owned| match &owned.0 {
        Value::String(packed) => serde_json::from_str(packed).is_ok_and(|owned: Value| !covers(fields, &owned)),
        owned => !covers(fields, owned),
    })
}

/// The path of the first field that `wanted` has and `live` has not, or has otherwise.
pub fn lacking(live: &Value, wanted: &Value) -> Option<String> {
    if !contains_finalizers(live, wanted) {
        return Some(".metadata.finalizers".to_owned());
    }
    let mut wanted = wanted.clone();
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        // They have been compared, and are no list like the others.
        metadata.remove("finalizers");
    }
    first_lacking(live, &wanted)
}

fn first_lacking(live: &Value, wanted: &Value) -> Option<String> {
    let (Value::Object(live), Value::Object(wanted)) = (live, wanted) else {
        return (!contains(live, wanted)).then(String::new);
    };
    wanted.iter().find_map(|(field, wanted)| {
        let below = match live.get(field) {
            Some(live) if wanted.is_object() => first_lacking(live, wanted),
            None if wanted.is_object() => first_lacking(&Value::Object(Map::new()), wanted),
            None => (!is_empty(wanted)).then(String::new),
            Some(live) => (!contains_field(field, live, wanted)).then(String::new),
        };
        below.map(|below| format!(".{field}{below}"))
    })
}

/// What `live` has in the places that `wanted` speaks of.
pub fn part(live: &Value, wanted: &Value) -> Value {
    let (Value::Object(live), Value::Object(wanted)) = (live, wanted) else { return live.clone() };
    let parts = wanted.iter().filter_map(|(field, wanted)| {
        let live = live.get(field)?;
        let of_list = || {
            let (key, live, wanted) = (key(field)?, live.as_array()?, wanted.as_array()?);
            let ours = |entry: &&Value| wanted.iter().any(|ours| ours.get(key) == entry.get(key));
            let peer = |entry: &Value| wanted.iter().find(|ours| ours.get(key) == entry.get(key));
            Some(live.iter().filter(ours).filter_map(|entry| Some(part(entry, peer(entry)?))).collect::<Vec<_>>())
        };
        Some((field.clone(), of_list().map_or_else(|| part(live, wanted), Value::from)))
    });
    Value::Object(parts.collect())
}

/// The JSON merge patch that makes `wanted` of `live`.
pub fn merge_patch(live: &Value, wanted: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (live, wanted) else { return wanted.clone() };
    let mut patch = Map::new();
    for field in from.keys().filter(|field| !to.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    for (field, wanted) in to {
        match from.get(field) {
            Some(live) if live == wanted => {}
            Some(live) => drop(patch.insert(field.clone(), merge_patch(live, wanted))),
            None => drop(patch.insert(field.clone(), wanted.clone())),
        }
    }
    Value::Object(patch)
}

/// `wanted` in the form that stands where both mean the same: what is empty counts as absent, and a quantity by its value.
/// Another form of the same is worth no write, and none may look like a change to whoever hashes what stands.
pub fn in_standing_form(live: &Value, wanted: &Value) -> Value {
    formed(live, wanted, Members::Fields)
}

/// What the members of an object are.
#[derive(Clone, Copy, PartialEq)]
enum Members {
    /// Fields of a schema.
    Fields,
    /// Strings by keys of a user's choice: that a key is there says something, whatever its value.
    Strings,
    /// Quantities by such keys.
    Quantities,
    /// Fields of a network interface, of which later versions of the schema write the defaults down.
    Interface,
}

impl Members {
    /// What the members of the member `name` are, of an object that has these.
    fn of(self, name: &str) -> Self {
        match name {
            _ if matches!(self, Self::Strings | Self::Quantities) => self,
            "networkInterfaces" => Self::Interface,
            "limits" | "requests" => Self::Quantities,
            "labels" | "annotations" | "matchLabels" => Self::Strings,
            _ => Self::Fields,
        }
    }

    /// Whether the value of such a member says no more than its absence.
    fn is_nothing(self, name: &str, value: &Value) -> bool {
        let is_default = || match name {
            "name" => value == "eth0",
            "ipFamilies" => value.as_array().is_some_and(|families| families[..] == ["IPv6"]),
            "reclaimPolicy" => value == "Delete",
            _ => false,
        };
        match self {
            Self::Strings | Self::Quantities => false,
            Self::Fields => is_nothing(value),
            Self::Interface => is_nothing(value) || is_default(),
        }
    }
}

fn formed(live: &Value, wanted: &Value, members: Members) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let standing =
                live.iter().filter(|(name, live)| members.is_nothing(name, live) && !wanted.contains_key(*name));
            let mut formed_members: Map<String, Value> =
                standing.map(|(name, live)| (name.clone(), live.clone())).collect();
            for (name, wanted) in wanted {
                match live.get(name) {
                    Some(live) => drop(formed_members.insert(name.clone(), formed(live, wanted, members.of(name)))),
                    None if members.is_nothing(name, wanted) => {}
                    None => drop(formed_members.insert(name.clone(), wanted.clone())),
                }
            }
            formed_members.into()
        }
        (Value::Array(live), Value::Array(wanted)) => {
            let named = |list: &[Value]| list.iter().all(|entry| entry["name"].is_string());
            let by_name = named(live) && named(wanted);
            let peer = |index: usize, wanted: &Value| {
                if by_name { live.iter().find(|live| live["name"] == wanted["name"]) } else { live.get(index) }
            };
            let entries = wanted.iter().enumerate();
            entries
                .map(|(index, wanted)| {
                    peer(index, wanted).map_or_else(|| wanted.clone(), |live| formed(live, wanted, members))
                })
                .collect()
        }
        (Value::String(live), Value::String(wanted)) if members == Members::Quantities => {
            let value = |text: &String| quantity::thousandths(&Quantity(text.clone()));
            let same = value(live).is_some() && value(live) == value(wanted);
            Value::String(if same { live.clone() } else { wanted.clone() })
        }
        (_, wanted) => wanted.clone(),
    }
}

/// Whether a value says no more than its absence.
fn is_nothing(value: &Value) -> bool {
    is_empty(value) || value.as_str().is_some_and(str::is_empty)
}

/// Turns a set of fields into its own text. As a tree of maps it takes 10 KiB where a deployment's other fields take 5, and
/// the text half a KiB.
pub fn pack(owned: &mut FieldsV1) {
    if owned.0.is_object() {
        owned.0 = Value::String(owned.0.to_string());
    }
}

/// Turns such a text into the set of fields that it says.
pub fn unpack(packed: &mut FieldsV1) {
    if let Some(fields) = packed.0.as_str().and_then(|text| serde_json::from_str(text).ok()) {
        packed.0 = fields;
    }
}

/// Whether `live` has everything that `wanted` has. What others added beside it does not count.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(field, wanted)| match live.get(field) {
            Some(live) => contains_field(field, live, wanted),
            // Empty and absent mean the same once the object has been through a typed reader.
            None => is_empty(wanted),
        }),
        // One value, which has one owner: nothing in it is anybody else's.
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(l, w)| contains(l, w) && contains(w, l))
        }
        (live, wanted) => live == wanted,
    }
}

/// Whether the value `live` of a field has everything that `wanted` has. Lists that our schemas and Kubernetes' own declare
/// associative may hold others' entries beside ours; every other list is one value.
fn contains_field(field: &str, live: &Value, wanted: &Value) -> bool {
    let (Some(key), Some(live_list), Some(wanted_list)) = (key(field), live.as_array(), wanted.as_array()) else {
        return contains(live, wanted);
    };
    // An ingress rule's ports have no name: those lists are atomic.
    if wanted_list.iter().any(|wanted| wanted.get(key).is_none()) {
        return contains(live, wanted);
    }
    wanted_list.iter().all(|w| live_list.iter().any(|l| l.get(key) == w.get(key) && contains(l, w)))
}

/// The field by which the entries of an associative list are told apart.
fn key(list: &str) -> Option<&'static str> {
    match list {
        "ownerReferences" => Some("uid"),
        "conditions" => Some("type"),
        "containers" | "env" | "ports" | "volumes" | "schedulingGates" => Some("name"),
        _ => None,
    }
}

/// Whether `live` has every finalizer that `wanted` has. Those of an object are a set, which others add to; those of a
/// template inside it are one value.
fn contains_finalizers(live: &Value, wanted: &Value) -> bool {
    let finalizers = |object: &Value| object.pointer("/metadata/finalizers").and_then(Value::as_array).cloned();
    let live = finalizers(live).unwrap_or_default();
    finalizers(wanted).iter().flatten().all(|finalizer| live.contains(finalizer))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Whether every path of a `fieldsV1` set is still among the wanted fields.
fn covers(wanted: &Value, owned: &Value) -> bool {
    let Some(owned) = owned.as_object() else { return true };
    owned.iter().all(|(path, below)| match path.split_once(':') {
        Some(("f", field)) => wanted.get(field).is_some_and(|wanted| covers(wanted, below)),
        Some(("k", key)) => entry(wanted, key).is_some_and(|wanted| covers(wanted, below)),
        Some(("v", value)) => wanted
            .as_array()
            .is_some_and(|list| serde_json::from_str::<Value>(value).is_ok_and(|value| list.contains(&value))),
        _ => true,
    })
}

/// The entry of an associative list with these key fields.
fn entry<'a>(list: &'a Value, key: &str) -> Option<&'a Value> {
    let key: Value = serde_json::from_str(key).ok()?;
    let key = key.as_object()?;
    list.as_array()?.iter().find(|entry| key.iter().all(|(field, value)| entry.get(field) == Some(value)))
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
