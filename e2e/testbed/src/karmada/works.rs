//! Works: what goes to which cluster, its execution there, and the way back of statuses.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use kube::{
    ResourceExt,
    api::{DynamicObject, PostParams},
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    Federation,
    bindings::{MADE_OF, clusters, is_ready, of},
    cache::{MANAGED, hash, resource},
    interpreter::Operation,
};

const WORK_FINALIZER: &str = "karmada.io/execution-controller";
/// How often clusters are asked whether they are there.
const PROBE: Duration = Duration::from_secs(2);

impl Federation {
    /// Asks each cluster whether it is there, and says so on its Cluster.
    pub(super) async fn probe_clusters(&mut self) -> Result<()> {
        if self.probed.is_some_and(|at| at.elapsed() < PROBE) {
            return Ok(());
        }
        for cluster in self.hub.all("Cluster") {
            let Some(cell) = self.cells.get(&cluster.name_any()) else { continue };
            let probe = cell.client().request_text(crate::control_plane::http_get("/readyz")?);
            let there = matches!(tokio::time::timeout(Duration::from_secs(1), probe).await, Ok(Ok(_)));
            self.reachable.insert(cluster.name_any(), there);
            if is_ready(&cluster) != there {
                let (status, reason) = if there { ("True", "ClusterReady") } else { ("False", "ClusterNotReachable") };
                let conditions = json!({ "conditions": [{
                    "type": "Ready", "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }]});
                self.hub.merge_status("Cluster", &cluster, &conditions).await?;
            }
        }
        self.probed = Some(Instant::now());
        Ok(())
    }

    /// A Work per binding and cluster, and per namespace and cluster (facts 3, 4).
    pub(super) async fn make_works(&mut self) -> Result<()> {
        let mut wanted = BTreeSet::new();
        for namespace in self.hub.all("Namespace") {
            let name = namespace.name_any();
            let own = name.starts_with("karmada-") || name.starts_with("kube-") || name == "default";
            if own || namespace.metadata.deletion_timestamp.is_some() {
                continue;
            }
            for cluster in &self.cells.keys().cloned().collect::<Vec<_>>() {
                wanted.insert(self.hold_work(cluster, "Namespace", &namespace, &format!("/{name}")).await?);
            }
        }
        for binding in self.hub.all("ResourceBinding") {
            if binding.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let spec = &binding.data["spec"];
            let (kind, name) = (spec["resource"]["kind"].as_str(), spec["resource"]["name"].as_str());
            let (Some(kind), Some(name)) = (kind, name) else { continue };
            let namespace = binding.namespace().unwrap_or_default();
            let Some(template) = self.hub.get(kind, &namespace, name) else { continue };
            if template.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let required = spec["requiredBy"].as_array().into_iter().flatten().flat_map(|by| clusters(&by["clusters"]));
            let targets: BTreeSet<String> = clusters(&spec["clusters"]).into_iter().chain(required).collect();
            for cluster in targets {
                wanted.insert(self.hold_work(&cluster, kind, &template, &of(&binding)).await?);
            }
        }
        for work in self.hub.all("Work") {
            let key = (work.namespace().unwrap_or_default(), work.name_any());
            if work.metadata.deletion_timestamp.is_none() && !wanted.contains(&key) {
                self.worked.remove(&key);
                self.hub.delete("Work", &key.0, &key.1).await?;
            }
        }
        Ok(())
    }

    async fn hold_work(
        &mut self,
        cluster: &str,
        kind: &str,
        template: &DynamicObject,
        binding: &str,
    ) -> Result<(String, String)> {
        let namespace = format!("karmada-es-{cluster}");
        let own = template.namespace().unwrap_or_default();
        let name = format!("{}-{}", template.name_any(), hash(&format!("{own}/{kind}/{}", template.name_any())));
        let manifest = manifest(kind, template, &name);
        let live = self.hub.get("Work", &namespace, &name);
        let same = live.as_ref().is_some_and(|live| live.data["spec"]["workload"]["manifests"][0] == manifest);
        let going = live.as_ref().is_some_and(|live| live.metadata.deletion_timestamp.is_some());
        let key = (namespace.clone(), name.clone());
        let said = hash(&manifest.to_string());
        // Lost, and the template has not been touched since (fact 55). Namespaces come back by themselves (fact 57).
        let lost = live.is_none() && kind != "Namespace" && self.worked.get(&key) == Some(&said);
        if !same && !going && !lost {
            let body = json!({
                "metadata": { "finalizers": [WORK_FINALIZER], "annotations": { MADE_OF: binding } },
                "spec": { "workload": { "manifests": [manifest] } },
            });
            self.hub.apply("Work", &namespace, &name, body).await?;
            self.worked.insert(key, said);
        }
        Ok((namespace, name))
    }

    /// Brings every reachable cluster to what its Works say (facts 5, 7, 8, 12, 32, 33).
    pub(super) async fn execute_works(&self) -> Result<()> {
        let mut works = self.hub.all("Work");
        // Namespaces first: everything else lives in one.
        works.sort_by_key(|work| manifest_of(work)["kind"] != "Namespace");
        for work in works {
            let Some(cluster) = work.namespace().and_then(|ns| ns.strip_prefix("karmada-es-").map(str::to_owned))
            else {
                continue;
            };
            if self.reachable.get(&cluster) != Some(&true) {
                continue;
            }
            let outcome = self.execute(&cluster, &work).await;
            if work.metadata.deletion_timestamp.is_some() {
                if outcome.is_ok() {
                    self.hub.release("Work", &work, WORK_FINALIZER).await?;
                }
                continue;
            }
            let (status, message) = match outcome {
                Ok(()) => ("True", String::new()),
                Err(error) => ("False", error.to_string()),
            };
            let known = &work.data["status"]["conditions"][0];
            if known["status"] != status || known["message"] != message {
                let condition = json!({
                    "type": "Applied", "status": status, "reason": "Applied", "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                });
                self.hub.merge_status("Work", &work, &json!({ "conditions": [condition] })).await?;
            }
        }
        Ok(())
    }

    async fn execute(&self, cluster: &str, work: &DynamicObject) -> Result<()> {
        let Some(cell) = self.cells.get(cluster) else { return Ok(()) };
        let manifest = manifest_of(work);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&manifest["kind"]), text(&manifest["metadata"]["name"]));
        let namespace = text(&manifest["metadata"]["namespace"]);
        let live = cell.get(&kind, &namespace, &name);
        if work.metadata.deletion_timestamp.is_some() {
            // Asked of the server: what was made a moment ago may not be in the cache yet.
            let found = cell.api(&kind, &namespace).get_opt(&name).await?;
            let ours = found.filter(|o| o.labels().get(MANAGED).is_some() && o.metadata.deletion_timestamp.is_none());
            if ours.is_some() {
                cell.delete(&kind, &namespace, &name).await?;
            }
            return Ok(());
        }
        let api = cell.api(&kind, &namespace);
        let Some(live) = live else {
            // Not managed, or not seen yet: the server knows.
            match api.get_opt(&name).await? {
                Some(found) if found.labels().get(MANAGED).is_none() && kind != "Namespace" => {
                    anyhow::bail!(
                        "resource(kind={kind}, {namespace}/{name}) already exists in the cluster {cluster} and the overwrite strategy is not set, so Karmada will not manage this resource"
                    )
                }
                Some(found) if found.labels().get(MANAGED).is_none() => {
                    let marks = json!({ "metadata": { "labels": manifest["metadata"]["labels"] } });
                    return cell.merge(&kind, &found, &marks).await;
                }
                Some(_) => return Ok(()),
                None => {
                    let object: DynamicObject = serde_json::from_value(manifest.clone())?;
                    api.create(&PostParams::default(), &object).await?;
                    return Ok(());
                }
            }
        };
        if live.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let current = serde_json::to_value(&*live)?;
        let desired = retained(&current, manifest);
        if desired != current {
            let object: DynamicObject = serde_json::from_value(desired)?;
            api.replace(&name, &PostParams::default(), &object).await?;
        }
        Ok(())
    }

    /// Statuses: cell -> binding -> template, through the interpreter's scripts (facts 3, 10).
    pub(super) async fn collect_status(&self) -> Result<()> {
        let works = self.works();
        for binding in self.hub.all("ResourceBinding") {
            if binding.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let mut items = Vec::new();
            for work in works.get(&of(&binding)).into_iter().flatten() {
                let cluster = work.namespace().unwrap_or_default().replacen("karmada-es-", "", 1);
                let applied = &work.data["status"]["conditions"][0];
                let mut item = json!({ "clusterName": cluster, "applied": applied["status"] == "True" });
                if let Some(message) = applied["message"].as_str().filter(|m| !m.is_empty()) {
                    item["appliedMessage"] = json!(message);
                }
                if let Some(status) = self.reflect(&cluster, manifest_of(work)) {
                    item["status"] = status;
                }
                items.push(item);
            }
            if binding.data["status"].get("aggregatedStatus").unwrap_or(&json!([])) != &json!(items) {
                self.hub.merge_status("ResourceBinding", &binding, &json!({ "aggregatedStatus": items })).await?;
            }
            let fully = !items.is_empty() && items.iter().all(|item| item["applied"] == true);
            let (status, reason) =
                if fully { ("True", "FullyAppliedSuccess") } else { ("False", "FullyAppliedFailed") };
            if !items.is_empty() {
                let condition = json!({ "type": "FullyApplied", "status": status, "reason": reason, "message": "" });
                self.set_condition(&binding, condition).await?;
            }
            self.aggregate(&binding, &items).await?;
        }
        Ok(())
    }

    fn reflect(&self, cluster: &str, manifest: &Value) -> Option<Value> {
        let text = |field: &str| manifest["metadata"][field].as_str().unwrap_or_default();
        let kind = manifest["kind"].as_str().filter(|kind| *kind == "WorkloadDeployment")?;
        let live = self.cells.get(cluster)?.get(kind, text("namespace"), text("name"))?;
        let status = self.interpret(Operation::Reflection, &live, None)?;
        Some(if status.as_array().is_some_and(Vec::is_empty) { json!({}) } else { status })
    }

    async fn aggregate(&self, binding: &DynamicObject, items: &[Value]) -> Result<()> {
        let resource = &binding.data["spec"]["resource"];
        if resource["kind"] != "WorkloadDeployment" {
            return Ok(());
        }
        let name = resource["name"].as_str().unwrap_or_default();
        let Some(template) = self.hub.get("WorkloadDeployment", &binding.namespace().unwrap_or_default(), name) else {
            return Ok(());
        };
        let items = json!(items);
        let Some(answer) = self.interpret(Operation::Aggregation, &template, Some(&items)) else { return Ok(()) };
        let before = &template.data["status"];
        if answer["status"].is_object() && answer["status"] != *before {
            let mut status = answer["status"].clone();
            // A merge patch removes what is no longer there only when told so.
            for field in before.as_object().into_iter().flat_map(Map::keys) {
                if status.get(field).is_none() {
                    status[field] = Value::Null;
                }
            }
            self.hub.merge_status("WorkloadDeployment", &template, &status).await?;
        }
        Ok(())
    }
}

fn manifest_of(work: &DynamicObject) -> &Value {
    &work.data["spec"]["workload"]["manifests"][0]
}

/// The template as a member gets it: its content, labels and annotations, and Karmada's marks.
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

/// `current` with the manifest's content put back; others' labels, annotations, finalizers and the status stay (fact 8).
/// Labels and annotations that Karmada brought before and brings no longer go.
fn retained(current: &Value, manifest: &Value) -> Value {
    let mut desired = current.clone();
    let content = |object: &Value| -> Vec<String> {
        let keys = object.as_object().into_iter().flat_map(Map::keys);
        keys.filter(|key| !["metadata", "status", "apiVersion", "kind"].contains(&key.as_str())).cloned().collect()
    };
    for field in content(manifest) {
        desired[&field] = manifest[&field].clone();
    }
    for field in content(current) {
        if manifest.get(&field).is_none()
            && current["kind"] != "Namespace"
            && let Some(object) = desired.as_object_mut()
        {
            object.remove(&field);
        }
    }
    for (field, record) in [("labels", "managed-labels"), ("annotations", "managed-annotations")] {
        let record = format!("resourcetemplate.karmada.io/{record}");
        let before = current["metadata"]["annotations"][&record].as_str().unwrap_or_default().to_owned();
        for key in before.split(',').filter(|key| !key.is_empty()) {
            if let Some(map) = desired["metadata"][field].as_object_mut() {
                map.remove(key);
            }
        }
        for (key, value) in manifest["metadata"][field].as_object().into_iter().flatten() {
            desired["metadata"][field][key] = value.clone();
        }
    }
    desired
}
