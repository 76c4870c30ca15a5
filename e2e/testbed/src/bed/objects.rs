//! The initial objects of a testbed.

use std::{fs, path::Path};

use anyhow::{Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Client, ResourceExt,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::eventually;
use crate::{binaries, control_plane::ControlPlane, karmada::TEMPLATES, manifests, pki::User};

/// Label with which policies select a city's cluster.
const CITY: &str = "topology.datum.net/city-code";

/// Installs the operator's interpreter in Karmada.
pub async fn interpreter(hub: &Client) -> Result<()> {
    let text = fs::read_to_string(binaries::root().join("config/components/federation/interpreter.yaml"))?;
    eventually("the interpreter", || manifests::apply(hub, &text)).await
}

/// Returns the uid of a cell, which Karmada stores for a joining cluster.
async fn uid(cell: &ControlPlane) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(cell.client().await?);
    Ok(namespaces.get_metadata("kube-system").await?.uid().unwrap_or_default())
}

/// Creates the user of a city's cell on the hub, as in `config/`.
pub(super) async fn admit(hub: &Client, city: &str, cell: &ControlPlane) -> Result<()> {
    let text = fs::read_to_string(binaries::root().join("config/base/cell-access/user.yaml"))?;
    let text = text.replace("name-of-cell", city).replace("uid-of-cell", &uid(cell).await?);
    manifests::apply(hub, &text).await
}

/// Makes a cell a member of the hub.
pub(super) async fn register(hub: &Client, dir: &Path, city: &str, cell: &ControlPlane) -> Result<()> {
    let ca = STANDARD.encode(fs::read(dir.join("ca.crt"))?);
    let name = cell.name();
    for namespace in ["karmada-cluster".to_owned(), format!("karmada-es-{name}")] {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        manifests::apply_value(hub, namespace).await?;
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "karmada-cluster" },
        "data": { "token": STANDARD.encode(&*User::Admin.token()), "caBundle": ca },
    });
    manifests::apply_value(hub, secret).await?;
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": { "name": name, "labels": { CITY: city } },
        "spec": {
            "id": uid(cell).await?, "syncMode": "Push", "apiEndpoint": format!("https://127.0.0.1:{}", cell.port()),
            "secretRef": { "namespace": "karmada-cluster", "name": name },
        },
    });
    // Real Karmada serves Clusters from its own API server.
    manifests::create_or_merge(hub, cluster).await
}

/// Opens a city to the project.
pub async fn bind_location(project: &Client, city: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "networking.datumapis.com/v1alpha", "kind": "LocationBinding",
        "metadata": { "name": city },
        "spec": { "locationRef": { "name": city }, "locationClassName": "datum-managed", "topology": { CITY: city } },
    });
    manifests::apply_value(project, binding).await.map(|_| ())
}

/// Creates the Location of a cell.
pub(super) async fn locate(cell: &Client, city: &str) -> Result<()> {
    let location = json!({
        "apiVersion": "networking.datumapis.com/v1alpha", "kind": "Location",
        "metadata": { "name": format!("{city}-1") },
        "spec": { "locationClassName": "self-managed", "topology": { CITY: city } },
    });
    manifests::apply_value(cell, location).await.map(|_| ())
}

/// Registers a ready project in Milo.
pub async fn announce(milo: &Client, project: &str) -> Result<()> {
    let object = json!({
        "apiVersion": "resourcemanager.miloapis.com/v1alpha1", "kind": "Project",
        "metadata": { "name": project }, "spec": {},
    });
    manifests::apply_value(milo, object).await?;
    let gvk = GroupVersionKind::gvk("resourcemanager.miloapis.com", "v1alpha1", "Project");
    let api: Api<DynamicObject> = Api::all_with(milo.clone(), &ApiResource::from_gvk(&gvk));
    let status = json!({ "status": { "conditions": [{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    api.patch_status(project, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// Waits until this number of members is ready.
pub(super) async fn clusters_ready(hub: &Client, count: usize) -> Result<()> {
    let gvk = GroupVersionKind::gvk("cluster.karmada.io", "v1alpha1", "Cluster");
    let api: Api<DynamicObject> = Api::all_with(hub.clone(), &ApiResource::from_gvk(&gvk));
    eventually("the clusters", || async {
        let clusters = api.list(&ListParams::default()).await?;
        // If the scheduler refuses a deployment because the API is still unknown, it does not retry (fact 66).
        let ready = |c: &DynamicObject| {
            let (status, served) = (&c.data["status"], c.data["status"]["apiEnablements"].to_string());
            let conditions = status["conditions"].as_array();
            conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
                && TEMPLATES.iter().all(|kind| served.contains(&format!("{kind:?}")))
        };
        let ready = clusters.items.iter().filter(|c| ready(c)).count();
        if ready < count {
            bail!("{ready} of {count} clusters are ready")
        }
        Ok(())
    })
    .await
}
