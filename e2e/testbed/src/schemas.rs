//! JSON schemas of the definitions, for editors and for checks before an apply.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::{binaries::root, manifests::documents};

/// Returns the JSON schema of each served version, by its path: `GROUP/KIND_VERSION.json` in lower case, as kubeconform looks for it.
///
/// # Errors
/// Returns an error if a definition cannot be read.
pub fn files() -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(root().join("crds"))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        for definition in documents(&fs::read_to_string(&path)?)? {
            let spec = &definition["spec"];
            let kind = spec["names"]["kind"].as_str().with_context(|| format!("{}: no kind", path.display()))?;
            let group = spec["group"].as_str().unwrap_or_default();
            for version in spec["versions"].as_array().into_iter().flatten() {
                let name = version["name"].as_str().unwrap_or_default();
                let mut schema = strict(&version["schema"]["openAPIV3Schema"]);
                let api = format!("{group}/{name}");
                schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
                schema["properties"]["apiVersion"] = json!({ "type": "string", "enum": [api] });
                schema["properties"]["kind"] = json!({ "type": "string", "enum": [kind] });
                schema["properties"]["metadata"] = json!({ "type": "object" });
                files.insert(format!("{group}/{}_{name}.json", kind.to_lowercase()), format!("{schema:#}\n"));
            }
        }
    }
    Ok(files)
}

/// Writes the files to a folder.
///
/// # Errors
/// Returns an error if the folder cannot be written.
pub fn write(dir: &Path) -> Result<()> {
    for (name, text) in files()? {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap_or(dir))?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns a schema of a definition as a JSON schema. A field that is not in it is refused, so that a misspelt name is found.
fn strict(schema: &Value) -> Value {
    let Value::Object(schema) = schema else { return schema.clone() };
    let is = |name: &str| schema.get(name) == Some(&Value::Bool(true));
    let mut strict_one = Map::new();
    for (name, value) in schema {
        let value = match name.as_str() {
            "properties" => {
                Value::Object(value.as_object().into_iter().flatten().map(|(n, v)| (n.clone(), strict(v))).collect())
            }
            "items" | "additionalProperties" => strict(value),
            _ if name.starts_with("x-kubernetes-") => continue,
            _ => value.clone(),
        };
        strict_one.insert(name.clone(), value);
    }
    if is("x-kubernetes-int-or-string") {
        strict_one.remove("anyOf");
        strict_one.insert("type".to_owned(), json!(["integer", "string"]));
    }
    let is_closed = schema.contains_key("properties") && !schema.contains_key("additionalProperties");
    if is_closed && !is("x-kubernetes-preserve-unknown-fields") {
        strict_one.insert("additionalProperties".to_owned(), json!(false));
    }
    Value::Object(strict_one)
}
