//! Runs the Lua of a ResourceInterpreterCustomization, in Lua 5.1 like Karmada's gopher-lua, with the functions of its sandbox.

use anyhow::{Context, Result};
use mlua::{Lua, LuaOptions, LuaSerdeExt, StdLib, serde::SerializeOptions};
use serde_json::Value;

use super::conversion::{self, Shape};

/// Calls `function` of `script` with these arguments. Reads the answer as Karmada does: into `shape`, with empty tables resolved
/// by `references`.
///
/// # Errors
/// Returns an error if the script does not compile, lacks the function, or raises an error, or if its answer is unreadable.
pub fn call(script: &str, function: &str, arguments: &[&Value], shape: Shape, references: &[&Value]) -> Result<Value> {
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, LuaOptions::default())?;
    let globals = lua.globals();
    // Karmada's sandbox has no gsub, and no function that loads code or files.
    globals.get::<mlua::Table>("string")?.set("gsub", mlua::Nil)?;
    for name in ["dofile", "loadfile", "load", "loadstring", "require"] {
        globals.set(name, mlua::Nil)?;
    }
    lua.load(script).exec().context("the script does not load")?;
    let function: mlua::Function = globals.get(function).with_context(|| format!("no function {function}"))?;
    // JSON null is nil in Lua, and absent members stay absent.
    let options =
        SerializeOptions::new().serialize_none_to_null(false).serialize_unit_to_null(false).set_array_metatable(false);
    let arguments =
        arguments.iter().map(|value| lua.to_value_with(value, options)).collect::<mlua::Result<Vec<_>>>()?;
    let answer: mlua::Value = function.call(mlua::MultiValue::from_vec(arguments))?;
    conversion::told_apart(conversion::encoded(&answer)?, shape, references)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lua_tables_and_whole_numbers_return_unchanged() {
        let object = json!({ "status": { "replicas": 3, "conditions": [{ "type": "A" }] } });
        let status = call("function F(o) return o.status end", "F", &[&object], Shape::Object, &[]).unwrap();
        assert_eq!(status, object["status"]);
    }

    /// The generations of the hub's object and of the cell's were compared, although they are unrelated.
    #[test]
    fn go_cell_status_observes_the_generation_of_its_own_object() {
        let customization = include_str!("../../../../config/components/federation/interpreter.yaml");
        let customization: Value = serde_saphyr::from_str(customization).unwrap();
        let script = customization["spec"]["customizations"]["statusReflection"]["luaScript"].as_str().unwrap();
        let marks = json!({ "compute.datumapis.com/source-generation": "7" });
        for (annotations, status, observed) in [
            (&marks, json!({ "replicas": 1, "observedGeneration": 12 }), json!(7)),
            (&marks, json!({ "replicas": 1, "observedGeneration": 11 }), json!(null)),
            (&marks, json!({ "replicas": 1 }), json!(null)),
            (&marks, json!({ "replicas": 1, "observedGeneration": 12, "observedSourceGeneration": 6 }), json!(6)),
            (&json!({}), json!({ "replicas": 1, "observedGeneration": 12 }), json!(null)),
            (&json!(null), json!({ "replicas": 1, "observedGeneration": 12 }), json!(null)),
        ] {
            let object = json!({ "metadata": { "generation": 12, "annotations": annotations }, "status": status });
            let reflected = call(script, "ReflectStatus", &[&object], Shape::Object, &[]).unwrap();
            assert_eq!(
                (&reflected["observedSourceGeneration"], &reflected["replicas"]),
                (&observed, &json!(1)),
                "{object}"
            );
        }
    }

    /// The API server gives a new object a status, which would have counted as the report of a cell.
    #[test]
    fn status_of_a_new_object_is_not_reflected() {
        let customization = include_str!("../../../../config/components/federation/interpreter.yaml");
        let customization: Value = serde_saphyr::from_str(customization).unwrap();
        let script = customization["spec"]["customizations"]["statusReflection"]["luaScript"].as_str().unwrap();
        let definition = include_str!("../../../../crds/compute.datumapis.com_workloaddeployments.yaml");
        let definition: Value = serde_saphyr::from_str(definition).unwrap();
        let status = definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status/default").unwrap();
        let mut object = json!({ "metadata": { "generation": 1 }, "status": status });
        let reflected = |object: &Value| call(script, "ReflectStatus", &[object], Shape::Object, &[]).unwrap();
        assert_eq!(reflected(&object), json!({}));
        object["status"]["conditions"] = json!([]);
        assert_eq!(reflected(&object), json!({}));
        object["status"]["conditions"] = json!([{ "type": "Available" }]);
        assert_eq!(reflected(&object), object["status"]);
    }

    /// The cell kept a number below a raised `minReplicas` permanently.
    #[test]
    fn retained_replicas_with_autoscaling_stay_within_the_bounds() {
        let customization = include_str!("../../../../config/components/federation/interpreter.yaml");
        let customization: Value = serde_saphyr::from_str(customization).unwrap();
        let script = customization["spec"]["customizations"]["retention"]["luaScript"].as_str().unwrap();
        let metrics = json!([{ "resource": { "name": "cpu" } }]);
        for (settings, in_cell, kept) in [
            (json!({ "minReplicas": 2 }), json!(5), 3),
            (json!({ "minReplicas": 2, "maxReplicas": 2 }), json!(5), 3),
            (json!({ "minReplicas": 2, "maxReplicas": 9 }), json!(5), 5),
            (json!({ "minReplicas": 2, "maxReplicas": 9 }), json!(1), 2),
            (json!({ "minReplicas": 2, "maxReplicas": 9 }), json!(12), 9),
            (json!({ "minReplicas": 2, "maxReplicas": 9 }), json!(null), 3),
            (json!({ "minReplicas": 2, "metrics": metrics }), json!(1), 2),
            (json!({ "minReplicas": 2, "metrics": metrics }), json!(50), 50),
            (json!({ "minReplicas": 2, "maxReplicas": 1, "metrics": metrics }), json!(5), 2),
            (json!({ "maxReplicas": 9 }), json!(0), 0),
            (json!(null), json!(5), 3),
        ] {
            let desired = json!({ "spec": { "replicas": 3, "scaleSettings": settings } });
            let observed = json!({ "spec": { "replicas": in_cell } });
            let both = [&desired, &observed];
            let retained = call(script, "Retain", &both, Shape::Object, &both).unwrap();
            assert_eq!(retained["spec"]["replicas"], kept, "{settings} with {in_cell} in the cell");
        }
        let desired = json!({ "spec": { "replicas": 3, "scaleSettings": { "minReplicas": 2, "maxReplicas": 9 } } });
        let both = [&desired, &json!({})];
        assert_eq!(call(script, "Retain", &both, Shape::Object, &both).unwrap()["spec"]["replicas"], 3);
    }

    /// On real Karmada, a variable `A@B` blocked every status, and 10,000 variables blocked the whole answer.
    #[test]
    fn aggregation_returns_status_and_identity_for_any_managed_fields() {
        let customization = include_str!("../../../../config/components/federation/interpreter.yaml");
        let customization: Value = serde_saphyr::from_str(customization).unwrap();
        let script = customization["spec"]["customizations"]["statusAggregation"]["luaScript"].as_str().unwrap();
        let who = json!({ "name": "wd", "namespace": "ns", "uid": "u", "resourceVersion": "7" });
        let mut template = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "metadata": who,
            "spec": { "replicas": 1 },
        });
        template["metadata"]["managedFields"] = json!([{ "manager": "compute" }]);
        for name in ["A@B", "A#B", "A|B", "A*B", "A?B", "A.B"] {
            template["metadata"]["managedFields"][0]["fieldsV1"][format!("k:{{\"name\":\"{name}\"}}")] =
                json!({ ".": {} });
        }
        let (status, other) = (json!({ "replicas": 2, "conditions": [{ "type": "A" }] }), json!({ "replicas": 3 }));
        let item = |status: &Value| json!({ "clusterName": "c", "applied": true, "status": status });
        let old = json!({ "replicas": 1 });
        for (name, items, was, is) in [
            ("nobody", json!(null), &old, &old),
            ("none", json!([]), &old, &old),
            ("one", json!([item(&status)]), &old, &status),
            ("the first", json!([item(&json!({})), item(&status), item(&other)]), &old, &status),
            ("none that has reported", json!([{ "clusterName": "c" }]), &Value::Null, &Value::Null),
        ] {
            template["status"] = was.clone();
            let answer = call(script, "AggregateStatus", &[&template, &items], Shape::Object, &[]).unwrap();
            assert_eq!((&answer["status"], &answer["metadata"]), (is, &who), "{name}");
            assert_eq!(answer.get("spec"), None, "{name}");
        }
    }

    #[test]
    fn lua_sandbox_has_no_gsub() {
        assert!(call("function F() return string.gsub('a', 'a', 'b') end", "F", &[], Shape::Object, &[]).is_err());
    }
}
