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
/// Longest wait for one answer of a cluster: a busy machine is no dead one.
const ANSWER: Duration = Duration::from_secs(2);
/// How long a cluster may be slower than that before it counts as away. One that refuses the connection is away at once.
const SLOW: Duration = Duration::from_secs(15);
/// Taint of a cluster that is not ready.
const NOT_READY: &str = "cluster.karmada.io/not-ready";

/// What is known of one cluster.
pub(super) struct Health {
    /// Whether it answered when last asked.
    answers: bool,
    /// Since when that has been so.
    since: Instant,
    /// When it was heard of last, or looked at first.
    heard: Instant,
    /// Whether it counts as ready.
    ready: bool,
}

/// What came of asking a cluster.
enum Answer {
    /// It serves these of the kinds that matter here, as a Cluster lists them.
    Serves(Value),
    /// It is there, and what it serves cannot be read now.
    Alive,
    /// It was too slow, or says that it is not ready.
    Slow,
    /// Nobody is there.
    Away,
}

impl Answer {
    /// Whether a cluster that was known like this until now is there.
    fn is_there(&self, known: Option<&Health>, now: Instant) -> bool {
        match self {
            Self::Serves(_) | Self::Alive => true,
            Self::Away => false,
            Self::Slow => known.is_some_and(|health| health.answers && now.duration_since(health.heard) < SLOW),
        }
    }
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
            let (answer, now) = (probe(cell).await, Instant::now());
            let threshold = self.controls.failure_threshold();
            let answers = answer.is_there(self.health.get(&name), now);
            let health = self.health.entry(name).or_insert(Health { answers, since: now, heard: now, ready: answers });
            if health.answers != answers {
                (health.answers, health.since) = (answers, now);
            }
            if !matches!(answer, Answer::Slow) {
                health.heard = now;
            }
            health.ready = answers || (health.ready && health.since.elapsed() < threshold);
            let ready = health.ready;
            let serves = if let Answer::Serves(serves) = answer { Some(serves) } else { None };
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

/// Asks a cluster whether it is there and what it serves.
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
            // What cannot be read now is served all the same.
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

/// One GET; nothing when no answer came in time.
async fn ask(cell: &Plane, path: &str) -> Option<kube::Result<String>> {
    let request = crate::control_plane::http_get(path).ok()?;
    tokio::time::timeout(ANSWER, cell.client().request_text(request)).await.ok()
}

/// What a Cluster says of itself; nothing before it has said anything.
fn is_ready(cluster: &DynamicObject) -> Option<bool> {
    let conditions = cluster.data["status"]["conditions"].as_array()?;
    Some(conditions.iter().find(|condition| condition["type"] == "Ready")?["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_is_slow_is_there_for_a_while_if_it_was() {
        let now = Instant::now();
        let known = |answers: bool| Health { answers, since: now, heard: now, ready: answers };
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
