//! What the management controllers share: the state of the hub and of each project, and their watches.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{ResourceExt, core::PartialObjectMeta};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    Options, blocked::BlockedDeployments, hub_cache::HubCache, index::project_index, move_memory::Moves,
    probe_memory::ProbeMemory, project_cache::ProjectCache, quarantine::QuarantineRegistry, registry::ProjectRegistry,
};
use crate::{
    api::{
        compute::{Instance, Workload, WorkloadDeployment},
        karmada::{Cluster, PropagationPolicy, ResourceBinding},
        meta::label,
        names::{CityCode, ProjectName},
        neighbours::{LocationBinding, Network},
    },
    controllers::{Watches, namespace_facts, with},
    io::{clients::ControlPlane, clock::Now, feed::Feed, health::Health, queue::Queue, store::ObjectKey},
    metrics::Metrics,
    plan::{
        self, Kind,
        management::{
            cluster::ClusterFacts,
            facts::{BindingFacts, CompanionFacts, Phase},
            projection::{self},
            unneeded::Unneeded,
        },
    },
};

/// Lane of work on hub objects that belong to no project that we know.
pub(super) const UNRESOLVED_LANE: &str = "";

/// Everything the management controllers share.
pub(super) struct Management {
    pub(super) hub: HubCache,
    pub(super) projects: ProjectRegistry,
    pub(super) queues: Queues,
    /// Hub Instances that cannot be shown in a project.
    pub(super) quarantine: QuarantineRegistry,
    /// What keeps deployments from being delivered, and what is repaired.
    pub(super) blocked: BlockedDeployments,
    /// When it was reported what a hub namespace will lose on the rollback to claims.
    warned: Mutex<BTreeMap<String, Instant>>,
    /// Since when nobody has needed a city's policy, and whether it has been reported why it stays: by hub namespace and city.
    unneeded: Mutex<BTreeMap<(String, CityCode), Unneeded>>,
    /// Whether Karmada brings dependencies.
    pub(super) probing: ProbeMemory,
    pub(super) options: Options,
    /// Cities that leave a cluster.
    pub(super) moves: Moves,
    /// A Cluster has changed.
    pub(super) clusters_changed: Notify,
    pub(super) metrics: Metrics,
    health: Health,
    stop: CancellationToken,
}

/// Objects per page where nearly all are passed over.
const SOURCES_PAGE_SIZE: u32 = 100;

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

impl Management {
    pub(super) fn start(
        hub: ControlPlane<plan::Hub>,
        options: Options,
        health: &Health,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        let this = Arc::new(Self {
            hub: HubCache::new(hub),
            projects: ProjectRegistry::default(),
            queues: Queues::default(),
            blocked: BlockedDeployments::new(options.repair),
            quarantine: QuarantineRegistry::new(options.timing.quarantine_grace, metrics),
            unneeded: Mutex::default(),
            warned: Mutex::default(),
            probing: ProbeMemory::default(),
            options,
            moves: Moves::default(),
            clusters_changed: Notify::new(),
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
            timing: this.options.timing,
            stop,
            tenant: false,
            on_fresh: Arc::new(move || with(&weak, |this| this.everything_again())),
        };
        let scope = label::UPSTREAM_NAMESPACE;
        watches.written::<WorkloadDeployment, _>(scope, |wd| wd, &this.hub.copies);
        // Without a selector: the Go operator's carry no label of ours, and are taken over.
        watches.written::<PropagationPolicy, _>("", |p| p, &this.hub.policies);
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
        watches.objects::<ResourceBinding, _>("", BindingFacts::of, &this.hub.bindings);
        watches.objects::<Cluster, _>("", ClusterFacts::of, &this.hub.clusters);
        // Without a selector: one without its labels is to be reported, not overlooked.
        watches.written::<Instance, _>("", |i| i, &this.hub.instances);
        this
    }

    pub(super) fn engage(this: &Arc<Self>, name: &ProjectName, plane: ControlPlane<plan::Project>, tenant: bool) {
        let project = Arc::new(ProjectCache::new(name, plane, this.options.networks, tenant, this.stop.child_token()));
        this.listen_to_project(&project);
        if let Some(before) = this.projects.insert(project.clone()) {
            before.stop.cancel();
        }
        this.metrics.projects(this.all_projects().len());
        let (weak, lane) = (Arc::downgrade(this), Arc::downgrade(&project));
        let watches = Watches {
            plane: &project.plane,
            health: &this.health,
            metrics: &this.metrics,
            timing: this.options.timing,
            stop: &project.stop,
            tenant,
            on_fresh: Arc::new(move || with2(&weak, &lane, |this, project| this.project_again(project))),
        };
        watches.written::<Workload, _>("", |w| w, &project.workloads);
        watches.written::<WorkloadDeployment, _>("", |wd| wd, &project.deployments);
        watches.objects::<LocationBinding, _>("", |binding| binding.spec.city(), &project.locations);
        watches.start::<PartialObjectMeta<Namespace>, _>("", namespace_facts, &project.namespaces);
        let projections = label::UPSTREAM_CLUSTER;
        watches.written::<Instance, _>(projections, |i| i, &project.instances);
        if let Some(networks) = &project.networks {
            watches.start::<PartialObjectMeta<Network>, _>("", |_| (), networks);
        }
        tracing::info!(project = %name, "project engaged");
    }

    /// Watches the ConfigMaps and Secrets of a project, from the first that is referred to on. Of those nobody refers to,
    /// nothing is kept.
    pub(super) fn watch_sources(&self, project: &ProjectCache) {
        if !project.begins_to_watch_sources() {
            return;
        }
        let watches = Watches {
            plane: &project.plane,
            health: &self.health,
            metrics: &self.metrics,
            timing: self.options.timing,
            stop: &project.stop,
            tenant: project.tenant,
            on_fresh: Arc::new(|| ()),
        };
        watches.start_into::<PartialObjectMeta<ConfigMap>, _>(
            "",
            SOURCES_PAGE_SIZE,
            |_| (),
            project.config_maps.clone(),
        );
        watches.start_into::<PartialObjectMeta<Secret>, _>("", SOURCES_PAGE_SIZE, |_| (), project.secrets.clone());
    }

    pub(super) fn disengage(&self, name: &ProjectName) {
        let Some(project) = self.projects.remove(name) else { return };
        project.stop.cancel();
        for queue in [&self.queues.workload, &self.queues.federator, &self.queues.projector, &self.queues.companion] {
            queue.forget_lane(name.as_str());
        }
        for (reason, count) in self.blocked.forget_lane(name.as_str(), Now::read().instant) {
            self.metrics.blocked(&reason, count);
        }
        self.metrics.projects(self.all_projects().len());
        tracing::info!(project = %name, "project disengaged");
        // What the hub still holds of it has nowhere to be shown now, and is reported.
        self.enqueue_claimants(&project_index(name));
    }

    /// The project of this name, while it is engaged.
    pub(super) fn project(&self, name: &str) -> Option<Arc<ProjectCache>> {
        self.projects.get(name)
    }

    /// Whether a project is engaged.
    pub(super) fn is_engaged(&self, name: &ProjectName) -> bool {
        self.projects.is_engaged(name)
    }

    pub(super) fn all_projects(&self) -> Vec<Arc<ProjectCache>> {
        self.projects.all()
    }

    /// It is reported now what a hub namespace will lose.
    pub(super) fn warned(&self, namespace: &str, now: Instant) {
        let mut all = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(namespace.to_owned()).or_insert(now);
    }

    /// How long ago it was reported.
    pub(super) fn warned_for(&self, namespace: &str, now: Instant) -> Option<Duration> {
        let all = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(namespace).map(|at| now.saturating_duration_since(*at))
    }

    /// How long nobody has needed a city's policy, and whether it has been reported why it stays.
    pub(super) fn unneeded_for(
        &self,
        namespace: &str,
        city: &CityCode,
        unneeded: bool,
        now: Instant,
    ) -> (Duration, bool) {
        let mut all = self.unneeded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), city.clone());
        match Unneeded::look(all.remove(&key), unneeded, now) {
            Some(entry) => all.entry(key).or_insert(entry).at(now),
            None => (Duration::ZERO, false),
        }
    }

    /// It is reported now why the policy of this hub namespace and city stays.
    pub(super) fn wait_reported(&self, namespace: &str, city: &str) {
        let mut all = self.unneeded.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |key: &(String, CityCode)| key.0 == namespace && key.1.as_str() == city;
        all.iter_mut().filter(|(key, _)| of(key)).for_each(|(_, entry)| *entry = entry.reported());
    }

    /// Keeps the gauge of how far policies are on their way from claims to dependencies.
    pub(super) fn count_phases(&self) {
        let mut counts = Phase::ALL.map(|phase| (phase, 0));
        for policy in self.hub.policies.values() {
            let of = Phase::of(&policy.spec);
            counts.iter_mut().filter(|(phase, _)| *phase == of).for_each(|(_, count)| *count += 1);
        }
        for (phase, count) in counts {
            self.metrics.policies(phase.label(), count);
        }
    }

    /// Projections of a project, and what is to become one: keys in the project.
    pub(super) fn projections_of(&self, project: &ProjectCache) -> BTreeSet<ObjectKey> {
        let claimants = self.hub.instances.by_index(&project_index(&project.name));
        let claimed = claimants.iter().filter_map(|instance| {
            Some(ObjectKey::new(&projection::identify(instance).ok()?.namespace, &instance.name_any()))
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
