//! The caches of the management controllers, and which change wakes whom.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock, Weak},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{ResourceExt, core::PartialObjectMeta};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{
        compute::{Workload, WorkloadDeployment},
        karmada::PropagationPolicy,
        meta::{self, annotation, label},
        names::{self, CityCode, ProjectName},
        neighbours::LocationBinding,
    },
    controllers::Watches,
    io::{
        clients::ControlPlane,
        health::Health,
        queue::{Key, Queue},
        store::{Change, ObjectKey, Store},
        watch::Feed,
    },
    metrics::Metrics,
    plan::{self, Kind, hub::federate::NamespaceFacts},
};

/// Lane of work that belongs to no project.
pub(super) const HUB_LANE: &str = "";

/// Everything the management controllers share.
pub(super) struct Management {
    pub(super) hub: HubState,
    projects: RwLock<BTreeMap<ProjectName, Arc<ProjectState>>>,
    pub(super) queues: Queues,
    pub(super) metrics: Metrics,
    health: Health,
    stop: CancellationToken,
}

/// One queue per controller.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) workload: Arc<Queue>,
    pub(super) federator: Arc<Queue>,
    pub(super) policy: Arc<Queue>,
}

/// The hub's caches.
pub(super) struct HubState {
    pub(super) plane: ControlPlane<plan::Hub>,
    /// Namespaces that a federator made, by project.
    pub(super) namespaces: Arc<Store<NamespaceFacts>>,
    /// Copies of deployments, by [`city_index`] and by [`namespace_index`].
    pub(super) copies: Arc<Store<WorkloadDeployment>>,
    /// City policies of ours, by [`namespace_index`].
    pub(super) policies: Arc<Store<PropagationPolicy>>,
}

/// One project's caches.
pub(super) struct ProjectState {
    pub(super) name: ProjectName,
    pub(super) plane: ControlPlane<plan::Project>,
    pub(super) workloads: Arc<Store<Workload>>,
    /// By Workload uid, by [`city_index`] and by [`namespace_index`].
    pub(super) deployments: Arc<Store<WorkloadDeployment>>,
    /// The city that each LocationBinding opens.
    pub(super) locations: Arc<Store<Option<CityCode>>>,
    /// Every namespace, by uid.
    pub(super) namespaces: Arc<Store<NamespaceFacts>>,
    stop: CancellationToken,
}

/// Index value under which a store keeps the deployments of a city in a namespace.
pub(super) fn city_index(namespace: &str, city: &CityCode) -> String {
    format!("city {namespace}/{city}")
}

/// The city of a hub copy, from the label that its policy selects by.
pub(super) fn copy_city(copy: &WorkloadDeployment) -> Option<CityCode> {
    copy.labels().get(label::TOPOLOGY_CITY).and_then(|city| CityCode::parse(city).ok())
}

fn original_city(deployment: &WorkloadDeployment) -> Option<CityCode> {
    CityCode::parse(&deployment.spec.city_code).ok()
}

fn namespace_facts(namespace: PartialObjectMeta<Namespace>) -> NamespaceFacts {
    let meta = namespace.metadata;
    let mut labels = meta.labels.unwrap_or_default();
    labels.retain(|key, _| key == label::UPSTREAM_CLUSTER || key == label::UPSTREAM_NAMESPACE);
    NamespaceFacts { uid: meta.uid.unwrap_or_default(), labels, terminating: meta.deletion_timestamp.is_some() }
}

impl HubState {
    fn new(plane: ControlPlane<plan::Hub>) -> Self {
        Self {
            plane,
            namespaces: Arc::new(Store::new(|_, facts: &NamespaceFacts| {
                upstream(facts).map(|(project, _)| project_index(&project)).into_iter().collect()
            })),
            copies: Arc::new(Store::new(|key, copy: &WorkloadDeployment| {
                let city = copy_city(copy).map(|city| city_index(&key.namespace, &city));
                city.into_iter().chain([namespace_index(&key.namespace)]).collect()
            })),
            policies: Arc::new(Store::new(|key, _| vec![namespace_index(&key.namespace)])),
        }
    }

    /// Whether everything is known that the hub holds of ours.
    pub(super) fn is_synced(&self) -> bool {
        self.namespaces.is_synced() && self.copies.is_synced() && self.policies.is_synced()
    }
}

/// Project and namespace that a hub namespace mirrors.
pub(super) fn upstream(facts: &NamespaceFacts) -> Option<(ProjectName, &str)> {
    let project = facts.labels.get(label::UPSTREAM_CLUSTER).and_then(|value| ProjectName::from_label_value(value))?;
    Some((project, facts.labels.get(label::UPSTREAM_NAMESPACE)?))
}

/// Index value under which the hub's namespaces of a project are kept.
fn project_index(project: &ProjectName) -> String {
    format!("project {project}")
}

impl ProjectState {
    fn new(name: &ProjectName, plane: ControlPlane<plan::Project>, stop: CancellationToken) -> Self {
        Self {
            name: name.clone(),
            plane,
            workloads: Arc::new(Store::new(|_, _| Vec::new())),
            deployments: Arc::new(Store::new(|key, wd: &WorkloadDeployment| {
                let city = original_city(wd).map(|city| city_index(&key.namespace, &city));
                city.into_iter().chain([wd.spec.workload_ref.uid.clone(), namespace_index(&key.namespace)]).collect()
            })),
            locations: Arc::new(Store::new(|_, _| Vec::new())),
            namespaces: Arc::new(Store::new(|_, _| Vec::new())),
            stop,
        }
    }

    /// Whether everything is known that deletion and federation read. Fan-out reads the locations as well.
    pub(super) fn is_synced(&self) -> bool {
        self.workloads.is_synced() && self.deployments.is_synced() && self.namespaces.is_synced()
    }

    /// Uid of a namespace that is there.
    pub(super) fn namespace_uid(&self, namespace: &str) -> Option<String> {
        self.namespaces.get(&ObjectKey::new("", namespace)).map(|facts| facts.uid.clone())
    }
}

/// Index value under which a store keeps the objects of a namespace.
fn namespace_index(namespace: &str) -> String {
    format!("namespace {namespace}")
}

impl Management {
    pub(super) fn start(
        hub: ControlPlane<plan::Hub>,
        health: &Health,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        let this = Arc::new(Self {
            hub: HubState::new(hub),
            projects: RwLock::default(),
            queues: Queues::default(),
            metrics: metrics.clone(),
            health: health.clone(),
            stop: stop.clone(),
        });
        this.listen_to_hub();
        let weak = Arc::downgrade(&this);
        let watches = Watches {
            plane: &this.hub.plane,
            health,
            metrics,
            stop,
            on_fresh: Arc::new(move || with(&weak, |this| this.everything_again())),
        };
        let scope = label::UPSTREAM_NAMESPACE;
        watches.objects::<WorkloadDeployment, _>(Some(Kind::WorkloadDeployment), scope, |wd| wd, &this.hub.copies);
        let ours = format!("{}={}", label::MANAGED_BY, meta::MANAGED_BY);
        watches.objects::<PropagationPolicy, _>(Some(Kind::PropagationPolicy), &ours, |p| p, &this.hub.policies);
        watches.start::<PartialObjectMeta<Namespace>, _>(
            label::UPSTREAM_CLUSTER,
            namespace_facts,
            &this.hub.namespaces,
        );
        let feed = Feed { keep: namespace_facts, store: this.hub.namespaces.clone() };
        this.hub.plane.feed(Kind::Namespace, Arc::new(feed));
        this
    }

    pub(super) fn engage(this: &Arc<Self>, name: &ProjectName, plane: ControlPlane<plan::Project>) {
        let project = Arc::new(ProjectState::new(name, plane, this.stop.child_token()));
        this.listen_to_project(&project);
        if let Some(before) = this.write_projects().insert(name.clone(), project.clone()) {
            before.stop.cancel();
        }
        let (weak, lane) = (Arc::downgrade(this), project.clone());
        let watches = Watches {
            plane: &project.plane,
            health: &this.health,
            metrics: &this.metrics,
            stop: &project.stop,
            on_fresh: Arc::new(move || with(&weak, |this| this.project_again(&lane))),
        };
        watches.objects::<Workload, _>(Some(Kind::Workload), "", |w| w, &project.workloads);
        watches.objects::<WorkloadDeployment, _>(Some(Kind::WorkloadDeployment), "", |wd| wd, &project.deployments);
        watches.objects::<LocationBinding, _>(None, "", |binding| binding.spec.city(), &project.locations);
        watches.start::<PartialObjectMeta<Namespace>, _>("", namespace_facts, &project.namespaces);
        tracing::info!(project = %name, "project engaged");
    }

    pub(super) fn disengage(&self, name: &ProjectName) {
        if let Some(project) = self.write_projects().remove(name) {
            project.stop.cancel();
            for queue in [&self.queues.workload, &self.queues.federator] {
                queue.forget_lane(name.as_str());
            }
            tracing::info!(project = %name, "project disengaged");
        }
    }

    /// The project of this name, while it is engaged.
    pub(super) fn project(&self, name: &str) -> Option<Arc<ProjectState>> {
        self.projects.read().unwrap_or_else(PoisonError::into_inner).get(&ProjectName::new(name)).cloned()
    }

    fn write_projects(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<ProjectName, Arc<ProjectState>>> {
        self.projects.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_projects(&self) -> Vec<Arc<ProjectState>> {
        self.projects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// A cache of the hub is fresh: look at everything, and let what failed meanwhile try now.
    fn everything_again(&self) {
        self.queues.policy.retry_now(HUB_LANE);
        for project in self.all_projects() {
            self.project_again(&project);
        }
    }

    /// The same for a project: its own objects, and what the hub holds for it.
    fn project_again(&self, project: &ProjectState) {
        let lane = project.name.as_str();
        self.queues.workload.retry_now(lane);
        self.queues.federator.retry_now(lane);
        self.wake_workloads(project, None);
        for deployment in project.deployments.values() {
            let key = ObjectKey::of(deployment.as_ref());
            self.queues.federator.add(Key::new(lane, &key.namespace, &key.name));
            self.wake_policy_of(project, &deployment);
        }
        for namespace in self.hub.namespaces.keys_by_index(&project_index(&project.name)) {
            for key in self.hub.copies.keys_by_index(&namespace_index(&namespace.name)) {
                self.wake_original(&key);
            }
            for key in self.hub.policies.keys_by_index(&namespace_index(&namespace.name)) {
                self.wake_policy_named(&key);
            }
        }
    }

    fn listen_to_hub(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        self.hub.copies.listen(move |change| with(&weak, |this| this.on_copy(change)));
        let weak = Arc::downgrade(self);
        self.hub.policies.listen(move |change| with(&weak, |this| this.wake_policy_named(change.key)));
        let weak = Arc::downgrade(self);
        self.hub.namespaces.listen(move |change| with(&weak, |this| this.on_hub_namespace(change)));
    }

    fn listen_to_project(self: &Arc<Self>, project: &Arc<ProjectState>) {
        let lane = project.name.clone();
        let queue = self.queues.workload.clone();
        project.workloads.listen(move |change| {
            queue.add(Key::new(lane.as_str(), &change.key.namespace, &change.key.name));
        });
        let (weak, of) = (Arc::downgrade(self), Arc::downgrade(project));
        project
            .deployments
            .listen(move |change| with2(&weak, &of, |this, project| this.on_deployment(project, change)));
        let (weak, of) = (Arc::downgrade(self), Arc::downgrade(project));
        project.locations.listen(move |change| {
            if change.old != change.new {
                with2(&weak, &of, |this, project| this.wake_workloads(project, None));
            }
        });
        let (weak, of) = (Arc::downgrade(self), Arc::downgrade(project));
        project.namespaces.listen(move |change| {
            if change.old != change.new {
                with2(&weak, &of, |this, project| this.on_project_namespace(project, &change.key.name));
            }
        });
    }

    fn on_deployment(&self, project: &ProjectState, change: &Change<'_, WorkloadDeployment>) {
        let lane = project.name.as_str();
        self.queues.federator.add(Key::new(lane, &change.key.namespace, &change.key.name));
        for deployment in change.old.into_iter().chain(change.new) {
            let workload = &deployment.spec.workload_ref.name;
            self.queues.workload.add(Key::new(lane, &change.key.namespace, workload));
            self.wake_policy_of(project, deployment);
        }
    }

    fn on_copy(&self, change: &Change<'_, WorkloadDeployment>) {
        for copy in change.old.into_iter().chain(change.new) {
            self.wake_policy(&change.key.namespace, copy_city(copy));
        }
        self.wake_original(change.key);
    }

    /// The federator's work on the original of a copy.
    fn wake_original(&self, copy: &ObjectKey) {
        let Some(facts) = self.hub.namespaces.get(&ObjectKey::new("", &copy.namespace)) else { return };
        if let Some((project, namespace)) = upstream(&facts) {
            self.queues.federator.add(Key::new(project.as_str(), namespace, &copy.name));
        }
    }

    fn on_hub_namespace(&self, change: &Change<'_, NamespaceFacts>) {
        if change.old == change.new {
            return;
        }
        let Some((project, namespace)) = change.any().and_then(|facts| upstream(facts)) else { return };
        if let Some(project) = self.project(project.as_str()) {
            self.on_project_namespace(&project, namespace);
        }
    }

    fn on_project_namespace(&self, project: &ProjectState, namespace: &str) {
        for deployment in project.deployments.by_index(&namespace_index(namespace)) {
            self.queues.federator.add(Key::new(project.name.as_str(), namespace, &deployment.name_any()));
            self.wake_policy_of(project, &deployment);
        }
        self.wake_workloads(project, Some(namespace));
    }

    fn wake_workloads(&self, project: &ProjectState, namespace: Option<&str>) {
        for key in project.workloads.keys() {
            if namespace.is_none_or(|namespace| namespace == &*key.namespace) {
                self.queues.workload.add(Key::new(project.name.as_str(), &key.namespace, &key.name));
            }
        }
    }

    fn wake_policy_of(&self, project: &ProjectState, deployment: &WorkloadDeployment) {
        let derived = project.namespace_uid(&deployment.namespace().unwrap_or_default());
        let recorded = || deployment.annotations().get(annotation::FEDERATION_NAMESPACE).cloned();
        if let Some(namespace) = derived.map(|uid| names::hub_namespace(&uid)).or_else(recorded) {
            self.wake_policy(&namespace, original_city(deployment));
        }
    }

    fn wake_policy_named(&self, policy: &ObjectKey) {
        let city = policy.name.strip_prefix("city-").and_then(|city| CityCode::parse(city).ok());
        self.wake_policy(&policy.namespace, city);
    }

    fn wake_policy(&self, namespace: &str, city: Option<CityCode>) {
        if let Some(city) = city {
            self.queues.policy.add(Key::new(HUB_LANE, namespace, city.as_str()));
        }
    }
}

fn with<T>(weak: &Weak<T>, act: impl FnOnce(&Arc<T>)) {
    if let Some(strong) = weak.upgrade() {
        act(&strong);
    }
}

fn with2<T, U>(one: &Weak<T>, two: &Weak<U>, act: impl FnOnce(&T, &U)) {
    if let (Some(one), Some(two)) = (one.upgrade(), two.upgrade()) {
        act(&one, &two);
    }
}
