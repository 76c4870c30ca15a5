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
    let Ok(object) = serde_json::to_value(live) else { return true };
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
    formed(live, wanted, false)
}

fn formed(live: &Value, wanted: &Value, quantities: bool) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let standing = live.iter().filter(|(field, live)| is_nothing(live) && !wanted.contains_key(*field));
            let mut formed_fields: Map<String, Value> =
                standing.map(|(field, live)| (field.clone(), live.clone())).collect();
            for (field, wanted) in wanted {
                let quantities = quantities || ["limits", "requests"].contains(&field.as_str());
                match live.get(field) {
                    Some(live) => drop(formed_fields.insert(field.clone(), formed(live, wanted, quantities))),
                    None if is_nothing(wanted) => {}
                    None => drop(formed_fields.insert(field.clone(), wanted.clone())),
                }
            }
            formed_fields.into()
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
                    peer(index, wanted).map_or_else(|| wanted.clone(), |live| formed(live, wanted, quantities))
                })
                .collect()
        }
        (Value::String(live), Value::String(wanted)) if quantities => {
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

/// Whether `live` has everything that `wanted` has. What others added beside it does not count.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(field, wanted)| match live.get(field) {
            Some(live) => contains_field(field, live, wanted),
            // Empty and absent mean the same once the object has been through a typed reader.
            None => is_empty(wanted),
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(l, w)| contains(l, w))
        }
        (live, wanted) => live == wanted,
    }
}

/// Whether the value `live` of a field has everything that `wanted` has. Lists that our schemas and Kubernetes' own declare associative may hold
/// others' entries beside ours; every other list is one value.
fn contains_field(field: &str, live: &Value, wanted: &Value) -> bool {
    let key = match field {
        "ownerReferences" => "uid",
        "conditions" => "type",
        "containers" | "env" | "ports" | "volumes" | "schedulingGates" => "name",
        "finalizers" => "",
        _ => return contains(live, wanted),
    };
    match (live.as_array(), wanted.as_array()) {
        (Some(live), Some(wanted)) if key.is_empty() => wanted.iter().all(|w| live.contains(w)),
        // An ingress rule's ports have no name: those lists are atomic.
        (Some(live), Some(wanted)) if wanted.iter().all(|w| w.get(key).is_some()) => {
            wanted.iter().all(|w| live.iter().any(|l| l.get(key) == w.get(key) && contains(l, w)))
        }
        _ => contains(live, wanted),
    }
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
mod tests {
    use super::*;
    use kube::core::DynamicObject;
    use serde_json::json;

    const ME: &str = "compute-operator-x";

    fn live(mut object: Value, owned: &Value) -> DynamicObject {
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("Thing");
        object["metadata"]["managedFields"] = json!([
            { "manager": "somebody", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": { "f:other": {} } },
            { "manager": ME, "operation": "Apply", "subresource": "status", "fieldsType": "FieldsV1", "fieldsV1": { "f:status": { "f:gone": {} } } },
            { "manager": ME, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": owned },
        ]);
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_others_added_is_no_difference() {
        let wanted = json!({ "metadata": { "labels": { "a": "1" }, "finalizers": ["ours"] }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        let object = live(
            json!({
                "metadata": { "labels": { "a": "1", "theirs": "2" }, "finalizers": ["theirs", "ours"] },
                "spec": { "containers": [{ "name": "other" }, { "name": "c", "image": "i", "pull": "Always" }], "defaulted": true },
            }),
            &json!({ "f:metadata": { "f:labels": { "f:a": {} }, "f:finalizers": { "v:\"ours\"": {} } }, "f:spec": { "f:containers": { "k:{\"name\":\"c\"}": { ".": {}, "f:name": {}, "f:image": {} } } } }),
        );
        assert!(!differs(&wanted, &object, ME));
    }

    #[test]
    fn missing_changed_or_no_longer_wanted_is_a_difference() {
        let owned = json!({ "f:metadata": { "f:labels": { "f:a": {}, "f:b": {} } }, "f:spec": { "f:list": { "k:{\"type\":\"T\"}": { "f:type": {} } } } });
        let object = live(
            json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "list": [{ "type": "T" }], "args": ["x", "y"] } }),
            &owned,
        );
        let same = json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "list": [{ "type": "T" }] } });
        assert!(!differs(&same, &object, ME));
        for (what, wanted) in [
            (
                "value",
                json!({ "metadata": { "labels": { "a": "9", "b": "2" } }, "spec": { "list": [{ "type": "T" }] } }),
            ),
            (
                "new key",
                json!({ "metadata": { "labels": { "a": "1", "b": "2", "c": "3" } }, "spec": { "list": [{ "type": "T" }] } }),
            ),
            ("dropped label", json!({ "metadata": { "labels": { "a": "1" } }, "spec": { "list": [{ "type": "T" }] } })),
            ("dropped entry", json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "list": [] } })),
            (
                "new entry",
                json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "list": [{ "type": "T" }, { "type": "U" }] } }),
            ),
            (
                "order",
                json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "list": [{ "type": "T" }], "args": ["y", "x"] } }),
            ),
            (
                "shorter",
                json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "list": [{ "type": "T" }], "args": ["x"] } }),
            ),
        ] {
            assert!(differs(&wanted, &object, ME), "{what}");
        }
    }

    #[test]
    fn what_means_the_same_stays_in_the_form_that_stands() {
        let container = |more: Value| {
            let mut container = json!({ "name": "c", "image": "i" });
            container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "metadata": {}, "containers": [container] })
        };
        for (live, wanted) in [
            (json!({ "args": [], "resources": {} }), json!({})),
            (json!({}), json!({ "args": [], "resources": {}, "prefix": "" })),
            (
                json!({ "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } }),
                json!({ "resources": { "limits": { "cpu": "1000m", "memory": "1024Mi" } } }),
            ),
            (
                json!({ "env": [{ "name": "A" }, { "name": "B", "value": "2" }] }),
                json!({ "env": [{ "name": "A", "value": "" }, { "name": "B", "value": "2" }] }),
            ),
        ] {
            let (live, wanted) = (container(live), container(wanted));
            assert_eq!(in_standing_form(&live, &wanted), live, "{wanted}");
        }
        for (live, wanted) in [
            (json!({ "env": [{ "name": "A", "value": "1" }, { "name": "B" }] }), json!({ "env": [{ "name": "B" }] })),
            (json!({ "env": [{ "name": "A", "value": "1" }] }), json!({})),
            (json!({ "env": [{ "name": "A", "value": "1" }] }), json!({ "env": [{ "name": "A", "value": "" }] })),
            (json!({ "args": ["1"] }), json!({ "args": ["1000m"] })),
            (
                json!({ "resources": { "limits": { "cpu": "1" } } }),
                json!({ "resources": { "limits": { "cpu": "2" } } }),
            ),
            (json!({ "command": ["a", "b"] }), json!({ "command": ["b", "a"] })),
        ] {
            let (live, wanted) = (container(live), container(wanted));
            assert_eq!(in_standing_form(&live, &wanted), wanted, "{live}");
        }
    }

    #[test]
    fn packed_it_says_the_same() {
        let mut object = live(
            json!({ "status": { "gone": 1 }, "spec": { "a": 1 } }),
            &json!({ "f:spec": { "f:a": {}, "f:b": {} } }),
        );
        let before = object.clone();
        for entry in object.metadata.managed_fields.iter_mut().flatten() {
            pack(entry.fields_v1.as_mut().unwrap());
        }
        assert_ne!(object, before);
        for wanted in [json!({ "spec": { "a": 1 } }), json!({ "spec": { "a": 1, "b": {} } })] {
            assert_eq!(differs(&wanted, &object, ME), differs(&wanted, &before, ME), "{wanted}");
        }
        assert_eq!(status_differs(&json!({}), &object, ME), status_differs(&json!({}), &before, ME));
        assert!(differs(&json!({ "spec": { "a": 1 } }), &object, ME), "`b` is to go");
    }

    #[test]
    fn spec_and_status_are_owned_apart() {
        let object = live(json!({ "status": { "gone": 1, "kept": 2 } }), &json!({}));
        assert!(status_differs(&json!({ "status": { "kept": 2 } }), &object, ME), "`gone` is to go");
        assert!(!differs(&json!({ "status": { "kept": 2 } }), &object, ME));
    }
}
