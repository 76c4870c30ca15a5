//! Events in the life of a running Workload: changed data, and external edits.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    manifests,
    status::{condition, list},
};

use super::{NAMESPACE, PATIENCE, view::View};

/// The deployment that the demo follows.
const DEPLOYMENT: &str = "hello-edge-dfw";
const CITY: &str = "dfw";
const CITY_LABEL: &str = "topology.datum.net/city-code";

/// A step of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The tenant changes the Secret of both cities.
    SecretRotated,
    /// The tenant refers to a Secret without permission to read it.
    SecretRefused,
    /// A user removes the city's label from its Cluster.
    LabelLost,
    /// A user deletes the binding of the city's deployment.
    BindingLost,
}

impl Step {
    /// All steps in their order.
    pub const ALL: [Self; 4] = [Self::SecretRotated, Self::SecretRefused, Self::LabelLost, Self::BindingLost];

    /// Returns its name in the result.
    pub fn name(self) -> &'static str {
        match self {
            Self::SecretRotated => "secretRotated",
            Self::SecretRefused => "secretRefused",
            Self::LabelLost => "labelLost",
            Self::BindingLost => "bindingLost",
        }
    }

    /// Returns a sentence about the event.
    pub fn happens(self) -> &'static str {
        match self {
            Self::SecretRotated => "the tenant changes Secret hello in project shop",
            Self::SecretRefused => "the tenant refers to Secret payroll in a Workload, without permission to read it",
            Self::LabelLost => "a user removes the label of dfw from its Cluster",
            Self::BindingLost => "a user deletes the ResourceBinding of hello-edge-dfw on the hub",
        }
    }

    /// Returns a sentence about the outcome.
    pub fn ended(self) -> &'static str {
        match self {
            Self::SecretRotated => "both cities have the new value, and no Instance was restarted",
            Self::SecretRefused => "refused at the field of its name (Forbidden), and nothing was created",
            Self::LabelLost => {
                "reported on the deployment (CityLabelLost); all Instances in dfw keep running; the label is restored"
            }
            Self::BindingLost => "Karmada emptied the city; the binding is restored, and all Instances run again",
        }
    }

    /// Runs the step and waits for its end. Fails if an Instance was lost that Karmada itself did not delete.
    pub async fn play(self, view: &View) -> Result<Duration> {
        let before = instances(view).await?;
        let began = Instant::now();
        match self {
            Self::SecretRotated => rotate(view).await?,
            Self::SecretRefused => refer_to_foreign_secret(view).await?,
            Self::LabelLost => lose_label(view).await?,
            Self::BindingLost => lose_binding(view).await?,
        }
        let took = began.elapsed();
        ensure!(self == Self::BindingLost || instances(view).await? == before, "{}: Instances were lost", self.name());
        Ok(took)
    }
}

/// Returns the uids of the Instances in all cities.
async fn instances(view: &View) -> Result<BTreeMap<String, Option<String>>> {
    let mut uids = BTreeMap::new();
    for cell in view.cells.values() {
        for instance in list(cell, "Instance").await? {
            uids.insert(instance.name_any(), instance.uid());
        }
    }
    Ok(uids)
}

async fn rotate(view: &View) -> Result<()> {
    let wanted = json!({ "password": "Y2hhbmdlZA==" });
    let patch = json!({ "stringData": { "password": "changed" } });
    merge(&view.tenants["shop"], ("", "v1", "Secret"), NAMESPACE, "hello", patch).await?;
    let hub = hub_namespace(view).await?;
    until("both cities have the new value", async || {
        for cell in view.cells.values() {
            let there = api(cell, ("", "v1", "Secret"), &hub).get_opt("hello").await?;
            if there.is_none_or(|secret| secret.data["data"] != wanted) {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
}

async fn refer_to_foreign_secret(view: &View) -> Result<()> {
    let mut curious = super::sample("curious")?.into_iter().find(|object| object["kind"] == "Workload");
    let workload = curious.as_mut().context("the sample has no Workload")?;
    let container = &mut workload["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0];
    container["envFrom"] = json!([{ "secretRef": { "name": "payroll" } }]);
    // Right after its start, an API server may not call the webhooks yet.
    until("the Workload is refused", async || {
        match manifests::apply_value(&view.tenants["shop"], workload.clone()).await {
            Ok(_) => {
                let workloads =
                    api(&view.projects["shop"], ("compute.datumapis.com", "v1alpha", "Workload"), NAMESPACE);
                workloads.delete("curious", &DeleteParams::background()).await?;
                until("the Workload is deleted", async || Ok(workloads.get_opt("curious").await?.is_none())).await?;
                Ok(false)
            }
            Err(error) => {
                let words = format!("{error:#}");
                ensure!(words.contains("Forbidden: permission to get Secret \"payroll\" denied"), "{words}");
                Ok(true)
            }
        }
    })
    .await?;
    let made = list(&view.projects["shop"], "Workload").await?;
    ensure!(made.iter().all(|workload| workload.name_any() != "curious"), "the Workload was created");
    Ok(())
}

async fn lose_label(view: &View) -> Result<()> {
    let cluster = ("cluster.karmada.io", "v1alpha1", "Cluster");
    let name = format!("cell-{CITY}");
    let label = |value: Value| json!({ "metadata": { "labels": { CITY_LABEL: value } } });
    merge(&view.hub, cluster, "", &name, label(Value::Null)).await?;
    let told = wait_for_federated(view, "CityLabelLost").await;
    merge(&view.hub, cluster, "", &name, label(json!(CITY))).await?;
    told?;
    wait_for_federated(view, "Propagated").await
}

/// Waits until `Federated` of the deployment is true with this reason.
async fn wait_for_federated(view: &View, reason: &str) -> Result<()> {
    let wanted = (true, format!("Federated=True {reason}"));
    until(&wanted.1, async || {
        let all = list(&view.projects["shop"], "WorkloadDeployment").await?;
        Ok(all.iter().any(|wd| wd.name_any() == DEPLOYMENT && condition(wd, "Federated") == wanted))
    })
    .await
}

async fn lose_binding(view: &View) -> Result<()> {
    let namespace = hub_namespace(view).await?;
    let bindings = api(&view.hub, ("work.karmada.io", "v1alpha2", "ResourceBinding"), &namespace);
    let name = format!("{DEPLOYMENT}-workloaddeployment");
    let lost = bindings.get(&name).await?.uid();
    bindings.delete(&name, &DeleteParams::background()).await?;
    until("the binding is back", async || {
        let there = bindings.get_opt(&name).await?;
        Ok(there.is_some_and(|binding| binding.uid() != lost && binding.metadata.deletion_timestamp.is_none()))
    })
    .await?;
    wait_for_federated(view, "Propagated").await?;
    until("all runs again", async || Ok(view.look().await?.complete)).await
}

/// Returns the namespace on hub and cells that mirrors the project's.
async fn hub_namespace(view: &View) -> Result<String> {
    let all = list(&view.projects["shop"], "WorkloadDeployment").await?;
    let deployment = all.iter().find(|wd| wd.name_any() == DEPLOYMENT).context("the deployment does not exist")?;
    let namespace = deployment.annotations().get("compute.datumapis.com/federation-namespace");
    Ok(namespace.context("the deployment does not name its hub namespace")?.clone())
}

async fn until(what: &str, check: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !check().await? {
        if began.elapsed() > PATIENCE {
            bail!("{what}: not within {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn api(client: &Client, (group, version, kind): (&str, &str, &str), namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        "" => Api::all_with(client.clone(), &resource),
        _ => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

async fn merge(client: &Client, kind: (&str, &str, &str), namespace: &str, name: &str, patch: Value) -> Result<()> {
    let object = api(client, kind, namespace);
    object
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .with_context(|| format!("{} {name}", kind.2))?;
    Ok(())
}
