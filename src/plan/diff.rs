//! Predicts if a server-side apply would change anything, without a request to the server.
//!
//! An apply without changes makes no event, but costs the server as much as a real write, so it is not sent. An apply changes
//! something in two cases. The live object lacks a field that we want, or it has a field that we applied before and no longer
//! want. Our entry in `managedFields` shows the second case.

use std::{borrow::Cow, collections::HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value};

use super::{
    Kind, Known,
    members::members,
    quantity,
    schema::{ListType, Place},
};
use crate::api::compute::Quantity;

/// True if applying `fields` as `manager` would change `live`, except for its status.
pub fn differs<K: Known>(fields: &Value, live: &K, manager: &str) -> bool {
    differs_in(None, fields, live, manager)
}

/// True if applying `fields` as `manager` to the status subresource would change `live`.
pub fn status_differs<K: Known>(fields: &Value, live: &K, manager: &str) -> bool {
    differs_in(Some("status"), fields, live, manager)
}

fn differs_in<K: Known>(subresource: Option<&str>, fields: &Value, live: &K, manager: &str) -> bool {
    // Only members of `fields` are read of the live object.
    let Some(object) = fields.as_object().and_then(|fields| members(live, fields)) else { return true };
    let books = live.meta().managed_fields.as_deref().unwrap_or_default();
    differs_at(place(K::KIND), subresource, fields, object, books, manager)
}

/// True if applying `fields` would change `object`. Of our entries in `books`, only the one for this subresource counts.
fn differs_at(
    place: Place<'_>,
    subresource: Option<&str>,
    fields: &Value,
    mut object: Value,
    books: &[ManagedFieldsEntry],
    manager: &str,
) -> bool {
    if !contains_finalizers(&object, fields) {
        return true;
    }
    // Finalizers were compared above. They are not like other lists.
    if let Some(finalizers) = fields.pointer("/metadata/finalizers") {
        object["metadata"]["finalizers"] = finalizers.clone();
    }
    if !contains(place, &object, fields) {
        return true;
    }
    let own = books.iter().find(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref() == subresource
    });
    // An empty field set means that nothing was applied, and not that the object is one value.
    let leaves_out = |owned: &Value| !is_empty(owned) && !covers(place, Some(&object), fields, owned);
    own.and_then(|entry| entry.fields_v1.as_ref()).is_some_and(|owned| match &owned.0 {
        Value::String(packed) => serde_json::from_str(packed).is_ok_and(|owned: Value| leaves_out(&owned)),
        owned => leaves_out(owned),
    })
}

/// Removes the spec from the field sets of our own managers. For objects with a spec that is compared as a whole
/// ([`instance_copy`](super::instance_copy)): the field set of a large spec is longer than the spec.
pub fn forget_applied_spec<K: Known>(live: &mut K) {
    for fields in live.meta_mut().managed_fields.iter_mut().flatten().filter_map(|entry| entry.fields_v1.as_mut()) {
        let Value::String(packed) = &fields.0 else { continue };
        let Ok(mut applied) = serde_json::from_str::<Map<String, Value>>(packed) else { continue };
        if applied.remove("f:spec").is_some() {
            fields.0 = Value::Object(applied).to_string().into();
        }
    }
}

/// Returns the root of a kind's schema.
fn place(kind: Kind) -> Place<'static> {
    Place::of(kind.gvk().1)
}

/// Returns the path of the first field of `wanted` that `live` lacks, or has with another value. Both are objects of this kind.
pub fn lacking(kind: Kind, live: &Value, wanted: &Value) -> Option<String> {
    if !contains_finalizers(live, wanted) {
        return Some(".metadata.finalizers".to_owned());
    }
    let mut wanted = wanted.clone();
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        // Finalizers were compared above. They are not like other lists.
        metadata.remove("finalizers");
    }
    first_lacking(place(kind), live, &wanted)
}

fn first_lacking(place: Place<'_>, live: &Value, wanted: &Value) -> Option<String> {
    let (Value::Object(live), Value::Object(wanted)) = (live, wanted) else {
        return (!contains(place, live, wanted)).then(|| lacking_entry(place, live, wanted).unwrap_or_default());
    };
    wanted.iter().find_map(|(field, wanted)| {
        let place = place.field(field);
        let below = match live.get(field) {
            Some(live) => first_lacking(place, live, wanted),
            None if wanted.as_object().is_some_and(|wanted| !wanted.is_empty()) => {
                first_lacking(place, &Value::Object(Map::new()), wanted)
            }
            None => (!is_absent(place, wanted)).then(String::new),
        };
        below.map(|below| format!(".{field}{below}"))
    })
}

/// Returns the path of the first field that an existing list entry lacks.
fn lacking_entry(place: Place<'_>, live: &Value, wanted: &Value) -> Option<String> {
    let (keys, live, wanted) = (place.list_type(), live.as_array()?, wanted.as_array()?);
    wanted.iter().find_map(|wanted| {
        let key = entry_key(keys, wanted)?;
        let live = live.iter().find(|live| entry_key(keys, live).as_ref() == Some(&key))?;
        Some(format!("[{key}]{}", first_lacking(place.items(), live, wanted)?))
    })
}

/// Returns the values that `live` has in the fields of `wanted`. Both are objects of this kind.
pub fn part(kind: Kind, live: &Value, wanted: &Value) -> Value {
    part_at(place(kind), live, wanted)
}

fn part_at(place: Place<'_>, live: &Value, wanted: &Value) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let parts = wanted.iter().filter_map(|(field, wanted)| {
                Some((field.clone(), part_at(place.field(field), live.get(field)?, wanted)))
            });
            Value::Object(parts.collect())
        }
        (Value::Array(live), Value::Array(wanted)) if place.list_type() != ListType::Atomic => {
            let keys = place.list_type();
            let peer = |entry: &Value| wanted.iter().find(|wanted| entry_key(keys, wanted) == entry_key(keys, entry));
            live.iter().filter_map(|entry| Some(part_at(place.items(), entry, peer(entry)?))).collect()
        }
        _ => live.clone(),
    }
}

/// Returns the JSON merge patch that turns `live` into `wanted`.
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

/// Returns `wanted` in the form of `live` wherever both mean the same. Empty members count as absent unless they have a meaning,
/// and quantities compare by value. An equivalent form is not worth a write, and must not change a hash of the stored object.
pub fn in_standing_form(live: &Value, wanted: &Value) -> Value {
    formed(live, wanted, Members::Fields)
}

/// Members of a template for which an empty object has a meaning. An empty network policy admits no traffic, and an absent one
/// admits all. A source is selected by its presence. A test lists all other members that can be empty.
const SAYS_SOMETHING: [&str; 4] = ["networkPolicy", "configMap", "secret", "valueFrom"];

/// The kind of an object's members.
#[derive(Clone, Copy, PartialEq)]
enum Members {
    /// Fields of a schema.
    Fields,
    /// Strings under keys that a user chose. The presence of a key has a meaning, even with an empty value.
    Strings,
    /// Quantities under keys that a user chose.
    Quantities,
    /// Fields of a network interface. Later versions of the schema store their defaults.
    Interface,
}

impl Members {
    /// Returns the kind of members of the member `name`.
    fn of(self, name: &str) -> Self {
        match name {
            _ if matches!(self, Self::Strings | Self::Quantities) => self,
            "networkInterfaces" => Self::Interface,
            "limits" | "requests" => Self::Quantities,
            "labels" | "annotations" | "matchLabels" => Self::Strings,
            _ => Self::Fields,
        }
    }

    /// True if such a member means the same as its absence.
    fn is_nothing(self, name: &str, value: &Value) -> bool {
        let is_default = || match name {
            "name" => value == "eth0",
            "ipFamilies" => value.as_array().is_some_and(|families| families[..] == ["IPv6"]),
            "reclaimPolicy" => value == "Delete",
            _ => false,
        };
        match self {
            Self::Strings | Self::Quantities => false,
            _ if value.is_object() && SAYS_SOMETHING.contains(&name) => false,
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

/// True if a value means the same as its absence.
fn is_nothing(value: &Value) -> bool {
    is_empty(value) || value.as_str().is_some_and(str::is_empty)
}

/// Turns a field set into its JSON text. The tree of maps takes 10 KiB, twice as much as the other fields of a deployment, and
/// the text half a KiB.
pub fn pack(owned: &mut FieldsV1) {
    if owned.0.is_object() {
        owned.0 = Value::String(owned.0.to_string());
    }
}

/// Turns such a text into its field set.
pub fn unpack(packed: &mut FieldsV1) {
    if let Some(fields) = packed.0.as_str().and_then(|text| serde_json::from_str(text).ok()) {
        packed.0 = fields;
    }
}

/// True if `live` has everything in `wanted`. Additional fields of others do not count.
fn contains(place: Place<'_>, live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(field, wanted)| {
            let place = place.field(field);
            live.get(field).map_or_else(|| is_absent(place, wanted), |live| contains(place, live, wanted))
        }),
        (Value::Array(live), Value::Array(wanted)) => contains_entries(place, live, wanted),
        (live, wanted) => live == wanted,
    }
}

/// True if a list has every entry of `wanted`, in their order. In an associative list, entries of others may be between ours.
/// Every other list is one value, without entries of others.
///
/// An API server keeps the order of the applied entries, and inserts the entries of others between them. So nothing changes
/// exactly if our entries already have this order. The order of conditions does not matter.
fn contains_entries(place: Place<'_>, live: &[Value], wanted: &[Value]) -> bool {
    let (keys, items) = (place.list_type(), place.items());
    let (Some(live_entries), Some(wanted_entries)) = (keyed(keys, live), keyed(keys, wanted)) else {
        let same = |(live, wanted)| contains(items, live, wanted) && contains(items, wanted, live);
        return live.len() == wanted.len() && live.iter().zip(wanted).all(same);
    };
    let ours: HashMap<&str, &Value> = wanted_entries.iter().map(|(key, entry)| (&**key, *entry)).collect();
    let mut standing = live_entries.iter().filter(|(key, _)| ours.contains_key(&**key));
    if place.is_status() {
        let live: HashMap<&str, &Value> = standing.map(|(key, entry)| (&**key, *entry)).collect();
        return ours.iter().all(|(key, wanted)| live.get(key).is_some_and(|live| contains(items, live, wanted)));
    }
    let in_order = wanted_entries.iter().all(|(key, wanted)| {
        standing.next().is_some_and(|(standing, live)| standing == key && contains(items, live, wanted))
    });
    in_order && standing.next().is_none()
}

/// Returns the entries of a list by their keys. `None` if an entry has no key.
fn keyed<'a>(keys: ListType<'_>, entries: &'a [Value]) -> Option<Vec<(Cow<'a, str>, &'a Value)>> {
    entries.iter().map(|entry| Some((entry_key(keys, entry)?, entry))).collect()
}

/// Returns the key of a list entry. `None` in a list that is one value, and for an entry without its key fields.
fn entry_key<'a>(keys: ListType<'_>, entry: &'a Value) -> Option<Cow<'a, str>> {
    let text = |value: &'a Value| value.as_str().map_or_else(|| value.to_string().into(), Cow::from);
    match keys {
        ListType::Atomic => None,
        ListType::Set => Some(text(entry)),
        ListType::Map([key]) => entry.get(key.as_str()?).map(text),
        ListType::Map(keys) => {
            let fields: Option<Vec<&Value>> = keys.iter().map(|key| entry.get(key.as_str()?)).collect();
            fields.map(|fields| fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(",").into())
        }
    }
}

/// True if a wanted value means the same as its absence. Outside of a spec, a typed reader makes empty and absent values equal.
fn is_absent(place: Place<'_>, wanted: &Value) -> bool {
    if place.is_spec() { wanted.is_null() } else { is_empty(wanted) }
}

/// True if `live` has every finalizer of `wanted`. An object's finalizers are a set, to which others add. The finalizers of a
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

/// True if every path of a `fieldsV1` set is still among the wanted fields, and if each value without inner owners is stored as
/// wanted. In CRDs that another operator installed, a value may have no inner owners where our CRD has fields with owners.
fn covers(place: Place<'_>, live: Option<&Value>, wanted: &Value, owned: &Value) -> bool {
    let Some(owned) = owned.as_object() else { return true };
    if owned.is_empty() {
        let is_one_value = !is_empty(wanted) && (wanted.is_object() || wanted.is_array() && !place.is_status());
        let is_wanted = |live| contains(place, live, wanted) && contains(place, wanted, live);
        return !is_one_value || live.is_some_and(is_wanted);
    }
    owned.iter().all(|(path, below)| match path.split_once(':') {
        Some(("f", field)) => wanted
            .get(field)
            .is_some_and(|wanted| covers(place.field(field), live.and_then(|live| live.get(field)), wanted, below)),
        Some(("k", key)) => entry(wanted, key)
            .is_some_and(|wanted| covers(place.items(), live.and_then(|live| entry(live, key)), wanted, below)),
        Some(("v", value)) => wanted
            .as_array()
            .is_some_and(|list| serde_json::from_str::<Value>(value).is_ok_and(|value| list.contains(&value))),
        _ => true,
    })
}

/// Returns the entry of an associative list with these key fields.
fn entry<'a>(list: &'a Value, key: &str) -> Option<&'a Value> {
    let key: Value = serde_json::from_str(key).ok()?;
    let key = key.as_object()?;
    list.as_array()?.iter().find(|entry| key.iter().all(|(field, value)| entry.get(field) == Some(value)))
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
