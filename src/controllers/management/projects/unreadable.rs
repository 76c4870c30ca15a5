//! Objects that cannot be read: told on each, once for as long as that lasts.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kube::api::ListParams;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::controllers::management::{hub::hub_cache::HubCache, projects::registry::ProjectRegistry};
use crate::{
    api::{
        compute::{Instance, Workload, WorkloadDeployment},
        karmada::PropagationPolicy,
        names::ProjectName,
    },
    controllers::send,
    io::{
        Class, Error,
        clients::ControlPlane,
        clock::{Now, ticks},
        list,
        store::ObjectKey,
        watch::Metadata,
    },
    metrics::Metrics,
    plan::{Hub, Kind, Known, Object, ObjectVersion, Plane, management::projects::unreadable},
};

/// How often to look whether there is something new. It asks nobody.
const LOOK: Duration = Duration::from_secs(5);

/// Most that is asked for of a kind in one look at one control plane; the others have their turn in the next.
const MOST_AT_ONCE: usize = 10;

/// In the place of the decoder's words, where the object is not read once more.
const WORDS_IN_LOG: &str = "the operator's log has the decoder's words";

/// Of which object of which project it was told; without a project, of the hub's.
type Told = BTreeSet<(Option<ProjectName>, Kind, ObjectKey)>;

/// Tells of what cannot be read.
pub(crate) struct UnreadableWatch {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) projects: Arc<ProjectRegistry>,
    pub(crate) metrics: Metrics,
}

impl UnreadableWatch {
    /// Looks until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let mut ticks = ticks(LOOK);
        let mut told = Told::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.look(&mut told).await;
        }
    }

    async fn look(&self, told: &mut Told) {
        let mut now = Told::new();
        for project in self.projects.all() {
            let of = Some(project.name.clone());
            let (deployments, workloads) = (project.deployments.unreadable(), project.workloads.unreadable());
            self.tell::<WorkloadDeployment, _>(&project.plane, of.as_ref(), deployments, told, &mut now).await;
            self.tell::<Workload, _>(&project.plane, of.as_ref(), workloads, told, &mut now).await;
            let instances = project.instances.unreadable();
            self.tell::<Instance, _>(&project.plane, of.as_ref(), instances, told, &mut now).await;
        }
        let (hub, plane) = (&self.hub, &self.hub.plane);
        self.tell::<PropagationPolicy, _>(plane, None, hub.policies.unreadable(), told, &mut now).await;
        self.tell::<WorkloadDeployment, _>(plane, None, hub.copies.unreadable(), told, &mut now).await;
        self.tell::<Instance, _>(plane, None, hub.instances.unreadable(), told, &mut now).await;
        self.tell_of(Kind::ResourceBinding, hub.bindings.unreadable(), told, &mut now).await;
        self.tell_of(Kind::Cluster, hub.clusters.unreadable(), told, &mut now).await;
        *told = now;
    }

    /// Tells of those of Karmada's that were not told before. They are listed here, and not read: of their metadata alone, so that
    /// the words are those of the log.
    async fn tell_of(&self, kind: Kind, unreadable: Vec<ObjectKey>, told: &Told, now: &mut Told) {
        let plane = &self.hub.plane;
        let (known, new): (Vec<_>, Vec<_>) =
            unreadable.into_iter().map(|key| (None, kind, key)).partition(|entry| told.contains(entry));
        now.extend(known);
        for entry in new.into_iter().take(MOST_AT_ONCE) {
            let key = &entry.2;
            let mut found = None;
            let only = ListParams::default().fields(&format!("metadata.name={}", key.name));
            let see = |object: Metadata| {
                if object.metadata.namespace.as_deref().unwrap_or_default() == &*key.namespace {
                    found = Some(ObjectVersion::of(&object.metadata));
                }
            };
            let listed = list::metadata(&plane.connection().client(), plane.name(), kind, only, see).await;
            if listed.is_err_and(|error| error.class() == Class::Retry) {
                return; // nobody answers: whatever else is unreadable there has to wait as well
            }
            if let Some(version) = found {
                let object = Object { kind, namespace: key.namespace.to_string(), name: key.name.to_string() };
                let event = unreadable::object::<Hub>(&object, &version, WORDS_IN_LOG, Now::read().time);
                let _ = send(plane, &event, &self.metrics).await; // a lost Event is no error
            }
            now.insert(entry);
        }
    }

    /// Tells of those that were not told before. The object is read once more, for the words of the decoder are not kept.
    async fn tell<K: Known + DeserializeOwned, P: Plane>(
        &self,
        plane: &ControlPlane<P>,
        project: Option<&ProjectName>,
        unreadable: Vec<ObjectKey>,
        told: &Told,
        now: &mut Told,
    ) {
        let entry = |key: &ObjectKey| (project.cloned(), K::KIND, key.clone());
        let (known, new): (Vec<ObjectKey>, Vec<ObjectKey>) =
            unreadable.into_iter().partition(|key| told.contains(&entry(key)));
        now.extend(known.iter().map(entry));
        for key in new.into_iter().take(MOST_AT_ONCE) {
            let entry = entry(&key);
            let why = match plane.read::<K>(&key.namespace, &key.name).await {
                Err(Error::Answer { why, .. }) => why,
                // Nobody answers: whatever else is unreadable there has to wait as well.
                Err(error) if error.class() == Class::Retry => return,
                // Gone, mended meanwhile, or refused: its watch tells of any change, and nothing is asked again before.
                Ok(_) | Err(_) => {
                    now.insert(entry);
                    continue;
                }
            };
            let object = Object::named::<K>(&key.namespace, &key.name);
            let Ok(Some(found)) = plane.read_metadata(&object).await else { continue };
            let event = unreadable::object::<P>(&object, &ObjectVersion::of(&found), &why, Now::read().time);
            let _ = send(plane, &event, &self.metrics).await; // a lost Event is no error
            now.insert(entry);
        }
    }
}
