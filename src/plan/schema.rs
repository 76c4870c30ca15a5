//! Which fields our own definitions know: what stands beside them in an object is of a newer version, and not ours.

use std::{collections::BTreeMap, sync::LazyLock};

use kube::CustomResourceExt;
use serde_json::{Map, Value};

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
    let Some(name) = path.strip_prefix("f:") else { return schema.get("items") };
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
