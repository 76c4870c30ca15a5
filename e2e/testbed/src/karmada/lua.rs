//! Runs the Lua of a ResourceInterpreterCustomization, in Lua 5.1 like Karmada's gopher-lua, with what its sandbox has.

use anyhow::{Context, Result};
use mlua::{Lua, LuaOptions, LuaSerdeExt, StdLib, serde::SerializeOptions};
use serde_json::Value;

use super::conversion::{self, Shape};

/// Calls `function` of `script` with these arguments, and reads its answer as Karmada does: into `shape`, with what is
/// empty told apart by `references`.
///
/// # Errors
/// When the script does not compile, has no such function, or raises, and when its answer cannot be read.
pub fn call(script: &str, function: &str, arguments: &[&Value], shape: Shape, references: &[&Value]) -> Result<Value> {
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, LuaOptions::default())?;
    let globals = lua.globals();
    // Karmada's sandbox has no gsub, and nothing that loads code or files.
    globals.get::<mlua::Table>("string")?.set("gsub", mlua::Nil)?;
    for name in ["dofile", "loadfile", "load", "loadstring", "require"] {
        globals.set(name, mlua::Nil)?;
    }
    lua.load(script).exec().context("the script does not load")?;
    let function: mlua::Function = globals.get(function).with_context(|| format!("no function {function}"))?;
    // JSON null is nil in Lua, and absent members are absent.
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
    fn tables_and_whole_numbers_come_back_as_they_went_in() {
        let object = json!({ "status": { "replicas": 3, "conditions": [{ "type": "A" }] } });
        let status = call("function F(o) return o.status end", "F", &[&object], Shape::Object, &[]).unwrap();
        assert_eq!(status, object["status"]);
    }

    /// Found by reading: generations of the hub's object and of the cell's were compared, which have nothing to do with each other.
    #[test]
    fn a_cell_of_the_go_operators_has_observed_what_came_with_its_own_object() {
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
            let said = call(script, "ReflectStatus", &[&object], Shape::Object, &[]).unwrap();
            assert_eq!((&said["observedSourceGeneration"], &said["replicas"]), (&observed, &json!(1)), "{object}");
        }
    }

    /// Found by reading: a number above which `minReplicas` was raised stood in the cell for ever.
    #[test]
    fn a_cells_number_of_instances_is_kept_within_the_bounds_where_autoscaling_is_asked_for() {
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

    /// Found on real Karmada: with a variable `A@B` no status ever came back, and with 10,000 variables nothing did.
    #[test]
    fn aggregation_answers_the_status_and_who_it_is_of_whatever_managed_fields_hold() {
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
    fn there_is_no_gsub() {
        assert!(call("function F() return string.gsub('a', 'a', 'b') end", "F", &[], Shape::Object, &[]).is_err());
    }
}
