//! The demo's view of the control planes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};

use super::TENANTS;
use crate::{
    Testbed,
    control_plane::client,
    pki::User,
    status::{condition, list},
};

/// Clients of the control planes.
pub struct View {
    pub projects: BTreeMap<String, Client>,
    /// The same projects with the credentials of their tenant.
    pub tenants: BTreeMap<String, Client>,
    pub hub: Client,
    pub cells: BTreeMap<String, Client>,
}

/// A snapshot of the control planes.
#[derive(Default)]
pub struct Seen {
    pub rows: Vec<[String; 4]>,
    /// True if every Workload has all instances ready and shown to its tenant.
    pub complete: bool,
    /// The Instance that waits for quota while all others run, with its message.
    pub over_quota: Option<(String, String)>,
    pub projects: BTreeMap<String, Value>,
}

impl View {
    pub async fn new(bed: &Testbed) -> Result<Self> {
        let mut cells = BTreeMap::new();
        for (city, cell) in &bed.cells {
            cells.insert(city.clone(), cell.client().await?);
        }
        let mut projects = BTreeMap::from([(TENANTS[0].0.to_owned(), bed.project.client().await?)]);
        for (name, project) in &bed.others {
            projects.insert(name.clone(), project.client().await?);
        }
        let milo = bed.milo.as_ref().context("Milo does not run")?;
        let mut tenants = BTreeMap::new();
        for name in projects.keys() {
            tenants.insert(name.clone(), client(&milo.project_kubeconfig(name, &User::Tenant)?).await?);
        }
        Ok(Self { projects, tenants, hub: bed.hub.client().await?, cells })
    }

    /// Returns one row for each stage and city: object, place, state.
    pub async fn look(&self) -> Result<Seen> {
        let mut seen = Seen { complete: true, ..Seen::default() };
        let hub = list(&self.hub, "WorkloadDeployment").await?;
        let mut on_cells = BTreeMap::new();
        let mut data = BTreeMap::new();
        for (city, cell) in &self.cells {
            on_cells.insert(city, list(cell, "Instance").await?);
            data.insert(city, companions(cell).await?);
        }
        let (mut ready, mut over) = (0, Vec::new());
        for (project, workload, _) in TENANTS {
            let client = &self.projects[project];
            let place = format!("project {project}");
            let workloads = list(client, "Workload").await?;
            let of = |objects: &[DynamicObject], name: &str| objects.iter().find(|o| o.name_any() == name).cloned();
            let found = of(&workloads, workload);
            let (available, state) = found.as_ref().map_or((false, "-".into()), |w| condition(w, "Available"));
            seen.complete &= available;
            seen.rows.push(["Workload".into(), place.clone(), workload.into(), state]);
            let deployments = list(client, "WorkloadDeployment").await?;
            let shown = list(client, "Instance").await?;
            let mut cities = BTreeMap::new();
            for (city, instances) in &on_cells {
                let name = format!("{workload}-edge-{city}");
                let Some(wd) = of(&deployments, &name) else { continue };
                seen.rows.push(["  WorkloadDeployment".into(), place.clone(), name.clone(), deployment(&wd)]);
                let copy = of(&hub, &name).map_or("-".into(), |wd| deployment(&wd));
                seen.rows.push(["  WorkloadDeployment".into(), "hub".into(), name.clone(), copy]);
                let namespace = wd.annotations().get("compute.datumapis.com/federation-namespace");
                let arrived = namespace.and_then(|ns| data[city].get(ns)).cloned().unwrap_or_default();
                seen.complete &= arrived.len() == 2;
                let state = if arrived.is_empty() { "-".into() } else { format!("{} arrived", arrived.join(", ")) };
                seen.rows.push(["    its data".into(), format!("cell {city}"), name.clone(), state]);
                for instance in instances.iter().filter(|i| i.name_any().starts_with(&name)) {
                    let (runs, state) = condition(instance, "Ready");
                    ready += usize::from(runs);
                    if state.ends_with("QuotaExceeded") {
                        let in_project = of(&shown, &instance.name_any()).map(|i| condition(&i, "Ready").1);
                        over.extend(
                            in_project
                                .filter(|in_project| in_project.ends_with("QuotaExceeded"))
                                .map(|_| instance.name_any()),
                        );
                    }
                    seen.rows.push(["    Instance".into(), format!("cell {city}"), instance.name_any(), state]);
                }
                let status = &wd.data["status"];
                let full = status["readyReplicas"] == status["desiredReplicas"]
                    && status["readyReplicas"].as_i64() > Some(0)
                    && shown.iter().filter(|i| i.name_any().starts_with(&name) && condition(i, "Ready").0).count()
                        == usize::try_from(status["desiredReplicas"].as_i64().unwrap_or(0))?;
                seen.complete &= full;
                cities.insert((*city).clone(), json!({ "available": full, "readyReplicas": status["readyReplicas"] }));
            }
            seen.complete &= !cities.is_empty();
            seen.projects.insert(project.into(), json!(cities));
        }
        if let ([instance], 4) = (&over[..], ready) {
            seen.over_quota = Some((instance.clone(), "QuotaExceeded, in the city and in the project".into()));
        }
        Ok(seen)
    }
}

/// Returns the ConfigMaps and Secrets that the operator delivered to a cell, by namespace.
async fn companions(cell: &Client) -> Result<BTreeMap<String, Vec<String>>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let ours = ListParams::default().labels("compute.datumapis.com/referenced-data=true");
    for kind in ["ConfigMap", "Secret"] {
        let api: Api<DynamicObject> =
            Api::all_with(cell.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind)));
        for object in api.list_metadata(&ours).await?.items {
            let name = format!("{kind} {}", object.name_any());
            found.entry(object.namespace().unwrap_or_default()).or_default().push(name);
        }
    }
    Ok(found)
}

fn deployment(object: &DynamicObject) -> String {
    let status = &object.data["status"];
    if status["replicas"].is_null() {
        return "no status yet".into();
    }
    format!("{}/{} ready, {}", status["readyReplicas"], status["desiredReplicas"], condition(object, "Available").1)
}
