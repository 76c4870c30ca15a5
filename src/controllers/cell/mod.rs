//! The cell controllers: deployments that Karmada brought become Instances here.

mod companions;
mod deployment;
mod identity;
mod instance;
mod networks;
mod quota;
mod write_back;

use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::Namespace;
use kube::{ResourceExt, core::PartialObjectMeta};
use tokio_util::sync::CancellationToken;

use self::{companions::Companions, networks::Networks, quota::Quota, write_back::WriteBack};
use super::{Watches, namespace_facts, with};
use crate::{
    api::{
        compute::{Instance, WorkloadDeployment},
        meta::label,
        names::ProjectName,
    },
    io::{
        clients::{Connection, ControlPlane, Projects},
        health::Health,
        queue::{Key, Queue},
        store::{Change, ObjectKey, Store},
    },
    metrics::Metrics,
    plan::{self, NamespaceFacts, cell::Features, ownership, references::references},
    timing::Timing,
};

const WORKERS: usize = 8;
/// Workers where each project is a lane of its own, see [`super::management::WORKERS`].
const QUOTA_WORKERS: usize = 32;
/// All other work of a cell has one lane.
const LANE: &str = "cell";

/// What a cell works with.
pub struct Options {
    /// The cell.
    pub cell: Connection,
    /// The hub, for the way back; without it nothing is written back.
    pub hub: Option<Connection>,
    /// Whether Instances wait for their networks.
    pub networks: bool,
    /// Whether Instances wait for the data that they refer to.
    pub data: bool,
    /// `discovery.clusterName` and the way to projects, when Instances wait for quota.
    pub quota: Option<(String, Projects)>,
    /// How long to wait for what.
    pub timing: Timing,
}

/// The cell side, watching from the moment it is made, working once it [`run`](Self::run)s.
pub struct Cell(Arc<State>);

struct State {
    plane: ControlPlane<plan::Cell>,
    /// Uid of the cell's `kube-system` namespace, once it is known.
    uid: OnceLock<String>,
    /// Namespaces that Karmada brought, with the labels that say what they mirror; by project.
    namespaces: Arc<Store<NamespaceFacts>>,
    /// Copies that Karmada brought, by [`namespace_index`].
    deployments: Arc<Store<WorkloadDeployment>>,
    /// By the uid of the deployment that controls them, by [`namespace_index`] and by [`companions::index`].
    instances: Arc<Store<Instance>>,
    networks: Option<Networks>,
    companions: Option<Companions>,
    quota: Option<Quota>,
    write_back: Option<WriteBack>,
    deployment_queue: Arc<Queue>,
    instance_queue: Arc<Queue>,
    features: Features,
    timing: Timing,
    metrics: Metrics,
}

fn namespace_index(namespace: &str) -> String {
    format!("namespace {namespace}")
}

impl Cell {
    /// Starts the watches of the cell.
    pub fn start(options: Options, health: &Health, metrics: &Metrics, stop: &CancellationToken) -> Self {
        let Options { cell, hub, networks, data, quota, timing } = options;
        metrics.quota_enabled(quota.is_some());
        let state = Arc::new(State {
            plane: ControlPlane::new("cell", cell),
            uid: OnceLock::new(),
            namespaces: Arc::new(Store::new(|_, facts: &NamespaceFacts| {
                facts.upstream().map(|(project, _)| project.to_string()).into_iter().collect()
            })),
            deployments: Arc::new(Store::new(|key, _| vec![namespace_index(&key.namespace)])),
            instances: Arc::new(Store::new(|key, instance: &Instance| {
                let owner = ownership::controller_of(instance).map(|owner| owner.uid.clone());
                let needs = references(&instance.spec);
                let needs = needs.iter().map(|reference| companions::index(&key.namespace, &reference.token));
                owner.into_iter().chain([namespace_index(&key.namespace)]).chain(needs).collect()
            })),
            features: Features { networks, quota: quota.is_some(), data },
            networks: networks.then(Networks::default),
            companions: data.then(Companions::default),
            quota: quota.map(|(cluster, projects)| Quota::new(cluster, projects, health, stop)),
            write_back: hub.map(|hub| WriteBack::new(ControlPlane::new("hub", hub))),
            deployment_queue: Arc::default(),
            instance_queue: Arc::default(),
            timing,
            metrics: metrics.clone(),
        });
        listen(&state);
        let all = state.clone();
        let watches = state.watches(health, stop, Arc::new(move || all.everything_again()));
        // Where one cluster is project and cell at once, the project's originals are not the cell's to run.
        watches.written::<WorkloadDeployment, _>(label::UPSTREAM_NAMESPACE, |wd| wd, &state.deployments);
        watches.written::<Instance, _>(label::WORKLOAD_DEPLOYMENT_UID, |i| i, &state.instances);
        let mirrors = label::UPSTREAM_CLUSTER;
        watches.start::<PartialObjectMeta<Namespace>, _>(mirrors, namespace_facts, &state.namespaces);
        if let Some(networks) = &state.networks {
            networks.start(&state, &watches, health, stop);
        }
        if let Some(companions) = &state.companions {
            companions.start(&state, &watches);
        }
        identity::learn(&state, health, stop);
        Self(state)
    }

    /// Works until `stop`; what is under way then is finished first.
    pub async fn run(&self, stop: &CancellationToken) {
        let State { deployment_queue, instance_queue, metrics, .. } = &*self.0;
        let deployments = Arc::new(deployment::DeploymentController(self.0.clone()));
        let instances = Arc::new(instance::InstanceController(self.0.clone()));
        let quota = Arc::new(quota::QuotaController(self.0.clone()));
        let write_back = Arc::new(write_back::WriteBackController(self.0.clone()));
        let quota_queue = self.0.quota.as_ref().map(|quota| quota.queue.clone());
        let write_back_queue = self.0.write_back.as_ref().map(|write_back| write_back.queue.clone());
        tokio::join!(
            super::run(deployments, deployment_queue.clone(), WORKERS, metrics.clone(), stop.clone()),
            super::run(instances, instance_queue.clone(), WORKERS, metrics.clone(), stop.clone()),
            async {
                if let Some(queue) = quota_queue {
                    super::run(quota, queue, QUOTA_WORKERS, metrics.clone(), stop.clone()).await;
                }
            },
            async {
                if let Some(queue) = write_back_queue {
                    super::run(write_back, queue, WORKERS, metrics.clone(), stop.clone()).await;
                }
            },
        );
    }
}

impl State {
    /// Whether everything is known that quota and the way back read.
    fn is_synced(&self) -> bool {
        self.namespaces.is_synced() && self.deployments.is_synced() && self.instances.is_synced()
    }

    /// Whether everything is known that making Instances and opening their gates reads.
    fn knows_all(&self) -> bool {
        self.is_synced()
            && self.networks.as_ref().is_none_or(Networks::is_synced)
            && self.companions.as_ref().is_none_or(Companions::is_synced)
    }

    fn watches<'a>(
        &'a self,
        health: &'a Health,
        stop: &'a CancellationToken,
        on_fresh: Arc<dyn Fn() + Send + Sync>,
    ) -> Watches<'a, plan::Cell> {
        Watches {
            plane: &self.plane,
            health,
            metrics: &self.metrics,
            timing: self.timing,
            stop,
            tenant: false,
            on_fresh,
        }
    }

    /// The deployment of this cell that controls an Instance. A projection in a project's namespace has none.
    fn owner(&self, instance: &Instance) -> Option<Arc<WorkloadDeployment>> {
        let owner = ownership::controller_of(instance)?;
        let namespace = instance.namespace().unwrap_or_default();
        let deployment = self.deployments.get(&ObjectKey::new(&namespace, &owner.name))?;
        ownership::is_controlled_by(instance, deployment.as_ref()).then_some(deployment)
    }

    /// A deployment and each of its Instances.
    fn wake_deployment(&self, namespace: &str, name: &str) {
        self.deployment_queue.add(Key::new(LANE, namespace, name));
        let Some(deployment) = self.deployments.get(&ObjectKey::new(namespace, name)) else { return };
        for instance in self.instances.keys_by_index(&deployment.uid().unwrap_or_default()) {
            self.wake_instance(&instance);
        }
    }

    /// Everything that is done for an Instance.
    fn wake_instance(&self, instance: &ObjectKey) {
        self.instance_queue.add(Key::new(LANE, &instance.namespace, &instance.name));
        if let Some(write_back) = &self.write_back {
            write_back.queue.add(Key::new(LANE, &instance.namespace, &instance.name));
        }
        if let Some(quota) = &self.quota {
            quota.queue.add(quota::key(self, instance));
        }
    }

    /// A cache is fresh: look at everything, and let what failed meanwhile try now.
    fn everything_again(&self) {
        for queue in [&self.deployment_queue, &self.instance_queue] {
            queue.retry_now(LANE);
        }
        for key in self.deployments.keys() {
            self.deployment_queue.add(Key::new(LANE, &key.namespace, &key.name));
        }
        for key in self.instances.keys() {
            self.wake_instance(&key);
        }
        self.write_back_again();
    }

    /// The hub's cache, or the cell's, is fresh.
    fn write_back_again(&self) {
        let Some(write_back) = &self.write_back else { return };
        write_back.queue.retry_now(LANE);
        for key in self.instances.keys().into_iter().chain(write_back.copies.keys()) {
            write_back.queue.add(Key::new(LANE, &key.namespace, &key.name));
        }
    }

    /// A project's quota answers again.
    fn quota_again(&self, project: &ProjectName) {
        let Some(quota) = &self.quota else { return };
        quota.queue.retry_now(project.as_str());
        for namespace in self.namespaces.keys_by_index(project.as_str()) {
            for instance in self.instances.keys_by_index(&namespace_index(&namespace.name)) {
                quota.queue.add(Key::new(project.as_str(), &instance.namespace, &instance.name));
            }
        }
    }

    /// Lets go of the quota of a project that has no Instance here any more.
    fn retire_quota(&self, namespace: &str) {
        let Some(quota) = &self.quota else { return };
        let facts = self.namespaces.get(&ObjectKey::new("", namespace));
        let Some((project, _)) = facts.as_ref().and_then(|facts| facts.upstream()) else { return };
        let used = |namespace: &ObjectKey| !self.instances.keys_by_index(&namespace_index(&namespace.name)).is_empty();
        if !self.namespaces.keys_by_index(project.as_str()).iter().any(used) {
            quota.retire(&project);
        }
    }

    fn on_deployment(&self, change: &Change<'_, WorkloadDeployment>) {
        self.deployment_queue.add(Key::new(LANE, &change.key.namespace, &change.key.name));
        // Instances read nothing of a deployment's status.
        let same = change.old.zip(change.new).is_some_and(|(old, new)| {
            old.metadata.generation == new.metadata.generation && old.metadata.annotations == new.metadata.annotations
        });
        if !same {
            self.count_companions(&change.key.namespace);
            self.wake_deployment(&change.key.namespace, &change.key.name);
        }
    }

    fn on_instance(&self, change: &Change<'_, Instance>) {
        self.wake_instance(change.key);
        if let Some(owner) = change.any().and_then(|instance| ownership::controller_of(instance.as_ref())) {
            self.deployment_queue.add(Key::new(LANE, &change.key.namespace, &owner.name));
        }
        if change.new.is_none() {
            self.retire_quota(&change.key.namespace);
        }
    }

    fn on_namespace(&self, change: &Change<'_, NamespaceFacts>) {
        if change.old != change.new {
            for instance in self.instances.keys_by_index(&namespace_index(&change.key.name)) {
                self.wake_instance(&instance);
            }
        }
    }
}

fn listen(state: &Arc<State>) {
    let weak = Arc::downgrade(state);
    state.deployments.listen(move |change| with(&weak, |state| state.on_deployment(change)));
    let weak = Arc::downgrade(state);
    state.instances.listen(move |change| with(&weak, |state| state.on_instance(change)));
    let weak = Arc::downgrade(state);
    state.namespaces.listen(move |change| with(&weak, |state| state.on_namespace(change)));
}
