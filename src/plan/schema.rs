//! Our own definitions: which fields they know (what stands beside them in an object is of a newer version, and not ours), and
//! how a server that applies a list tells its entries apart.

use std::{collections::BTreeMap, sync::LazyLock};

use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::api::compute::{Instance, Workload, WorkloadDeployment};

/// The schema of each of our kinds, by its name.
static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let definitions = [Workload::crd(), WorkloadDeployment::crd(), Instance::crd()];
    let schema = |crd| serde_json::to_value(crd).ok()?.pointer_mut("/schema/openAPIV3Schema").map(Value::take);
    definitions
        .into_iter()
        .map(|mut crd| {
            crd.spec.versions.truncate(1);
            // A kind of ours without a schema would be one of which we know nothing, and then nothing of it is ours.
            (crd.spec.names.kind, crd.spec.versions.pop().and_then(schema).unwrap_or_default())
        })
        .collect()
});

/// The definition of every object's metadata, as far as lists are concerned.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    json!({ "properties": {
        "finalizers": { "type": "array", "x-kubernetes-list-type": "set" },
        "ownerReferences": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
        },
    } })
});

/// How a server that applies a list tells its entries apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ListType<'a> {
    /// Not at all: the list is one value, which has one owner.
    Atomic,
    /// By their values.
    Set,
    /// By these fields of theirs.
    Map(&'a [Value]),
}

/// The part of an object that a place is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Root,
    Spec,
    Status,
    Other,
}

/// A place in the objects of a kind, as the definition of the kind has it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    schema: Option<&'a Value>,
    part: Part,
}

impl Place<'static> {
    /// The whole object of this kind. Of a kind that is not ours the metadata alone is known, and every other list is one value.
    pub fn of(kind: &str) -> Self {
        Self { schema: SCHEMAS.get(kind), part: Part::Root }
    }
}

impl<'a> Place<'a> {
    /// The whole object of a kind with this schema.
    #[cfg(test)]
    pub fn in_schema(schema: &'a Value) -> Self {
        Self { schema: Some(schema), part: Part::Root }
    }

    /// The member `name` of the object that stands here.
    pub fn field(self, name: &str) -> Self {
        let part = match (self.part, name) {
            (Part::Root, "metadata") => return Self { schema: Some(&METADATA), part: Part::Other },
            (Part::Root, "spec") if self.schema.is_some() => Part::Spec,
            (Part::Root, "status") => Part::Status,
            (Part::Root, _) => Part::Other,
            (part, _) => part,
        };
        Self { schema: self.schema.and_then(|schema| member(schema, name)), part }
    }

    /// The entries of the list that stands here.
    pub fn items(self) -> Self {
        Self { schema: self.schema.and_then(|schema| schema.get("items")), part: self.part }
    }

    /// How the entries of the list that stands here are told apart.
    pub fn list_type(self) -> ListType<'a> {
        let says = |key: &str| self.schema.and_then(|schema| schema.get(key));
        match (says("x-kubernetes-list-type").and_then(Value::as_str), says("x-kubernetes-list-map-keys")) {
            (Some("set"), _) => ListType::Set,
            (Some("map"), Some(Value::Array(keys))) => ListType::Map(keys),
            _ => ListType::Atomic,
        }
    }

    /// True in the spec of one of our kinds, which is carried as it is written: an empty list is not an absent one.
    pub fn is_spec(self) -> bool {
        self.part == Part::Spec
    }

    /// True in a status, where the order of conditions says nothing.
    pub fn is_status(self) -> bool {
        self.part == Part::Status
    }
}

/// Those of the paths below `field` of an object of this kind that its definition knows, in the form of `fieldsV1`. Of a
/// kind that is not ours all are known.
pub fn known(kind: &str, field: &str, paths: &Map<String, Value>) -> Map<String, Value> {
    match SCHEMAS.get(kind) {
        None => paths.clone(),
        Some(schema) => child(schema, field).map_or_else(Map::new, |schema| known_below(schema, paths)),
    }
}

fn known_below(schema: &Value, paths: &Map<String, Value>) -> Map<String, Value> {
    if knows_all(schema) {
        return paths.clone();
    }
    let known = |(path, below): (&String, &Value)| {
        // The object itself is as well known as the path that leads to it.
        let below = match below.as_object() {
            Some(deeper) if path != "." => {
                let schema = child(schema, path)?;
                let known = known_below(schema, deeper);
                if known.is_empty() && !deeper.is_empty() {
                    return None;
                }
                Value::Object(known)
            }
            _ => below.clone(),
        };
        Some((path.clone(), below))
    };
    paths.iter().filter_map(known).collect()
}

/// The schema of what `path` leads to; nothing when this one does not know it.
fn child<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    match path.strip_prefix("f:") {
        Some(name) => member(schema, name),
        None => schema.get("items"),
    }
}

/// The schema of the member `name` of an object; nothing when this one does not know it.
fn member<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let property = schema.get("properties").and_then(|properties| properties.get(name));
    property.or_else(|| schema.get("additionalProperties").filter(|values| **values != Value::Bool(false)))
}

/// Whether it takes whatever stands there.
fn knows_all(schema: &Value) -> bool {
    *schema == Value::Bool(true) || schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn known_of(kind: &str, paths: &Value) -> Value {
        known(kind, "f:spec", paths.as_object().unwrap()).into()
    }

    #[test]
    fn each_of_our_kinds_has_a_schema() {
        for kind in ["Workload", "WorkloadDeployment", "Instance"] {
            assert!(child(&SCHEMAS[kind], "f:spec").is_some(), "{kind}");
        }
    }

    /// What later definitions of the Go operator have: applied over them, ours may lose none of it.
    #[test]
    fn later_fields_are_known() {
        let interface = json!({ "f:name": {}, "f:ipFamilies": {}, "f:reclaimPolicy": {}, "f:addresses": {} });
        let security = json!({
            "f:allowPrivilegeEscalation": {}, "f:seccompProfile": { "f:type": {} },
            "f:capabilities": { "f:add": { "v:\"SYS_TIME\"": {} }, "f:drop": {} },
        });
        let container = json!({ "k:{\"name\":\"c\"}": { "f:securityContext": security } });
        let instance = json!({
            "f:runtime": { "f:class": {}, "f:sandbox": { "f:containers": container } },
            "f:networkInterfaces": { "k:{\"name\":\"eth0\"}": interface },
        });
        assert_eq!(known_of("Instance", &instance), instance);
        for kind in ["WorkloadDeployment", "Workload"] {
            let template = json!({ "f:template": { "f:spec": instance } });
            assert_eq!(known_of(kind, &template), template, "{kind}");
        }
        let address = json!({ "f:family": {}, "f:address": {}, "f:gateway": {}, "f:primary": {}, "f:class": {} });
        let interface = json!({
            "f:name": {}, "f:networkInterfaceRef": { "f:name": {} }, "f:conditions": {}, "f:assignments": {},
            "f:addresses": { "v:{}": address }, "f:externalAddresses": { "v:{}": { "f:class": {} } },
        });
        let status = json!({ "f:suspended": {}, "f:dns": { "v:{}": { "f:any": { "f:depth": {} } } }, "f:networkInterfaces": { "v:{}": interface } });
        let known_status =
            |kind: &str, paths: &Value| -> Value { known(kind, "f:status", paths.as_object().unwrap()).into() };
        assert_eq!(known_status("Instance", &status), status);
        let status =
            json!({ "f:suspended": {}, "f:updatedReplicas": {}, "f:selector": {}, "f:observedGeneration": {} });
        assert_eq!(known_status("WorkloadDeployment", &status), status);
    }

    #[test]
    fn what_the_definition_has_is_known_and_nothing_else() {
        let in_template = |paths: Value| json!({ "f:template": { "f:spec": paths } });
        let container = |paths: Value| {
            in_template(json!({ "f:runtime": { "f:sandbox": { "f:containers": { "k:{\"name\":\"c\"}": paths } } } }))
        };
        let all: [Value; 7] = [
            json!({ ".": {}, "f:cityCode": {}, "f:replicas": {} }),
            json!({ "f:template": { "f:metadata": { "f:labels": { ".": {}, "f:any.example.com/name": {} } } } }),
            in_template(json!({ "f:runtime": { "f:resources": { "f:requests": { "f:cpu": {} } } } })),
            in_template(json!({ "f:networkInterfaces": {} })),
            in_template(json!({ "f:volumes": { "v:{\"name\":\"v\"}": { "f:name": {} } } })),
            container(json!({ ".": {}, "f:image": {}, "f:env": { "k:{\"name\":\"A\"}": { ".": {}, "f:value": {} } } })),
            in_template(json!({ "f:runtime": { ".": {} } })),
        ];
        for paths in all {
            assert_eq!(known_of("WorkloadDeployment", &paths), paths);
        }
        for paths in [
            json!({ "f:newer": {} }),
            json!({ "f:newer": { ".": {}, "f:deep": {} } }),
            json!({ "f:cityCode": { "f:deep": {} } }),
            in_template(json!({ "f:runtime": { "f:newer": {} } })),
            container(json!({ "f:securityContext": { "f:runAsUser": {} } })),
        ] {
            assert_eq!(known_of("WorkloadDeployment", &paths), json!({}), "{paths}");
            assert_eq!(known_of("PropagationPolicy", &paths), paths, "nothing is said of the kinds of others");
        }
        let mixed = container(json!({ ".": {}, "f:image": {}, "f:newer": { ".": {} } }));
        assert_eq!(known_of("WorkloadDeployment", &mixed), container(json!({ ".": {}, "f:image": {} })));
    }
}
