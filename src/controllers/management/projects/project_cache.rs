//! Caches of one project.

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
        self, NamespaceFacts, Shared,
        management::{referenced_data::resolve::Source, workload::placement},
        references::Reference,
    },
};

/// One project's caches.
pub(crate) struct ProjectCache {
    pub(crate) name: ProjectName,
    /// Uid of the project. Empty without discovery.
    pub(crate) uid: String,
    pub(crate) plane: ControlPlane<plan::Project>,
    /// Workloads. Those that wait for a deployment's name are found by [`Index::WaitsForName`].
    pub(crate) workloads: Arc<Store<PackedWorkload, Index>>,
    /// Deployments, by [`workload_index`], [`city_index`], [`namespace_index`] and [`source_index`].
    pub(crate) deployments: Arc<Store<PackedDeployment, Index>>,
    /// City that each LocationBinding opens, by city.
    pub(crate) locations: Arc<Store<Option<CityCode>>>,
    /// Facts of every namespace.
    pub(crate) namespaces: Arc<Store<NamespaceFacts>>,
    /// Projections, by [`namespace_index`].
    pub(crate) instances: Arc<Store<PackedInstance, Index>>,
    /// Existing Networks. `None` without the network feature.
    pub(crate) networks: Option<Arc<Store<()>>>,
    sources: PerKind<Arc<Sources>>,
    /// True if sources are watched. The watch starts with the first reference.
    watches_sources: AtomicBool,
    /// True if the project belongs to one tenant of many.
    pub(crate) tenant: bool,
    pub(crate) stop: CancellationToken,
}

/// Returns the index keys of a deployment.
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

    /// Returns the sources of a kind.
    pub(crate) fn sources(&self, kind: SourceKind) -> &Arc<Sources> {
        self.sources.get(kind)
    }

    /// Returns a deployment.
    pub(crate) fn deployment(&self, key: &ObjectKey) -> Option<Shared<WorkloadDeployment>> {
        self.deployments.get(key).map(|deployment| deployment.open())
    }

    /// Returns the reported state of the referenced sources of a deployment: the state at the last read, or the hub's refusal of
    /// the copy.
    pub(crate) fn told_sources(&self, namespace: &str, references: &[Reference]) -> BTreeMap<DataRef, Source> {
        self.sources_of(namespace, references, Sources::told)
    }

    /// Returns the state of the referenced sources at the last read. A refusal by the hub is left out, so that the refusal of one
    /// source does not block the copies of the others.
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

    /// Marks sources as watched. Returns true if they were not watched before.
    pub(crate) fn begins_to_watch_sources(&self) -> bool {
        !self.watches_sources.swap(true, Ordering::AcqRel)
    }

    /// True if all caches that deletion and federation need are filled. Fan-out needs locations and networks too, and projection
    /// needs the Instances.
    pub(crate) fn is_synced(&self) -> bool {
        self.workloads.is_synced() && self.deployments.is_synced() && self.namespaces.is_synced()
    }

    /// True if a hub namespace may mirror the namespace of this name. False if that namespace exists with another uid.
    pub(crate) fn may_be_mirrored_by(&self, namespace: &str, hub_namespace: &str) -> bool {
        self.namespace_uid(namespace).is_none_or(|uid| names::hub_namespace(&uid) == hub_namespace)
    }

    /// Returns the identity of the control plane: the uid of a namespace that cannot be deleted.
    pub(crate) fn control_plane(&self) -> Option<String> {
        ["kube-system", "default"].into_iter().find_map(|namespace| self.namespace_uid(namespace))
    }

    /// Returns the uid of a namespace. `None` if it does not exist.
    pub(crate) fn namespace_uid(&self, namespace: &str) -> Option<String> {
        self.namespaces.get(&ObjectKey::new("", namespace)).map(|facts| facts.uid.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{api::referenced::DataRef, io::store::Incoming};

    /// Returns a deployment in which the tenant has set this uid of the Workload.
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
    fn deployment_index_forged_workload_uid_matches_only_uid_lookups() {
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
