//! The beds that tests run on. The first test that needs a bed starts it, and the last one stops it.

use std::{
    collections::BTreeSet,
    ops::{Deref, DerefMut},
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{Options, Testbed, bed::bind_location, control_plane::has_much_memory, neighbours::Reach};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::{World, api, eventually, report};

/// Number of tests that use a bed of any kind at a time. With eight of them, 31 API servers and 70 runnable threads shared two
/// cores, and requests took longer than their deadline of 10 s. The whole run is not slower with three.
const AT_WORK: usize = 3;
/// Number of tests that use the shared bed at a time. The others wait before they take the place of a test with another bed.
const VISITORS: usize = 2;
/// Number of exclusive beds on a machine with enough memory. Other machines have one.
const EXCLUSIVE: usize = 2;

/// Delivery grace of the shared bed. A source that is deleted while it is in use is reported after this time: it may be replaced.
pub const DELIVERY_GRACE: Duration = Duration::from_mins(1);

/// The cells of the shared bed. The first one waits for networks and quota, the others for neither.
pub const CITIES: [&str; 3] = ["dfw", "ord", "ams"];

/// A testbed that can be lent to a test.
pub trait Bed: Send + 'static {
    fn bed(&self) -> &Testbed;
}

impl Bed for World {
    fn bed(&self) -> &Testbed {
        &self.bed
    }
}

static WORK: Semaphore = Semaphore::const_new(AT_WORK);

struct Shared {
    bed: Mutex<(usize, Option<Arc<OnceCell<World>>>)>,
    turns: Semaphore,
}

static SHARED: Shared = Shared { bed: Mutex::new((0, None)), turns: Semaphore::const_new(VISITORS) };

/// The use of the shared bed by one test.
pub struct Visit {
    world: Arc<OnceCell<World>>,
    turns: [SemaphorePermit<'static>; 2],
    since: Timestamp,
}

impl Deref for Visit {
    type Target = World;

    fn deref(&self) -> &World {
        self.world.get().unwrap()
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(world) = self.world.get() {
            report::ended("the shared one", self.since, world.bed());
        }
        SHARED.leave();
    }
}

impl Shared {
    fn enter(&self) -> Arc<OnceCell<World>> {
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        bed.0 += 1;
        bed.1.get_or_insert_default().clone()
    }

    fn leave(&self) {
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        bed.0 -= 1;
        if bed.0 == 0 {
            bed.1 = None;
        }
    }
}

/// Returns the bed with networks, quota and data, for tests that keep to their own namespaces.
pub async fn shared() -> Visit {
    let world = SHARED.enter();
    let turns = [SHARED.turns.acquire().await.unwrap(), WORK.acquire().await.unwrap()];
    let visit = Visit { world, turns, since: Timestamp::now() };
    let options = Options {
        cells: CITIES.map(str::to_owned).into(),
        bare: CITIES[1..].iter().map(|&city| city.to_owned()).collect(),
        networks: Some(Duration::ZERO),
        quota: true,
        // On a busy machine, a delivery in progress must not count as blocked. Other tests cover that.
        management: format!("timing:\n  deliveryGraceSeconds: {}\n", DELIVERY_GRACE.as_secs()),
        ..Options::default()
    };
    visit.world.get_or_init(|| World::start_with(options)).await;
    visit
}

/// Beds of one kind. Each is lent to one test at a time.
pub struct Lender<T: Bed> {
    turns: Semaphore,
    /// Number of tests that hold or await a bed, and the idle beds.
    stock: Mutex<(usize, Vec<T>)>,
}

/// A bed that one test has alone. The bed of a failed test is not lent again.
pub struct Lent<T: Bed> {
    bed: Option<T>,
    lender: &'static Lender<T>,
    turns: Option<[SemaphorePermit<'static>; 2]>,
    since: Timestamp,
}

impl<T: Bed> Lender<T> {
    pub const fn new(beds: usize) -> Self {
        Self { turns: Semaphore::const_new(beds), stock: Mutex::new((0, Vec::new())) }
    }

    fn stock(&self) -> std::sync::MutexGuard<'_, (usize, Vec<T>)> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends an idle bed, or starts one.
    pub async fn lend(&'static self, start: impl AsyncFnOnce() -> T) -> Lent<T> {
        self.stock().0 += 1;
        // From here on, the bed is returned on every exit.
        let mut lent = Lent { bed: None, lender: self, turns: None, since: Timestamp::now() };
        lent.turns = Some([self.turns.acquire().await.unwrap(), WORK.acquire().await.unwrap()]);
        lent.since = Timestamp::now();
        let idle = self.stock().1.pop();
        lent.bed = Some(match idle {
            Some(bed) => bed,
            None => start().await,
        });
        lent
    }
}

impl<T: Bed> Lent<T> {
    /// Returns the time at which this test got the bed.
    pub fn since(&self) -> Timestamp {
        self.since
    }
}

impl<T: Bed> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.bed.as_ref().unwrap()
    }
}

impl<T: Bed> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.bed.as_mut().unwrap()
    }
}

impl<T: Bed> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some(bed) = &self.bed {
            report::ended("one alone", self.since, bed.bed());
        }
        let mut stock = self.lender.stock();
        stock.0 -= 1;
        if !std::thread::panicking() {
            stock.1.extend(self.bed.take());
        }
        if stock.0 == 0 {
            stock.1.clear();
        }
    }
}

static ALONE: LazyLock<Lender<World>> = LazyLock::new(|| Lender::new(if has_much_memory() { EXCLUSIVE } else { 1 }));

/// Options of an exclusive bed. The default is a federation of two cities without networks and quota.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Additional lines of the manager's config file.
    pub management: String,
    /// Additional lines of the cells' config file.
    pub cell: String,
    /// Flags of all operators.
    pub flags: Vec<String>,
    /// True if cells wait for networks and quota.
    pub networks_and_quota: bool,
    /// True if a provider serves Instances.
    pub provider: bool,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            management: String::new(),
            cell: String::new(),
            flags: Vec::new(),
            networks_and_quota: false,
            provider: true,
        }
    }
}

/// Returns an exclusive bed in cities dfw and ord, in the state of a fresh one.
pub async fn alone(wish: Wish) -> Lent<World> {
    let options = Options { networks: Some(Duration::ZERO), quota: true, ..Options::default() };
    let mut world = ALONE.lend(async || World::bare(options).await).await;
    world.reset(&wish).await;
    world
}

impl World {
    /// Stops the operators, deletes the objects of earlier tests, and starts operators with the wished options.
    async fn reset(&mut self, wish: &Wish) {
        self.operators.clear();
        self.bed.restart_stand_in().await.unwrap();
        self.mend().await;
        self.clear().await;
        self.bed.serve_instances(wish.provider).await.unwrap();
        let options = self.bed.options_mut();
        options.management.clone_from(&wish.management);
        options.cell.clone_from(&wish.cell);
        options.quota = wish.networks_and_quota;
        options.networks = wish.networks_and_quota.then_some(Duration::ZERO);
        let flags: Vec<&str> = wish.flags.iter().map(String::as_str).collect();
        self.start_operators(&flags).await;
    }

    /// Restores the cluster-wide objects.
    async fn mend(&self) {
        let file = std::fs::read_to_string(super::path("config/components/controller_rbac/role.yaml")).unwrap();
        testbed::manifests::apply(&self.project, &file).await.unwrap();
        testbed::bed::interpreter(&self.hub).await.unwrap();
        let cities = &self.bed.options().cells;
        for city in cities {
            bind_location(&self.project, city).await.unwrap();
            let label = json!({ "metadata": {
                "labels": { "topology.datum.net/city-code": city },
                "annotations": { "compute.datumapis.com/drain": null },
            }, "spec": { "taints": null } });
            super::merge(&self.hub, "Cluster", "", &format!("cell-{city}"), label).await;
        }
        for binding in super::list(&self.project, "LocationBinding", "").await {
            if !cities.contains(&binding.name_any()) {
                super::delete(&self.project, "LocationBinding", "", &binding.name_any()).await;
            }
        }
        if let Some(milo) = &self.bed.milo {
            milo.set("single", Reach::Served);
        }
        for event in super::list(&self.hub, "Event", "default").await {
            super::delete(&self.hub, "Event", "default", &event.name_any()).await;
        }
    }

    /// Deletes the objects in namespaces of tests. The empty namespaces stay: the deletion of one costs an API server a hundred
    /// requests.
    async fn clear(&self) {
        let planes = self.planes().await;
        eventually("nothing is left of an earlier test", || async {
            let mut left = BTreeSet::new();
            for (client, kinds) in &planes {
                left.extend(sweep(client, kinds).await);
            }
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }

    /// Waits until all deletions of an earlier test are complete. Otherwise their last requests would count as those of the next
    /// test.
    pub async fn settled(&self) {
        let planes = self.planes().await;
        eventually("all objects deleted by earlier tests are gone", || async {
            let mut left = Vec::new();
            for (client, kinds) in &planes {
                for kind in *kinds {
                    let of_tests = all(client, kind).await.into_iter().filter(is_of_a_test);
                    left.extend(of_tests.map(|object| format!("{kind} {}", object.name_any())));
                }
            }
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }

    /// Returns each control plane with the kinds that a test can leave there.
    async fn planes(&self) -> Vec<(Client, &'static [&'static str])> {
        const OF_PROJECT: [&str; 4] = ["Workload", "WorkloadDeployment", "Instance", "ResourceClaim"];
        const OF_HUB: [&str; 6] =
            ["PropagationPolicy", "WorkloadDeployment", "Instance", "ConfigMap", "Secret", "ResourceBinding"];
        const OF_CELL: [&str; 4] = ["WorkloadDeployment", "Instance", "Secret", "ConfigMap"];
        let mut planes: Vec<(Client, &'static [&'static str])> =
            vec![(self.project.clone(), &OF_PROJECT), (self.hub.clone(), &OF_HUB)];
        for other in self.bed.others.values() {
            planes.push((other.client().await.unwrap(), &OF_PROJECT));
        }
        planes.extend(self.cells().await.into_iter().map(|cell| (cell, &OF_CELL[..])));
        planes
    }

    /// Returns a client for each cell.
    pub async fn cells(&self) -> Vec<Client> {
        let mut clients = Vec::new();
        for cell in self.bed.cells.values() {
            clients.push(cell.client().await.unwrap());
        }
        clients
    }
}

fn is_of_a_test(object: &DynamicObject) -> bool {
    let namespace = object.namespace().unwrap_or_default();
    !["default", "compute-system"].contains(&&*namespace)
        && !["kube-", "karmada-"].iter().any(|prefix| namespace.starts_with(prefix))
}

async fn all(client: &Client, kind: &str) -> Vec<DynamicObject> {
    // An API server that was just restarted reports for a moment that its storage is initializing.
    let list = || async { api(client, kind, "").list(&ListParams::default()).await.map_err(|e| e.to_string()) };
    eventually(&format!("{kind} are listed"), list).await.items
}

/// Deletes the objects of these kinds that tests have left, and removes the operator's finalizers. Returns the objects that still
/// exist.
async fn sweep(client: &Client, kinds: &[&str]) -> Vec<String> {
    let mut left = Vec::new();
    for kind in kinds {
        for object in all(client, kind).await.into_iter().filter(is_of_a_test) {
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            left.push(format!("{kind} {namespace}/{name}"));
            let here: Api<DynamicObject> = api(client, kind, &namespace);
            let others = |finalizer: &&String| !finalizer.contains("compute.datumapis.com/");
            let kept: Vec<&String> = object.finalizers().iter().filter(others).collect();
            if kept.len() < object.finalizers().len() {
                let patch: Value = json!({ "metadata": { "finalizers": kept } });
                let _ = here.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
            }
            let _ = here.delete(&name, &DeleteParams::background()).await;
        }
    }
    left
}
