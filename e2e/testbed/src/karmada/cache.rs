//! What the stand-in sees of a control plane, and the few ways it writes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::Result;
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
    runtime::{WatchStreamExt, reflector, watcher},
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::process::Soon;

/// Label that marks what Karmada put on a member (fact 5).
pub(super) const MANAGED: &str = "karmada.io/managed";
/// Field manager of the stand-in.
const MANAGER: &str = "karmada-stand-in";
/// Longest wait for one call: a cell that is away must not hold up the others for long.
const CALL: Duration = Duration::from_secs(2);

/// Kinds of templates: what policies may select and dependencies may be.
pub(super) const TEMPLATES: [&str; 3] = ["WorkloadDeployment", "ConfigMap", "Secret"];

/// A control plane with caches of the kinds that matter there.
pub(super) struct Plane {
    client: Client,
    stores: HashMap<&'static str, reflector::Store<DynamicObject>>,
}

/// The API resource of a kind that the stand-in knows.
pub(super) fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "WorkloadDeployment" => ("compute.datumapis.com", "v1alpha"),
        "PropagationPolicy" => ("policy.karmada.io", "v1alpha1"),
        "ResourceBinding" => ("work.karmada.io", "v1alpha2"),
        "Work" => ("work.karmada.io", "v1alpha1"),
        "Cluster" => ("cluster.karmada.io", "v1alpha1"),
        "ResourceInterpreterCustomization" => ("config.karmada.io", "v1alpha1"),
        _ => ("", "v1"),
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

impl Plane {
    pub(super) fn hub(client: Client, changed: &Arc<Notify>, stop: &CancellationToken) -> Self {
        let karmada = ["PropagationPolicy", "ResourceBinding", "Work", "Cluster", "ResourceInterpreterCustomization"];
        let kinds = TEMPLATES.into_iter().chain(["Namespace"]).chain(karmada);
        Self::watch(client, kinds, "", changed, stop)
    }

    pub(super) fn cell(client: Client, changed: &Arc<Notify>, stop: &CancellationToken) -> Self {
        let kinds = TEMPLATES.into_iter().chain(["Namespace"]);
        Self::watch(client, kinds, "karmada.io/managed=true", changed, stop)
    }

    fn watch(
        client: Client,
        kinds: impl Iterator<Item = &'static str>,
        selector: &str,
        changed: &Arc<Notify>,
        stop: &CancellationToken,
    ) -> Self {
        let stores = kinds.map(|kind| {
            let resource = resource(kind);
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let writer = reflector::store::Writer::new(resource);
            let store = writer.as_reader();
            let (changed, stop) = (changed.clone(), stop.clone());
            let config = watcher::Config::default().labels(selector).timeout(20);
            tokio::spawn(async move {
                let mut events = std::pin::pin!(reflector::reflector(writer, watcher(api, config)).backoff(Soon));
                loop {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        event = events.next() => if event.is_none() { return },
                    }
                    changed.notify_one();
                }
            });
            (kind, store)
        });
        let stores = stores.collect();
        Self { client, stores }
    }

    pub(super) async fn wait_ready(&self) {
        for store in self.stores.values() {
            let _ = store.wait_until_ready().await;
        }
    }

    /// Every object of a kind, sorted by namespace and name.
    pub(super) fn all(&self, kind: &str) -> Vec<Arc<DynamicObject>> {
        let mut all = self.stores.get(kind).map(|store| store.state()).unwrap_or_default();
        all.sort_by(|a, b| {
            let (a, b) = (&a.metadata, &b.metadata);
            a.namespace.cmp(&b.namespace).then_with(|| a.name.cmp(&b.name))
        });
        all
    }

    /// One object.
    pub(super) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<DynamicObject>> {
        let store = self.stores.get(kind)?;
        let mut reference = reflector::ObjectRef::new_with(name, resource(kind));
        if !namespace.is_empty() {
            reference = reference.within(namespace);
        }
        store.get(&reference)
    }

    pub(super) fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(self.client.clone(), &resource(kind)),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource(kind)),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Server-side apply.
    pub(super) async fn apply(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        mut body: Value,
    ) -> Result<DynamicObject> {
        let resource = resource(kind);
        body["apiVersion"] = json!(resource.api_version);
        body["kind"] = json!(kind);
        body["metadata"]["name"] = json!(name);
        let api = self.api(kind, namespace);
        let params = PatchParams::apply(MANAGER).force();
        Ok(tokio::time::timeout(CALL, api.patch(name, &params, &Patch::Apply(&body))).await??)
    }

    /// JSON merge patch; an object that is gone is no error.
    pub(super) async fn merge(&self, kind: &str, object: &DynamicObject, patch: &Value) -> Result<()> {
        let api = self.api(kind, &object.namespace().unwrap_or_default());
        let name = object.name_any();
        let done = tokio::time::timeout(CALL, api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
        tolerate_absence(done.map(|_| ()))
    }

    /// The same for the status subresource.
    pub(super) async fn merge_status(&self, kind: &str, object: &DynamicObject, status: &Value) -> Result<()> {
        let api = self.api(kind, &object.namespace().unwrap_or_default());
        let (name, patch) = (object.name_any(), json!({ "status": status }));
        let params = PatchParams::default();
        let done = tokio::time::timeout(CALL, api.patch_status(&name, &params, &Patch::Merge(&patch))).await?;
        tolerate_absence(done.map(|_| ()))
    }

    pub(super) async fn delete(&self, kind: &str, namespace: &str, name: &str) -> Result<()> {
        let api = self.api(kind, namespace);
        let done = tokio::time::timeout(CALL, api.delete(name, &DeleteParams::background())).await?;
        tolerate_absence(done.map(|_| ()))
    }

    /// Takes a finalizer off.
    pub(super) async fn release(&self, kind: &str, object: &DynamicObject, finalizer: &str) -> Result<()> {
        if !object.finalizers().iter().any(|f| f == finalizer) {
            return Ok(());
        }
        let left: Vec<&String> = object.finalizers().iter().filter(|f| *f != finalizer).collect();
        let patch = json!({ "metadata": { "finalizers": left, "resourceVersion": object.resource_version() } });
        self.merge(kind, object, &patch).await
    }
}

fn tolerate_absence(done: kube::Result<()>) -> Result<()> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => Ok(done?),
    }
}

/// Whether an object carries all these labels.
pub(super) fn matches(object: &DynamicObject, labels: Option<&Value>) -> bool {
    let Some(labels) = labels.and_then(Value::as_object) else { return true };
    labels.iter().all(|(key, value)| object.labels().get(key).map(String::as_str) == value.as_str())
}

/// Stable hash for derived names.
pub(super) fn hash(text: &str) -> String {
    let fnv = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{fnv:08x}")
}
