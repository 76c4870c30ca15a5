use super::*;
use crate::api::compute::{Instance, PlacementStatus, Workload, WorkloadDeployment};
use kube::{CustomResourceExt, core::DynamicObject};
use serde_json::json;

#[path = "diff_generated_tests.rs"]
mod generated;
#[path = "diff_model.rs"]
mod model;

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

/// Returns the schema of the test objects, limited to lists.
fn thing() -> Value {
    let map = |key: &str, items: Value| json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key], "items": items });
    let container = json!({ "properties": { "env": map("name", json!({})) } });
    let spec = json!({ "properties": {
        "containers": map("name", container), "list": map("type", json!({})),
        "set": { "type": "array", "x-kubernetes-list-type": "set" },
    } });
    json!({ "properties": { "spec": spec, "status": { "properties": { "conditions": map("type", json!({})) } } } })
}

fn differs(wanted: &Value, live: &DynamicObject, manager: &str) -> bool {
    differs_from(None, wanted, live, manager)
}

fn status_differs(wanted: &Value, live: &DynamicObject, manager: &str) -> bool {
    differs_from(Some("status"), wanted, live, manager)
}

fn differs_from(subresource: Option<&str>, wanted: &Value, live: &DynamicObject, manager: &str) -> bool {
    let books = live.metadata.managed_fields.as_deref().unwrap();
    differs_at(Place::in_schema(&thing()), subresource, wanted, json!(live), books, manager)
}

#[test]
fn diff_fields_added_by_others_are_equal() {
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
fn diff_atomic_list_is_compared_as_a_whole() {
    let of = |port: Value, more: Value| {
        let mut interface = json!({ "network": { "name": "n" } });
        if !more.is_null() {
            interface["networkPolicy"] = json!({ "ingress": [{ "ports": [port], "from": more }] });
        }
        json!({ "spec": { "networkInterfaces": [interface], "containers": [{ "name": "c", "envFrom": [{ "prefix": "p" }] }] } })
    };
    let range = || of(json!({ "port": 80, "endPort": 90 }), json!([{ "ipBlock": { "cidr": "10.0.0.0/8" } }]));
    let owned = json!({ "f:spec": { "f:networkInterfaces": {} } });
    let (mut open, mut theirs) = (range(), range());
    open["spec"]["networkInterfaces"][0]["networkPolicy"]["ingress"][0]["from"] = json!([]);
    theirs["spec"]["containers"][0]["envFrom"][0] = json!({});
    let closed = of(json!({ "port": 80 }), json!([{ "ipBlock": { "cidr": "10.0.0.0/8" } }]));
    let bare = of(Value::Null, Value::Null);
    for (what, live, wanted) in [
        ("a removed policy", range(), bare),
        ("a removed end of a range", range(), closed),
        ("removed peers", range(), open),
        ("a member of an element inside an associative list", range(), theirs),
    ] {
        assert!(differs(&wanted, &self::live(live.clone(), &owned), ME), "{what}");
        assert!(!differs(&wanted, &self::live(wanted.clone(), &owned), ME), "{what}: applied");
    }
    let schema = thing();
    // A spec is copied unchanged. Outside of a spec, empty and absent are equal also inside such lists.
    let mut empty = range();
    empty["spec"]["networkInterfaces"][0]["networkPolicy"]["ingress"][0]["ports"][0]["more"] = json!([]);
    assert!(differs(&range(), &self::live(empty, &owned), ME));
    let status = |entry: Value| json!({ "status": { "list": [entry] } });
    let (bare, more) = (status(json!({ "a": "1" })), status(json!({ "a": "1", "more": [] })));
    assert!(!differs_at(Place::in_schema(&schema), Some("status"), &bare, more, &[], ME));
    // The finalizers of an object are a set. Those of its template are one value.
    let finalizers = |list: Value| json!({ "spec": { "template": { "metadata": { "finalizers": list } } } });
    assert!(differs(&finalizers(json!(["a"])), &self::live(finalizers(json!(["a", "b"])), &json!({})), ME));
}

/// If the server added a default to an element of an atomic list, each apply would differ from the stored object.
#[test]
fn schema_atomic_list_elements_have_no_defaults() {
    fn walk(schema: &Value, path: &str, lists: &mut Vec<(String, Value)>) {
        for (field, below) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{field}");
            if below["type"] == "array" {
                lists.push((path.clone(), below.clone()));
                walk(&below["items"], &path, lists);
            }
            walk(below, &path, lists);
        }
    }
    fn has_default(schema: &Value) -> bool {
        match schema {
            Value::Object(map) => map.contains_key("default") || map.values().any(has_default),
            _ => false,
        }
    }
    for crd in [Workload::crd(), WorkloadDeployment::crd(), Instance::crd()] {
        let crd = json!(crd);
        let mut lists = Vec::new();
        walk(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut lists);
        assert!(lists.len() > 20, "{}", lists.len());
        for (path, list) in lists.iter().filter(|(_, list)| list["x-kubernetes-list-type"] != "map") {
            // We never apply the placements of a spec. The placements of a status are written with all counters.
            let written_whole = [".spec.placements", ".status.placements"].contains(&&**path);
            assert!(written_whole || !has_default(&list["items"]), "{path}");
        }
    }
    let placement = json!(PlacementStatus::default());
    let counters = ["replicas", "currentReplicas", "desiredReplicas", "readyReplicas", "updatedReplicas"];
    assert!(counters.iter().all(|counter| placement[counter] == 0), "{placement}");
}

/// Two variables that refer to each other were swapped, and the change never left the project.
#[test]
fn diff_order_matters_in_spec_lists_and_not_for_conditions() {
    let env = |names: &[&str]| -> Value { names.iter().map(|name| json!({ "name": name })).collect() };
    let of = |names: &[&str]| json!({ "spec": { "containers": [{ "name": "c", "env": env(names) }] } });
    let book = json!({ "f:spec": { "f:containers": { "k:{\"name\":\"c\"}": { ".": {}, "f:name": {}, "f:env": {
        "k:{\"name\":\"HOST\"}": { ".": {}, "f:name": {} }, "k:{\"name\":\"URL\"}": { ".": {}, "f:name": {} },
    } } } } });
    for (standing, wanted, expected) in [
        (&["URL", "HOST"][..], &["HOST", "URL"][..], true),
        (&["HOST", "URL"], &["HOST", "URL"], false),
        (&["theirs", "HOST", "more", "URL"], &["HOST", "URL"], false),
        (&["URL", "theirs", "HOST"], &["HOST", "URL"], true),
        (&["HOST", "URL", "HOST"], &["HOST", "URL"], true),
        (&["HOST", "URL"], &["HOST"], true),
    ] {
        assert_eq!(differs(&of(wanted), &live(of(standing), &book), ME), expected, "{standing:?} {wanted:?}");
    }
    let set = |values: Value| json!({ "spec": { "set": values } });
    let book = json!({ "f:spec": { "f:set": { "v:\"A\"": {}, "v:\"B\"": {} } } });
    for (standing, expected) in [(json!(["A", "x", "B"]), false), (json!(["B", "A"]), true), (json!(["A"]), true)] {
        assert_eq!(differs(&set(json!(["A", "B"])), &live(set(standing.clone()), &book), ME), expected, "{standing}");
    }
    let conditions =
        |types: [&str; 2]| json!({ "status": { "conditions": types.map(|type_| json!({ "type": type_ })) } });
    let standing = live(conditions(["B", "A"]), &json!({}));
    let mut standing = standing;
    standing.metadata.managed_fields = None;
    let object = json!(standing);
    let differ = differs_at(Place::in_schema(&thing()), Some("status"), &conditions(["A", "B"]), object, &[], ME);
    assert!(!differ, "the order of conditions does not matter");
}

/// In the Go operator's CRDs, a reference is one value, so the server records no owners of its fields.
#[test]
fn diff_value_without_inner_owners_is_compared_as_a_whole() {
    let of =
        |key: Value| json!({ "spec": { "containers": [{ "name": "c", "env": [{ "name": "A", "valueFrom": key }] }] } });
    let key = |optional: Value| {
        let mut key = json!({ "name": "s", "key": "k" });
        key.as_object_mut().unwrap().extend(optional.as_object().unwrap().clone());
        json!({ "secretKeyRef": key })
    };
    let booked = |below: Value| {
        json!({ "f:spec": { "f:containers": { "k:{\"name\":\"c\"}": { "f:env": { "k:{\"name\":\"A\"}": {
            ".": {}, "f:name": {}, "f:valueFrom": { "f:secretKeyRef": below },
        } } } } } })
    };
    let (with, without) = (of(key(json!({ "optional": true }))), of(key(json!({}))));
    assert!(differs(&without, &live(with.clone(), &booked(json!({}))), ME));
    assert!(!differs(&with, &live(with.clone(), &booked(json!({}))), ME));
    let granular = booked(json!({ "f:name": {}, "f:key": {} }));
    assert!(!differs(&without, &live(with, &granular), ME), "where fields have owners, that one is another's");
}

#[test]
fn diff_empty_value_counts_only_in_spec() {
    let of = |part: &str, more: Value| json!({ part: { "a": "1", "more": more } });
    for (part, expected) in [("spec", true), ("metadata", false), ("status", false)] {
        for empty in [json!({}), json!([])] {
            let mut standing = of(part, json!({}));
            standing[part].as_object_mut().unwrap().remove("more");
            let standing = serde_json::from_value::<Value>(standing).unwrap();
            let differ = differs_at(Place::in_schema(&thing()), None, &of(part, empty.clone()), standing, &[], ME);
            assert_eq!(differ, expected, "{part} {empty}");
        }
    }
}

#[test]
fn diff_missing_changed_or_unwanted_field_differs() {
    let owned = json!({ "f:metadata": { "f:labels": { "f:a": {}, "f:b": {} } }, "f:spec": { "f:list": { "k:{\"type\":\"T\"}": { "f:type": {} } } } });
    let object = live(
        json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "list": [{ "type": "T" }], "args": ["x", "y"] } }),
        &owned,
    );
    let same = json!({ "metadata": { "labels": { "a": "1", "b": "2" } }, "spec": { "list": [{ "type": "T" }] } });
    assert!(!differs(&same, &object, ME));
    for (what, wanted) in [
        ("value", json!({ "metadata": { "labels": { "a": "9", "b": "2" } }, "spec": { "list": [{ "type": "T" }] } })),
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
fn standing_form_is_kept_for_equivalent_values() {
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
        (
            json!({ "networkInterfaces": [{ "networkPolicy": {} }] }),
            json!({ "networkInterfaces": [{ "networkPolicy": { "ingress": [] } }] }),
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
        (json!({ "resources": { "limits": { "cpu": "1" } } }), json!({ "resources": { "limits": { "cpu": "2" } } })),
        (json!({ "command": ["a", "b"] }), json!({ "command": ["b", "a"] })),
        // An empty network policy admits no traffic, and a source is selected by its presence.
        (json!({}), json!({ "networkInterfaces": [{ "networkPolicy": {} }] })),
        (json!({ "networkInterfaces": [{ "networkPolicy": {} }] }), json!({ "networkInterfaces": [{}] })),
        (json!({ "networkInterfaces": [{}] }), json!({ "networkInterfaces": [{ "networkPolicy": {} }] })),
        (json!({ "volumes": [{ "name": "v" }] }), json!({ "volumes": [{ "name": "v", "secret": {} }] })),
        // The presence of a label has a meaning, even with an empty value.
        (json!({ "labels": { "a": "" } }), json!({ "labels": {} })),
        (json!({ "labels": { "b": "1" } }), json!({ "labels": { "a": "", "b": "1" } })),
        (json!({ "matchLabels": { "a": "" } }), json!({ "matchLabels": { "b": "" } })),
        (json!({ "annotations": { "limits": "1" } }), json!({ "annotations": { "limits": "1000m" } })),
    ] {
        let (live, wanted) = (container(live), container(wanted));
        assert_eq!(in_standing_form(&live, &wanted), wanted, "{live}");
    }
}

/// All members of a template that can be empty, with and without a meaning of the empty value.
#[test]
fn template_members_that_can_be_empty_are_listed() {
    fn walk(schema: &Value, found: &mut std::collections::BTreeSet<String>) {
        let required = |schema: &Value| schema["required"].as_array().is_some_and(|names| !names.is_empty());
        for (field, below) in schema["properties"].as_object().into_iter().flatten() {
            let can_be_empty = match below["type"].as_str() {
                Some("object") => !required(below),
                Some("array") => below["minItems"].is_null(),
                _ => false,
            };
            if can_be_empty {
                found.insert(field.clone());
            }
            walk(below, found);
            walk(&below["items"], found);
        }
    }
    let crd = json!(WorkloadDeployment::crd());
    let mut found = std::collections::BTreeSet::new();
    walk(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"], &mut found);
    let nothing = [
        "add",
        "annotations",
        "args",
        "capabilities",
        "command",
        "drop",
        "env",
        "envFrom",
        "except",
        "finalizers",
        "from",
        "imagePullSecrets",
        "ingress",
        "items",
        "labels",
        "limits",
        "metadata",
        "metrics",
        "populator",
        "ports",
        "requests",
        "resources",
        "schedulingGates",
        "securityContext",
        "spec",
        "target",
        "volumeAttachments",
        "volumes",
    ];
    let unknown: Vec<&String> =
        found.iter().filter(|name| !nothing.contains(&&***name) && !SAYS_SOMETHING.contains(&&***name)).collect();
    assert!(unknown.is_empty(), "does it say something when it is empty? {unknown:?}");
    let gone: Vec<&&str> = nothing.iter().filter(|name| !found.contains(**name)).collect();
    assert!(gone.is_empty(), "{gone:?}");
}

#[test]
fn packed_field_set_compares_the_same() {
    let mut object =
        live(json!({ "status": { "gone": 1 }, "spec": { "a": 1 } }), &json!({ "f:spec": { "f:a": {}, "f:b": {} } }));
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
fn diff_spec_and_status_have_separate_owners() {
    let object = live(json!({ "status": { "gone": 1, "kept": 2 } }), &json!({}));
    assert!(status_differs(&json!({ "status": { "kept": 2 } }), &object, ME), "`gone` must be removed");
    assert!(!differs(&json!({ "status": { "kept": 2 } }), &object, ME));
}
