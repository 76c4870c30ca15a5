//! What is known of one project.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::sync::CancellationToken;

use super::{
    blocked::BlockedDeployments,
    state::{city_index, namespace_index, original_city, source_index},
};
use crate::{
    api::{
        compute::{Instance, Workload, WorkloadDeployment},
        names::{CityCode, ProjectName},
        referenced::SourceKind,
    },
    io::{
        clients::ControlPlane,
        sources::Sources,
        store::{ObjectKey, Store},
    },
    plan::{self, NamespaceFacts, references::references},
};

/// One project's caches.
pub(super) struct ProjectCache {
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
    pub(super) config_maps: Arc<Sources>,
    pub(super) secrets: Arc<Sources>,
    /// Whether sources are watched: from the first reference on.
    watches_sources: AtomicBool,
    /// What deployments have been blocked_since.
    pub(super) blocked: BlockedDeployments,
    /// Whether this is one tenant's among many.
    pub(super) tenant: bool,
    pub(super) stop: CancellationToken,
}

impl ProjectCache {
    pub(super) fn new(
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
            blocked: BlockedDeployments::default(),
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

    /// Whether sources are to be watched from now on, and were not before.
    pub(super) fn begins_to_watch_sources(&self) -> bool {
        !self.watches_sources.swap(true, Ordering::AcqRel)
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
