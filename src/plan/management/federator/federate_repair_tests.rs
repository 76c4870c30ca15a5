//! Reports of a loss, and its repair.

use super::*;
use crate::{api::compute::WorkloadDeploymentStatus, plan::condition::Verdict};

/// Returns the reasons of the Events that a plan sends.
fn events(plan: &Decided) -> Vec<String> {
    let event = |step: &Step<Project, Hub>| match step {
        Step::Local(Write { op: Op::Create { body, .. }, .. }) => Some(body["reason"].as_str()?.to_owned()),
        _ => None,
    };
    plan.steps.iter().filter_map(event).collect()
}

/// Returns the status that a plan writes.
fn status_of(plan: &Decided) -> Option<Value> {
    plan.steps.iter().find_map(|step| match step {
        Step::Local(Write { op: Op::Apply { body, status: true, .. }, .. }) => Some(body["status"].clone()),
        _ => None,
    })
}

/// Returns the condition `Federated` that a plan writes.
fn federated(plan: &Decided) -> Option<Value> {
    let status = status_of(plan)?;
    status["conditions"].as_array()?.iter().find(|c| c["type"] == meta::condition::FEDERATED).cloned()
}

/// A deployment without a binding for longer than the grace. `status` is its present status.
fn unbound(status: Option<Value>) -> Observed {
    let mut wd = marked();
    wd.status = status.map(|status| serde_json::from_value(status).unwrap());
    let mut copy = copy_of(&marked());
    copy.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    let karmada =
        json!({ "policy_lives": true, "phase": "Dependencies", "binding": null, "attached": {}, "clusters": {} });
    Observed {
        karmada: Some(serde_json::from_value(karmada).unwrap()),
        blocked: Some(Blocked {
            reason: "BindingMissing".into(),
            silence: Some(Absence::Lost),
            elapsed: Duration::from_secs(16),
            repairs: 0,
            repaired_ago: None,
        }),
        ..observed(&wd, Some("n1"), Some(namespace()), Some(copy))
    }
}

/// A status with this condition `Federated`.
fn saying(status: &str, reason: &str, message: &str) -> Value {
    json!({ "conditions": [{
        "type": "Federated", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "1970-01-01T00:00:10Z",
    }]})
}

fn propagated() -> Value {
    let mut status = saying("True", "Propagated", "Applied on cell-dfw");
    status["lastDelivery"] = json!({ "copyUID": "c1", "clusters": ["cell-dfw"], "time": "1970-01-01T00:00:10Z" });
    status
}

#[test]
fn deployment_never_delivered_is_reported_and_not_repaired() {
    let new = unbound(None);
    let first = plan(&new, NOW);
    assert_eq!((touches(&first), events(&first)), (0, Vec::new()), "there may be thousands of them");
    let federated = federated(&first).unwrap();
    assert!(federated["message"].as_str().unwrap().contains("it was never delivered"), "{federated}");
    // After a restart, only the object holds the state. Nothing more happens.
    let again = plan(&unbound(status_of(&first)), NOW);
    assert_eq!(format!("{:?}", again.steps), "[]");
    let Next::After(wait) = again.next else { panic!("{:?}", again.next) };
    assert!(wait < Duration::from_secs(16), "{wait:?}");
}

/// Two thousand deployments were created at once. Each reported after five seconds, by a status and an Event, that Karmada had
/// not got to it. These were half of all writes.
#[test]
fn pending_delivery_is_reported_later_than_a_loss() {
    let after = |seconds, status| {
        let mut pending = unbound(status);
        pending.blocked.as_mut().unwrap().elapsed = Duration::from_secs(seconds);
        let mut copy = (*pending.copy.clone().unwrap()).clone();
        copy.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW - Duration::from_secs(seconds)));
        pending.copy = Some(copy.into());
        plan(&pending, NOW)
    };
    let early = after(6, None);
    assert_eq!((federated(&early), early.next), (None, Next::After(Duration::from_secs(9))));
    assert!(federated(&after(6, Some(propagated()))).is_some(), "what was delivered, and is lost, is reported at once");
    let reason = |plan: &Decided| federated(plan).and_then(|c| Some(c["reason"].as_str()?.to_owned()));
    assert_eq!(reason(&after(15, None)), Some("BindingMissing".to_owned()));
    let repaired = after(600, None);
    assert_eq!((touches(&repaired), events(&repaired)), (1, vec!["Repaired".to_owned()]));
}

#[test]
fn deployment_lost_is_repaired_even_if_reported_before() {
    let lost = unbound(Some(propagated()));
    let first = plan(&lost, NOW);
    assert_eq!((touches(&first), events(&first)), (1, vec!["BindingMissing".to_owned(), "Repaired".to_owned()]));
    // After a restart, the status still has the last delivery.
    let after = plan(&unbound(status_of(&first)), NOW);
    assert_eq!(touches(&after), 1);
    // In the same process, one Event is enough for all repairs.
    let mut again = unbound(status_of(&first));
    again.blocked.as_mut().unwrap().repairs = 1;
    again.blocked.as_mut().unwrap().repaired_ago = Some(Duration::from_secs(5));
    let again = plan(&again, NOW);
    assert_eq!((touches(&again), events(&again)), (1, Vec::new()));
}

#[test]
fn recreated_copy_counts_as_never_delivered() {
    let mut recreated = unbound(Some(propagated()));
    let mut copy = (*recreated.copy.clone().unwrap()).clone();
    copy.metadata.uid = Some("c2".into());
    recreated.copy = Some(copy.clone().into());
    assert_eq!(touches(&plan(&recreated, NOW)), 0);
    // A copy with a report of its cell was delivered, independent of all clocks.
    for (desired_replicas, expected) in [(0, 0), (1, 1)] {
        copy.status = Some(WorkloadDeploymentStatus { desired_replicas, ..WorkloadDeploymentStatus::default() });
        recreated.copy = Some(copy.clone().into());
        assert_eq!(touches(&plan(&recreated, NOW)), expected, "a new object has the status of its definition");
    }
}

/// Karmada took eleven seconds for a copy. The report of the cell then came a moment before the binding, because each has its own
/// watch. The tenant got a warning, and the copy was touched.
#[test]
fn binding_of_a_reported_copy_is_lost_only_if_it_stays_missing() {
    let seen = |absence, seconds| {
        let mut seen = unbound(None);
        let mut copy = (*seen.copy.clone().unwrap()).clone();
        copy.status = Some(WorkloadDeploymentStatus { desired_replicas: 1, ..WorkloadDeploymentStatus::default() });
        seen.copy = Some(copy.into());
        let blocked = seen.blocked.as_mut().unwrap();
        (blocked.silence, blocked.elapsed) = (Some(absence), Duration::from_secs(seconds));
        plan(&seen, NOW)
    };
    let first = seen(Absence::Pending, 11);
    assert_eq!((touches(&first), events(&first)), (0, Vec::new()));
    assert_eq!(federated(&first), None, "{first:?}");
    assert_eq!(first.next, Next::After(Timing::default().delivery_grace));
    let signal = Signal::Blocked { reason: "BindingMissing".into(), silence: Some(Absence::Lost) };
    assert_eq!(first.signals, [signal]);
    let later = seen(Absence::Lost, 5);
    assert_eq!((touches(&later), events(&later)), (1, vec!["BindingMissing".to_owned(), "Repaired".to_owned()]));
}

#[test]
fn silence_of_karmada_sends_one_event_for_all_reasons() {
    let before = saying("False", "NotScheduled", "");
    assert_eq!(events(&plan(&unbound(Some(before)), NOW)), Vec::<String>::new());
}

/// While the copy did not list data that was on the hub, the data was reported as ready, and the earlier state was forgotten.
/// This time is no delay of Karmada's.
#[test]
fn data_not_yet_listed_by_the_copy_is_neither_ready_nor_late() {
    let (wd, mut copy) = (marked(), copy_of(&marked()));
    let data = resolve::Data {
        expected: Some(vec![referenced::DataRef::secret("a"), referenced::DataRef::secret("b")]),
        refers: true,
        ..resolve::Data::default()
    };
    let delivered = Delivery::Delivered { on: vec!["cell-dfw".into()], note: None };
    let waits = Verdict::no(Reason::SourceNotFound, "there is no Secret c");
    for (listed, trouble, expected) in [
        ("[]", None, Some(Reason::Resolving)),
        (r#"["Secret/a"]"#, None, Some(Reason::Resolving)),
        (r#"["Secret/b","Secret/a"]"#, None, None),
        (r#"["Secret/a","Secret/b","Secret/gone"]"#, None, None),
        ("[]", Some(waits), Some(Reason::SourceNotFound)),
    ] {
        copy.annotations_mut().insert(annotation::EXPECTED_REFERENCED_DATA.into(), listed.into());
        let data = resolve::Data { trouble, ..data.clone() }.until_listed_by(&copy);
        assert_eq!(data.trouble.as_ref().map(|trouble| trouble.reason.clone()), expected, "{listed}");
        // This reason is remembered, in a plan without a signal of Karmada's silence.
        let blocker = status::blocker(&wd, Some(&copy), &data, Some(&delivered));
        assert!(blocker == expected.as_ref().map(ToString::to_string) || blocker.as_deref() == Some("NotReported"));
        let overdue = status::Overdue { blocked: false, unheard: false, nowhere: false, is_pending: false };
        let (companions, grace) = (BTreeMap::new(), Timing::default().error_grace);
        let report = CellReport::of(Some(&copy), None);
        let view =
            status::View { deployment: &wd, copy: Some(&copy), report, data: &data, companions: &companions, grace };
        let writes = status::plan(&view, Some(&delivered), overdue, None, NOW).steps;
        let ready = writes.iter().any(|write| format!("{:?}", write.op).contains("Secrets are in place"));
        assert_eq!(ready, expected.is_none(), "{listed}");
    }
}
