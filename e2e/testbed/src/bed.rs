//! The whole testbed: a project, a hub with Karmada, and cells.

mod backups;
mod objects;
mod stored;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    binaries,
    control_plane::{ControlPlane, Etcd, START_TIMEOUT},
    install::{self, Role},
    karmada::{Flavour, Real, StandIn},
    neighbours::{Milo, Worker},
    pki::{self, User},
    prepared::Prepared,
    provider::Provider,
};

use self::objects::{admit, clusters_ready, locate, register};
pub use self::objects::{announce, bind_location, interpreter};

/// Options of a testbed.
#[allow(clippy::struct_excessive_bools)] // independent switches
#[derive(Clone, Debug)]
pub struct Options {
    /// Cities, one cell each.
    pub cells: Vec<String>,
    /// The Karmada to run.
    pub karmada: Flavour,
    /// True if Karmada evicts from a cluster with a `NoExecute` taint that the policy does not tolerate.
    pub evict_tainted: bool,
    /// True if the provider stand-in serves Instances.
    pub provider: bool,
    /// The time that the stand-in for network services needs for a network. `None` if cells do not wait for networks.
    pub networks: Option<Duration>,
    /// True if cells wait for the ConfigMaps and Secrets that Instances refer to.
    pub data: bool,
    /// Additional lines of the manager's config file, in YAML.
    pub management: String,
    /// Additional lines of the cells' config file, in YAML.
    pub cell: String,
    /// True if cells wait for quota. A stand-in grants it in each project up to the ResourceGrants.
    pub quota: bool,
    /// Cities of cells that wait for neither networks nor quota.
    pub bare: Vec<String>,
    /// True if there is a project. Without one, only Karmada has work to do.
    pub project: bool,
    /// Projects behind a stand-in for Milo. The first one uses the API server of [`Testbed::project`], and each other one has its
    /// own. If empty, the operator works on a single project.
    pub projects: Vec<String>,
    /// Folder of all files. If absent, a new one under the cache, which is deleted at the end.
    pub dir: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cells: vec!["dfw".into(), "ord".into()],
            karmada: Flavour::from_env(),
            evict_tainted: false,
            provider: true,
            networks: None,
            data: true,
            management: String::new(),
            cell: String::new(),
            quota: false,
            bare: Vec::new(),
            project: true,
            projects: Vec::new(),
            dir: None,
        }
    }
}

/// A running testbed. Dropping it ends all of its processes.
#[derive(Debug)]
pub struct Testbed {
    // The fields are dropped in this order: clients of the API servers, the API servers, etcd.
    neighbours: Vec<Worker>,
    /// The stand-in for Milo, if there are quota or several projects.
    pub milo: Option<Milo>,
    providers: BTreeMap<String, Provider>,
    stand_in: Option<StandIn>,
    real: Option<Real>,
    /// The project's control plane.
    pub project: ControlPlane,
    /// The other projects' control planes, by name.
    pub others: BTreeMap<String, ControlPlane>,
    /// The hub.
    pub hub: ControlPlane,
    /// The cells, by city.
    pub cells: BTreeMap<String, ControlPlane>,
    etcd: Etcd,
    /// The project's own etcd after a rewind.
    etcd_of_project: Option<Etcd>,
    options: Options,
    dir: PathBuf,
    keep: bool,
}

impl Testbed {
    /// Starts everything and waits until it serves. `progress` gets an occasional line.
    ///
    /// # Errors
    /// Returns one line about the missing or failed component.
    pub async fn start(options: Options, progress: &dyn Fn(&str)) -> Result<Self> {
        if let Flavour::Real { bin, crds } = &options.karmada {
            Real::check(bin, crds)?;
        }
        let bin = binaries::find(progress)?;
        let keep = options.dir.is_some() || std::env::var_os("TESTBED_KEEP").is_some();
        let dir = options.dir.clone().unwrap_or_else(fresh_dir);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        pki::make(&dir, &options.cells)?;
        progress("starting etcd and the API servers");
        let etcd = Etcd::start(&dir, &bin)?;
        let new = |name: &str| ControlPlane::new(&dir, &bin, &etcd.url, name);
        let (mut project, mut hub) = (new("project")?, new("hub")?);
        let mut cells: BTreeMap<String, ControlPlane> = BTreeMap::new();
        for city in &options.cells {
            cells.insert(city.clone(), new(&format!("cell-{city}"))?);
            hub.admit(&User::Cell(city.clone()))?;
        }
        let mut others: BTreeMap<String, ControlPlane> = BTreeMap::new();
        for name in options.projects.iter().skip(1) {
            others.insert(name.clone(), new(&format!("project-{name}"))?);
        }
        let mut planes = vec![(&mut hub, Role::hub(&options.karmada))];
        planes.extend(options.project.then_some((&mut project, Role::Project)));
        planes.extend(others.values_mut().map(|plane| (plane, Role::Project)));
        planes.extend(cells.values_mut().map(|plane| (plane, Role::Cell)));
        try_join_all(planes.into_iter().map(|(plane, role)| raise(plane, role, &etcd))).await?;
        let mut real = None;
        if let Flavour::Real { bin, crds } = &options.karmada {
            progress("starting Karmada");
            real = Some(Real::start(&dir, (bin, crds), options.evict_tainted, &hub, &etcd.url).await?);
            hub.start_controllers()?; // it looks for new kinds only every half minute
        }
        let mut bed = Self {
            neighbours: Vec::new(),
            milo: None,
            providers: BTreeMap::new(),
            stand_in: None,
            real,
            project,
            others,
            hub,
            cells,
            etcd,
            etcd_of_project: None,
            options,
            dir,
            keep,
        };
        bed.furnish(progress).await?;
        Ok(bed)
    }

    /// Creates the initial objects of the control planes, and starts the stand-ins.
    async fn furnish(&mut self, progress: &dyn Fn(&str)) -> Result<()> {
        let hub = self.hub.client().await?;
        interpreter(&hub).await?;
        let registered = self.cells.iter().map(|(city, cell)| {
            let (hub, dir) = (hub.clone(), &self.dir);
            async move {
                eventually("a cell's user", || admit(&hub, city, cell)).await?;
                eventually("a cluster", || register(&hub, dir, city, cell)).await
            }
        });
        try_join_all(registered).await?;
        self.start_stand_in().await?;
        self.serve_instances(self.options.provider).await?;
        let projects: Vec<&ControlPlane> =
            self.options.project.then_some(&self.project).into_iter().chain(self.others.values()).collect();
        for plane in projects {
            let client = plane.client().await?;
            for city in &self.options.cells {
                bind_location(&client, city).await?;
            }
        }
        if let Some(after) = self.options.networks {
            for (city, cell) in &self.cells {
                let client = cell.client().await?;
                locate(&client, city).await?;
                self.neighbours.push(Worker::networks(client, after));
            }
        }
        if self.options.quota || !self.options.projects.is_empty() {
            self.milo = Some(self.start_milo().await?);
        }
        if !self.options.projects.is_empty() {
            let project = self.project.client().await?;
            for name in &self.options.projects {
                announce(&project, name).await?;
            }
        }
        progress("waiting for the clusters");
        clusters_ready(&hub, self.cells.len()).await
    }

    /// Starts the stand-in for Milo, and the stand-ins that grant quota in its projects.
    async fn start_milo(&mut self) -> Result<Milo> {
        let milo = Milo::start(&self.dir, &self.project).await?;
        let first = self.options.projects.first().map_or("single", String::as_str);
        let others = self.others.iter().map(|(name, plane)| (name.as_str(), plane));
        for (name, plane) in [(first, &self.project)].into_iter().chain(others) {
            milo.add(name, plane).await?;
            if self.options.quota {
                self.neighbours.push(Worker::quota(plane.client().await?));
            }
        }
        Ok(milo)
    }

    async fn start_stand_in(&mut self) -> Result<()> {
        if self.options.karmada == Flavour::StandIn {
            let mut clients = Vec::new();
            for cell in self.cells.values() {
                clients.push((cell.name().to_owned(), cell.client().await?));
            }
            let stand_in = StandIn::start(self.hub.client().await?, clients, self.dir.join("karmada.log"));
            stand_in.evict_tainted(self.options.evict_tainted);
            self.stand_in = Some(stand_in);
        }
        Ok(())
    }

    /// Starts or stops the provider stand-in for the Instances of all cells.
    pub async fn serve_instances(&mut self, served: bool) -> Result<()> {
        self.options.provider = served;
        self.providers.clear();
        for city in self.cells.keys().cloned().collect::<Vec<_>>() {
            self.serve_instances_of(&city, served).await?;
        }
        Ok(())
    }

    /// Starts or stops the provider stand-in for the Instances of one cell.
    pub async fn serve_instances_of(&mut self, city: &str, served: bool) -> Result<()> {
        self.providers.remove(city);
        if served {
            let provider = Provider::start(self.cell(city)?.client().await?);
            self.providers.insert(city.to_owned(), provider);
        }
        Ok(())
    }

    /// Returns the control plane of a city's cell, to stop and start it.
    pub fn cell_mut(&mut self, city: &str) -> Result<&mut ControlPlane> {
        self.cells.get_mut(city).with_context(|| format!("cell {city} does not exist"))
    }

    /// Returns the options of the testbed.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the options for operators that start from now on. Running components do not change.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Stops the stand-in for Karmada without a replacement.
    pub fn stop_stand_in(&mut self) {
        self.stand_in = None;
    }

    /// Stops the stand-ins for networks and quota without a replacement.
    pub fn stop_neighbours(&mut self) {
        self.neighbours.clear();
    }

    /// Restarts the stand-in for Karmada without its memory (fact 56).
    pub async fn restart_stand_in(&mut self) -> Result<()> {
        self.stand_in = None;
        self.start_stand_in().await
    }

    /// Upgrades real Karmada: stops its processes, and starts those of another version on the same hub.
    ///
    /// # Errors
    /// Returns an error if a process of the other version is missing or does not start.
    pub async fn upgrade_karmada(&mut self, bin: &Path, crds: &Path) -> Result<()> {
        Real::check(bin, crds)?;
        self.real = None;
        self.real =
            Some(Real::start(&self.dir, (bin, crds), self.options.evict_tainted, &self.hub, &self.etcd.url).await?);
        self.options.karmada = Flavour::Real { bin: bin.into(), crds: crds.into() };
        clusters_ready(&self.hub.client().await?, self.cells.len()).await
    }

    /// Joins a city's cell to the hub again, after its Cluster was deleted.
    pub async fn join(&self, city: &str) -> Result<()> {
        let (hub, cell) = (self.hub.client().await?, self.cell(city)?);
        eventually("a cluster", || register(&hub, &self.dir, city, cell)).await?;
        clusters_ready(&hub, self.cells.len()).await
    }

    /// Returns the stand-in for Karmada, or `None` with real Karmada.
    pub fn stand_in(&self) -> Option<&StandIn> {
        self.stand_in.as_ref()
    }

    /// True if the testbed's folder is kept after its end.
    pub fn is_kept(&self) -> bool {
        self.keep
    }

    /// Returns the folder of logs, kubeconfigs and data.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the cell of a city.
    pub fn cell(&self, city: &str) -> Result<&ControlPlane> {
        self.cells.get(city).with_context(|| format!("no cell {city}"))
    }

    /// Writes one kubeconfig with a context for each control plane, of a user with every right. Returns its path.
    pub fn contexts(&self) -> Result<PathBuf> {
        let planes = [&self.project, &self.hub].into_iter().chain(self.others.values()).chain(self.cells.values());
        let mut all = json!({ "apiVersion": "v1", "kind": "Config", "current-context": self.project.name() });
        for list in ["clusters", "users", "contexts"] {
            all[list] = json!([]);
        }
        for plane in planes {
            let one: Value = serde_json::from_slice(&fs::read(plane.kubeconfig(&User::Admin))?)?;
            for list in ["clusters", "users", "contexts"] {
                let Some(entries) = all[list].as_array_mut() else { continue };
                let new = one[list].as_array().into_iter().flatten().filter(|entry| !entries.contains(entry)).cloned();
                entries.extend(new.collect::<Vec<_>>());
            }
        }
        let path = self.dir.join("kubeconfig");
        fs::write(&path, serde_json::to_string_pretty(&all)?)?;
        Ok(path)
    }

    /// Returns lines `NAME=path` with absolute paths, one for each kubeconfig.
    pub fn env(&self) -> String {
        let line = |name: &str, plane: &ControlPlane| {
            let of = |user| plane.kubeconfig(&user).display().to_string();
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
        if !self.keep {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Returns a new folder, and deletes those of dead processes.
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

/// Starts a control plane with the prepared data of its role. If there is none, installs the role and keeps its data.
async fn raise(plane: &mut ControlPlane, role: Role, etcd: &Etcd) -> Result<()> {
    let prepared = Prepared::of(role, plane.bin(), &role.files())?;
    let given = prepared.give(etcd, plane.name()).await?;
    plane.start_api_server()?;
    plane.wait_ready().await?;
    if given {
        install::served(&plane.client().await?, role).await?;
    } else {
        install::install(plane, role).await.with_context(|| plane.name().to_owned())?;
        prepared.keep(etcd, plane.name()).await?;
    }
    if role == Role::KarmadaHub { Ok(()) } else { plane.start_controllers() }
}

/// Repeats an attempt until it succeeds, at most for the time that a server may take to start.
pub async fn eventually<T, F: Future<Output = Result<T>>>(what: &str, mut attempt: impl FnMut() -> F) -> Result<T> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > deadline => {
                return Err(error.context(format!("{what}: not after {START_TIMEOUT:?}")));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
