//! Installs definitions, roles and bindings on each control plane.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams},
    runtime::{conditions::is_crd_established, wait::Condition},
};
use serde_json::{Value, json};

use crate::{bed::eventually, binaries, control_plane::ControlPlane, karmada::Flavour, manifests};

/// The purpose of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A project, in which tenants write.
    Project,
    /// The hub, with the stand-in's definitions of Karmada's kinds.
    Hub,
    /// The hub with Karmada's own definitions.
    KarmadaHub,
    /// A cell, in which Instances run.
    Cell,
}

impl Role {
    /// Returns the role of a hub.
    pub(crate) fn hub(flavour: &Flavour) -> Self {
        if *flavour == Flavour::StandIn { Self::Hub } else { Self::KarmadaHub }
    }

    /// Returns its name. No name is a prefix of another.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Hub => "hub",
            Self::KarmadaHub => "karmada",
            Self::Cell => "cell",
        }
    }

    /// Returns the files to install.
    pub(crate) fn files(self) -> Vec<PathBuf> {
        let root = binaries::root();
        let kinds = ["workloads", "workloaddeployments", "instances"];
        let own = kinds.map(|plural| format!("crds/compute.datumapis.com_{plural}.yaml"));
        let of_hub = ["identities", "role", "cell_role", "cell_policy", "management_policy"];
        let of_hub = of_hub.map(|file| format!("config/base/downstream-rbac/{file}.yaml"));
        let component =
            |name: &str| ["role", "role_binding"].map(|file| format!("config/components/{name}/{file}.yaml"));
        let of_testbed = |name: &str| format!("e2e/testbed/crds/{name}.yaml");
        let mut more = Vec::new();
        match self {
            Self::Project => {
                more.push(of_testbed("neighbours"));
                more.extend(["controller_rbac", "quota_rbac"].into_iter().flat_map(component));
            }
            Self::Hub => more.extend(of_hub.into_iter().chain(["karmada", "protection"].map(of_testbed))),
            Self::KarmadaHub => more.extend(of_hub),
            Self::Cell => more.extend([of_testbed("neighbours")].into_iter().chain(component("cell_rbac"))),
        }
        let lease = "config/components/leader_election/role.yaml".to_owned();
        if matches!(self, Self::Project | Self::Cell) {
            more.extend(["rbac", "reader"].map(|file| format!("config/components/prometheus/{file}.yaml")));
        }
        own.into_iter().chain(more).chain([lease]).map(|file| root.join(file)).collect()
    }
}

/// Installs the files of this role in parallel.
pub(crate) async fn install(plane: &ControlPlane, role: Role) -> Result<()> {
    let client = plane.client().await?;
    // Some of the roles are in this namespace.
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "compute-system" } });
    manifests::apply_value(&client, namespace).await?;
    let mut objects: Vec<Value> = Vec::new();
    for file in role.files() {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        objects.extend(manifests::documents(&text)?);
    }
    // An API server refuses a policy about a kind that it does not know yet.
    let (definitions, others): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object["kind"] == "CustomResourceDefinition");
    try_join_all(definitions.into_iter().map(|object| manifests::apply_value(&client, object))).await?;
    served(&client, role).await?;
    try_join_all(others.into_iter().map(|object| manifests::apply_value(&client, object))).await?;
    Ok(())
}

/// Waits until every definition of this role is served and established. An API server serves a definition a while before it is
/// established. A server that starts with one that is not established never establishes it.
pub(crate) async fn served(client: &Client, role: Role) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut kinds = Vec::new();
    for file in role.files() {
        for definition in manifests::documents(&fs::read_to_string(&file)?)? {
            if definition["kind"] == "CustomResourceDefinition" {
                let spec = &definition["spec"];
                let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let version = of(&spec["versions"][0]["name"]);
                let kind = GroupVersionKind::gvk(&of(&spec["group"]), &version, &of(&spec["names"]["kind"]));
                kinds.push((of(&definition["metadata"]["name"]), kind));
            }
        }
    }
    try_join_all(kinds.iter().map(|(name, kind)| {
        let (definitions, one) = (definitions.clone(), ListParams::default().limit(1));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(kind));
        async move {
            eventually(&kind.kind, || async {
                if !is_crd_established().matches_object(definitions.get_opt(name).await?.as_ref()) {
                    bail!("{name} is not established")
                }
                Ok(api.list(&one).await.map(|_| ())?)
            })
            .await
        }
    }))
    .await
    .map(|_| ())
}
