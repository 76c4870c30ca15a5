//! Renders YAML, and applies it to an API server.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, bail};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::Value;

use crate::binaries;

/// Renders a folder with a kustomization with kubectl's kustomize.
pub fn kustomize(dir: &Path) -> Result<String> {
    let kubectl = binaries::find_with_kubectl(&|text| eprintln!("testbed: {text}"))?.join("kubectl");
    let out = Command::new(kubectl).arg("kustomize").arg(dir).output()?;
    if !out.status.success() {
        bail!("{}: {}", dir.display(), String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8(out.stdout)?)
}

/// Applies every document of `text`.
pub async fn apply(client: &Client, text: &str) -> Result<()> {
    for document in documents(text)? {
        apply_value(client, document).await?;
    }
    Ok(())
}

/// Applies one object.
pub async fn apply_value(client: &Client, object: Value) -> Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let api = api(client, &object)?;
    let name = object.name_any();
    let kind = object.types.as_ref().map(|t| t.kind.clone()).unwrap_or_default();
    let params = PatchParams::apply("testbed").force();
    api.patch(&name, &params, &Patch::Apply(&object)).await.with_context(|| format!("cannot apply {kind} {name}"))
}

/// Creates one object, or merges it into the existing one, for servers without server-side apply.
pub async fn create_or_merge(client: &Client, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let api = api(client, &object)?;
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&object)).await?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the documents of a YAML text.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    text.split("\n---")
        .map(|document| document.trim_start_matches('-'))
        .filter(|document| document.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')))
        .map(|document| serde_saphyr::from_str(document).context("not YAML"))
        .collect()
}

/// Returns the API of `object`'s kind, in its namespace if it has one.
pub fn api(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("an object without kind")?;
    let gvk: GroupVersionKind = types.try_into()?;
    let resource = ApiResource::from_gvk(&gvk);
    Ok(match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}
