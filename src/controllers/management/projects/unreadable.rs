//! Reports unreadable objects with one Event each, once while the object is unreadable.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kube::api::ListParams;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::controllers::management::Context;
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
    plan::{Hub, Kind, Known, Object, ObjectVersion, Plane, management::projects::unreadable},
};

/// Interval of the check for new unreadable objects. A check without new ones sends no request.
const LOOK: Duration = Duration::from_secs(5);

/// Maximum number of objects of a kind that one check reads on one control plane. The next check reads the others.
const MOST_AT_ONCE: usize = 10;

/// Text of the Event in place of the decoder's error, for objects that are not read again.
const WORDS_IN_LOG: &str = "the operator's log has the decoder's error";

/// Objects that were reported. An object without a project is the hub's.
type Reported = BTreeSet<(Option<ProjectName>, Kind, ObjectKey)>;

/// Reports unreadable objects.
pub(crate) struct UnreadableWatch {
    pub(crate) ctx: Arc<Context>,
}

impl UnreadableWatch {
    /// Runs the check until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let mut ticks = ticks(LOOK);
        let mut reported = Reported::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.check(&mut reported).await;
        }
    }

    async fn check(&self, reported: &mut Reported) {
        let mut now = Reported::new();
        for project in self.ctx.projects.all() {
            let name = Some(project.name.clone());
            let (deployments, workloads) = (project.deployments.unreadable(), project.workloads.unreadable());
            self.report::<WorkloadDeployment, _>(&project.plane, name.as_ref(), deployments, reported, &mut now).await;
            self.report::<Workload, _>(&project.plane, name.as_ref(), workloads, reported, &mut now).await;
            let instances = project.instances.unreadable();
            self.report::<Instance, _>(&project.plane, name.as_ref(), instances, reported, &mut now).await;
        }
        let (hub, plane) = (&self.ctx.hub, &self.ctx.hub.plane);
        self.report::<PropagationPolicy, _>(plane, None, hub.policies.unreadable(), reported, &mut now).await;
        self.report::<WorkloadDeployment, _>(plane, None, hub.copies.unreadable(), reported, &mut now).await;
        self.report::<Instance, _>(plane, None, hub.instances.unreadable(), reported, &mut now).await;
        self.report_of_karmada(Kind::ResourceBinding, hub.bindings.unreadable(), reported, &mut now).await;
        self.report_of_karmada(Kind::Cluster, hub.clusters.unreadable(), reported, &mut now).await;
        *reported = now;
    }

    /// Reports the unreadable objects of Karmada that were not reported before. They are found by a LIST of metadata, without a
    /// read of the object. So the Event refers to the log for the decoder's error.
    async fn report_of_karmada(&self, kind: Kind, unreadable: Vec<ObjectKey>, reported: &Reported, now: &mut Reported) {
        let plane = &self.ctx.hub.plane;
        let (known, new): (Vec<_>, Vec<_>) =
            unreadable.into_iter().map(|key| (None, kind, key)).partition(|entry| reported.contains(entry));
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
            let listed = list::metadata(plane.connection(), plane.name(), kind, only, see).await;
            if listed.is_err_and(|error| error.class() == Class::Retry) {
                return; // no answer: the other unreadable objects there wait too
            }
            if let Some(version) = found {
                let object = Object { kind, namespace: key.namespace.to_string(), name: key.name.to_string() };
                let event = unreadable::object::<Hub>(&object, &version, WORDS_IN_LOG, Now::read().time);
                let _ = send(plane, &event, &self.ctx.metrics).await; // a lost Event is no error
            }
            now.insert(entry);
        }
    }

    /// Reports the unreadable objects that were not reported before. The object is read again, because the cache does not keep
    /// the decoder's error.
    async fn report<K: Known + DeserializeOwned, P: Plane>(
        &self,
        plane: &ControlPlane<P>,
        project: Option<&ProjectName>,
        unreadable: Vec<ObjectKey>,
        reported: &Reported,
        now: &mut Reported,
    ) {
        let entry = |key: &ObjectKey| (project.cloned(), K::KIND, key.clone());
        let (known, new): (Vec<ObjectKey>, Vec<ObjectKey>) =
            unreadable.into_iter().partition(|key| reported.contains(&entry(key)));
        now.extend(known.iter().map(entry));
        for key in new.into_iter().take(MOST_AT_ONCE) {
            let entry = entry(&key);
            let why = match plane.read::<K>(&key.namespace, &key.name).await {
                Err(Error::Answer { why, .. }) => why,
                // No answer: the other unreadable objects there wait too.
                Err(error) if error.class() == Class::Retry => return,
                // Deleted, readable again, or refused. Its watch reports the next change, and it is not read before that.
                Ok(_) | Err(_) => {
                    now.insert(entry);
                    continue;
                }
            };
            let object = Object::named::<K>(&key.namespace, &key.name);
            let Ok(Some(found)) = plane.read_metadata(&object).await else { continue };
            let event = unreadable::object::<P>(&object, &ObjectVersion::of(&found), &why, Now::read().time);
            let _ = send(plane, &event, &self.ctx.metrics).await; // a lost Event is no error
            now.insert(entry);
        }
    }
}
