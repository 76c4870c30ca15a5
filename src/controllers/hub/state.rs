//! The caches of the management controllers: the hub's, and those of each project.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{ResourceExt, core::PartialObjectMeta};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Options;
use crate::{
    api::{
        compute::{Instance, Workload, WorkloadDeployment},
        karmada::{Cluster, PropagationPolicy, ResourceBinding},
        meta::{annotation, label},
        names::{self, CityCode, ProjectName},
        neighbours::{LocationBinding, Network},
        referenced::{SourceKind, Token},
    },
    controllers::{Watches, namespace_facts, with},
    io::{
        clients::ControlPlane,
        health::Health,
        queue::Queue,
        sources::Sources,
        store::{ObjectKey, Store},
        watch::Feed,
    },
    metrics::Metrics,
    plan::{
        self, Kind, NamespaceFacts,
        hub::{
            companion::CompanionFacts,
            federated::{BindingFacts, ClusterFacts},
            policy::Phase,
            project::{self, Quarantine},
        },
        references::{annotated, references},
    },
};

/// Lane of work on hub objects that belong to no project that we know.
pub(super) const HUB_LANE: &str = "";

/// Everything the management controllers share.
pub(super) struct Management {
    pub(super) hub: HubState,
    projects: RwLock<BTreeMap<ProjectName, Arc<ProjectState>>>,
    pub(super) queues: Queues,
    /// Hub Instances that cannot be shown in a project.
    aside: Mutex<BTreeMap<ObjectKey, Aside>>,
    /// When it was told what a hub namespace will lose on the way back to claims.
    warned: Mutex<BTreeMap<String, Instant>>,
    /// Since when nobody has needed a city's policy: by hub namespace and city.
    unneeded: Mutex<BTreeMap<(String, CityCode), Instant>>,
    pub(super) options: Options,
    /// A Cluster's label has changed.
    pub(super) relabelled: Notify,
    /// Whether a project is known not to exist; set where projects are discovered.
    gone: OnceLock<IsGone>,
    pub(super) metrics: Metrics,
    health: Health,
    stop: CancellationToken,
}

type IsGone = Box<dyn Fn(&ProjectName) -> bool + Send + Sync>;

/// What is known of a deployment that lacks something.
struct Lack {
    since: Instant,
    /// When it was touched last, so that Karmada makes anew what is lacking, and how often.
    touched: Option<Instant>,
    touches: u32,
}

/// Objects per page where nearly all are passed over.
const PAGE: u32 = 100;

/// How long to wait after the first touch that did not help.
const TOUCH_AGAIN: Duration = Duration::from_secs(5);

/// How long a hub Instance must have had no place to be put aside: its deployment may come after it, and go before it.
const HOPELESS: Duration = Duration::from_secs(5);

/// A hub Instance that cannot be shown.
#[derive(Clone)]
struct Aside {
    uid: String,
    why: Quarantine,
    since: Instant,
    told: bool,
}

/// What is to be done about a hub Instance that cannot be shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing: it has been told.
    Known,
    /// It is to be told now.
    News,
    /// It may still find its place.
    LookAgain(Duration),
}

/// One queue per controller.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) workload: Arc<Queue>,
    pub(super) federator: Arc<Queue>,
    /// Here each hub namespace is a lane.
    pub(super) policy: Arc<Queue>,
    pub(super) projector: Arc<Queue>,
    /// Here the name of a key is a token, `Kind/name`, in a project's namespace.
    pub(super) companion: Arc<Queue>,
}

/// The hub's caches.
pub(super) struct HubState {
    pub(super) plane: ControlPlane<plan::Hub>,
    /// Namespaces that a federator made, by [`project_index`].
    pub(super) namespaces: Arc<Store<NamespaceFacts>>,
    /// Copies of deployments, by [`city_index`] and by [`namespace_index`].
    pub(super) copies: Arc<Store<WorkloadDeployment>>,
    /// Policies with the names that ours have, by [`namespace_index`].
    pub(super) policies: Arc<Store<PropagationPolicy>>,
    /// What the cells wrote back: by the project it claims to belong to ([`project_index`]), by the namespace there
    /// ([`claimed_namespace_index`]), by the deployment there ([`claimed_deployment_index`]), and by the place that its
    /// projection would have ([`claimed_place_index`]).
    pub(super) instances: Arc<Store<Instance>>,
    config_maps: Arc<Store<CompanionFacts>>,
    secrets: Arc<Store<CompanionFacts>>,
    /// What Karmada made of deployments and companions, by [`namespace_index`].
    pub(super) bindings: Arc<Store<BindingFacts>>,
    /// Member clusters, by city.
    pub(super) clusters: Arc<Store<ClusterFacts>>,
}

/// One project's caches.
pub(super) struct ProjectState {
    pub(super) name: ProjectName,
    pub(super) plane: ControlPlane<plan::Project>,
    pub(super) workloads: Arc<Store<Workload>>,
    /// By Workload uid, by [`city_index`], by [`namespace_index`] and by [`source_index`].
    pub(super) deployments: Arc<Store<WorkloadDeployment>>,
    /// The city that each LocationBinding opens.
    pub(super) locations: Arc<Store<Option<CityCode>>>,
    /// Every namespace, by uid.
    pub(super) namespaces: Arc<Store<NamespaceFacts>>,
    /// Projections, by [`namespace_index`].
    pub(super) instances: Arc<Store<Instance>>,
    /// The Networks that there are; only with the network feature.
    pub(super) networks: Option<Arc<Store<()>>>,
    config_maps: Arc<Sources>,
    secrets: Arc<Sources>,
    /// Whether sources are watched: from the first reference on.
    watches_sources: AtomicBool,
    /// Deployments that lack something.
    unsettled: Mutex<BTreeMap<ObjectKey, Lack>>,
    /// Whether this is one tenant's among many.
    tenant: bool,
    pub(super) stop: CancellationToken,
}

/// Index value under which a store keeps the deployments of a city in a namespace.
pub(super) fn city_index(namespace: &str, city: &CityCode) -> String {
    format!("city {namespace}/{city}")
}

/// Index value under which a store keeps the objects of a namespace.
pub(super) fn namespace_index(namespace: &str) -> String {
    format!("namespace {namespace}")
}

/// Index value of deployments that refer to a ConfigMap or Secret.
pub(super) fn source_index(namespace: &str, token: &Token) -> String {
    format!("uses {namespace}/{token}")
}

/// Whether a policy's name is that of a city policy.
fn may_be_city_policy(policy: &ObjectKey) -> bool {
    policy.namespace.starts_with("ns-") && policy.name.starts_with("city-")
}

/// Whether a binding's name is that of a template of ours.
fn may_be_ours(binding: &ObjectKey) -> bool {
    let suffixes = ["-workloaddeployment", "-configmap", "-secret"];
    binding.namespace.starts_with("ns-") && suffixes.iter().any(|suffix| binding.name.ends_with(suffix))
}

/// Index value under which the hub's objects of a project are kept.
pub(super) fn project_index(project: &ProjectName) -> String {
    format!("project {project}")
}

/// Index value of hub Instances that name a namespace of a project.
pub(super) fn claimed_namespace_index(project: &ProjectName, namespace: &str) -> String {
    format!("of {project}/{namespace}")
}

/// Index value of hub Instances that name a deployment of a project.
pub(super) fn claimed_deployment_index(project: &ProjectName, namespace: &str, deployment: &str) -> String {
    format!("of {project}/{namespace}/{deployment}")
}

/// Index value of hub Instances that claim one place in a project.
pub(super) fn claimed_place_index(project: &ProjectName, namespace: &str, name: &str) -> String {
    format!("at {project}/{namespace}/{name}")
}

/// The city of a hub copy, from the label that its policy selects by.
pub(super) fn copy_city(copy: &WorkloadDeployment) -> Option<CityCode> {
    copy.labels().get(label::TOPOLOGY_CITY).and_then(|city| CityCode::parse(city).ok())
}

/// The city of a project's deployment.
pub(super) fn original_city(deployment: &WorkloadDeployment) -> Option<CityCode> {
    CityCode::parse(&deployment.spec.city_code).ok()
}

impl HubState {
    fn new(plane: ControlPlane<plan::Hub>) -> Self {
        Self {
            plane,
            namespaces: Arc::new(Store::new(|_, facts: &NamespaceFacts| {
                facts.upstream().map(|(project, _)| project_index(&project)).into_iter().collect()
            })),
            copies: Arc::new(Store::new(|key, copy: &WorkloadDeployment| {
                let city = copy_city(copy).map(|city| city_index(&key.namespace, &city));
                city.into_iter().chain([namespace_index(&key.namespace)]).collect()
            })),
            policies: Arc::new(Store::of_those(may_be_city_policy, |key, _| vec![namespace_index(&key.namespace)])),
            instances: Arc::new(Store::new(|key, instance: &Instance| {
                let Ok(claimed) = project::identify(instance) else { return Vec::new() };
                vec![
                    project_index(&claimed.project),
                    claimed_namespace_index(&claimed.project, &claimed.namespace),
                    claimed_deployment_index(&claimed.project, &claimed.namespace, &claimed.deployment),
                    claimed_place_index(&claimed.project, &claimed.namespace, &key.name),
                ]
            })),
            config_maps: Arc::new(Store::new(|key, _| vec![namespace_index(&key.namespace)])),
            secrets: Arc::new(Store::new(|key, _| vec![namespace_index(&key.namespace)])),
            bindings: Arc::new(Store::of_those(may_be_ours, |key, _| vec![namespace_index(&key.namespace)])),
            clusters: Arc::new(Store::new(|_, cluster: &ClusterFacts| {
                cluster.city.iter().map(ToString::to_string).collect()
            })),
        }
    }

    /// Companions of a kind, by [`namespace_index`].
    pub(super) fn companions(&self, kind: SourceKind) -> &Arc<Store<CompanionFacts>> {
        match kind {
            SourceKind::ConfigMap => &self.config_maps,
            SourceKind::Secret => &self.secrets,
        }
    }

    /// One companion.
    pub(super) fn companion(&self, namespace: &str, token: &Token) -> Option<Arc<CompanionFacts>> {
        self.companions(token.kind).get(&ObjectKey::new(namespace, &token.name))
    }

    /// Whether everything is known that federation reads of the hub.
    pub(super) fn is_synced(&self) -> bool {
        self.namespaces.is_synced()
            && self.copies.is_synced()
            && self.policies.is_synced()
            && SourceKind::ALL.into_iter().all(|kind| self.companions(kind).is_synced())
    }

    /// The clusters that carry a city's label.
    pub(super) fn clusters_of(&self, city: &CityCode) -> Vec<String> {
        self.clusters.keys_by_index(city.as_str()).into_iter().map(|key| key.name.to_string()).collect()
    }

    /// Whether every companion of a namespace is brought to each deployment that expects it by its need (fact 23).
    pub(super) fn is_all_by_need(&self, namespace: &str) -> bool {
        self.copies.by_index(&namespace_index(namespace)).iter().all(|copy| {
            let parent = names::binding_name("WorkloadDeployment", &copy.name_any());
            annotated(copy, annotation::EXPECTED_REFERENCED_DATA).iter().all(|token| {
                let name = names::binding_name(token.kind.as_str(), &token.name);
                let binding = self.bindings.get(&ObjectKey::new(namespace, &name));
                let by = |binding: &BindingFacts| binding.required_by.iter().any(|by| by.name == parent);
                binding.is_some_and(|binding| by(&binding))
            })
        })
    }

    /// What the cities of a namespace would lose if companions were brought by claims alone: of each companion, every city
    /// that expects it but the one whose policy claims it. Nothing while some companion is not claimed yet.
    pub(super) fn losses(&self, namespace: &str) -> Option<Vec<String>> {
        let mut losses = BTreeSet::new();
        for copy in self.copies.by_index(&namespace_index(namespace)) {
            let Some(city) = copy_city(&copy) else { continue };
            for token in annotated(&copy, annotation::EXPECTED_REFERENCED_DATA) {
                let policy = self.companion(namespace, &token)?.policy.clone()?;
                if policy != city.policy_name() {
                    losses.insert(format!("{city} loses {token}, which stays with {policy}"));
                }
            }
        }
        Some(losses.into_iter().collect())
    }

    /// How many companions, and bindings of such, a policy claims.
    pub(super) fn claimed_by(&self, namespace: &str, policy: &str) -> usize {
        let index = namespace_index(namespace);
        let companions = SourceKind::ALL.into_iter().flat_map(|kind| self.companions(kind).by_index(&index));
        let companions = companions.filter(|companion| companion.policy.as_deref() == Some(policy)).count();
        let of_companion = |binding: &BindingFacts| {
            binding.template.0 != "WorkloadDeployment" && binding.policy.as_deref() == Some(policy)
        };
        companions + self.bindings.by_index(&index).iter().filter(|binding| of_companion(binding)).count()
    }

    /// Whether what Karmada makes of things is known as it is at present.
    pub(super) fn knows_karmada(&self) -> bool {
        self.bindings.is_live() && self.clusters.is_live() && self.policies.is_live() && self.copies.is_live()
    }
}

impl ProjectState {
    fn new(
        name: &ProjectName,
        plane: ControlPlane<plan::Project>,
        networks: bool,
        tenant: bool,
        stop: CancellationToken,
    ) -> Self {
        Self {
            name: name.clone(),
            plane,
            workloads: Arc::new(Store::new(|_, _| Vec::new())),
            deployments: Arc::new(Store::new(|key, wd: &WorkloadDeployment| {
                let city = original_city(wd).map(|city| city_index(&key.namespace, &city));
                let sources = references(&wd.spec.template.spec);
                let sources = sources.iter().map(|reference| source_index(&key.namespace, &reference.token));
                let own = [wd.spec.workload_ref.uid.clone(), namespace_index(&key.namespace)];
                city.into_iter().chain(own).chain(sources).collect()
            })),
            locations: Arc::new(Store::new(|_, _| Vec::new())),
            namespaces: Arc::new(Store::new(|_, _| Vec::new())),
            instances: Arc::new(Store::new(|key, _| vec![namespace_index(&key.namespace)])),
            networks: networks.then(|| Arc::new(Store::new(|_, ()| Vec::new()))),
            config_maps: Arc::default(),
            secrets: Arc::default(),
            watches_sources: AtomicBool::new(false),
            unsettled: Mutex::default(),
            tenant,
            stop,
        }
    }

    /// What is known of the sources of a kind.
    pub(super) fn sources(&self, kind: SourceKind) -> &Arc<Sources> {
        match kind {
            SourceKind::ConfigMap => &self.config_maps,
            SourceKind::Secret => &self.secrets,
        }
    }

    /// How long a deployment has been lacking something.
    pub(super) fn unsettled_for(&self, key: &ObjectKey) -> Duration {
        self.unsettled().get(key).map_or(Duration::ZERO, |lack| lack.since.elapsed())
    }

    /// Whether what a deployment lacks may be touched: at once the first time, and then with growing patience.
    pub(super) fn may_touch(&self, key: &ObjectKey) -> bool {
        let all = self.unsettled();
        let Some(lack) = all.get(key) else { return true };
        // Several hands may be at work; only what is touched in vain again and again is left alone for longer.
        let patience = TOUCH_AGAIN * 2_u32.pow(lack.touches.saturating_sub(3).min(6));
        lack.touched.is_none_or(|last| last.elapsed() > patience)
    }

    /// It was touched.
    pub(super) fn touched(&self, key: &ObjectKey) {
        if let Some(lack) = self.unsettled().get_mut(key) {
            (lack.touched, lack.touches) = (Some(Instant::now()), lack.touches + 1);
        }
    }

    /// Notes whether a deployment lacks something.
    pub(super) fn settle(&self, key: &ObjectKey, settled: bool) {
        if settled {
            self.unsettled().remove(key);
        } else {
            let new = || Lack { since: Instant::now(), touched: None, touches: 0 };
            self.unsettled().entry(key.clone()).or_insert_with(new);
        }
    }

    fn unsettled(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Lack>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether everything is known that deletion and federation read. Fan-out reads locations and networks as well,
    /// projection the Instances.
    pub(super) fn is_synced(&self) -> bool {
        self.workloads.is_synced() && self.deployments.is_synced() && self.namespaces.is_synced()
    }

    /// Uid of a namespace that is there.
    pub(super) fn namespace_uid(&self, namespace: &str) -> Option<String> {
        self.namespaces.get(&ObjectKey::new("", namespace)).map(|facts| facts.uid.clone())
    }
}

impl Management {
    pub(super) fn start(
        hub: ControlPlane<plan::Hub>,
        options: Options,
        health: &Health,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        let this = Arc::new(Self {
            hub: HubState::new(hub),
            projects: RwLock::default(),
            queues: Queues::default(),
            aside: Mutex::default(),
            unneeded: Mutex::default(),
            warned: Mutex::default(),
            options,
            relabelled: Notify::new(),
            gone: OnceLock::new(),
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
            tenant: false,
            on_fresh: Arc::new(move || with(&weak, |this| this.everything_again())),
        };
        let scope = label::UPSTREAM_NAMESPACE;
        watches.objects::<WorkloadDeployment, _>(Some(Kind::WorkloadDeployment), scope, |wd| wd, &this.hub.copies);
        // Without a selector: the Go operator's carry no label of ours, and are taken over.
        watches.objects::<PropagationPolicy, _>(Some(Kind::PropagationPolicy), "", |p| p, &this.hub.policies);
        let mirrors = label::UPSTREAM_CLUSTER;
        watches.start::<PartialObjectMeta<Namespace>, _>(mirrors, namespace_facts, &this.hub.namespaces);
        let feed = Feed { keep: namespace_facts, store: this.hub.namespaces.clone() };
        this.hub.plane.feed(Kind::Namespace, Arc::new(feed));
        let companions = format!("{}=true", label::REFERENCED_DATA);
        let facts = |of: PartialObjectMeta<ConfigMap>| CompanionFacts::of(&of.metadata);
        watches.start::<PartialObjectMeta<ConfigMap>, _>(&companions, facts, &this.hub.config_maps);
        let feed = Feed { keep: facts, store: this.hub.config_maps.clone() };
        this.hub.plane.feed(Kind::ConfigMap, Arc::new(feed));
        let facts = |of: PartialObjectMeta<Secret>| CompanionFacts::of(&of.metadata);
        watches.start::<PartialObjectMeta<Secret>, _>(&companions, facts, &this.hub.secrets);
        let feed = Feed { keep: facts, store: this.hub.secrets.clone() };
        this.hub.plane.feed(Kind::Secret, Arc::new(feed));
        watches.objects::<ResourceBinding, _>(None, "", BindingFacts::of, &this.hub.bindings);
        watches.objects::<Cluster, _>(None, "", ClusterFacts::of, &this.hub.clusters);
        // Without a selector: one that lacks its labels is to be told, not overlooked.
        watches.objects::<Instance, _>(Some(Kind::Instance), "", |i| i, &this.hub.instances);
        this
    }

    pub(super) fn engage(this: &Arc<Self>, name: &ProjectName, plane: ControlPlane<plan::Project>, tenant: bool) {
        let project = Arc::new(ProjectState::new(name, plane, this.options.networks, tenant, this.stop.child_token()));
        this.listen_to_project(&project);
        if let Some(before) = this.write_projects().insert(name.clone(), project.clone()) {
            before.stop.cancel();
        }
        this.metrics.projects(this.all_projects().len());
        let (weak, lane) = (Arc::downgrade(this), Arc::downgrade(&project));
        let watches = Watches {
            plane: &project.plane,
            health: &this.health,
            metrics: &this.metrics,
            stop: &project.stop,
            tenant,
            on_fresh: Arc::new(move || with2(&weak, &lane, |this, project| this.project_again(project))),
        };
        watches.objects::<Workload, _>(Some(Kind::Workload), "", |w| w, &project.workloads);
        watches.objects::<WorkloadDeployment, _>(Some(Kind::WorkloadDeployment), "", |wd| wd, &project.deployments);
        watches.objects::<LocationBinding, _>(None, "", |binding| binding.spec.city(), &project.locations);
        watches.start::<PartialObjectMeta<Namespace>, _>("", namespace_facts, &project.namespaces);
        let projections = label::UPSTREAM_CLUSTER;
        watches.objects::<Instance, _>(Some(Kind::Instance), projections, |i| i, &project.instances);
        if let Some(networks) = &project.networks {
            watches.start::<PartialObjectMeta<Network>, _>("", |_| (), networks);
        }
        tracing::info!(project = %name, "project engaged");
    }

    /// Watches the ConfigMaps and Secrets of a project, from the first that is referred to on. Of those nobody refers to,
    /// nothing is kept.
    pub(super) fn watch_sources(&self, project: &ProjectState) {
        if project.watches_sources.swap(true, Ordering::AcqRel) {
            return;
        }
        let watches = Watches {
            plane: &project.plane,
            health: &self.health,
            metrics: &self.metrics,
            stop: &project.stop,
            tenant: project.tenant,
            on_fresh: Arc::new(|| ()),
        };
        watches.start_into::<PartialObjectMeta<ConfigMap>, _>("", PAGE, |_| (), project.config_maps.clone());
        watches.start_into::<PartialObjectMeta<Secret>, _>("", PAGE, |_| (), project.secrets.clone());
    }

    pub(super) fn disengage(&self, name: &ProjectName) {
        let Some(project) = self.write_projects().remove(name) else { return };
        project.stop.cancel();
        for queue in [&self.queues.workload, &self.queues.federator, &self.queues.projector, &self.queues.companion] {
            queue.forget_lane(name.as_str());
        }
        self.metrics.projects(self.all_projects().len());
        tracing::info!(project = %name, "project disengaged");
        // What the hub still holds of it has nowhere to be shown now, and is told.
        self.wake_claimants(&project_index(name));
    }

    /// The project of this name, while it is engaged.
    pub(super) fn project(&self, name: &str) -> Option<Arc<ProjectState>> {
        self.projects.read().unwrap_or_else(PoisonError::into_inner).get(&ProjectName::new(name)).cloned()
    }

    /// Whether a project is engaged.
    pub(super) fn is_engaged(&self, name: &ProjectName) -> bool {
        self.projects.read().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    fn write_projects(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<ProjectName, Arc<ProjectState>>> {
        self.projects.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all_projects(&self) -> Vec<Arc<ProjectState>> {
        self.projects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// It is told now what a hub namespace will lose.
    pub(super) fn warned(&self, namespace: &str) {
        let mut all = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(namespace.to_owned()).or_insert_with(Instant::now);
    }

    /// How long ago it was told.
    pub(super) fn warned_for(&self, namespace: &str) -> Option<Duration> {
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).get(namespace).map(Instant::elapsed)
    }

    /// Says how to tell that a project does not exist.
    pub(super) fn know_projects(&self, gone: impl Fn(&ProjectName) -> bool + Send + Sync + 'static) {
        let _ = self.gone.set(Box::new(gone));
    }

    /// Whether a project is known not to exist; one that is merely not engaged may.
    pub(super) fn is_gone(&self, name: &ProjectName) -> bool {
        !self.is_engaged(name) && self.gone.get().is_some_and(|gone| gone(name))
    }

    /// How long nobody has needed a city's policy.
    pub(super) fn unneeded_for(&self, namespace: &str, city: &CityCode, unneeded: bool) -> Duration {
        let mut all = self.unneeded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), city.clone());
        if !unneeded {
            all.remove(&key);
            return Duration::ZERO;
        }
        all.entry(key).or_insert_with(Instant::now).elapsed()
    }

    /// Puts a hub Instance aside. What is missing at first may be on its way, so this says when to look again, and
    /// only then, once, that it is to be told.
    pub(super) fn set_aside(&self, instance: &Instance, why: Quarantine) -> Verdict {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Aside { uid: instance.uid().unwrap_or_default(), why, since: Instant::now(), told: false };
        let entry = aside.entry(ObjectKey::of(instance)).or_insert_with(|| fresh.clone());
        if (&entry.uid, entry.why) != (&fresh.uid, why) {
            *entry = fresh;
        }
        let left = HOPELESS.saturating_sub(entry.since.elapsed());
        let verdict = match (entry.told, left.is_zero()) {
            (true, _) => Verdict::Known,
            (false, false) => Verdict::LookAgain(left),
            (false, true) => Verdict::News,
        };
        entry.told |= verdict == Verdict::News;
        self.count_aside(&aside);
        verdict
    }

    /// A hub Instance is shown, or gone.
    pub(super) fn no_longer_aside(&self, key: &ObjectKey) {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        if aside.remove(key).is_some() {
            self.count_aside(&aside);
        }
    }

    /// Keeps the gauge of how far policies are on their way from claims to dependencies.
    pub(super) fn count_phases(&self) {
        let policies = self.hub.policies.values();
        for phase in Phase::ALL {
            self.metrics.policies(phase.label(), policies.iter().filter(|p| Phase::of(&p.spec) == phase).count());
        }
    }

    fn count_aside(&self, aside: &BTreeMap<ObjectKey, Aside>) {
        for why in Quarantine::ALL {
            self.metrics.quarantined(why.label(), aside.values().filter(|a| a.told && a.why == why).count());
        }
    }

    /// Projections of a project, and what is to become one: keys in the project.
    pub(super) fn projections_of(&self, project: &ProjectState) -> BTreeSet<ObjectKey> {
        let claimants = self.hub.instances.by_index(&project_index(&project.name));
        let claimed = claimants.iter().filter_map(|instance| {
            Some(ObjectKey::new(&project::identify(instance).ok()?.namespace, &instance.name_any()))
        });
        claimed.chain(project.instances.keys()).collect()
    }
}

/// Runs `act` while both live.
pub(super) fn with2<T, U>(one: &Weak<T>, two: &Weak<U>, act: impl FnOnce(&T, &U)) {
    if let (Some(one), Some(two)) = (one.upgrade(), two.upgrade()) {
        act(&one, &two);
    }
}
