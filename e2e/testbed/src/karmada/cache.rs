//! The stand-in's cache of a control plane, and its write operations.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, reflector, watcher},
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{changes::Changes, claims::POLICIES, controls::Controls};
use crate::process::Soon;

/// Label of objects that Karmada created on a member (fact 5).
pub(super) const MANAGED: &str = "karmada.io/managed";
/// Field manager of the stand-in.
const MANAGER: &str = "karmada-stand-in";
/// Longest wait for one call, so that an unavailable cell does not delay the others for long.
const CALL: Duration = Duration::from_secs(2);

/// Kinds of templates, which policies can select and dependencies can be.
pub(crate) const TEMPLATES: [&str; 3] = ["WorkloadDeployment", "ConfigMap", "Secret"];

/// A control plane with caches of the necessary kinds.
pub(super) struct Plane {
    client: Client,
    stores: HashMap<&'static str, reflector::Store<DynamicObject>>,
    changes: Arc<Changes>,
    /// Limit of the write rate. `None` for cells, which have no limit.
    pace: Option<Arc<Controls>>,
}

/// Returns the API resource of a kind.
pub(super) fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "WorkloadDeployment" => ("compute.datumapis.com", "v1alpha"),
        "PropagationPolicy" | "ClusterPropagationPolicy" => ("policy.karmada.io", "v1alpha1"),
        "ResourceBinding" => ("work.karmada.io", "v1alpha2"),
        "Work" => ("work.karmada.io", "v1alpha1"),
        "Cluster" => ("cluster.karmada.io", "v1alpha1"),
        "ResourceInterpreterCustomization" => ("config.karmada.io", "v1alpha1"),
        _ => ("", "v1"),
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

impl Plane {
    pub(super) fn hub(
        client: Client,
        controls: &Arc<Controls>,
        changed: &Arc<Notify>,
        stop: &CancellationToken,
    ) -> Self {
        let karmada = ["ResourceBinding", "Work", "Cluster", "ResourceInterpreterCustomization"];
        let policies = POLICIES.iter().map(|policies| policies.kind);
        let kinds = TEMPLATES.into_iter().chain(["Namespace"]).chain(karmada).chain(policies);
        Self { pace: Some(controls.clone()), ..Self::watch(client, kinds, "", changed, stop) }
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
        let of_templates = Arc::<Changes>::default();
        let stores = kinds.map(|kind| {
            let resource = resource(kind);
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let writer = reflector::store::Writer::new(resource);
            let store = writer.as_reader();
            let (changed, stop) = (changed.clone(), stop.clone());
            let heard_by = TEMPLATES.contains(&kind).then(|| of_templates.clone());
            let config = watcher::Config::default().labels(selector).timeout(20);
            tokio::spawn(async move {
                let mut events = std::pin::pin!(reflector::reflector(writer, watcher(api, config)).backoff(Soon));
                loop {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        event = events.next() => match (event, &heard_by) {
                            (None, _) => return,
                            (Some(Ok(event)), Some(heard_by)) => heard_by.hear(&event),
                            (Some(_), _) => {}
                        },
                    }
                    changed.notify_one();
                }
            });
            (kind, store)
        });
        let stores = stores.collect();
        Self { client, stores, changes: of_templates, pace: None }
    }

    pub(super) async fn wait_ready(&self) {
        for store in self.stores.values() {
            let _ = store.wait_until_ready().await;
        }
    }

    /// Returns every object of a kind, sorted by namespace and name.
    pub(super) fn all(&self, kind: &str) -> Vec<Arc<DynamicObject>> {
        let mut all = self.stores.get(kind).map(|store| store.state()).unwrap_or_default();
        all.sort_by(|a, b| {
            let (a, b) = (&a.metadata, &b.metadata);
            a.namespace.cmp(&b.namespace).then_with(|| a.name.cmp(&b.name))
        });
        all
    }

    /// Returns the number of changes of each template's content, by uid.
    pub(super) fn changes(&self) -> HashMap<String, u64> {
        self.changes.so_far()
    }

    /// Returns one object.
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

    /// Waits until the next write is allowed.
    pub(super) async fn turn(&self) {
        if let Some(pace) = &self.pace {
            pace.turn().await;
        }
    }

    /// Applies an object with server-side apply.
    pub(super) async fn apply(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        mut body: Value,
    ) -> Result<DynamicObject> {
        self.turn().await;
        let resource = resource(kind);
        body["apiVersion"] = json!(resource.api_version);
        body["kind"] = json!(kind);
        body["metadata"]["name"] = json!(name);
        let api = self.api(kind, namespace);
        let params = PatchParams::apply(MANAGER).force();
        Ok(tokio::time::timeout(CALL, api.patch(name, &params, &Patch::Apply(&body))).await??)
    }

    /// Creates an object.
    pub(super) async fn create(&self, kind: &str, namespace: &str, name: &str, mut body: Value) -> Result<()> {
        self.turn().await;
        let resource = resource(kind);
        body["apiVersion"] = json!(resource.api_version);
        body["kind"] = json!(kind);
        body["metadata"]["name"] = json!(name);
        if !namespace.is_empty() {
            body["metadata"]["namespace"] = json!(namespace);
        }
        let object: DynamicObject = serde_json::from_value(body)?;
        let api = self.api(kind, namespace);
        self.within_deadline(async { Ok(api.create(&PostParams::default(), &object).await.map(|_| ())?) }).await
    }

    /// Replaces an object if it is unchanged since it was read.
    pub(super) async fn replace(&self, kind: &str, object: &DynamicObject) -> Result<()> {
        self.turn().await;
        let api = self.api(kind, &object.namespace().unwrap_or_default());
        let params = PostParams::default();
        self.within_deadline(async { Ok(api.replace(&object.name_any(), &params, object).await.map(|_| ())?) }).await
    }

    /// Returns the current object from the server.
    pub(super) async fn fetch(&self, kind: &str, namespace: &str, name: &str) -> Result<Option<DynamicObject>> {
        let api = self.api(kind, namespace);
        self.within_deadline(async { Ok(api.get_opt(name).await?) }).await
    }

    /// Fails if a call takes too long.
    pub(super) async fn within_deadline<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(CALL, call).await.context("the server does not answer")?
    }

    /// Applies a JSON merge patch. A missing object is no error.
    pub(super) async fn merge(&self, kind: &str, object: &DynamicObject, patch: &Value) -> Result<()> {
        self.turn().await;
        let api = self.api(kind, &object.namespace().unwrap_or_default());
        let name = object.name_any();
        let done = tokio::time::timeout(CALL, api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
        tolerate_absence(done.map(|_| ()))
    }

    /// The same for the status subresource.
    pub(super) async fn merge_status(&self, kind: &str, object: &DynamicObject, status: &Value) -> Result<()> {
        self.turn().await;
        let api = self.api(kind, &object.namespace().unwrap_or_default());
        let (name, patch) = (object.name_any(), json!({ "status": status }));
        let params = PatchParams::default();
        let done = tokio::time::timeout(CALL, api.patch_status(&name, &params, &Patch::Merge(&patch))).await?;
        tolerate_absence(done.map(|_| ()))
    }

    /// Replaces the status of an object if it is unchanged since it was read. A missing object is no error.
    pub(super) async fn replace_status(&self, kind: &str, object: &DynamicObject) -> Result<()> {
        self.turn().await;
        let api = self.api(kind, &object.namespace().unwrap_or_default());
        let (name, params) = (object.name_any(), PostParams::default());
        let done = tokio::time::timeout(CALL, api.replace_status(&name, &params, object)).await?;
        tolerate_absence(done.map(|_| ()))
    }

    pub(super) async fn delete(&self, kind: &str, namespace: &str, name: &str) -> Result<()> {
        self.turn().await;
        let api = self.api(kind, namespace);
        let done = tokio::time::timeout(CALL, api.delete(name, &DeleteParams::background())).await?;
        tolerate_absence(done.map(|_| ()))
    }

    /// Removes a finalizer.
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

/// True if labels satisfy a label selector. A null selector matches everything.
pub(super) fn selects_labels(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let value_of = |key: &Value| key.as_str().and_then(|key| labels.get(key));
    let by_label = selector["matchLabels"].as_object().into_iter().flatten();
    let mut by_expression = selector["matchExpressions"].as_array().into_iter().flatten();
    by_label.into_iter().all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
        && by_expression.all(|expression| {
            let found = value_of(&expression["key"]);
            let listed = || {
                let values = expression["values"].as_array();
                found.is_some_and(|found| values.is_some_and(|values| values.contains(&json!(found))))
            };
            match expression["operator"].as_str() {
                Some("In") => listed(),
                Some("NotIn") => !listed(),
                Some("Exists") => found.is_some(),
                Some("DoesNotExist") => found.is_none(),
                _ => false,
            }
        })
}

/// Returns the hash of an object's content, without its status and the server's metadata.
pub(super) fn content(object: &DynamicObject) -> String {
    let meta = &object.metadata;
    let mut data = object.data.clone();
    if let Some(data) = data.as_object_mut() {
        data.remove("status");
    }
    let kept = (&meta.uid, &meta.labels, &meta.annotations, &meta.finalizers, &meta.owner_references);
    hash(&format!("{data}{}{}", json!(kept), meta.deletion_timestamp.is_some()))
}

/// Returns a stable hash for derived names and comparisons.
pub(super) fn hash(text: &str) -> String {
    format!("{:08x}", fnv(text))
}

/// Returns FNV-1a, which Karmada's names use.
pub(super) fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selector_matches_labels_and_expressions() {
        let labels = BTreeMap::from([("city".to_owned(), "DFW".to_owned())]);
        let of = |selector: Value| selects_labels(&selector, &labels);
        assert!(of(Value::Null));
        assert!(of(json!({ "matchLabels": { "city": "DFW" } })));
        assert!(!of(json!({ "matchLabels": { "city": "dfw" } })));
        assert!(of(json!({ "matchExpressions": [{ "key": "city", "operator": "In", "values": ["dfw", "DFW"] }] })));
        assert!(!of(json!({ "matchExpressions": [{ "key": "city", "operator": "NotIn", "values": ["DFW"] }] })));
        assert!(!of(json!({ "matchExpressions": [{ "key": "city", "operator": "DoesNotExist" }] })));
        assert!(of(json!({ "matchExpressions": [{ "key": "city", "operator": "Exists" }] })));
    }
}
