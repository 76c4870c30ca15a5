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

    #[test]
    fn there_is_no_gsub() {
        assert!(call("function F() return string.gsub('a', 'a', 'b') end", "F", &[]).is_err());
    }
}
