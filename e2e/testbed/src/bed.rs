//! The whole testbed: a project, a hub with Karmada, and cells.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    binaries,
    control_plane::{ControlPlane, Etcd},
    karmada::{Flavour, Real, StandIn},
    manifests,
    neighbours::{Milo, Worker},
    pki::{self, User},
    provider::Provider,
};

/// Label by which policies find a city's cluster.
const CITY: &str = "topology.datum.net/city-code";

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cities, one cell each.
    pub cells: Vec<String>,
    /// Which Karmada.
    pub karmada: Flavour,
    /// Whether Instances are served by the provider stand-in.
    pub provider: bool,
    /// Whether cells wait for networks, and how long the stand-in for network services takes to make one.
    pub networks: Option<Duration>,
    /// Whether cells wait for the ConfigMaps and Secrets that Instances refer to.
    pub data: bool,
    /// More of the manager's config file, in YAML.
    pub management: String,
    /// Whether cells wait for quota, which a stand-in grants in each project as far as its ResourceGrants last.
    pub quota: bool,
    /// Projects behind a stand-in for Milo, the first of them on the API server of [`Testbed::project`], the others on
    /// their own. None: the operator works on a single project.
    pub projects: Vec<String>,
    /// Folder for everything; a fresh one under the cache when absent. Removed at the end unless it was given.
    pub dir: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cells: vec!["dfw".into(), "ord".into()],
            karmada: Flavour::from_env(),
            provider: true,
            networks: None,
            data: true,
            management: String::new(),
            quota: false,
            projects: Vec::new(),
            dir: None,
        }
    }
}

/// A running testbed. Dropping it ends every process of it.
#[derive(Debug)]
pub struct Testbed {
    // Dropped in this order: what uses the API servers, the API servers, etcd.
    _neighbours: Vec<Worker>,
    /// The way to the projects by path, with quota or with several projects.
    pub milo: Option<Milo>,
    _providers: Vec<Provider>,
    stand_in: Option<StandIn>,
    _real: Option<Real>,
    /// The project's control plane.
    pub project: ControlPlane,
    /// The other projects' control planes, by name.
    pub others: BTreeMap<String, ControlPlane>,
    /// The hub.
    pub hub: ControlPlane,
    /// The cells, by city.
    pub cells: BTreeMap<String, ControlPlane>,
    _etcd: Etcd,
    options: Options,
    dir: PathBuf,
    keep: bool,
}

impl Testbed {
    /// Starts everything and waits until it serves. `progress` gets a line now and then.
    ///
    /// # Errors
    /// One line that says what is missing or did not come up.
    pub async fn start(options: Options, progress: &dyn Fn(&str)) -> Result<Self> {
        let Options { cells, karmada, provider, networks, quota, projects, dir, .. } = options.clone();
        if let Flavour::Real { bin, crds } = &karmada {
            Real::check(bin, crds)?;
        }
        let bin = binaries::find(progress)?;
        let keep = dir.is_some();
        let dir = dir.unwrap_or_else(fresh_dir);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        pki::make(&dir)?;
        progress("starting etcd and the API servers");
        let etcd = Etcd::start(&dir, &bin)?;
        let start = |name: &str| ControlPlane::start(&dir, &bin, &etcd.url, name);
        let mut project = start("project")?;
        let mut hub = start("hub")?;
        let mut planes: BTreeMap<String, ControlPlane> = BTreeMap::new();
        for city in &cells {
            planes.insert(city.clone(), start(&format!("cell-{city}"))?);
        }
        let mut others: BTreeMap<String, ControlPlane> = BTreeMap::new();
        for name in projects.iter().skip(1) {
            others.insert(name.clone(), start(&format!("project-{name}"))?);
        }
        for plane in [&mut project, &mut hub].into_iter().chain(planes.values_mut()).chain(others.values_mut()) {
            plane.wait_ready().await?;
        }
        progress("installing definitions and roles");
        let root = binaries::root();
        for plane in [&project].into_iter().chain(others.values()) {
            install(plane, &root, &["crds", "neighbours", "config/components/controller_rbac/role.yaml"]).await?;
        }
        install(&hub, &root, &["crds", "config/base/downstream-rbac/role.yaml"]).await?;
        for cell in planes.values() {
            install(cell, &root, &["crds", "neighbours", "config/components/cell_rbac/role.yaml"]).await?;
        }
        let mut real = None;
        match &karmada {
            Flavour::StandIn => install(&hub, &root, &["karmada", "e2e/testbed/crds/protection.yaml"]).await?,
            Flavour::Real { bin, crds } => {
                progress("starting Karmada");
                real = Some(Real::start(&dir, bin, crds, &hub, &etcd.url).await?);
            }
        }
        for plane in [&mut project, &mut hub].into_iter().chain(planes.values_mut()).chain(others.values_mut()) {
            plane.start_controllers()?;
        }
        let hub_client = hub.client().await?;
        let interpreter = fs::read_to_string(root.join("config/components/federation/interpreter.yaml"))?;
        eventually("the interpreter", || manifests::apply(&hub_client, &interpreter)).await?;
        let mut clients = Vec::new();
        for (city, cell) in &planes {
            clients.push((cell.name().to_owned(), cell.client().await?));
            eventually("a cluster", || register(&hub_client, &dir, city, cell)).await?;
        }
        let stand_in = (karmada == Flavour::StandIn).then(|| StandIn::start(hub_client.clone(), clients.clone()));
        let mut providers = Vec::new();
        if provider {
            providers.extend(clients.iter().map(|(_, client)| Provider::start(client.clone())));
        }
        for plane in [&project].into_iter().chain(others.values()) {
            for city in &cells {
                bind_location(&plane.client().await?, city).await?;
            }
        }
        let mut neighbours = Vec::new();
        if let Some(after) = networks {
            for (city, cell) in &planes {
                let client = cell.client().await?;
                locate(&client, city).await?;
                neighbours.push(Worker::networks(client, after));
            }
        }
        let mut milo = None;
        if quota || !projects.is_empty() {
            let proxy = Milo::start(&dir, &project).await?;
            let first = projects.first().map_or("single", String::as_str);
            for (name, plane) in [(first, &project)].into_iter().chain(others.iter().map(|(n, p)| (n.as_str(), p))) {
                proxy.add(name, plane).await?;
                if quota {
                    neighbours.push(Worker::quota(plane.client().await?));
                }
            }
            milo = Some(proxy);
        }
        let project_client = project.client().await?;
        for name in &projects {
            announce(&project_client, name).await?;
        }
        progress("waiting for the clusters");
        clusters_ready(&hub_client, cells.len()).await?;
        Ok(Self {
            _neighbours: neighbours,
            milo,
            _providers: providers,
            stand_in,
            _real: real,
            project,
            others,
            hub,
            cells: planes,
            _etcd: etcd,
            options,
            dir,
            keep,
        })
    }

    /// What it was started with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Ends the stand-in for Karmada: from now on nobody does its work.
    pub fn stop_stand_in(&mut self) {
        self.stand_in = None;
    }

    /// Ends the stand-in for Karmada and starts another, which remembers nothing (fact 56).
    pub async fn restart_stand_in(&mut self) -> Result<()> {
        if self.stand_in.take().is_some() {
            let mut clients = Vec::new();
            for cell in self.cells.values() {
                clients.push((cell.name().to_owned(), cell.client().await?));
            }
            self.stand_in = Some(StandIn::start(self.hub.client().await?, clients));
        }
        Ok(())
    }

    /// The stand-in for Karmada, unless the real one runs.
    pub fn stand_in(&self) -> Option<&StandIn> {
        self.stand_in.as_ref()
    }

    /// Folder of logs, kubeconfigs and data.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The cell of a city.
    pub fn cell(&self, city: &str) -> Result<&ControlPlane> {
        self.cells.get(city).with_context(|| format!("no cell {city}"))
    }

    /// `NAME=path` lines, absolute, one per kubeconfig.
    pub fn env(&self) -> String {
        let line = |name: &str, plane: &ControlPlane| {
            let of = |user| plane.kubeconfig(user).display().to_string();
            format!("{name}_KUBECONFIG={}\n{name}_OPERATOR_KUBECONFIG={}\n", of(User::Admin), of(User::Operator))
        };
        let cells = self.cells.iter().map(|(city, cell)| line(&format!("CELL_{}", city.to_uppercase()), cell));
        let others = self
            .others
            .iter()
            .map(|(name, plane)| line(&format!("PROJECT_{}", name.to_uppercase().replace('-', "_")), plane));
        [line("PROJECT", &self.project), line("HUB", &self.hub)].into_iter().chain(others).chain(cells).collect()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if !self.keep && std::env::var_os("TESTBED_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// A folder of our own; those of processes that ended without clearing up are removed on the way.
fn fresh_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for entry in fs::read_dir(binaries::cache()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("run-").and_then(|rest| rest.split('-').next()?.parse().ok());
        if owner.is_some_and(|pid| !crate::process::is_alive(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    binaries::cache().join(format!("run-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

async fn install(plane: &ControlPlane, root: &Path, what: &[&str]) -> Result<()> {
    let client = plane.client().await?;
    for what in what {
        let files = match *what {
            "crds" => ["workloads", "workloaddeployments", "instances"]
                .map(|plural| root.join(format!("crds/compute.datumapis.com_{plural}.yaml")))
                .to_vec(),
            "neighbours" | "karmada" => vec![root.join(format!("e2e/testbed/crds/{what}.yaml"))],
            file => vec![root.join(file)],
        };
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            manifests::apply(&client, &text).await.with_context(|| plane.name().to_owned())?;
            established(&client, &text).await?;
        }
    }
    grant(&client).await
}

/// Gives the operator's user the roles that `config/` defines, under the names it defines them.
async fn grant(client: &Client) -> Result<()> {
    for role in ["compute", "compute-cell", "compute-manager"] {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("testbed-{role}") },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": User::Operator.name() }],
        });
        manifests::apply_value(client, binding).await?;
    }
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "compute-system" } });
    manifests::apply_value(client, namespace).await?;
    let text = fs::read_to_string(binaries::root().join("config/components/leader_election/role.yaml"))?;
    manifests::apply(client, &text).await
}

/// Waits until every definition of `text` is served.
async fn established(client: &Client, text: &str) -> Result<()> {
    for definition in manifests::documents(text)? {
        if definition["kind"] != "CustomResourceDefinition" {
            continue;
        }
        let spec = &definition["spec"];
        let of = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let gvk =
            GroupVersionKind::gvk(&of(&spec["group"]), &of(&spec["versions"][0]["name"]), &of(&spec["names"]["kind"]));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
        eventually(&gvk.kind, || async { Ok(api.list(&ListParams::default().limit(1)).await.map(|_| ())?) }).await?;
    }
    Ok(())
}

async fn register(hub: &Client, dir: &Path, city: &str, cell: &ControlPlane) -> Result<()> {
    let ca = STANDARD.encode(fs::read(dir.join("ca.crt"))?);
    let name = cell.name();
    for namespace in ["karmada-cluster".to_owned(), format!("karmada-es-{name}")] {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        manifests::apply_value(hub, namespace).await?;
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "karmada-cluster" },
        "data": { "token": STANDARD.encode(User::Admin.token()), "caBundle": ca },
    });
    manifests::apply_value(hub, secret).await?;
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": { "name": name, "labels": { CITY: city } },
        "spec": {
            "syncMode": "Push", "apiEndpoint": format!("https://127.0.0.1:{}", cell.port()),
            "secretRef": { "namespace": "karmada-cluster", "name": name },
        },
    });
    // Real Karmada serves Clusters from an API server of its own.
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

/// Tells a cell which location it is.
async fn locate(cell: &Client, city: &str) -> Result<()> {
    let location = json!({
        "apiVersion": "networking.datumapis.com/v1alpha", "kind": "Location",
        "metadata": { "name": format!("{city}-1") },
        "spec": { "locationClassName": "self-managed", "topology": { CITY: city } },
    });
    manifests::apply_value(cell, location).await.map(|_| ())
}

/// Lets Milo know a project, ready to be worked on.
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

async fn clusters_ready(hub: &Client, count: usize) -> Result<()> {
    let gvk = GroupVersionKind::gvk("cluster.karmada.io", "v1alpha1", "Cluster");
    let api: Api<DynamicObject> = Api::all_with(hub.clone(), &ApiResource::from_gvk(&gvk));
    eventually("the clusters", || async {
        let clusters = api.list(&ListParams::default()).await?;
        let ready = |c: &DynamicObject| {
            let conditions = c.data["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
        };
        let ready = clusters.items.iter().filter(|c| ready(c)).count();
        if ready < count {
            bail!("{ready} of {count} clusters are ready")
        }
        Ok(())
    })
    .await
}

/// Tries until it works, for a minute.
pub async fn eventually<T, F: Future<Output = Result<T>>>(what: &str, mut attempt: impl FnMut() -> F) -> Result<T> {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > deadline => return Err(error.context(format!("{what}: not after a minute"))),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
