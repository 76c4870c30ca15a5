//! What a federator says of a loss, and when it repairs it.

use super::*;

/// The Events that a plan sends, by reason.
fn events(plan: &Decided) -> Vec<String> {
    let event = |step: &Step<Project, Hub>| match step {
        Step::Local(Write { op: Op::Create { body, .. }, .. }) => Some(body["reason"].as_str()?.to_owned()),
        _ => None,
    };
    plan.steps.iter().filter_map(event).collect()
}

/// The status that a plan writes.
fn status_of(plan: &Decided) -> Option<Value> {
    plan.steps.iter().find_map(|step| match step {
        Step::Local(Write { op: Op::Apply { body, status: true, .. }, .. }) => Some(body["status"].clone()),
        _ => None,
    })
}

/// What a plan has `Federated` say.
fn federated(plan: &Decided) -> Option<Value> {
    let status = status_of(plan)?;
    status["conditions"].as_array()?.iter().find(|of| of["type"] == condition::FEDERATED).cloned()
}

/// A deployment that has no binding, for longer than the grace; `status` is what it has until now.
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
            silent: false,
            elapsed: Duration::from_secs(16),
            repairs: 0,
            repaired_ago: None,
        }),
        ..observed(&wd, Some("n1"), Some(namespace()), Some(copy))
    }
}

/// A status whose condition `Federated` is this one.
fn saying(status: &str, reason: &str, message: &str) -> Value {
    json!({ "conditions": [{
        "type": "Federated", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "1970-01-01T00:00:10Z",
    }]})
}

fn propagated() -> Value {
    let mut status = saying("True", "Propagated", "cell-dfw has what the hub was given");
    status["lastDelivery"] = json!({ "copyUID": "c1", "clusters": ["cell-dfw"], "time": "1970-01-01T00:00:10Z" });
    status
}

#[test]
fn what_was_never_delivered_is_told_and_not_touched() {
    let new = unbound(None);
    let first = plan(&new, NOW);
    assert_eq!((touches(&first), events(&first)), (0, Vec::new()), "there may be thousands of them");
    let federated = federated(&first).unwrap();
    assert!(federated["message"].as_str().unwrap().contains("it has not been there before"), "{federated}");
    // A restart later, with all forgotten but what the object says: nothing more happens.
    let again = plan(&unbound(status_of(&first)), NOW);
    assert_eq!(format!("{:?}", again.steps), "[]");
    let Next::After(look) = again.next else { panic!("{:?}", again.next) };
    assert!(look < Duration::from_secs(16), "{look:?}");
}

/// Measured: of two thousand deployments made at once, each reported after five seconds that Karmada had not got to it, by
/// a status and an Event; those were half of all writes.
#[test]
fn pending_delivery_is_reported_later_than_a_loss() {
    let after = |seconds, status| {
        let mut of = unbound(status);
        of.blocked.as_mut().unwrap().elapsed = Duration::from_secs(seconds);
        plan(&of, NOW)
    };
    let early = after(6, None);
    assert_eq!((federated(&early), early.next), (None, Next::After(Duration::from_secs(9))));
    assert!(federated(&after(6, Some(propagated()))).is_some(), "what was delivered, and is lost, is reported at once");
    let reason = |plan: &Decided| federated(plan).and_then(|of| Some(of["reason"].as_str()?.to_owned()));
    assert_eq!(reason(&after(15, None)), Some("BindingMissing".to_owned()));
    let repaired = after(600, None);
    assert_eq!((touches(&repaired), events(&repaired)), (1, vec!["Repaired".to_owned()]));
}

#[test]
fn what_was_delivered_is_touched_also_when_its_loss_has_been_told() {
    let lost = unbound(Some(propagated()));
    let first = plan(&lost, NOW);
    assert_eq!((touches(&first), events(&first)), (1, vec!["BindingMissing".to_owned(), "Repaired".to_owned()]));
    // A restart later: the status has the last delivery still.
    let after = plan(&unbound(status_of(&first)), NOW);
    assert_eq!(touches(&after), 1);
    // In the same process: one Event is enough, however often it is touched.
    let mut again = unbound(status_of(&first));
    again.blocked.as_mut().unwrap().repairs = 1;
    again.blocked.as_mut().unwrap().repaired_ago = Some(Duration::from_secs(5));
    let again = plan(&again, NOW);
    assert_eq!((touches(&again), events(&again)), (1, Vec::new()));
}

#[test]
fn a_copy_that_was_made_anew_was_never_delivered() {
    let mut anew = unbound(Some(propagated()));
    let mut copy = (*anew.copy.clone().unwrap()).clone();
    copy.metadata.uid = Some("c2".into());
    anew.copy = Some(copy.clone().into());
    assert_eq!(touches(&plan(&anew, NOW)), 0);
    // But for one that a cell has reported on, whatever the clocks say.
    copy.status = Some(WorkloadDeploymentStatus::default());
    anew.copy = Some(copy.into());
    assert_eq!(touches(&plan(&anew, NOW)), 1);
}

#[test]
fn karmadas_silence_is_one_event_however_many_steps_it_goes_through() {
    let before = saying("False", "NotScheduled", "");
    assert_eq!(events(&plan(&unbound(Some(before)), NOW)), Vec::<String>::new());
}

/// Seen: between the moment in which all data was on the hub and that in which the copy listed it, the tenant was told that it was
/// ready, and what had been known of the time before was forgotten. It is no slowness of Karmada's.
#[test]
fn data_that_the_copy_is_still_to_list_is_neither_ready_nor_late() {
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
        // That is what is remembered, in a plan that says nothing of Karmada's silence.
        let blocker = status::blocker(&wd, Some(&copy), &data, Some(&delivered));
        assert!(blocker == expected.as_ref().map(ToString::to_string) || blocker.as_deref() == Some("NotReported"));
        let overdue = status::Overdue { blocked: false, unheard: false, nowhere: false, is_pending: false };
        let companions = BTreeMap::new();
        let view = status::View { deployment: &wd, copy: Some(&copy), data: &data, companions: &companions };
        let said = status::plan(&view, Some(&delivered), overdue, None, NOW);
        let ready = said.iter().any(|write| format!("{:?}", write.op).contains("are materialised"));
        assert_eq!(ready, expected.is_none(), "{listed}");
    }
}
