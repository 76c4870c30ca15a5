//! Problems of the hub are reported, and nothing is written there.

use std::time::Duration;

use super::*;
use crate::plan::management::federator::hub_trouble::namespace_words;

/// Returns the reason of `Federated` in these steps, and true if anything is written to the hub.
fn federated(plan: &Decided) -> (Option<String>, bool) {
    let mut reasons = plan.steps.iter().filter_map(|step| match step {
        Step::Local(Write { op: Op::Apply { body, status: true, .. }, .. }) => {
            let conditions = body["status"]["conditions"].as_array()?;
            Some(conditions.iter().find(|c| c["type"] == "Federated")?["reason"].as_str()?.to_owned())
        }
        _ => None,
    });
    let remote = plan.steps.iter().any(|step| matches!(step, Step::Remote(_)));
    (reasons.next_back(), remote)
}

fn outage(blind: bool) -> Outage {
    Outage { words: "workloaddeployments in hub: refused".into(), lasted: Duration::from_mins(1), blind }
}

#[test]
fn hub_that_is_away_is_reported_and_not_written() {
    for wd in [deployment(), marked(), deleting()] {
        let observed = Observed { outage: Some(outage(true)), ..observed(&wd, Some("n1"), None, None) };
        assert_eq!(federated(&plan(&observed, NOW)), (Some("HubUnavailable".into()), false));
        let record: Observed = serde_json::from_value(json!(observed)).unwrap();
        assert_eq!(record, observed, "decided again from its record");
    }
    // Only bindings cannot be seen. New copies are written to the hub, and their delivery is unknown.
    let wd = marked();
    let seen = Observed { outage: Some(outage(false)), ..observed(&wd, Some("n1"), Some(namespace()), None) };
    assert_eq!(federated(&plan(&seen, NOW)), (Some("HubUnavailable".into()), true));
    // Its namespace was recorded nowhere, so nothing can be on the hub.
    let mut never = deleting();
    never.annotations_mut().remove(annotation::FEDERATION_NAMESPACE);
    let never = Observed { outage: Some(outage(true)), ..observed(&never, None, None, None) };
    assert!(matches!(&plan(&never, NOW).steps[..], [Step::Local(Write { op: Op::Merge { .. }, .. })]));
}

#[test]
fn copy_or_namespace_held_on_the_hub_is_reported() {
    let lasting = |reason: &str, seconds| {
        let elapsed = Duration::from_secs(seconds);
        Some(Blocked { reason: reason.into(), silence: None, elapsed, repairs: 0, repaired_ago: None })
    };
    let held = |wd: &WorkloadDeployment| {
        let mut copy = copy_of(&marked());
        copy.metadata.deletion_timestamp =
            wd.metadata.deletion_timestamp.clone().or_else(|| deleting().metadata.deletion_timestamp);
        copy.metadata.finalizers = Some(vec!["example.com/hold".into()]);
        observed(wd, Some("n1"), Some(namespace()), Some(copy))
    };
    let at = |seconds| NOW + jiff::SignedDuration::from_secs(seconds);
    let living = Observed { blocked: lasting("HubCopyHeld", 6), ..held(&marked()) };
    assert_eq!(federated(&plan(&living, NOW)).0.as_deref(), Some("HubCopyHeld"));
    let fresh = plan(&held(&marked()), NOW);
    assert_eq!((federated(&fresh), fresh.next), ((None, false), Next::After(Timing::default().delivery_grace)));
    let going = held(&deleting());
    assert_eq!(federated(&plan(&going, at(100))), (None, false), "it may take its time");
    assert_eq!(plan(&going, at(100)).next, Next::After(Duration::from_secs(20)));
    assert_eq!(federated(&plan(&going, at(121))), (Some("HubCopyHeld".into()), false));

    let terminating = NamespaceFacts { terminating: true, ..namespace() };
    let wd = marked();
    let mut leaving = observed(&wd, Some("n1"), Some(terminating), None);
    assert_eq!(federated(&plan(&leaving, NOW)), (None, false));
    leaving.blocked = lasting("HubNamespaceTerminating", 6);
    leaving.blocked = lasting("HubNamespaceTerminating", 4);
    assert!(!hub_trouble::is_namespace_overdue(&leaving), "its API server is not asked why");
    leaving.blocked = lasting("HubNamespaceTerminating", 6);
    assert!(hub_trouble::is_namespace_overdue(&leaving), "its API server is asked why");
    leaving.namespace_words = namespace_words(&Namespace::default()).or(Some("held by x".into()));
    let told = plan(&leaving, NOW);
    assert_eq!(federated(&told), (Some("HubNamespaceTerminating".into()), false));
}

/// One project's control plane was made from another's data. Both wrote to one hub namespace, and the Secrets of one reached the
/// containers of the other.
#[test]
fn hub_namespace_of_a_rival_is_not_written() {
    let blocked = Blocked {
        reason: "HubRefused".into(),
        silence: None,
        elapsed: Duration::from_secs(6),
        repairs: 0,
        repaired_ago: None,
    };
    let decided = |wd: &WorkloadDeployment, rival| {
        let seen = observed(wd, Some("n1"), Some(namespace()), Some(copy_of(&marked())));
        plan(&Observed { rival: Some(rival), blocked: Some(blocked.clone()), ..seen }, NOW)
    };
    for rival in [Rival::Lives, Rival::Possible] {
        for wd in [deployment(), marked()] {
            assert_eq!(federated(&decided(&wd, rival)), (Some("HubRefused".into()), false), "{rival:?}");
        }
    }
    let released = decided(&deleting(), Rival::Lives);
    assert!(matches!(&released.steps[..], [Step::Local(Write { op: Op::Merge { .. }, .. })]), "{released:?}");
    let waits = decided(&deleting(), Rival::Possible);
    assert!(
        !waits
            .steps
            .iter()
            .any(|step| matches!(step, Step::Remote(_) | Step::Local(Write { op: Op::Merge { .. }, .. })))
    );
}

/// On a rebuilt hub, two projects with a namespace of one uid both found none there. The forced write of the second one took over
/// the namespace, which held the first one's Secrets.
#[test]
fn hub_namespace_is_created_or_written_only_after_a_live_read() {
    let named = |project: &str| {
        let labels = [(label::UPSTREAM_CLUSTER, project), (label::UPSTREAM_NAMESPACE, "shop")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        NamespaceFacts { labels, ..NamespaceFacts::default() }
    };
    let decided = |facts: Option<NamespaceFacts>, version: Option<&str>| {
        let seen = observed(&marked(), Some("n1"), facts, None);
        let version = version.map(|version| ObjectVersion::new("n", version));
        plan(&Observed { hub_namespace_version: version, ..seen }, NOW)
    };
    let of_namespace = |decided: &Decided| {
        let hub =
            decided.steps.iter().filter_map(|step| if let Step::Remote(write) = step { Some(write) } else { None });
        hub.filter(|write| write.object.name == "ns-n1").map(|write| write.op.clone()).next()
    };
    let made = of_namespace(&decided(None, None));
    assert!(matches!(made, Some(Op::Create { .. })), "the second project finds it: {made:?}");
    let ours = of_namespace(&decided(Some(named("cluster-single")), None));
    assert!(matches!(ours, Some(Op::Apply { .. })), "what was taken off it comes back: {ours:?}");
    for facts in [named("cluster-other"), NamespaceFacts::default()] {
        let unread = of_namespace(&decided(Some(facts.clone()), None));
        assert!(matches!(unread, Some(Op::Create { .. })), "the hub refuses it, and the namespace is read: {unread:?}");
        let taken = of_namespace(&decided(Some(facts), Some("7")));
        let Some(Op::Merge { body, .. }) = &taken else { panic!("{taken:?}") };
        assert_eq!((&body["metadata"]["resourceVersion"], &body["metadata"]["uid"]), (&json!("7"), &json!("n")));
        assert_eq!(body["metadata"]["labels"][label::UPSTREAM_CLUSTER], "cluster-single");
    }
}

/// The project rejected the operator's mark on a deployment. Status and Event of the same plan were never sent, and nothing
/// reported why a change did not reach the hub.
#[test]
fn mark_rejected_by_the_project_is_reported_with_the_state_of_data() {
    let mut wd = marked();
    wd.spec.template.spec.runtime = serde_json::from_value(json!({
        "resources": { "instanceType": "t" },
        "sandbox": { "containers": [{ "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "db" } }] }] },
    }))
    .unwrap();
    let data = resolve::View {
        sources: [(referenced::DataRef::secret("db"), resolve::Source::Absent)].into(),
        ..resolve::View::default()
    };
    let observed = Observed { data, ..observed(&wd, Some("n1"), Some(namespace()), Some(copy_of(&marked()))) };
    assert!(matches!(&plan(&observed, NOW).steps[0], Step::Local(write) if !write.reports()), "the mark is due");
    let reported = |seconds| {
        hub_trouble::project_refused(
            &observed,
            (hub_trouble::Cause::ProjectRefused, "it answers with HTTP 500".into()),
            Duration::from_secs(seconds),
            NOW,
        )
    };
    assert!(reported(19).is_none(), "within the grace the report of the plan is sent as it is");
    let reported = reported(20).unwrap();
    assert_eq!(federated(&reported), (Some("ProjectRefused".into()), false));
    let text = format!("{:?}", reported.steps);
    assert!(text.contains("SourceNotFound") && text.contains("it answers with HTTP 500"), "{text}");
}

#[test]
fn instance_not_shown_by_the_project_is_a_note_on_the_delivery() {
    let words = "it answers with HTTP 500".to_owned();
    let note = Unshown { first: "web-p-dfw-0".into(), count: 3, words }.note();
    assert_eq!(note.reason, Reason::InstancesNotShown);
    assert!(note.message.contains("Instance web-p-dfw-0 and 2 more") && note.message.ends_with("HTTP 500"), "{note:?}");
}
