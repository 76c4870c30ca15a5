//! What a Workload that is being deleted waits for.

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
};

/// Most deployments that are named.
const MAX_NAMED: usize = 3;

/// What is said of a Workload whose deployments are on their way out and do not go. `unreadable`: names of deployments of its
/// namespace that cannot be read, of which nobody can say whether they are its own. `patience`: how long the deletion may take
/// before it is told what it waits for; what a deployment says of the hub is told at once.
pub(super) fn plan(
    workload: &Workload,
    ours: &[&WorkloadDeployment],
    unreadable: &[String],
    patience: Duration,
    now: Timestamp,
) -> Plan<Write<Project>> {
    let since = workload.metadata.deletion_timestamp.as_ref().map(|at| now.duration_since(at.0));
    let waited = since.and_then(|since| Duration::try_from(since).ok()).unwrap_or_default();
    let said = ours.iter().find_map(|wd| Some((wd.name_any(), hub_trouble::standing(wd)?)));
    let verdict = if !unreadable.is_empty() {
        let text = format!("deletion waits, for these WorkloadDeployments cannot be read: {}", named(unreadable));
        Verdict::no(Reason::DeletionWaits, text)
    } else if let Some((name, said)) = said {
        Verdict::no(said.reason(), format!("deletion waits for {name}: {}", said.message))
    } else if waited < patience {
        return Plan::until(Vec::new(), Next::After(patience.saturating_sub(waited)));
    } else {
        let held = |wd: &&WorkloadDeployment| format!("{} ({})", wd.name_any(), wd.finalizers().join(", "));
        let held: Vec<String> = ours.iter().map(held).collect();
        Verdict::no(Reason::DeletionWaits, format!("deletion waits for deployments with finalizers: {}", named(&held)))
    };
    workload_status::blocked(workload, verdict, now).into_iter().collect()
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

    const PATIENCE: Duration = Duration::from_mins(2);

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
        let said = |reason: &str| {
            json!({ "type": "Federated", "status": "False", "reason": reason, "message": "words",
                    "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        wd.status = federated.map(|reason| serde_json::from_value(json!({ "conditions": [said(reason)] })).unwrap());
        wd
    }

    fn told(ours: &[WorkloadDeployment], unreadable: &[&str], seconds: i64) -> (Option<Value>, Next) {
        let ours: Vec<&WorkloadDeployment> = ours.iter().collect();
        let unreadable: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let now = start + jiff::SignedDuration::from_secs(seconds);
        let plan = super::plan(&workload(), &ours, &unreadable, PATIENCE, now);
        let mut said = plan.steps.iter().map(|write| match &write.op {
            Op::Apply { body, status: true, .. } => body["status"]["conditions"][0].clone(),
            other => panic!("{other:?}"),
        });
        (said.next_back(), plan.next)
    }

    #[test]
    fn it_is_told_what_a_deletion_waits_for() {
        let quiet = [deployment("web-a", Some("Propagated")), deployment("web-b", None)];
        assert_eq!(told(&quiet, &[], 30), (None, Next::After(Duration::from_secs(90))), "it may take its time");
        let (said, next) = told(&quiet, &[], 120);
        let said = said.unwrap();
        assert_eq!((&said["reason"], next), (&json!("DeletionWaits"), Next::Await));
        assert_eq!(
            said["message"],
            "deletion waits for deployments with finalizers: web-a (compute.datumapis.com/federator), \
             web-b (compute.datumapis.com/federator)"
        );
        for reason in ["HubUnavailable", "HubRefused", "HubCopyHeld"] {
            let (said, _) = told(&[deployment("web-a", None), deployment("web-b", Some(reason))], &[], 1);
            let said = said.unwrap();
            assert_eq!(
                (&said["reason"], &said["message"]),
                (&json!(reason), &json!("deletion waits for web-b: words"))
            );
        }
        let (said, _) = told(&quiet, &["bad"], 1);
        assert!(said.unwrap()["message"].as_str().unwrap().ends_with("cannot be read: bad"));
    }

    #[test]
    fn only_some_are_named() {
        let names: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        assert_eq!(named(&names), "0, 1, 2 and 7 more");
        assert_eq!(named(&names[..3]), "0, 1, 2");
    }
}
