//! Health of the clusters, and the kinds that they serve (facts 30, 31).

use std::time::Duration;

use anyhow::Result;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Failures, Federation,
    cache::{Plane, TEMPLATES, resource},
};

/// Interval of the health checks.
const PROBE: Duration = Duration::from_millis(500);
/// Longest wait for one answer of a cluster. A busy machine is not a dead one.
const ANSWER: Duration = Duration::from_secs(2);
/// Time for which a slow cluster still counts as available. One that refuses the connection is unavailable at once.
const SLOW: Duration = Duration::from_secs(15);
/// Taint of a cluster that is not ready.
const NOT_READY: &str = "cluster.karmada.io/not-ready";

/// Known health of one cluster.
pub(super) struct Health {
    /// True if it answered the last check.
    answers: bool,
    /// Time since which `answers` has its value.
    since: Instant,
    /// Time of the last answer, or of the first check.
    last_answer: Instant,
    /// True if it counts as ready.
    ready: bool,
}

/// The result of a health check.
enum Answer {
    /// It serves these kinds, in the form of a Cluster's status.
    Serves(Value),
    /// It is available, but its kinds cannot be read now.
    Alive,
    /// It was too slow, or reports that it is not ready.
    Slow,
    /// It refuses the connection.
    Away,
}

impl Answer {
    /// True if the cluster is available, given its previous health.
    fn is_there(&self, known: Option<&Health>, now: Instant) -> bool {
        match self {
            Self::Serves(_) | Self::Alive => true,
            Self::Away => false,
            Self::Slow => known.is_some_and(|health| health.answers && now.duration_since(health.last_answer) < SLOW),
        }
    }
}

impl Federation {
    /// True if a cluster counts as ready. An unreachable one still does for a while (fact 31).
    pub(super) fn counts_as_ready(&self, cluster: &str) -> bool {
        self.health.get(cluster).is_some_and(|health| health.ready)
    }

    /// Checks health and served kinds of each cluster, and reports them on its Cluster.
    pub(super) async fn probe_clusters(&mut self) -> Result<()> {
        if self.probed.is_some_and(|at| at.elapsed() < PROBE) {
            return Ok(());
        }
        let mut failures = Failures::default();
        for cluster in self.hub.all("Cluster") {
            let name = cluster.name_any();
            let Some(cell) = self.cells.get(&name) else { continue };
            let (answer, now) = (probe(cell).await, Instant::now());
            let threshold = self.controls.failure_threshold();
            let answers = answer.is_there(self.health.get(&name), now);
            let health =
                self.health.entry(name).or_insert(Health { answers, since: now, last_answer: now, ready: answers });
            if health.answers != answers {
                (health.answers, health.since) = (answers, now);
            }
            if !matches!(answer, Answer::Slow) {
                health.last_answer = now;
            }
            health.ready = answers || (health.ready && health.since.elapsed() < threshold);
            let ready = health.ready;
            let serves = if let Answer::Serves(serves) = answer { Some(serves) } else { None };
            failures.note(self.report_cluster(&cluster, ready, serves).await);
        }
        self.probed = Some(Instant::now());
        failures.result()
    }

    async fn report_cluster(&self, cluster: &DynamicObject, ready: bool, serves: Option<Value>) -> Result<()> {
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

/// Checks health and served kinds of a cluster.
async fn probe(cell: &Plane) -> Answer {
    match ask(cell, "/readyz").await {
        Some(Ok(_)) => {}
        Some(Err(kube::Error::Api(_))) | None => return Answer::Slow,
        Some(Err(_)) => return Answer::Away,
    }
    let mut enabled = Vec::new();
    for (version, path) in [("v1", "/api/v1"), ("compute.datumapis.com/v1alpha", "/apis/compute.datumapis.com/v1alpha")]
    {
        let found: Value = match ask(cell, path).await {
            Some(Ok(text)) => serde_json::from_str(&text).unwrap_or_default(),
            Some(Err(kube::Error::Api(status))) if status.code == 404 => Value::Null,
            // A kind that cannot be read now still counts as served.
            _ => return Answer::Alive,
        };
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
    Answer::Serves(json!(enabled))
}

/// Sends one GET. Returns `None` without an answer in time.
async fn ask(cell: &Plane, path: &str) -> Option<kube::Result<String>> {
    let request = crate::control_plane::http_get(path).ok()?;
    tokio::time::timeout(ANSWER, cell.client().request_text(request)).await.ok()
}

/// Returns the `Ready` condition of a Cluster, or `None` before its first report.
fn is_ready(cluster: &DynamicObject) -> Option<bool> {
    let conditions = cluster.data["status"]["conditions"].as_array()?;
    Some(conditions.iter().find(|condition| condition["type"] == "Ready")?["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_cluster_stays_available_for_a_while() {
        let now = Instant::now();
        let known = |answers: bool| Health { answers, since: now, last_answer: now, ready: answers };
        let (soon, late) = (now + SLOW / 2, now + SLOW);
        for (answer, known, at, is_there) in [
            (Answer::Serves(Value::Null), None, now, true),
            (Answer::Alive, Some(known(false)), late, true),
            (Answer::Away, Some(known(true)), soon, false),
            (Answer::Slow, None, now, false),
            (Answer::Slow, Some(known(false)), soon, false),
            (Answer::Slow, Some(known(true)), soon, true),
            (Answer::Slow, Some(known(true)), late, false),
        ] {
            assert_eq!(answer.is_there(known.as_ref(), at), is_there);
        }
    }
}
