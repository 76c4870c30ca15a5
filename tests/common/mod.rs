//! Federations for tests, and common assertions on them.
#![allow(dead_code, unused_macros, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

pub mod admission;
pub mod beds;
pub mod command;
pub mod example_app;
pub mod optional;
pub mod projects;
pub mod readers;
pub mod refusal;
pub mod report;
pub mod rights;
pub mod skipping;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::Duration,
};

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::{Options, Testbed, control_plane::ControlPlane, neighbours::grant, operator::Operator};
use tokio::{runtime::Runtime, time::Instant};

/// Longest wait for a condition. Real Karmada on a busy machine sets the scale.
pub const PATIENCE: Duration = Duration::from_mins(2);
/// Time for which an object must stay away to count as absent.
pub const ABSENT: Duration = Duration::from_secs(2);

/// Skips a test that cannot run here: prints the reason and returns.
///
/// The line bypasses the capture of output, so that a skipped test does not look like a passed one.
macro_rules! skip {
    ($($why:tt)*) => {{
        $crate::common::skipped(&format!($($why)*));
        return;
    }};
}

#[allow(unused_imports)] // not every binary has a test that cannot run everywhere
pub(crate) use skip;
pub use skipping::skipped;

/// The runtime of all tests of a binary. Background tasks of a testbed must outlive each single test.
pub static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap());

pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_compute-operator"))
}

/// A testbed with operators.
pub struct World {
    pub bed: Testbed,
    pub operators: Vec<Operator>,
    pub project: Client,
    pub hub: Client,
    pub dfw: Client,
    pub ord: Client,
}

/// Starts a testbed. Starts are serialized, so that the first bed can be used while the next one starts.
pub async fn bed(options: Options) -> Testbed {
    static STARTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = STARTING.lock().await;
    Testbed::start(options, &|text| eprintln!("testbed: {text}")).await.unwrap()
}

impl World {
    /// Starts a testbed with an operator on each of its planes.
    pub async fn start_with(options: Options) -> Self {
        let mut world = Self::bare(options).await;
        world.start_operators(&[]).await;
        world
    }

    /// Starts a testbed without an operator.
    pub async fn bare(options: Options) -> Self {
        let bed = bed(options).await;
        let client = |plane: &ControlPlane| {
            let file = plane.kubeconfig(&testbed::pki::User::Admin);
            async move { testbed::control_plane::client(&file).await.unwrap() }
        };
        Self {
            project: client(&bed.project).await,
            hub: client(&bed.hub).await,
            dfw: client(bed.cell("dfw").unwrap()).await,
            // If there is only one cell, both clients use it. It has no objects of the other city.
            ord: client(bed.cell("ord").or(bed.cell("dfw")).unwrap()).await,
            bed,
            operators: Vec::new(),
        }
    }

    /// Starts the manager and the cells' operators in parallel. The manager is the first of the operators.
    pub async fn start_operators(&mut self, flags: &[&str]) {
        let bed = &self.bed;
        let mut operators = vec![Operator::management(bed, binary(), "operator-management", flags).unwrap()];
        operators.extend(bed.cells.keys().map(|city| Operator::cell(bed, binary(), city, flags).unwrap()));
        let ready = operators.iter_mut().map(|operator| async { operator.wait_ready().await.unwrap() });
        futures::future::join_all(ready).await;
        self.operators = operators;
    }

    /// Kills the manager and restarts it with these flags.
    pub async fn restart_manager(&mut self, flags: &[&str]) {
        self.operators[0].process.kill();
        self.operators[0] = Operator::management(&self.bed, binary(), "operator-management", flags).unwrap();
        self.operators[0].wait_ready().await.unwrap();
    }

    /// Returns the index of a cell's operator.
    pub fn of_cell(&self, city: &str) -> usize {
        1 + self.bed.cells.keys().position(|known| known == city).unwrap()
    }

    /// Creates a namespace in the project. Returns its name and the name of its hub namespace.
    pub async fn namespace(&self, prefix: &str) -> (String, String) {
        let name = format!("{prefix}-{:06x}", fastrand::u32(..0x0100_0000));
        let hub = self.namespace_in(&self.project, &name).await;
        (name, hub)
    }

    /// Creates a namespace of this name in a project, with a network and a budget if the bed uses them. Returns the name of its
    /// hub namespace.
    pub async fn namespace_in(&self, project: &Client, name: &str) -> String {
        let made =
            apply(project, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await;
        if self.bed.options().networks.is_some() {
            apply(project, network(name, "default")).await;
        }
        if self.bed.options().quota {
            apply(project, grant(name, 1000)).await; // tests of the quota grant less
        }
        format!("ns-{}", made.uid().unwrap())
    }

    /// Fails if an object of this project namespace is left on hub or cells. The hub namespace itself may exist.
    pub async fn is_clean(&self, namespace: &str, hub: &str) -> Result<(), String> {
        for (place, client, namespace, kinds) in [
            ("project", &self.project, namespace, &["Workload", "WorkloadDeployment", "Instance", "ResourceClaim"][..]),
            ("hub", &self.hub, hub, &["WorkloadDeployment", "PropagationPolicy", "ResourceBinding", "Instance"]),
            ("dfw", &self.dfw, hub, &["WorkloadDeployment", "Instance", "NetworkBinding"]),
            ("ord", &self.ord, hub, &["WorkloadDeployment", "Instance", "NetworkBinding"]),
        ] {
            for kind in kinds {
                let left = list(client, kind, namespace).await;
                if !left.is_empty() {
                    return Err(format!("{place}: {kind} {:?}", left.iter().map(|o| o.name_any()).collect::<Vec<_>>()));
                }
            }
        }
        Ok(())
    }
}

/// Returns a random name of a hub namespace, in the form of a uid.
pub fn hub_namespace() -> String {
    let digits = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
    format!("ns-{}", groups.join("-"))
}

/// A Network.
pub fn network(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "networking.datumapis.com/v1alpha", "kind": "Network",
        "metadata": { "name": name, "namespace": namespace }, "spec": { "ipam": { "mode": "Auto" } },
    })
}

/// A Workload for these cities.
pub fn workload(namespace: &str, name: &str, cities: &[&str], replicas: u32) -> Value {
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "template": template("docker.io/library/nginx:1"),
            "placements": [{ "name": "p", "cityCodes": cities, "scaleSettings": { "minReplicas": replicas } }],
        },
    })
}

/// A WorkloadDeployment without a Workload, for tests of the federator.
pub fn deployment(namespace: &str, name: &str, city: &str) -> Value {
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "workloadRef": { "name": "test-workload", "uid": "00000000-0000-0000-0000-000000000001" },
            "placementName": "default", "cityCode": city, "template": template("docker.io/library/nginx:1"),
            "scaleSettings": { "minReplicas": 1 },
        },
    })
}

pub fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "test" } }, "spec": {
        "runtime": {
            "resources": { "instanceType": "datumcloud/d1-standard-2" },
            "sandbox": { "containers": [{ "name": "c", "image": image }] },
        },
        "networkInterfaces": [{ "network": { "name": "default" } }],
    }})
}

pub fn api(client: &Client, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let (group, version) = match kind {
        "Workload" | "WorkloadDeployment" | "Instance" => ("compute.datumapis.com", "v1alpha"),
        "PropagationPolicy" | "ClusterPropagationPolicy" => ("policy.karmada.io", "v1alpha1"),
        "ResourceBinding" => ("work.karmada.io", "v1alpha2"),
        "Work" => ("work.karmada.io", "v1alpha1"),
        "Cluster" => ("cluster.karmada.io", "v1alpha1"),
        "LocationBinding" | "Location" | "Network" | "NetworkBinding" | "NetworkContext" | "SubnetClaim" | "Subnet" => {
            ("networking.datumapis.com", "v1alpha")
        }
        "ResourceClaim" | "ResourceGrant" => ("quota.miloapis.com", "v1alpha1"),
        "Project" => ("resourcemanager.miloapis.com", "v1alpha1"),
        "ProjectControlPlane" => ("infrastructure.miloapis.com", "v1alpha1"),
        "Event" => ("events.k8s.io", "v1"),
        "CustomResourceDefinition" => ("apiextensions.k8s.io", "v1"),
        "ValidatingAdmissionPolicy"
        | "ValidatingAdmissionPolicyBinding"
        | "ValidatingWebhookConfiguration"
        | "MutatingAdmissionPolicy"
        | "MutatingAdmissionPolicyBinding" => ("admissionregistration.k8s.io", "v1"),
        "Lease" => ("coordination.k8s.io", "v1"),
        "Deployment" => ("apps", "v1"),
        "ClusterRole" | "ClusterRoleBinding" => ("rbac.authorization.k8s.io", "v1"),
        "ResourceInterpreterCustomization" => ("config.karmada.io", "v1alpha1"),
        _ => ("", "v1"),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

pub async fn apply(client: &Client, object: Value) -> DynamicObject {
    try_apply(client, object).await.unwrap()
}

pub async fn try_apply(client: &Client, object: Value) -> kube::Result<DynamicObject> {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    api(client, &kind, &namespace).patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await
}

pub async fn merge(client: &Client, kind: &str, namespace: &str, name: &str, patch: Value) -> DynamicObject {
    api(client, kind, namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

pub async fn get(client: &Client, kind: &str, namespace: &str, name: &str) -> Option<DynamicObject> {
    api(client, kind, namespace).get_opt(name).await.unwrap()
}

pub async fn list(client: &Client, kind: &str, namespace: &str) -> Vec<DynamicObject> {
    api(client, kind, namespace).list(&ListParams::default()).await.unwrap().items
}

pub async fn delete(client: &Client, kind: &str, namespace: &str, name: &str) {
    let _ = api(client, kind, namespace).delete(name, &DeleteParams::background()).await.unwrap();
}

/// Returns the condition of this type, or null.
pub fn condition(object: &DynamicObject, type_: &str) -> Value {
    let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|c| c["type"] == type_).unwrap_or_default()
}

/// Repeats `check` until it succeeds. Panics with its last error after `PATIENCE`.
pub async fn eventually<T, F: Future<Output = Result<T, String>>>(what: &str, check: impl FnMut() -> F) -> T {
    eventually_within(PATIENCE, what, check).await
}

/// The same as `eventually` with another limit, for delays of minutes in the product itself.
pub async fn eventually_within<T, F: Future<Output = Result<T, String>>>(
    patience: Duration,
    what: &str,
    mut check: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(25);
    loop {
        let began = Instant::now();
        match check().await {
            Ok(value) => return value,
            Err(why) if Instant::now() > deadline => panic!("{what}: not within {patience:?}: {why}"),
            // Many tests poll at once, and each poll loads a server. The slower the poll, the longer the pause.
            Err(_) => tokio::time::sleep(pause.max(began.elapsed() * 2)).await,
        }
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

/// Polls for two seconds, and panics at the first object that `look` finds.
pub async fn never<T: Debug, F: Future<Output = Option<T>>>(what: &str, look: impl FnMut() -> F) {
    never_within(ABSENT, what, look).await;
}

/// Polls for this time, and panics at the first object that `look` finds.
pub async fn never_within<T: Debug, F: Future<Output = Option<T>>>(
    time: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) {
    let began = Instant::now();
    while began.elapsed() < time {
        if let Some(found) = look().await {
            panic!("{what}, after {:?}: {found:?}", began.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Scales a promised time to the load of the machine, and doubles it. The system reports the load only as the mean of a minute,
/// and machines differ in speed.
pub fn promised(within: Duration) -> Duration {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1.0, |n| f64::from(u32::try_from(n.get()).unwrap_or(1)));
    within.mul_f64(2.0 * (load / cores).max(1.0))
}

/// Returns every Secret and ConfigMap that Karmada delivered into a cell's namespace, with its uid.
pub async fn copies(cell: &Client, hub: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for kind in ["ConfigMap", "Secret"] {
        for object in list(cell, kind, hub).await {
            if object.labels().contains_key("compute.datumapis.com/referenced-data") {
                found.insert(format!("{kind}/{}", object.name_any()), object.uid().unwrap());
            }
        }
    }
    found
}

/// Waits until the Workload has exactly this many ready instances.
pub async fn ready(world: &World, namespace: &str, name: &str, replicas: u64) -> DynamicObject {
    eventually(&format!("{name} has {replicas} ready instances"), || async {
        let workload = get(&world.project, "Workload", namespace, name).await.ok_or("no workload")?;
        let status = &workload.data["status"];
        let settled =
            ["replicas", "readyReplicas", "desiredReplicas", "updatedReplicas"].iter().all(|f| status[*f] == replicas)
                && status["observedGeneration"] == json!(workload.metadata.generation);
        if settled { Ok(workload) } else { Err(status.to_string()) }
    })
    .await
}

pub fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}
