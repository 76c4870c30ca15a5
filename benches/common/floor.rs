//! The least that a manager on kube-rs takes for federation: the watches and the writes of the operator, and nothing else.
//!
//! It decides nothing, caches nothing, and writes what one deployment needs: the finalizer, the copy, and the status, each by
//! server-side apply. The difference between its processor time and the operator's is what caches, decisions and reports take.
//! Its own time is that of TLS, HTTP/1.1, JSON and the runtime. It uses the system's allocator, and sends all of a burst at once.

use std::{
    collections::HashMap,
    path::Path,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use compute_operator::api::{
    compute::WorkloadDeployment,
    karmada::ResourceBinding,
    meta::{annotation, finalizer},
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use testbed::control_plane::client;
use tokio::{runtime::Builder, time::sleep};

/// Field manager of the writes.
const MANAGER: &str = "floor";

/// Runs on one thread, as the manager does, until the process ends.
pub fn run(project: &Path, hub: &Path) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let floor = Arc::new(Floor {
            project: client(project).await.unwrap(),
            hub: client(hub).await.unwrap(),
            namespaces: Mutex::default(),
        });
        let (of_project, of_hub) = (floor.clone(), floor.clone());
        tokio::join!(
            follow::<WorkloadDeployment>(&floor.project, move |deployment, is_new| {
                let floor = of_project.clone();
                if deployment.metadata.deletion_timestamp.is_some() {
                    tokio::spawn(async move { floor.delete(deployment).await });
                } else if is_new {
                    tokio::spawn(async move { floor.copy(deployment).await });
                }
            }),
            follow::<WorkloadDeployment>(&floor.hub, move |copy, _| {
                if copy.report().is_some() {
                    let floor = of_hub.clone();
                    tokio::spawn(async move { floor.report(copy).await });
                }
            }),
            follow::<ResourceBinding>(&floor.hub, |_, _| {}),
        );
    });
}

struct Floor {
    project: Client,
    hub: Client,
    /// Names on the hub by the names in the project, and back.
    namespaces: Mutex<HashMap<String, String>>,
}

impl Floor {
    /// Writes the finalizer and the copy of a deployment.
    async fn copy(&self, deployment: WorkloadDeployment) {
        let (place, name) = (deployment.namespace().unwrap(), deployment.name_any());
        let hub_place = self.hub_namespace(&place).await;
        let finalizer = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
            "metadata": {
                "name": name, "finalizers": [finalizer::FEDERATOR],
                "annotations": { annotation::FEDERATION_NAMESPACE: hub_place },
            },
        });
        apply::<WorkloadDeployment>(&self.project, &place, &name, finalizer).await;
        let copy = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
            "metadata": { "name": name, "labels": deployment.metadata.labels },
            "spec": deployment.spec,
        });
        apply::<WorkloadDeployment>(&self.hub, &hub_place, &name, copy).await;
    }

    /// Writes the status of a copy back.
    async fn report(&self, copy: WorkloadDeployment) {
        let place = self.namespaces.lock().unwrap()[&copy.namespace().unwrap()].clone();
        let status = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
            "metadata": { "name": copy.name_any() }, "status": copy.status,
        });
        let all = Api::<WorkloadDeployment>::namespaced(self.project.clone(), &place);
        let params = PatchParams::apply(MANAGER).force();
        all.patch_status(&copy.name_any(), &params, &Patch::Apply(status)).await.unwrap();
    }

    /// Deletes the copy of a deployment, and releases the deployment.
    async fn delete(&self, deployment: WorkloadDeployment) {
        let (place, name) = (deployment.namespace().unwrap(), deployment.name_any());
        let copies = Api::<WorkloadDeployment>::namespaced(self.hub.clone(), &self.hub_namespace(&place).await);
        if copies.delete(&name, &DeleteParams::default()).await.is_err() {
            return; // a second event, after the first one has deleted it
        }
        let released = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "metadata": { "name": name },
        });
        apply::<WorkloadDeployment>(&self.project, &place, &name, released).await;
    }

    /// Returns the namespace on the hub, and creates it for the first deployment.
    async fn hub_namespace(&self, place: &str) -> String {
        if let Some(known) = self.namespaces.lock().unwrap().get(place) {
            return known.clone();
        }
        let namespace = Api::<Namespace>::all(self.project.clone()).get(place).await.unwrap();
        let on_hub = format!("ns-{}", namespace.uid().unwrap());
        let made = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": on_hub } });
        let all = Api::<Namespace>::all(self.hub.clone());
        all.patch(&on_hub, &PatchParams::apply(MANAGER).force(), &Patch::Apply(made)).await.unwrap();
        let mut namespaces = self.namespaces.lock().unwrap();
        namespaces.extend([(place.to_owned(), on_hub.clone()), (on_hub.clone(), place.to_owned())]);
        on_hub
    }
}

async fn apply<K>(client: &Client, namespace: &str, name: &str, object: serde_json::Value)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let all = Api::<K>::namespaced(client.clone(), namespace);
    all.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await.unwrap();
}

/// Calls `seen` for each object that the plane shows from now on, with true if it is new.
async fn follow<K>(plane: &Client, mut seen: impl FnMut(K, bool))
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let all = Api::<K>::all(plane.clone());
    let mut from = None;
    loop {
        if from.is_none() {
            from = all.list(&ListParams::default()).await.unwrap().metadata.resource_version;
        }
        let Ok(events) = all.watch(&WatchParams::default(), from.as_deref().unwrap_or_default()).await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut events = pin!(events);
        while let Some(Ok(event)) = events.next().await {
            let (object, is_new) = match event {
                WatchEvent::Added(object) => (object, true),
                WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => {
                    from = object.resource_version();
                    continue;
                }
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(_) => {
                    from = None;
                    break;
                }
            };
            from = object.resource_version();
            seen(object, is_new);
        }
    }
}
