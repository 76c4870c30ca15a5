//! Whether the clusters are there, and what they serve (facts 30, 31).

use std::time::Duration;

use anyhow::Result;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Failures, Federation,
    cache::{Plane, TEMPLATES, resource},
};

/// How often clusters are asked whether they are there.
const PROBE: Duration = Duration::from_millis(500);
/// Taint of a cluster that is not ready.
const NOT_READY: &str = "cluster.karmada.io/not-ready";

/// What is known of one cluster.
pub(super) struct Health {
    /// Whether it answered when last asked.
    answers: bool,
    /// Since when that has been so.
    since: Instant,
    /// Whether it counts as ready.
    ready: bool,
}

impl Federation {
    /// Whether a cluster counts as ready: it does for a while after it has gone away (fact 31).
    pub(super) fn counts_as_ready(&self, cluster: &str) -> bool {
        self.health.get(cluster).is_some_and(|health| health.ready)
    }

    /// Asks each cluster whether it is there and what it serves, and says so on its Cluster.
    pub(super) async fn probe_clusters(&mut self) -> Result<()> {
        if self.probed.is_some_and(|at| at.elapsed() < PROBE) {
            return Ok(());
        }
        let mut failures = Failures::default();
        for cluster in self.hub.all("Cluster") {
            let name = cluster.name_any();
            let Some(cell) = self.cells.get(&name) else { continue };
            let serves = probe(cell).await;
            let (answers, now) = (serves.is_some(), Instant::now());
            let threshold = self.controls.failure_threshold();
            let health = self.health.entry(name).or_insert(Health { answers, since: now, ready: answers });
            if health.answers != answers {
                (health.answers, health.since) = (answers, now);
            }
            health.ready = answers || (health.ready && health.since.elapsed() < threshold);
            let ready = health.ready;
            failures.note(self.tell(&cluster, ready, serves).await);
        }
        self.probed = Some(Instant::now());
        failures.result()
    }

    async fn tell(&self, cluster: &DynamicObject, ready: bool, serves: Option<Value>) -> Result<()> {
        let mut status = json!({});
        if is_ready(cluster) != Some(ready) {
            let (is, reason, message) = if ready {
                ("True", "ClusterReady", "cluster is healthy and ready to accept workloads")
            } else {
                ("False", "ClusterNotReachable", "cluster is not reachable")
            };
            status["conditions"] = json!([{
                "type": "Ready", "status": is, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
        }
        if let Some(serves) = serves.filter(|serves| cluster.data["status"]["apiEnablements"] != *serves) {
            status["apiEnablements"] = serves;
        }
        if status != json!({}) {
            self.hub.merge_status("Cluster", cluster, &status).await?;
        }
        let before = cluster.data["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let mut taints = before.clone();
        if ready {
            taints.retain(|taint| taint["key"] != NOT_READY);
        } else if taints.iter().all(|taint| taint["key"] != NOT_READY) {
            taints.push(json!({ "key": NOT_READY, "effect": "NoSchedule" }));
        }
        if taints == before {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "resourceVersion": cluster.resource_version() },
            "spec": { "taints": if taints.is_empty() { Value::Null } else { json!(taints) } },
        });
        self.hub.merge("Cluster", cluster, &patch).await
    }
}

/// What a cluster serves of the kinds that matter here, as a Cluster lists it; nothing when it does not answer.
async fn probe(cell: &Plane) -> Option<Value> {
    let ask = async {
        cell.client().request_text(crate::control_plane::http_get("/readyz").ok()?).await.ok()?;
        let mut enabled = Vec::new();
        for (version, path) in
            [("v1", "/api/v1"), ("compute.datumapis.com/v1alpha", "/apis/compute.datumapis.com/v1alpha")]
        {
            let found = cell.client().request_text(crate::control_plane::http_get(path).ok()?).await;
            let found: Value = found.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            let kinds = found["resources"].as_array().into_iter().flatten().map(|kind| &kind["kind"]);
            let kinds: Vec<Value> = TEMPLATES
                .into_iter()
                .filter(|kind| resource(kind).api_version == version && kinds.clone().any(|found| found == kind))
                .map(|kind| json!({ "kind": kind, "name": resource(kind).plural }))
                .collect();
            if !kinds.is_empty() {
                enabled.push(json!({ "groupVersion": version, "resources": kinds }));
            }
        }
        Some(json!(enabled))
    };
    tokio::time::timeout(Duration::from_secs(1), ask).await.ok().flatten()
}

/// What a Cluster says of itself; nothing before it has said anything.
fn is_ready(cluster: &DynamicObject) -> Option<bool> {
    let conditions = cluster.data["status"]["conditions"].as_array()?;
    Some(conditions.iter().find(|condition| condition["type"] == "Ready")?["status"] == "True")
}
