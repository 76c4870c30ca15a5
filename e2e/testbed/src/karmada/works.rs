//! Works: the objects for each cluster (facts 3, 4, 16, 55, 62, 63).

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    Failures, Federation,
    bindings::{clusters, made_of, marks, of},
    cache::{MANAGED, fnv, resource},
};

pub(super) const WORK_FINALIZER: &str = "karmada.io/execution-controller";
/// Namespace of the Works of a cluster.
pub(super) const EXECUTION_SPACE: &str = "karmada-es-";

impl Federation {
    /// Makes one Work for each namespace and cluster. Makes one for each binding and cluster when the binding's spec has changed.
    /// A deleted Work is only recreated when the template is touched (facts 55, 62).
    pub(super) async fn make_works(&mut self) -> Result<()> {
        let mut failures = Failures::default();
        for namespace in self.hub.all("Namespace") {
            let name = namespace.name_any();
            let own = name.starts_with("karmada-") || name.starts_with("kube-") || name == "default";
            if own || namespace.metadata.deletion_timestamp.is_some() {
                continue;
            }
            for cluster in self.cells.keys() {
                let how = Dispatch::default();
                failures.note(self.hold_work(cluster, "Namespace", &namespace, &format!("/{name}"), how).await);
            }
        }
        failures.note(self.drop_works_of_deleted_namespaces().await);
        let mut works = self.works();
        let mut present = BTreeSet::new();
        for binding in self.hub.all("ResourceBinding") {
            let uid = binding.uid().unwrap_or_default();
            present.insert(uid.clone());
            let generation = binding.metadata.generation.unwrap_or_default();
            if binding.metadata.deletion_timestamp.is_some() || self.spread.get(&uid) == Some(&generation) {
                continue;
            }
            let live = works.remove(&of(&binding)).unwrap_or_default();
            let done = self.spread(&binding, &live).await;
            if done.is_ok() {
                self.spread.insert(uid, generation);
            }
            failures.note(done);
        }
        self.spread.retain(|uid, _| present.contains(uid));
        failures.result()
    }

    /// Updates the Works of one binding.
    async fn spread(&self, binding: &DynamicObject, works: &[std::sync::Arc<DynamicObject>]) -> Result<()> {
        let spec = &binding.data["spec"];
        let required = spec["requiredBy"].as_array().into_iter().flatten().flat_map(|by| clusters(&by["clusters"]));
        let targets: BTreeSet<String> = clusters(&spec["clusters"]).into_iter().chain(required).collect();
        for work in works.iter().filter(|work| work.metadata.deletion_timestamp.is_none()) {
            let namespace = work.namespace().unwrap_or_default();
            if !targets.contains(namespace.trim_start_matches(EXECUTION_SPACE)) {
                self.hub.delete("Work", &namespace, &work.name_any()).await?;
            }
        }
        let text = |field: &str| spec["resource"][field].as_str().unwrap_or_default();
        let namespace = binding.namespace().unwrap_or_default();
        let Some(template) = self.hub.get(text("kind"), &namespace, text("name")) else { return Ok(()) };
        if template.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let mut failures = Failures::default();
        for cluster in &targets {
            let how = Dispatch {
                suspended: is_suspended(&spec["suspension"], cluster),
                preserves: spec["preserveResourcesOnDeletion"] == true,
            };
            failures.note(self.hold_work(cluster, text("kind"), &template, &of(binding), how).await);
        }
        failures.result()
    }

    async fn drop_works_of_deleted_namespaces(&self) -> Result<()> {
        for work in self.hub.all("Work") {
            let Some(of) = made_of(&work) else { continue };
            let Some(name) = of.strip_prefix('/') else { continue };
            let gone = self.hub.get("Namespace", "", name).is_none_or(|ns| ns.metadata.deletion_timestamp.is_some());
            if gone && work.metadata.deletion_timestamp.is_none() {
                self.hub.delete("Work", &work.namespace().unwrap_or_default(), &work.name_any()).await?;
            }
        }
        Ok(())
    }

    async fn hold_work(
        &self,
        cluster: &str,
        kind: &str,
        template: &DynamicObject,
        binding: &str,
        how: Dispatch,
    ) -> Result<()> {
        let namespace = format!("{EXECUTION_SPACE}{cluster}");
        let name = work_name(kind, template);
        let manifest = manifest(kind, template, &name);
        let live = self.hub.get("Work", &namespace, &name);
        let is_same = |live: &DynamicObject| {
            live.data["spec"]["workload"]["manifests"][0] == manifest && Dispatch::of(live) == how
        };
        let mut same = live.as_deref().is_some_and(is_same);
        // An object that is changed and reverted at once may not be in the cache yet. Namespaces are left out, because every pass
        // checks their Works.
        if same && kind != "Namespace" {
            same = self.hub.fetch("Work", &namespace, &name).await?.as_ref().is_some_and(is_same);
        }
        let going = live.as_ref().is_some_and(|live| live.metadata.deletion_timestamp.is_some());
        anyhow::ensure!(!going, "the Work {name} is still being deleted");
        if same {
            return Ok(());
        }
        let mut body = json!({
            "metadata": { "finalizers": [WORK_FINALIZER], "annotations": marks(binding) },
            "spec": { "workload": { "manifests": [manifest] } },
        });
        if how.suspended {
            body["spec"]["suspendDispatching"] = json!(true);
        }
        if how.preserves {
            body["spec"]["preserveResourcesOnDeletion"] = json!(true);
        }
        self.hub.apply("Work", &namespace, &name, body).await.map(|_| ()).with_context(|| format!("the Work {name}"))
    }
}

/// Fields of a Work besides its manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dispatch {
    /// The Work is not dispatched to its cluster (fact 71).
    pub(super) suspended: bool,
    /// The object stays on the cluster after the deletion (fact 77).
    pub(super) preserves: bool,
}

impl Dispatch {
    /// Returns these fields of a Work.
    pub(super) fn of(work: &DynamicObject) -> Self {
        let is_set = |field: &str| work.data["spec"][field] == true;
        Self { suspended: is_set("suspendDispatching"), preserves: is_set("preserveResourcesOnDeletion") }
    }
}

/// True if a binding's Works are not dispatched to this cluster (fact 71).
fn is_suspended(suspension: &Value, cluster: &str) -> bool {
    let on = suspension["dispatchingOnClusters"]["clusterNames"].as_array();
    suspension["dispatching"] == true || on.is_some_and(|on| on.iter().any(|name| name == cluster))
}

/// Returns the name of a template's Works. It appends a dash and up to ten digits, so a template's name of more than 242
/// characters may not fit (fact 63).
pub(super) fn work_name(kind: &str, template: &DynamicObject) -> String {
    let namespace = template.namespace().unwrap_or_default();
    let name = template.name_any();
    format!("{name}-{}", fnv(&format!("{namespace}-{name}-{}", kind.to_lowercase())))
}

pub(super) fn manifest_of(work: &DynamicObject) -> &Value {
    &work.data["spec"]["workload"]["manifests"][0]
}

/// Returns the template as a member gets it: content, labels, annotations, and Karmada's marks.
fn manifest(kind: &str, template: &DynamicObject, work: &str) -> Value {
    let mut object = json!(template.data);
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
        if kind == "Namespace" {
            object.remove("spec");
        }
    }
    let mut labels = template.labels().clone();
    labels.insert(MANAGED.into(), "true".into());
    let mut annotations = template.annotations().clone();
    let managed = |keys: Vec<&String>| keys.into_iter().map(String::as_str).collect::<Vec<_>>().join(",");
    annotations.insert("resourcetemplate.karmada.io/managed-labels".into(), managed(labels.keys().collect()));
    annotations.insert(
        "resourcetemplate.karmada.io/managed-annotations".into(),
        managed(template.annotations().keys().collect()),
    );
    annotations.insert("resourcetemplate.karmada.io/uid".into(), template.uid().unwrap_or_default());
    annotations.insert("work.karmada.io/name".into(), work.into());
    object["apiVersion"] = json!(resource(kind).api_version);
    object["kind"] = json!(kind);
    object["metadata"] = json!({ "name": template.name_any(), "labels": labels, "annotations": annotations });
    if let Some(namespace) = template.namespace() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}
