use serde_json::{Value, json};

use super::*;
use crate::plan::{Op, Write};

const START: &str = "2026-01-01T00:00:00Z";

fn deployment(federated: Option<(&str, &str, &str)>, deleting: bool) -> WorkloadDeployment {
    let mut wd = WorkloadDeployment::new("web-dfw", crate::api::compute::WorkloadDeploymentSpec::default());
    wd.metadata.namespace = Some("shop".into());
    wd.metadata.uid = Some("u1".into());
    wd.metadata.generation = Some(3);
    wd.metadata.deletion_timestamp =
        deleting.then(|| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(START.parse().unwrap()));
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({ "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": START,
                "observedGeneration": 3 })
    };
    let available = condition("Available", "True", "StableInstanceFound", "1/1 instances are ready");
    let federated = federated.map(|(status, reason, message)| condition("Federated", status, reason, message));
    let conditions: Vec<Value> = [available].into_iter().chain(federated).collect();
    let last_delivery = json!({ "copyUID": "c1", "clusters": ["cell-dfw"], "time": START });
    let last_delivery = conditions.iter().any(|reported| reported["reason"] == "Propagated").then_some(last_delivery);
    let reported = json!({ "readyReplicas": 1, "conditions": conditions, "lastDelivery": last_delivery });
    wd.status = serde_json::from_value(reported).unwrap();
    status::judged(wd, START.parse().unwrap())
}

fn trouble(cause: Cause, words: &str, seconds: u64) -> Trouble {
    Trouble { cause, words: words.into(), lasted: Duration::from_secs(seconds) }
}

/// Returns the decision at this number of seconds after the deletion.
fn decide(wd: &WorkloadDeployment, trouble: &Trouble, seconds: i64) -> Decided {
    let now = START.parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(seconds);
    report(wd, (None, CellReport::Unseen), (trouble, None), &Timing::default(), now)
}

/// Returns the condition that is written, and the reason of the Event.
fn reported(plan: &Decided) -> (Option<Value>, Option<String>) {
    let (mut condition, mut event) = (None, None);
    for step in &plan.steps {
        let Step::Local(write) = step else { panic!("nothing is to be written on the hub: {step:?}") };
        match &write.op {
            Op::Apply { body, status: true, .. } => {
                let conditions = body["status"]["conditions"].as_array().unwrap();
                condition = conditions.iter().find(|c| c["type"] == "Federated").cloned();
                let available = conditions.iter().find(|c| c["type"] == "Available").unwrap();
                assert_eq!(available["status"], "True", "running Instances are available");
                assert_eq!(body["status"]["readyReplicas"], 1, "what was last heard stays");
            }
            Op::Create { body, .. } => event = Some(body["reason"].as_str().unwrap().to_owned()),
            other => panic!("{other:?}"),
        }
    }
    (condition, event)
}

const DELIVERED: (&str, &str, &str) = ("True", "Propagated", "Applied on cell-dfw");

/// Asserts that a problem is reported `late`, in seconds, and not `early`.
fn assert_reported_after_its_grace(
    (cause, deleting): (Cause, bool),
    (early, late): (u64, u64),
    (status, text): (&str, &str),
) {
    use Cause::{CopyHeld, NamespaceTerminating, ProjectDenied};
    let wd = deployment(Some(DELIVERED), deleting);
    let held = cause == CopyHeld && deleting;
    // A blocked deletion lasts since the deletion, and every other problem since it was seen.
    let at = |seconds: u64| if held { (0, i64::try_from(seconds).unwrap()) } else { (seconds, 0) };
    let (lasted, now) = at(early);
    let plan = decide(&wd, &trouble(cause, "words", lasted), now);
    assert_eq!(reported(&plan), (None, None), "{cause:?}");
    let Next::After(after) = plan.next else { panic!("no requeue: {cause:?}") };
    assert!(!after.is_zero() && after <= Duration::from_secs(11), "{cause:?}: {after:?}");
    let (lasted, now) = at(late);
    let plan = decide(&wd, &trouble(cause, "words", lasted), now);
    let (condition, event) = reported(&plan);
    let condition = condition.unwrap();
    let reason = cause.reason();
    assert_eq!(
        (&condition["status"], &condition["reason"], &condition["message"]),
        (&json!(status), &json!(reason.as_str()), &json!(text))
    );
    assert_eq!(event.as_deref(), Some(reason.as_str()));
    // The hub's message is read again, and a tenant's grace ends.
    let is_timed = cause == NamespaceTerminating || cause == ProjectDenied && !deleting;
    assert_eq!(plan.next != Next::Await, is_timed, "{:?}", plan.next);
    let remembered =
        plan.signals.iter().any(|s| matches!(s, Signal::Blocked { reason: blocked, .. } if *blocked == reason));
    assert!(remembered, "{:?}", plan.signals);
}

#[test]
fn hub_problem_is_reported_with_its_message_after_its_grace() {
    use Cause::{CopyHeld, NamespaceTerminating, Refused, Unavailable};
    for (cause, deleting, early, late, status, text) in [
        (
            Unavailable,
            false,
            4,
            16,
            "Unknown",
            "status is unknown because the hub does not answer: words; it was last delivered to cell-dfw",
        ),
        (Unavailable, true, 4, 16, "Unknown", "deletion waits for the hub, which does not answer: words"),
        (Refused, false, 4, 5, "False", "the hub refuses this deployment: words; it was last delivered to cell-dfw"),
        (Refused, true, 4, 5, "False", "its copy remains because the hub refuses its removal: words"),
        (
            NamespaceTerminating,
            false,
            4,
            5,
            "False",
            "its namespace on the hub is being deleted, and then recreated: words",
        ),
        (CopyHeld, false, 4, 5, "False", "its copy on the hub is being deleted, and then recreated: words"),
        (CopyHeld, true, 119, 120, "False", "deletion waits until its copy on the hub is deleted: words"),
    ] {
        assert_reported_after_its_grace((cause, deleting), (early, late), (status, text));
    }
}

#[test]
fn problem_in_the_project_is_reported_with_its_party_after_its_grace() {
    use Cause::{ProjectDenied, ProjectForbidden, ProjectRefused};
    for (cause, deleting, text) in [
        (
            ProjectRefused,
            false,
            "the project's API server, or a webhook that it calls, fails what this operator writes on this deployment. Its \
             changes do not reach the hub. Running instances are not affected. The operator retries: words; it was last \
             delivered to cell-dfw",
        ),
        (
            ProjectDenied,
            false,
            "the project's API server rejects what this operator writes on this deployment. Its changes do not reach the \
             hub. Running instances are not affected. Change what it rejects, or ask its owner: words; it was last \
             delivered to cell-dfw",
        ),
        (
            ProjectForbidden,
            false,
            "the project forbids what this operator writes on this deployment. Its changes do not reach the hub. Running \
             instances are not affected. Give the operator the permission: words; it was last delivered to cell-dfw",
        ),
        (
            ProjectDenied,
            true,
            "the project's API server rejects the removal of this operator's finalizer, which blocks deletion: words",
        ),
        (
            ProjectRefused,
            true,
            "the project's API server, or a webhook that it calls, fails the removal of this operator's finalizer, which \
             blocks deletion: words",
        ),
    ] {
        assert_reported_after_its_grace((cause, deleting), (19, 20), ("False", text));
    }
}

#[test]
fn hub_problem_that_does_not_change_is_not_written_again() {
    let stands = |status, reason, message| deployment(Some((status, reason, message)), false);
    let away = "status is unknown because the hub does not answer: one";
    let refused = "the hub refuses this deployment: apply: quota: used 5";
    for (wd, problem, written) in [
        // An outage passes through several errors. A restarted manager remembers none of them.
        (stands("Unknown", "HubUnavailable", away), trouble(Cause::Unavailable, "another", 60), false),
        (stands("Unknown", "HubUnavailable", away), trouble(Cause::Unavailable, "another", 0), false),
        (stands("False", "HubRefused", refused), trouble(Cause::Refused, "apply: quota: used 6", 60), false),
        (stands("False", "HubRefused", refused), trouble(Cause::Refused, "apply: denied by a webhook", 60), true),
    ] {
        let plan = decide(&wd, &problem, 0);
        let (condition, event) = reported(&plan);
        assert_eq!((condition.is_some(), event), (written, None), "{problem:?}");
    }
}

#[test]
fn outage_is_reported_by_deployments_at_different_times() {
    let mut at = Vec::new();
    for n in 0..200 {
        let mut wd = deployment(None, false);
        wd.metadata.uid = Some(format!("{n}-6f1c"));
        let Next::After(after) = decide(&wd, &trouble(Cause::Unavailable, "w", 0), 0).next else { panic!() };
        at.push(after.as_secs());
    }
    for second in 5..15 {
        let together = at.iter().filter(|at| **at == second).count();
        assert!((5..50).contains(&together), "{together} of 200 in second {second}");
    }
    assert!(at.iter().all(|at| (5..15).contains(at)), "within the time that is promised: {at:?}");
}

#[test]
fn last_delivery_is_kept_in_an_outage() {
    let last_delivery = |plan: &Decided| {
        plan.steps.iter().find_map(|step| match step {
            Step::Local(Write { op: Op::Apply { body, status: true, .. }, .. }) => {
                Some(body["status"]["lastDelivery"].clone())
            }
            _ => None,
        })
    };
    let wd = deployment(Some(DELIVERED), false);
    let away = decide(&wd, &trouble(Cause::Unavailable, "words", 60), 60);
    assert_eq!(last_delivery(&away).unwrap(), json!(wd.status.as_ref().unwrap().last_delivery));
    let never = deployment(Some(("False", "NotScheduled", "nowhere")), false);
    let away = decide(&never, &trouble(Cause::Unavailable, "words", 60), 60);
    assert_eq!(last_delivery(&away).unwrap(), Value::Null);
}

#[test]
fn hub_problem_message_is_bounded_and_names_finalizers() {
    let wd = deployment(None, false);
    let (condition, _) = reported(&decide(&wd, &trouble(Cause::Refused, &"ü".repeat(4_000), 60), 0));
    let text = condition.unwrap()["message"].as_str().unwrap().to_owned();
    assert_eq!(text.matches('ü').count(), MAX_WORDS);
    let mut copy = WorkloadDeployment::new("web-dfw", crate::api::compute::WorkloadDeploymentSpec::default());
    copy.metadata.namespace = Some("ns-1".into());
    assert!(copy_words(&copy).contains("has no finalizer"));
    copy.metadata.finalizers = Some(vec!["example.com/a".into(), "example.com/b".into()]);
    assert!(
        copy_words(&copy)
            .starts_with("WorkloadDeployment ns-1/web-dfw has the finalizers example.com/a, example.com/b")
    );
    let namespace: Namespace = serde_json::from_value(json!({
        "metadata": { "name": "ns-1" },
        "status": { "phase": "Terminating", "conditions": [
            { "type": "NamespaceDeletionContentFailure", "status": "False", "message": "fine" },
            { "type": "NamespaceFinalizersRemaining", "status": "True", "message": "some finalizers remain: x in 2" },
        ]},
    }))
    .unwrap();
    assert_eq!(namespace_words(&namespace).unwrap(), "Namespace ns-1: some finalizers remain: x in 2");
    assert_eq!(namespace_words(&Namespace::default()), None);
}

#[test]
fn workload_note_on_an_outage_is_one_for_all_deployments() {
    let away = deployment(Some(("Unknown", "HubUnavailable", "away")), false);
    let refused = deployment(Some(("False", "HubRefused", "refused: quota")), false);
    let fine = deployment(Some(DELIVERED), false);
    let notes_of = |all: &[&WorkloadDeployment]| notes(all.iter().copied());
    assert_eq!(notes_of(&[&fine]), None);
    let once = notes_of(&[&away]).unwrap();
    assert_eq!(notes_of(&[&away, &fine, &away]), Some(once.clone()));
    assert_eq!(notes_of(&[&refused, &away]), Some(format!("{once}; web-dfw: refused: quota")));
}

#[test]
fn denial_by_a_rule_of_the_project_names_the_rule() {
    let words = r#"apply web: admission webhook "guard.example.com" denied the request: not now"#;
    let wd = deployment(Some(DELIVERED), false);
    let (condition, _) = reported(&decide(&wd, &trouble(Cause::ProjectDenied, words, 20), 0));
    let message = condition.unwrap()["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("webhook guard.example.com of the project rejects what this operator writes"),
        "{message}"
    );
    assert!(message.contains(words), "{message}");
}
