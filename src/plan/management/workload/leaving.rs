//! Terminating Workloads, and the deployments that block their deletion.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;

use super::workload_status;
use crate::plan::management::federator::hub_trouble;
use crate::{
    api::{
        compute::{Workload, WorkloadDeployment},
        reason::Reason,
    },
    plan::{Next, Plan, Project, Write, condition::Verdict},
    timing::Timing,
};

/// Maximum number of deployments that a message names.
const MAX_NAMED: usize = 3;

/// Reports why the deployments of a Workload block its deletion. `unreadable`: names of unreadable deployments in its namespace,
/// which may be its own. A cause is reported once the deletion has taken the patience. A cause on the hub that a deployment
/// reports is repeated at once.
pub(super) fn plan(
    workload: &Workload,
    ours: &[&WorkloadDeployment],
    unreadable: &[String],
    timing: &Timing,
    now: Timestamp,
) -> Plan<Write<Project>> {
    let patience = timing.deletion_patience;
    let since = workload.metadata.deletion_timestamp.as_ref().map(|at| now.duration_since(at.0));
    let waited = since.and_then(|since| Duration::try_from(since).ok()).unwrap_or_default();
    let reported = ours.iter().find_map(|wd| Some((wd.name_any(), hub_trouble::standing(wd)?)));
    let verdict = if !unreadable.is_empty() {
        let text = format!("deletion waits because these WorkloadDeployments cannot be read: {}", named(unreadable));
        Verdict::no(Reason::DeletionWaits, text)
    } else if let Some((name, reported)) = reported {
        Verdict::no(reported.reason(), format!("deletion waits for {name}: {}", reported.message))
    } else if waited < patience {
        return Plan::until(Vec::new(), Next::After(patience.saturating_sub(waited)));
    } else {
        let held = |wd: &&WorkloadDeployment| format!("{} ({})", wd.name_any(), wd.finalizers().join(", "));
        let held: Vec<String> = ours.iter().map(held).collect();
        Verdict::no(Reason::DeletionWaits, format!("deletion waits for deployments with finalizers: {}", named(&held)))
    };
    workload_status::blocked(workload, verdict, timing.error_grace, now)
}

fn named(all: &[String]) -> String {
    let shown = all.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::Op;

    fn workload() -> Workload {
        serde_json::from_value(json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "w", "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                      "placements": [] },
        }))
        .unwrap()
    }

    fn deployment(name: &str, federated: Option<&str>) -> WorkloadDeployment {
        let mut wd = WorkloadDeployment::new(name, crate::api::compute::WorkloadDeploymentSpec::default());
        wd.metadata.finalizers = Some(vec!["compute.datumapis.com/federator".into()]);
        let condition = |reason: &str| {
            json!({ "type": "Federated", "status": "False", "reason": reason, "message": "words",
                    "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        wd.status =
            federated.map(|reason| serde_json::from_value(json!({ "conditions": [condition(reason)] })).unwrap());
        wd
    }

    fn reported(ours: &[WorkloadDeployment], unreadable: &[&str], seconds: i64) -> (Option<Value>, Next) {
        let ours: Vec<&WorkloadDeployment> = ours.iter().collect();
        let unreadable: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let now = start + jiff::SignedDuration::from_secs(seconds);
        let plan = super::plan(&workload(), &ours, &unreadable, &Timing::default(), now);
        let mut condition = plan.steps.iter().map(|write| match &write.op {
            Op::Apply { body, status: true, .. } => body["status"]["conditions"][0].clone(),
            other => panic!("{other:?}"),
        });
        (condition.next_back(), plan.next)
    }

    #[test]
    fn workload_deletion_that_is_blocked_reports_its_cause() {
        let quiet = [deployment("web-a", Some("Propagated")), deployment("web-b", None)];
        assert_eq!(reported(&quiet, &[], 30), (None, Next::After(Duration::from_secs(90))), "it may take its time");
        let (condition, next) = reported(&quiet, &[], 120);
        let condition = condition.unwrap();
        assert_eq!((&condition["reason"], next), (&json!("DeletionWaits"), Next::Await));
        assert_eq!(
            condition["message"],
            "deletion waits for deployments with finalizers: web-a (compute.datumapis.com/federator), \
             web-b (compute.datumapis.com/federator)"
        );
        for reason in ["HubUnavailable", "HubRefused", "HubCopyHeld"] {
            let (condition, _) = reported(&[deployment("web-a", None), deployment("web-b", Some(reason))], &[], 1);
            let condition = condition.unwrap();
            assert_eq!(
                (&condition["reason"], &condition["message"]),
                (&json!(reason), &json!("deletion waits for web-b: words"))
            );
        }
        let (condition, _) = reported(&quiet, &["bad"], 1);
        assert!(condition.unwrap()["message"].as_str().unwrap().ends_with("cannot be read: bad"));
    }

    #[test]
    fn message_with_many_deployments_names_only_some() {
        let names: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        assert_eq!(named(&names), "0, 1, 2 and 7 more");
        assert_eq!(named(&names[..3]), "0, 1, 2");
    }
}
