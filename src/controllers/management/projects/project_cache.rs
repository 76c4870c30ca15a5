//! What is known of one project.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

use crate::controllers::management::{
    referenced_data::sources::Sources,
    wiring::index::{Index, city_index, namespace_index, original_city, source_index, workload_index},
};
use crate::{
    api::{
        compute::WorkloadDeployment,
        names::{self, CityCode, ProjectName},
        referenced::{DataRef, PerKind, SourceKind},
    },
    controllers::compact::{PackedDeployment, PackedInstance, PackedWorkload},
    io::{
        clients::ControlPlane,
        store::{ObjectKey, Store},
    },
    plan::{
        self, NamespaceFacts,
        management::{referenced_data::resolve::Source, workload::placement},
        references::Reference,
    },
};

/// One project's caches.
pub(crate) struct ProjectCache {
    pub(crate) name: ProjectName,
    /// Uid of the project, empty where there is only one.
    pub(crate) uid: String,
    pub(crate) plane: ControlPlane<plan::Project>,
    /// Those that wait for a deployment's name, by [`Index::WaitsForName`].
    pub(crate) workloads: Arc<Store<PackedWorkload, Index>>,
    /// By [`workload_index`], by [`city_index`], by [`namespace_index`] and by [`source_index`].
    pub(crate) deployments: Arc<Store<PackedDeployment, Index>>,
    /// The city that each LocationBinding opens; by city.
    pub(crate) locations: Arc<Store<Option<CityCode>>>,
    /// Every namespace, with its uid.
    pub(crate) namespaces: Arc<Store<NamespaceFacts>>,
    /// Projections, by [`namespace_index`].
    pub(crate) instances: Arc<Store<PackedInstance, Index>>,
    /// The Networks that there are; only with the network feature.
    pub(crate) networks: Option<Arc<Store<()>>>,
    sources: PerKind<Arc<Sources>>,
    /// Whether sources are watched: from the first reference on.
    watches_sources: AtomicBool,
    /// Whether this is one tenant's among many.
    pub(crate) tenant: bool,
    pub(crate) stop: CancellationToken,
}

/// Where a deployment is found.
fn deployment_index(key: &ObjectKey, wd: &PackedDeployment) -> Vec<Index> {
    let city = original_city(wd).map(|city| city_index(&key.namespace, &city));
    let sources = wd.references().iter().map(|reference| source_index(&key.namespace, &reference.data_ref));
    let own = [workload_index(wd.workload_uid()), namespace_index(&key.namespace)];
    city.into_iter().chain(own).chain(sources).collect()
}

impl ProjectCache {
    pub(crate) fn new(
        name: &ProjectName,
        plane: ControlPlane<plan::Project>,
        networks: bool,
        uid: Option<&str>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            name: name.clone(),
            uid: uid.unwrap_or_default().to_owned(),
            plane,
            workloads: Arc::new(Store::new(|key, workload| {
                let waits = placement::waits_for_a_name(workload);
                waits.then(|| Index::WaitsForName(key.namespace.to_string())).into_iter().collect()
            })),
            deployments: Arc::new(Store::new(deployment_index)),
            locations: Arc::new(Store::new(|_, city: &Option<CityCode>| {
                city.iter().map(ToString::to_string).collect()
            })),
            namespaces: Arc::new(Store::new(|_, _| Vec::new())),
            instances: Arc::new(Store::new(|key, _| vec![namespace_index(&key.namespace)])),
            networks: networks.then(|| Arc::new(Store::new(|_, ()| Vec::new()))),
            sources: PerKind::default(),
            watches_sources: AtomicBool::new(false),
            tenant: uid.is_some(),
            stop,
        }
    }

    /// What is known of the sources of a kind.
    pub(crate) fn sources(&self, kind: SourceKind) -> &Arc<Sources> {
        self.sources.get(kind)
    }

    /// A deployment.
    pub(crate) fn deployment(&self, key: &ObjectKey) -> Option<WorkloadDeployment> {
        self.deployments.get(key).map(|deployment| deployment.open())
    }

    /// What is to be said of the sources that a deployment of a namespace refers to: what each was when it was last read,
    /// and whether the hub takes a copy of it.
    pub(crate) fn told_sources(&self, namespace: &str, references: &[Reference]) -> BTreeMap<DataRef, Source> {
        self.sources_of(namespace, references, Sources::told)
    }

    /// What those sources were when they were last read. What the hub refuses of one keeps no other from being copied.
    pub(crate) fn read_sources(&self, namespace: &str, references: &[Reference]) -> BTreeMap<DataRef, Source> {
        self.sources_of(namespace, references, Sources::last)
    }

    fn sources_of(
        &self,
        namespace: &str,
        references: &[Reference],
        of: fn(&Sources, &ObjectKey) -> Source,
    ) -> BTreeMap<DataRef, Source> {
        let known = |data_ref: &DataRef| {
            let source = of(self.sources(data_ref.kind), &ObjectKey::new(namespace, &data_ref.name));
            (data_ref.clone(), source)
        };
        let data_refs = references.iter().map(|reference| &reference.data_ref);
        data_refs.filter(|data_ref| data_ref.is_valid()).map(known).collect()
    }

    /// Whether sources are to be watched from now on, and were not before.
    pub(crate) fn begins_to_watch_sources(&self) -> bool {
        !self.watches_sources.swap(true, Ordering::AcqRel)
    }

    /// Whether everything is known that deletion and federation read. Fan-out reads locations and networks as well,
    /// projection the Instances.
    pub(crate) fn is_synced(&self) -> bool {
        self.workloads.is_synced() && self.deployments.is_synced() && self.namespaces.is_synced()
    }

    /// Whether a hub namespace may mirror the namespace of this name: not when one with another uid is there.
    pub(crate) fn may_be_mirrored_by(&self, namespace: &str, hub_namespace: &str) -> bool {
        self.namespace_uid(namespace).is_none_or(|uid| names::hub_namespace(&uid) == hub_namespace)
    }

    /// Uid of the control plane itself: of a namespace that nobody can delete.
    pub(crate) fn control_plane(&self) -> Option<String> {
        ["kube-system", "default"].into_iter().find_map(|namespace| self.namespace_uid(namespace))
    }

    /// Uid of a namespace that is there.
    pub(crate) fn namespace_uid(&self, namespace: &str) -> Option<String> {
        self.namespaces.get(&ObjectKey::new("", namespace)).map(|facts| facts.uid.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{api::referenced::DataRef, io::store::Incoming};

    /// A deployment whose tenant has written this as the uid of its Workload.
    fn naming(uid: &str) -> WorkloadDeployment {
        serde_json::from_value(json!({
            "metadata": { "namespace": "a", "name": "web", "uid": "u", "resourceVersion": "1" },
            "spec": {
                "workloadRef": { "name": "web", "uid": uid }, "placementName": "p", "cityCode": "dfw",
                "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                "scaleSettings": { "minReplicas": 1 },
            },
        }))
        .unwrap()
    }

    #[test]
    fn what_a_tenant_gives_as_a_uid_is_found_as_a_uid_alone() {
        let dfw = CityCode::parse("dfw").unwrap();
        for forged in ["uses b/Secret/db", "namespace b", "city b/dfw", "w", ""] {
            let store = Store::new(deployment_index);
            let object = naming(forged);
            store.replace(vec![Incoming::new(&object, Some(PackedDeployment::of(object.clone())))], 1);
            assert_eq!(store.by_index(&workload_index(forged)).len(), 1, "{forged:?}");
            assert!(store.by_index(&source_index("b", &DataRef::secret("db"))).is_empty(), "{forged:?}");
            assert!(store.by_index(&namespace_index("b")).is_empty(), "{forged:?}");
            assert!(store.by_index(&city_index("b", &dfw)).is_empty(), "{forged:?}");
            assert_eq!(store.by_index(&namespace_index("a")).len(), 1);
            assert_eq!(store.by_index(&city_index("a", &dfw)).len(), 1);
        }
    }
}
