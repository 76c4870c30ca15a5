//! Execution of the Works on the members (facts 5, 7, 8, 12, 31 to 33, 54).

use anyhow::{Context, Result};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Map, Value, json};

use super::{
    Failures, Federation,
    cache::{MANAGED, Plane},
    works::{Dispatch, EXECUTION_SPACE, WORK_FINALIZER, manifest_of},
};

impl Federation {
    /// Executes the Works of every cluster that counts as ready. One that has just become unreachable still does, and writes to
    /// it fail with the network's error (fact 31).
    pub(super) async fn execute_works(&self) -> Result<()> {
        let mut failures = Failures::default();
        let mut works = self.hub.all("Work");
        // Namespaces come first, because everything else is in one.
        works.sort_by_key(|work| manifest_of(work)["kind"] != "Namespace");
        for work in works {
            let namespace = work.namespace().unwrap_or_default();
            let Some(cluster) = namespace.strip_prefix(EXECUTION_SPACE) else { continue };
            let Some(cell) = self.cells.get(cluster).filter(|_| self.counts_as_ready(cluster)) else { continue };
            if work.metadata.deletion_timestamp.is_none() && Dispatch::of(&work).suspended {
                continue;
            }
            let outcome = self.execute(cell, cluster, &work).await;
            failures.note(self.report(&work, outcome).await);
        }
        failures.result()
    }

    async fn report(&self, work: &DynamicObject, outcome: Result<()>) -> Result<()> {
        if work.metadata.deletion_timestamp.is_some() {
            outcome?;
            return self.hub.release("Work", work, WORK_FINALIZER).await;
        }
        let (status, reason, message) = match outcome {
            Ok(()) => ("True", "AppliedSuccessful", "Manifest has been successfully applied".to_owned()),
            Err(error) => {
                ("False", "AppliedFailed", format!("Failed to apply all manifests (0/1): {}", error_chain(&error)))
            }
        };
        let known = &work.data["status"]["conditions"][0];
        if known["status"] == status && known["message"] == message {
            return Ok(());
        }
        let condition = json!({
            "type": "Applied", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        self.hub.merge_status("Work", work, &json!({ "conditions": [condition] })).await
    }

    async fn execute(&self, cell: &Plane, cluster: &str, work: &DynamicObject) -> Result<()> {
        let manifest = manifest_of(work);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&manifest["kind"]), text(&manifest["metadata"]["name"]));
        let namespace = text(&manifest["metadata"]["namespace"]);
        if work.metadata.deletion_timestamp.is_some() {
            if Dispatch::of(work).preserves {
                return Ok(()); // Karmada removes its marks from preserved resources, the stand-in does not
            }
            // This is read from the server, because a new object may not be in the cache yet.
            let found = cell.fetch(&kind, &namespace, &name).await?;
            let ours = found.filter(|o| o.labels().get(MANAGED).is_some() && o.metadata.deletion_timestamp.is_none());
            if ours.is_some() {
                cell.delete(&kind, &namespace, &name).await?;
            }
            return Ok(());
        }
        let Some(live) = cell.get(&kind, &namespace, &name) else {
            // The object is not managed, or not in the cache yet. The server decides.
            match cell.fetch(&kind, &namespace, &name).await? {
                Some(found) if found.labels().get(MANAGED).is_none() && kind != "Namespace" => anyhow::bail!(
                    "resource(kind={kind}, {namespace}/{name}) already exists in the cluster {cluster} and the \
                     work.karmada.io/conflict-resolution strategy value is empty, Karmada will not manage this resource"
                ),
                Some(found) if found.labels().get(MANAGED).is_none() => {
                    let marks = json!({ "metadata": { "labels": manifest["metadata"]["labels"] } });
                    return cell.merge(&kind, &found, &marks).await;
                }
                Some(_) => return Ok(()),
                None => return cell.create(&kind, &namespace, &name, manifest.clone()).await,
            }
        };
        if live.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let current = serde_json::to_value(&*live)?;
        let desired = retained(&current, manifest);
        // The retention script only runs if something would change.
        if desired == current {
            return Ok(());
        }
        let answer = self.retain(&kind, &sent(&desired, manifest), &current)?;
        let desired = answer.map_or(desired, |answer| retained(&current, &answer));
        if desired != current {
            let object: DynamicObject = serde_json::from_value(desired)?;
            cell.replace(&kind, &object).await.context("failed to update")?;
        }
        Ok(())
    }
}

/// Returns the object that Karmada passes to the script: the manifest, with the retained metadata of the member. The API server
/// keeps the rest.
fn sent(desired: &Value, manifest: &Value) -> Value {
    let mut object = manifest.clone();
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "resourceVersion"] {
        if let Some(kept) = desired["metadata"].get(field) {
            object["metadata"][field] = kept.clone();
        }
    }
    object
}

/// Returns an error with all its causes. A refused connection is the last of them.
fn error_chain(error: &anyhow::Error) -> String {
    let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
    chain.join(": ")
}

/// Returns `current` with the content of the manifest. Foreign labels, annotations, finalizers and the status stay (fact 8).
/// Labels and annotations that Karmada no longer delivers are removed.
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
            && manifest["kind"] != "Namespace"
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
