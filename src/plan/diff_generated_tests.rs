//! Pairs of versions at random, of every list and field that the definitions have: what counts as equal here changes nothing on a
//! server that applies it, and what is applied stands as it is wanted.

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

/// How many pairs of each kind and part are tried.
const PAIRS: u64 = 400;

fn schema<K: CustomResourceExt>() -> Value {
    json!(K::crd())["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

/// An object as our types read it, and what the server says of who applied what.
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

/// A part of an object as our types write it.
fn written<K: Known + DeserializeOwned>(server: &Server, part: &str, value: &Value) -> Option<Value> {
    let server = Server { object: json!({ part: value }), ..Server::new(&server.schema) };
    let object: K = read(&server, None)?;
    serde_json::to_value(object).ok().map(|mut object| object[part].take())
}

/// What an apply of this version of a spec would send, beside what stands.
fn asked<K: Known + DeserializeOwned>(part: &str, live: &K, wanted: &Value) -> Value {
    let standing = json!(live)[part].take();
    json!({ part: if part == "spec" { in_standing_form(&standing, wanted) } else { wanted.clone() } })
}

/// A value without what says nothing in a status: what is empty, and the order of conditions.
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

/// One pair of versions, the second applied over the first; `others`: another field manager has applied its own meanwhile.
/// Says whether it differed; nothing where our types do not read it.
fn holds<K: Known + DeserializeOwned>(server: &mut Server, part: &str, seed: u64, others: bool) -> Option<bool> {
    let subresource = (part == "status").then_some("status");
    let schema = server.schema.clone();
    let below = &schema["properties"][part];
    let mut generator = Generator::new(seed);
    let first = generator.value(below);
    // Of some nothing is changed.
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

/// Every list was compared by its keys alone: entries in another order were equal, and never arrived.
#[test]
fn pairs_that_count_as_equal_change_nothing_on_a_server() {
    try_all::<Workload>(|_| (), true);
    try_all::<WorkloadDeployment>(|_| (), true);
    try_all::<Instance>(|_| (), true);
}

/// Where another operator has installed the definitions, references and sources are one value each.
#[test]
fn pairs_that_count_as_equal_change_nothing_where_references_are_one_value() {
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

/// What stands after an apply is what was written, in its order and with its empty values where these say something.
#[test]
fn specs_arrive_as_they_are_written() {
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
            // Where a member that must be there went by the way, our types do not read it.
            let Some(live) = read::<WorkloadDeployment>(&server, None) else { break };
            let standing = json!(live.spec);
            assert_eq!(meaning(&standing), meaning(&wanted), "seed {seed}");
        }
    }
}

/// A spec without the empty values that say nothing. A server leaves some of these where it takes others out of them.
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
