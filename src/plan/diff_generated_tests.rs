//! Random pairs of versions, of every list and field of the CRDs. Equal pairs must change nothing on a server that applies them,
//! and an applied version must be stored unchanged.

use std::sync::Arc;

use kube::{CustomResourceExt, Resource};
use serde::de::DeserializeOwned;

use super::{super::*, ME, model::Server};
use crate::{
    api::compute::{Instance, Workload, WorkloadDeployment},
    plan::Known,
};
use serde_json::json;

#[path = "../../tests/common/generated.rs"]
mod generator;

use generator::Generator;

/// Number of pairs for each kind and part.
const PAIRS: u64 = 400;

fn schema<K: CustomResourceExt>() -> Value {
    json!(K::crd())["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

/// Returns an object as our types decode it, with the managed fields of the server.
fn read<K: Known + DeserializeOwned>(server: &Server, subresource: Option<&str>) -> Option<K> {
    let mut object = server.object.clone();
    object["metadata"] = json!({ "name": "x", "managedFields": [{
        "manager": ME, "operation": "Apply", "subresource": subresource, "fieldsV1": server.fields_v1(ME),
    }] });
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    if object["spec"].is_null() {
        object["spec"] = Generator::new(0).value(&server.schema["properties"]["spec"]);
    }
    serde_json::from_value(object).ok()
}

/// Returns a part of an object as our types encode it.
fn written<K: Known + DeserializeOwned>(server: &Server, part: &str, value: &Value) -> Option<Value> {
    let server = Server { object: json!({ part: value }), ..Server::new(&server.schema) };
    let object: K = read(&server, None)?;
    serde_json::to_value(object).ok().map(|mut object| object[part].take())
}

/// Returns the fields that an apply of this version would send for this live object.
fn asked<K: Known + DeserializeOwned>(part: &str, live: &K, wanted: &Value) -> Value {
    let standing = json!(live)[part].take();
    json!({ part: if part == "spec" { in_standing_form(&standing, wanted) } else { wanted.clone() } })
}

/// Removes details without meaning in a status: empty values, and the order of conditions.
fn as_status(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| (name, as_status(value)));
            Value::Object(members.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(entries) => {
            let mut entries: Vec<Value> = entries.into_iter().map(as_status).collect();
            if entries.iter().all(|entry| entry["type"].is_string()) {
                entries.sort_by_key(|entry| entry["type"].to_string());
            }
            Value::Array(entries)
        }
        other => other,
    }
}

/// Applies the second of two versions over the first. If `others` is true, another field manager applies its own fields between.
/// Returns true if the versions differed. `None` if our types do not decode them.
fn holds<K: Known + DeserializeOwned>(server: &mut Server, part: &str, seed: u64, others: bool) -> Option<bool> {
    let subresource = (part == "status").then_some("status");
    let schema = server.schema.clone();
    let below = &schema["properties"][part];
    let mut generator = Generator::new(seed);
    let first = generator.value(below);
    // Some pairs have equal versions.
    let second = if seed % 4 == 1 { first.clone() } else { generator.edited(below, &first) };
    let theirs = generator.edited(below, &first);
    let (first, second) = (written::<K>(server, part, &first)?, written::<K>(server, part, &second)?);
    server.apply(ME, &json!({ part: first }));
    if others && seed.is_multiple_of(2) {
        server.apply("other", &json!({ part: theirs }));
    }
    let mut differed = None;
    for _ in 0..4 {
        let live: K = read(server, subresource)?;
        let fields = asked(part, &live, &second);
        let differs = match part {
            "status" => status_differs(&fields, &live, ME),
            _ => differs(&fields, &live, ME),
        };
        let before = server.object.clone();
        server.apply(ME, &fields);
        if !differs {
            let same = |value: &Value| if part == "status" { as_status(value.clone()) } else { value.clone() };
            assert_eq!(same(&server.object), same(&before), "{part}, seed {seed}: {fields}");
            return Some(differed.is_some());
        }
        differed = Some(());
    }
    panic!("{part}, seed {seed}: it is applied without end: {second} over {}", server.object)
}

fn try_all<K: Known + CustomResourceExt + DeserializeOwned + Resource<DynamicType = ()>>(
    edit: impl Fn(&mut Value),
    others: bool,
) {
    let mut schema = schema::<K>();
    edit(&mut schema);
    let schema = Arc::new(schema);
    for part in ["spec", "status"] {
        let mut seen = [0, 0];
        for seed in 0..PAIRS {
            if let Some(differed) = holds::<K>(&mut Server::new(&schema), part, seed, others) {
                seen[usize::from(differed)] += 1;
            }
        }
        assert!(seen[0] > 10 && seen[1] > PAIRS / 4, "{part}: {seen:?}");
    }
}

/// All lists were compared only by key: a changed order of entries counted as equal, and was never sent.
#[test]
fn diff_equal_pairs_change_nothing_on_server() {
    try_all::<Workload>(|_| (), true);
    try_all::<WorkloadDeployment>(|_| (), true);
    try_all::<Instance>(|_| (), true);
}

/// In CRDs that another operator installed, each reference and each source is one value.
#[test]
fn diff_equal_pairs_change_nothing_with_atomic_references() {
    fn as_go_has_it(schema: &mut Value) {
        const ATOMIC: [&str; 8] = [
            "secretKeyRef",
            "configMapKeyRef",
            "fieldRef",
            "resourceFieldRef",
            "configMap",
            "secret",
            "fileKeyRef",
            "network",
        ];
        match schema {
            Value::Object(members) => {
                for (name, below) in members.iter_mut() {
                    if ATOMIC.contains(&&**name) && below["type"] == "object" {
                        below["x-kubernetes-map-type"] = json!("atomic");
                    }
                    as_go_has_it(below);
                }
            }
            Value::Array(entries) => entries.iter_mut().for_each(as_go_has_it),
            _ => {}
        }
    }
    try_all::<WorkloadDeployment>(as_go_has_it, false);
    try_all::<Instance>(as_go_has_it, false);
}

/// The stored spec is the written one, in its order, and with its empty values if they have a meaning.
#[test]
fn applied_spec_is_stored_as_written() {
    let schema = Arc::new(schema::<WorkloadDeployment>());
    let below = &schema["properties"]["spec"];
    for seed in 0..PAIRS {
        let mut server = Server::new(&schema);
        let mut generator = Generator::new(seed);
        let first = generator.value(below);
        let second = generator.edited(below, &first);
        let wanted: Option<Vec<Value>> =
            [first, second].iter().map(|value| written::<WorkloadDeployment>(&server, "spec", value)).collect();
        for wanted in wanted.into_iter().flatten() {
            for _ in 0..4 {
                let Some(live) = read::<WorkloadDeployment>(&server, None) else { break };
                let fields =
                    if server.object == json!({}) { json!({ "spec": wanted }) } else { asked("spec", &live, &wanted) };
                server.apply(ME, &fields);
            }
            // If a required member was lost, our types do not decode the object.
            let Some(live) = read::<WorkloadDeployment>(&server, None) else { break };
            let standing = json!(live.spec);
            assert_eq!(meaning(&standing), meaning(&wanted), "seed {seed}");
        }
    }
}

/// Removes empty values that have no meaning from a spec. A server keeps some of these, and removes some when it removes their
/// content.
fn meaning(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let says = |name: &String, value: &Value| {
                let is_source = value.is_object() && SAYS_SOMETHING.contains(&&**name);
                is_source || !is_nothing(value)
            };
            let members = members.iter().map(|(name, value)| (name.clone(), meaning(value)));
            Value::Object(members.filter(|(name, value)| says(name, value)).collect())
        }
        Value::Array(entries) => entries.iter().map(meaning).collect(),
        other => other.clone(),
    }
}
