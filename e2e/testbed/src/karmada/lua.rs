//! Runs the Lua of a ResourceInterpreterCustomization, in Lua 5.1 like Karmada's gopher-lua, with what its sandbox has.

use anyhow::{Context, Result};
use mlua::{Lua, LuaOptions, LuaSerdeExt, StdLib, serde::SerializeOptions};
use serde_json::Value;

/// Calls `function` of `script` with these arguments.
///
/// # Errors
/// When the script does not compile, has no such function, or raises.
pub fn call(script: &str, function: &str, arguments: &[&Value]) -> Result<Value> {
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
    let options = SerializeOptions::new().serialize_none_to_null(false).serialize_unit_to_null(false);
    let arguments =
        arguments.iter().map(|value| lua.to_value_with(value, options)).collect::<mlua::Result<Vec<_>>>()?;
    let answer: mlua::Value = function.call(mlua::MultiValue::from_vec(arguments))?;
    Ok(lua.from_value(answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_and_whole_numbers_come_back_as_they_went_in() {
        let object = json!({ "status": { "replicas": 3, "conditions": [{ "type": "A" }] } });
        let status = call("function F(o) return o.status end", "F", &[&object]).unwrap();
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
            let said = call(script, "ReflectStatus", &[&object]).unwrap();
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
            let retained = call(script, "Retain", &[&desired, &observed]).unwrap();
            assert_eq!(retained["spec"]["replicas"], kept, "{settings} with {in_cell} in the cell");
        }
        let desired = json!({ "spec": { "replicas": 3, "scaleSettings": { "minReplicas": 2, "maxReplicas": 9 } } });
        assert_eq!(call(script, "Retain", &[&desired, &json!({})]).unwrap()["spec"]["replicas"], 3);
    }

    #[test]
    fn there_is_no_gsub() {
        assert!(call("function F() return string.gsub('a', 'a', 'b') end", "F", &[]).is_err());
    }
}
