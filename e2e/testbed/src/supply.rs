//! The bill of materials of the operator's binary, from cargo's metadata, in CycloneDX's JSON.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::binaries::root;

/// Returns cargo's metadata of the packages in a build on Linux, with their dependencies. It fetches nothing, because a build has
/// fetched them.
pub fn metadata() -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let platform = format!("--filter-platform={}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version=1", "--locked", "--offline", &platform]).current_dir(root());
    let out = command.output().context("cannot run cargo")?;
    if !out.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(serde_json::from_slice(&out.stdout)?)
}

/// Returns the ids of all packages in the operator's binary, without those of tests.
fn built_in(metadata: &Value) -> BTreeSet<&str> {
    let nodes = metadata["resolve"]["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let by_id: HashMap<&str, &Value> = nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let mut left: Vec<&str> = metadata["resolve"]["root"].as_str().into_iter().collect();
    let mut found = BTreeSet::new();
    while let Some(id) = left.pop() {
        let Some(node) = by_id.get(id).filter(|_| found.insert(id)) else { continue };
        for dependency in node["deps"].as_array().into_iter().flatten() {
            let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            if kinds.any(|kind| kind["kind"] != "dev") {
                left.extend(dependency["pkg"].as_str());
            }
        }
    }
    found
}

/// Returns the checksums of the lock file, by name and version.
fn checksums() -> Result<BTreeMap<(String, String), String>> {
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    let field = |entry: &str, name: &str| {
        let from = entry.split(&format!("\n{name} = \"")).nth(1)?;
        from.split('"').next().map(str::to_owned)
    };
    let entries = lock.split("[[package]]").skip(1);
    let known = entries
        .filter_map(|entry| Some(((field(entry, "name")?, field(entry, "version")?), field(entry, "checksum")?)));
    Ok(known.collect())
}

/// Returns the bill of materials of the operator's binary.
///
/// # Errors
/// Returns an error if cargo fails, or a registry package has no checksum in the lock file.
pub fn bill_of_materials() -> Result<Value> {
    let metadata = metadata()?;
    let (ids, checksums) = (built_in(&metadata), checksums()?);
    let mut components = Vec::new();
    let mut operator = Value::Null;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |field: &str| package[field].as_str().unwrap_or_default();
        if !ids.contains(text("id")) {
            continue;
        }
        let (name, version) = (text("name"), text("version"));
        let mut component = json!({
            "type": "library", "name": name, "version": version, "purl": format!("pkg:cargo/{name}@{version}"),
            "licenses": [{ "expression": text("license").replace('/', " OR ") }],
        });
        if package["source"].is_null() {
            component["type"] = json!("application");
            operator = component;
            continue;
        }
        let sum = checksums.get(&(name.to_owned(), version.to_owned()));
        let sum = sum.with_context(|| format!("{name} {version} has no checksum in Cargo.lock"))?;
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        components.push(component);
    }
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": operator }, "components": components,
    }))
}
