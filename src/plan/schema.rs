//! Schemas of our CRDs. They list the fields that we know, and the keys of the entries of a list in an apply. An unknown
//! field in an object belongs to a newer version, not to us.

use std::{collections::BTreeMap, sync::LazyLock};

use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::api::compute::{Instance, Workload, WorkloadDeployment};

/// The schema of each of our kinds, by name.
static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let definitions = [Workload::crd(), WorkloadDeployment::crd(), Instance::crd()];
    let schema = |crd| serde_json::to_value(crd).ok()?.pointer_mut("/schema/openAPIV3Schema").map(Value::take);
    definitions
        .into_iter()
        .map(|mut crd| {
            crd.spec.versions.truncate(1);
            // Without a schema, no field of the kind would be known, and none would count as ours.
            (crd.spec.names.kind, crd.spec.versions.pop().and_then(schema).unwrap_or_default())
        })
        .collect()
});

/// The schema of every object's metadata, limited to lists.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    json!({ "properties": {
        "finalizers": { "type": "array", "x-kubernetes-list-type": "set" },
        "ownerReferences": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
        },
    } })
});

/// The way in which an API server identifies the entries of a list in an apply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ListType<'a> {
    /// The list is one value with one owner.
    Atomic,
    /// By the values of the entries.
    Set,
    /// By these key fields of the entries.
    Map(&'a [Value]),
}

/// The part of an object that contains a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Root,
    Spec,
    Status,
    Other,
}

/// A place in the objects of a kind, by the schema of the kind.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    schema: Option<&'a Value>,
    part: Part,
}

impl Place<'static> {
    /// Returns the root of an object of this kind. For other kinds than ours, only the metadata is known, and each other list is
    /// one value.
    pub fn of(kind: &str) -> Self {
        Self { schema: SCHEMAS.get(kind), part: Part::Root }
    }
}

impl<'a> Place<'a> {
    /// Returns the root of an object with this schema.
    #[cfg(test)]
    pub fn in_schema(schema: &'a Value) -> Self {
        Self { schema: Some(schema), part: Part::Root }
    }

    /// Returns the place of the member `name`.
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

    /// Returns the place of the entries of the list.
    pub fn items(self) -> Self {
        Self { schema: self.schema.and_then(|schema| schema.get("items")), part: self.part }
    }

    /// Returns how the entries of the list are identified.
    pub fn list_type(self) -> ListType<'a> {
        let says = |key: &str| self.schema.and_then(|schema| schema.get(key));
        match (says("x-kubernetes-list-type").and_then(Value::as_str), says("x-kubernetes-list-map-keys")) {
            (Some("set"), _) => ListType::Set,
            (Some("map"), Some(Value::Array(keys))) => ListType::Map(keys),
            _ => ListType::Atomic,
        }
    }

    /// True in the spec of one of our kinds. A spec is copied unchanged: an empty list differs from an absent one.
    pub fn is_spec(self) -> bool {
        self.part == Part::Spec
    }

    /// True in a status. There, the order of conditions does not matter.
    pub fn is_status(self) -> bool {
        self.part == Part::Status
    }
}

/// Returns the paths below `field` that the schema of this kind knows, in the form of `fieldsV1`. For other kinds than ours, all
/// paths are known.
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
        // The path `.` is the object itself, which is known because its path is.
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

/// Returns the schema of the value at `path`. `None` if this schema does not know it.
fn child<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    match path.strip_prefix("f:") {
        Some(name) => member(schema, name),
        None => schema.get("items"),
    }
}

/// Returns the schema of the member `name` of an object. `None` if this schema does not know it.
fn member<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let property = schema.get("properties").and_then(|properties| properties.get(name));
    property.or_else(|| schema.get("additionalProperties").filter(|values| **values != Value::Bool(false)))
}

/// True if the schema accepts any value.
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
    fn schema_exists_for_each_of_our_kinds() {
        for kind in ["Workload", "WorkloadDeployment", "Instance"] {
            assert!(child(&SCHEMAS[kind], "f:spec").is_some(), "{kind}");
        }
    }

    /// Later CRDs of the Go operator have these fields. If our CRDs are applied over them, no field may be lost.
    #[test]
    fn schema_knows_later_fields() {
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
    fn schema_knows_exactly_the_fields_of_the_crd() {
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
            assert_eq!(known_of("PropagationPolicy", &paths), paths, "all fields of other kinds are known");
        }
        let mixed = container(json!({ ".": {}, "f:image": {}, "f:newer": { ".": {} } }));
        assert_eq!(known_of("WorkloadDeployment", &mixed), container(json!({ ".": {}, "f:image": {} })));
    }
}
