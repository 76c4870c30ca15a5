//! What is known of one project.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::state::{city_index, namespace_index, original_city, source_index};
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

/// What is known of a deployment that lacks something.
struct Lack {
    /// In one word.
    reason: String,
    since: Instant,
    /// When it was touched last, so that Karmada makes anew what is lacking, and how often.
    touched: Option<Instant>,
    touches: u32,
}

/// How long to wait after the first touch that did not help.
const TOUCH_AGAIN: Duration = Duration::from_secs(5);

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
    pub(super) config_maps: Arc<Sources>,
    pub(super) secrets: Arc<Sources>,
    /// Whether sources are watched: from the first reference on.
    watches_sources: AtomicBool,
    /// Deployments that lack something.
    unsettled: Mutex<BTreeMap<ObjectKey, Lack>>,
    /// Whether this is one tenant's among many.
    pub(super) tenant: bool,
    pub(super) stop: CancellationToken,
}

impl ProjectState {
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

    /// Whether sources are to be watched from now on, and were not before.
    pub(super) fn begins_to_watch_sources(&self) -> bool {
        !self.watches_sources.swap(true, Ordering::AcqRel)
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

    /// What a deployment has been lacking.
    pub(super) fn unsettled_by(&self, key: &ObjectKey) -> Option<String> {
        self.unsettled().get(key).map(|lack| lack.reason.clone())
    }

    /// Notes what a deployment lacks.
    pub(super) fn settle(&self, key: &ObjectKey, lack: Option<&str>) {
        let mut all = self.unsettled();
        let Some(reason) = lack else {
            all.remove(key);
            return;
        };
        let now = Instant::now();
        let new = || Lack { reason: reason.to_owned(), since: now, touched: None, touches: 0 };
        let known = all.entry(key.clone()).or_insert_with(new);
        if known.reason != reason {
            (known.reason, known.since) = (reason.to_owned(), now);
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
