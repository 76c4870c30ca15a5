use super::*;
use crate::plan::Op;
use serde_json::Value;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const OFF: Features = Features { networks: false, quota: false, data: false, abandon_claims: false };

fn instance(generation: i64, gates: &[&str], conditions: &Value) -> Instance {
    let gates: Vec<Value> = gates.iter().map(|name| json!({ "name": name })).collect();
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": { "name": "wd-0", "namespace": "ns", "uid": "i0", "resourceVersion": "5", "generation": generation },
        "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [], "controller": { "templateHash": "h", "schedulingGates": gates } },
        "status": { "conditions": conditions },
    }))
    .unwrap()
}

fn condition(type_: &str, status: &str, reason: &str, generation: i64) -> Value {
    json!({ "type": type_, "status": status, "reason": reason, "message": "m", "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn seen(instance: &Instance) -> Judged<'_> {
    Judged { instance, features: OFF, networks: None, location: None, data: None, needed: Vec::new(), suspended: false }
}

/// Applies a write to an Instance.
fn carry_out(instance: &mut Instance, write: Write<Cell>) -> &'static str {
    match write.op {
        Op::Apply { body, status: true, .. } => {
            let new: Vec<Condition> = serde_json::from_value(body["status"]["conditions"].clone()).unwrap();
            let conditions = &mut instance.status.as_mut().unwrap().conditions;
            conditions.retain(|c| new.iter().all(|n| n.type_ != c.type_));
            conditions.extend(new);
            "status"
        }
        Op::Merge { body, .. } => {
            assert_eq!((&body["metadata"]["resourceVersion"], &body["metadata"]["uid"]), (&json!("5"), &json!("i0")));
            let left = serde_json::from_value(body["spec"]["controller"]["schedulingGates"].clone()).unwrap();
            instance.spec.controller.as_mut().unwrap().scheduling_gates = left;
            *instance.metadata.generation.as_mut().unwrap() += 1;
            "gates"
        }
        other => panic!("{other:?}"),
    }
}

/// Plans and applies until there is nothing left to do. Returns the operations.
fn settle(instance: &mut Instance) -> Vec<&'static str> {
    let mut done = Vec::new();
    loop {
        let Some(write) = decide(&seen(instance), NOW).steps.into_iter().next() else { return done };
        done.push(carry_out(instance, write));
        assert!(done.len() < 10, "{done:?}");
    }
}

fn ready_of(instance: &Instance) -> &Condition {
    find(&instance.status.as_ref().unwrap().conditions, "Ready").unwrap()
}

#[test]
fn gates_of_disabled_features_open_on_a_recorded_verdict() {
    let mut object = instance(1, &["Network", "Quota"], &json!([]));
    assert_eq!(settle(&mut object), ["status", "gates", "status"], "verdict, gates, verdict for the new generation");
    assert!(gates(&object).is_empty());
    let quota = find(&object.status.as_ref().unwrap().conditions, "QuotaGranted").unwrap();
    assert_eq!((quota.reason.as_str(), quota.observed_generation), ("QuotaDisabled", Some(2)));
    assert_eq!(ready_of(&object).reason, Reason::PendingProgramming);
}

/// Returns the remaining gates and the reason of `Ready`, once there is nothing left to do.
fn outcome(instance: &Instance, features: Features, networks: Option<&Verdict>) -> (Vec<String>, String) {
    let mut object = instance.clone();
    for _ in 0..5 {
        let steps = decide(&Judged { features, networks: networks.cloned(), ..seen(&object) }, NOW).steps;
        let Some(write) = steps.into_iter().next() else { break };
        carry_out(&mut object, write);
    }
    (gates(&object).iter().map(|g| g.name.clone()).collect(), ready_of(&object).reason.clone())
}

#[test]
fn closed_gates_report_the_worst_reason() {
    const ON: Features = Features { networks: true, quota: true, data: false, abandon_claims: false };
    let gated = |quota: &Value| instance(1, &["Network", "Quota"], &json!([quota]));
    let granted = condition("QuotaGranted", "True", "QuotaAvailable", 1);
    let exceeded = condition("QuotaGranted", "False", "QuotaExceeded", 1);
    let pending = condition("QuotaGranted", "Unknown", "PendingEvaluation", 1);
    let ready = || Some(Verdict::yes(Reason::NetworkReady, ""));
    let waits = |why: &str| Some(Verdict::no(Reason::from(why), "m"));
    for (quota, networks, left, reported) in [
        (&granted, ready(), &[][..], "PendingProgramming"),
        (&granted, waits("NetworkProvisioning"), &["Network", "Quota"], "NetworkProvisioning"),
        (&granted, None, &["Network", "Quota"], "NetworkProvisioning"),
        (&exceeded, ready(), &["Network", "Quota"], "QuotaExceeded"),
        (&pending, ready(), &["Network", "Quota"], "PendingQuota"),
        (&exceeded, waits("NetworkProvisioning"), &["Network", "Quota"], "QuotaExceeded"),
        (&exceeded, waits("NetworkFailedToCreate"), &["Network", "Quota"], "NetworkFailedToCreate"),
    ] {
        let (shut, reason) = outcome(&gated(quota), ON, networks.as_ref());
        assert_eq!((shut.iter().map(String::as_str).collect::<Vec<_>>(), reason.as_str()), (left.to_vec(), reported));
    }
}

#[test]
fn verdict_on_older_generation_opens_no_gate() {
    const QUOTA: Features = Features { networks: false, quota: true, data: false, abandon_claims: false };
    let of =
        |generation| instance(2, &["Quota"], &json!([condition("QuotaGranted", "True", "QuotaAvailable", generation)]));
    assert_eq!(outcome(&of(1), QUOTA, None), (vec!["Quota".to_owned()], "PendingQuota".to_owned()));
    assert_eq!(outcome(&of(2), QUOTA, None).0, Vec::<String>::new());
}

/// An Instance that was made before its cell knew its location never got `spec.location`.
#[test]
fn instance_without_location_gets_it_when_its_gate_opens() {
    let here = |name: &str| Some(LocationReference { name: name.into(), namespace: None });
    let placed = |gates: &[&str], before, networks| {
        let mut object = instance(1, gates, &json!([condition("QuotaGranted", "True", "QuotaDisabled", 1)]));
        object.spec.location = before;
        let features = Features { networks: true, ..OFF };
        let judged = Judged { features, networks, location: here("dfw-1"), ..seen(&object) };
        let Some(Op::Merge { body, .. }) = decide(&judged, NOW).steps.into_iter().next().map(|w| w.op) else {
            return None;
        };
        Some(body["spec"]["location"]["name"].as_str().map(str::to_owned))
    };
    let ready = || Some(Verdict::yes(Reason::NetworkReady, ""));
    assert_eq!(placed(&["Network", "Quota"], None, ready()), Some(Some("dfw-1".into())));
    assert_eq!(placed(&["Network", "Quota"], here("dfw-0"), ready()), Some(None), "it stays");
    assert_eq!(placed(&["Quota"], None, ready()), Some(None), "the networks were judged when that gate was removed");
    assert_eq!(placed(&[], None, ready()), None, "what runs is left alone");
}

#[test]
fn terminating_instance_finalizer_of_go_operator_is_removed() {
    let mut object = instance(1, &[], &json!([]));
    object.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    object.metadata.finalizers = Some(vec![finalizer::INSTANCE.into(), finalizer::QUOTA.into(), "theirs".into()]);
    let left = |object: &Instance, features| {
        let steps = decide(&Judged { features, ..seen(object) }, NOW).steps;
        let Some(Op::Merge { body, .. }) = steps.into_iter().next().map(|w| w.op) else { return None };
        Some(body["metadata"]["finalizers"].clone())
    };
    assert_eq!(left(&object, OFF), Some(json!([finalizer::QUOTA, "theirs"])));
    object.metadata.finalizers = Some(vec![finalizer::QUOTA.into()]);
    assert_eq!(left(&object, Features { quota: true, ..OFF }), None, "its own controller does");
}

/// A cell that lost its credentials for quota released its Instances, and their claims stayed.
#[test]
fn instance_with_claim_is_kept_without_quota_credentials() {
    let old =
        json!([condition("Ready", "True", "Available", 1), condition("QuotaGranted", "True", "QuotaAvailable", 1)]);
    let mut object = instance(1, &[], &old);
    object.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    object.metadata.finalizers = Some(vec![finalizer::QUOTA.into()]);
    let steps = |object: &Instance, features| decide(&Judged { features, ..seen(object) }, NOW).steps;
    let held = steps(&object, OFF);
    let [Write { op: Op::Apply { body, status: true, .. }, .. }] = &held[..] else { panic!("{held:?}") };
    let said: Vec<String> = body["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| format!("{} {}", c["type"].as_str().unwrap(), c["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(
        said,
        ["Ready QuotaMisconfigured", "QuotaGranted QuotaMisconfigured"],
        "both conditions report the reason"
    );
    let message = body["status"]["conditions"][1]["message"].as_str().unwrap();
    assert!(message.contains("quotaKubeconfigPath") && message.contains("discovery.abandonClaims"), "{message}");
    carry_out(&mut object, held.into_iter().next().unwrap());
    assert!(steps(&object, OFF).is_empty(), "once");
    // This status write removed `suspended`, and the Instance started again.
    for suspended in [true, false] {
        let mut stopped = object.clone();
        let status = stopped.status.as_mut().unwrap();
        status.suspended = Some(suspended);
        status.conditions.clear();
        let held = steps(&stopped, OFF);
        let [Write { op: Op::Apply { body, status: true, .. }, .. }] = &held[..] else { panic!("{held:?}") };
        assert_eq!(body["status"]["suspended"], suspended);
    }
    let released = steps(&object, Features { abandon_claims: true, ..OFF });
    let [Write { op: Op::Create { body, .. }, .. }, Write { op: Op::Merge { body: patch, .. }, .. }] = &released[..]
    else {
        panic!("{released:?}")
    };
    assert_eq!(body["reason"], "QuotaClaimOrphaned");
    assert_eq!(patch["metadata"]["finalizers"], json!([]));
}

#[test]
fn gate_of_another_controller_stays_closed() {
    let mut object = instance(1, &["Network", "Quota", "ReferencedData", "Licence"], &json!([]));
    settle(&mut object);
    assert_eq!(gates(&object).iter().map(|g| g.name.as_str()).collect::<Vec<_>>(), ["Licence"]);
    assert_eq!(ready_of(&object).message, "Scheduling gates present: Licence");
}

#[test]
fn ready_follows_the_providers_conditions() {
    for (conditions, status, reason) in [
        (json!([]), ConditionStatus::False, "PendingProgramming"),
        (json!([condition("Programmed", "Unknown", "Pending", 1)]), ConditionStatus::False, "PendingProgramming"),
        (json!([condition("Programmed", "False", "ImageUnavailable", 1)]), ConditionStatus::False, "ImageUnavailable"),
        (json!([condition("Programmed", "True", "Programmed", 1)]), ConditionStatus::False, "Provisioning"),
        (
            json!([condition("Programmed", "True", "Programmed", 1), condition("Available", "False", "Starting", 1)]),
            ConditionStatus::False,
            "Starting",
        ),
        (
            json!([condition("Programmed", "True", "Programmed", 1), condition("Available", "True", "Available", 1)]),
            ConditionStatus::True,
            "Available",
        ),
        // An available Instance is ready, even if other conditions report a problem.
        (
            json!([
                condition("Programmed", "True", "Programmed", 1),
                condition("Available", "True", "Available", 1),
                condition("Custom", "False", "ConfigurationError", 1),
            ]),
            ConditionStatus::True,
            "Available",
        ),
    ] {
        let mut object = instance(1, &[], &conditions);
        settle(&mut object);
        assert_eq!((ready_of(&object).status, ready_of(&object).reason.as_str()), (status, reason), "{conditions}");
    }
}

/// Each case has the conditions of a provider that still tries, and the reason that `Ready` summarizes.
#[test]
fn not_ready_instance_reports_its_worst_condition() {
    const QUOTA: Features = Features { networks: false, quota: true, data: false, abandon_claims: false };
    let tries = condition("Programmed", "Unknown", "ProgrammingInProgress", 1);
    let says = |type_: &str, reason: &str| {
        let mut says = condition(type_, "Unknown", reason, 1);
        says["message"] = json!(reason.to_lowercase());
        says
    };
    for (others, reason) in [
        (vec![], "ProgrammingInProgress"),
        (vec![says("Available", "Starting")], "ProgrammingInProgress"),
        (vec![says("Available", "Pending")], "ProgrammingInProgress"),
        (vec![says("Available", "ImageUnavailable")], "ImageUnavailable"),
        (vec![says("Available", "InstanceCrashing")], "InstanceCrashing"),
        (vec![says("Available", "ConfigurationError")], "ConfigurationError"),
        (vec![says("Available", "Stopped"), says("QuotaGranted", "QuotaExceeded")], "QuotaExceeded"),
        (vec![says("QuotaGranted", "QuotaExceeded"), says("Available", "ImageUnavailable")], "ImageUnavailable"),
        (vec![says("QuotaGranted", "PendingEvaluation"), says("Ready", "SourceNotFound")], "ProgrammingInProgress"),
        (vec![says("QuotaGranted", "QuotaBackendUnavailable")], "ProgrammingInProgress"),
        (vec![says("QuotaGranted", "QuotaNoBudget")], "ProgrammingInProgress"),
    ] {
        let conditions: Vec<Value> = [tries.clone()].into_iter().chain(others).collect();
        let mut object = instance(1, &[], &json!(conditions));
        let plan = decide(&Judged { features: QUOTA, ..seen(&object) }, NOW);
        carry_out(&mut object, plan.steps.into_iter().next().unwrap());
        let ready = ready_of(&object);
        assert_eq!((ready.status, ready.reason.as_str()), (ConditionStatus::False, reason), "{conditions:?}");
        let message = if reason == "ProgrammingInProgress" { "m".to_owned() } else { reason.to_lowercase() };
        assert_eq!(ready.message, message);
    }
}

#[test]
fn data_gate_opens_with_its_data_or_reports_why_not() {
    const DATA: Features = Features { networks: false, quota: false, data: true, abandon_claims: false };
    let object: Instance = serde_json::from_value(json!({
        "metadata": {
            "name": "i", "namespace": "ns-1", "uid": "u", "resourceVersion": "3", "generation": 1,
            "annotations": { annotation::REFERENCED_DATA_GATE_START: "1970-01-01T00:00:00Z" },
        },
        "spec": {
            "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [],
            "controller": { "templateHash": "h", "schedulingGates": [{ "name": gate::REFERENCED_DATA }] },
        },
    }))
    .unwrap();
    let later = Timestamp::from_second(90).unwrap();
    let judge = |verdict: Verdict| decide(&Judged { features: DATA, data: Some(verdict), ..seen(&object) }, later);
    let shut = judge(Verdict::no(Reason::from("AwaitingPropagation"), "waiting for Secret/db to arrive"));
    let Op::Apply { body, .. } = &shut.steps[0].op else { panic!("{shut:?}") };
    let reported = body["status"]["conditions"].as_array().unwrap();
    for type_ in ["ReferencedDataReady", "Ready"] {
        let condition = reported.iter().find(|c| c["type"] == type_).unwrap();
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("AwaitingPropagation")));
        assert_eq!(condition["message"], "waiting for Secret/db to arrive");
    }
    assert_eq!(shut.signals, [Signal::DataTurned { from: String::new(), to: "AwaitingPropagation".into() }]);
    let open = judge(Verdict::yes(Reason::from("Ready"), "All 1 ConfigMaps and Secrets are in place"));
    assert!(matches!(&open.steps[0].op, Op::Merge { body, .. }
        if body["spec"]["controller"]["schedulingGates"] == json!([]) && body["metadata"]["resourceVersion"] == "3"));
    assert_eq!(open.signals, [Signal::WaitedForData(Duration::from_secs(90))]);
}

/// A suspended Instance opens no gate. `suspended` is reset explicitly when it resumes.
#[test]
fn suspended_instance_keeps_its_gates_and_reports_it() {
    let conditions = json!([
        condition("Programmed", "True", "Programmed", 1),
        condition("Available", "True", "Available", 1),
        condition("QuotaGranted", "True", "QuotaDisabled", 1),
    ]);
    for gates in [&["Network", "Quota"][..], &[]] {
        let mut object = instance(1, gates, &conditions);
        let said = |object: &Instance, suspended| {
            let write = decide(&Judged { suspended, ..seen(object) }, NOW).steps.into_iter().next();
            write.map(|write| match write.op {
                Op::Apply { body, status: true, .. } => body["status"].clone(),
                Op::Merge { .. } => json!("gates"),
                other => panic!("{other:?}"),
            })
        };
        let status = said(&object, true).unwrap();
        let ready = |status: &Value| {
            let all = status["conditions"].as_array().unwrap().clone();
            all.into_iter().find(|c| c["type"] == "Ready").unwrap()["reason"].clone()
        };
        assert_eq!((&status["suspended"], ready(&status)), (&json!(true), json!("Suspended")));
        object.status.as_mut().unwrap().suspended = Some(true);
        let status = said(&object, false).unwrap();
        if gates.is_empty() {
            assert_eq!((&status["suspended"], ready(&status)), (&json!(false), json!("Available")));
        } else {
            assert_eq!(status, json!("gates"));
        }
    }
    let mut never = instance(1, &[], &conditions);
    never.status.as_mut().unwrap().suspended = None;
    let Some(Write { op: Op::Apply { body, .. }, .. }) = decide(&seen(&never), NOW).steps.into_iter().next() else {
        panic!()
    };
    assert!(body["status"].get("suspended").is_none(), "never suspended, so not reported");
}

/// The Go operator reports nothing if there is nothing to copy. An Instance with only optional data, all of it missing, waited
/// without end.
#[test]
fn optional_data_unreported_by_go_operator_is_awaited_for_a_limit() {
    let observed = |optional: bool, annotations: Value| {
        let mut object = instance(1, &["ReferencedData"], &json!([]));
        object.spec.runtime = serde_json::from_value(json!({
            "resources": { "instanceType": "t" },
            "sandbox": { "containers": [{ "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "s", "optional": optional } }] }] },
        }))
        .unwrap();
        object.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
        let deployment: WorkloadDeployment = serde_json::from_value(json!({
            "metadata": { "name": "wd", "annotations": annotations },
            "spec": {
                "workloadRef": { "name": "w", "uid": "u" }, "placementName": "p", "cityCode": "DFW",
                "template": { "spec": object.spec }, "scaleSettings": { "minReplicas": 1 },
            },
        }))
        .unwrap();
        Observed {
            instance: object.into(),
            deployment: Some(deployment.into()),
            features: Features { data: true, ..OFF },
            networks: None,
            companions: Some(BTreeSet::new()),
            timing: Timing::default(),
        }
    };
    let opens = |observed: &Observed, second: i64| {
        let plan = plan(observed, Timestamp::from_second(second).unwrap());
        (matches!(plan.steps[0].op, Op::Merge { .. }), plan.next)
    };
    let silent = observed(true, json!({}));
    assert_eq!(opens(&silent, 20), (false, Next::After(Duration::from_secs(40))));
    assert_eq!(opens(&silent, 61), (true, Next::Await));
    for waits in [
        observed(false, json!({})),
        observed(true, json!({ annotation::SOURCE_GENERATION: "1" })),
        observed(true, json!({ annotation::REFERENCED_DATA_ERROR: "{}" })),
    ] {
        assert_eq!(opens(&waits, 61), (false, Next::Await), "{:?}", waits.deployment);
    }
}

/// The cache held the copy of an earlier deployment of the same name, which was deleted with it.
#[test]
fn data_gate_opens_after_a_live_check_of_each_companion() {
    let spec = json!({
        "resources": { "instanceType": "t" },
        "sandbox": { "containers": [{ "name": "c", "image": "i", "envFrom": [
            { "secretRef": { "name": "db" } }, { "configMapRef": { "name": "settings" } },
            { "secretRef": { "name": "extra", "optional": true } },
        ] }] },
    });
    let opens = |gates: &[&str]| {
        let mut object = instance(1, gates, &json!([]));
        object.spec.runtime = serde_json::from_value(spec.clone()).unwrap();
        let annotations = json!({
            annotation::SOURCE_GENERATION: "1",
            annotation::EXPECTED_REFERENCED_DATA: r#"["ConfigMap/settings","Secret/db"]"#,
            annotation::SKIPPED_REFERENCED_DATA: r#"["Secret/extra"]"#,
        });
        let deployment: WorkloadDeployment = serde_json::from_value(json!({
            "metadata": { "name": "wd", "annotations": annotations },
            "spec": {
                "workloadRef": { "name": "w", "uid": "u" }, "placementName": "p", "cityCode": "DFW",
                "template": { "spec": object.spec }, "scaleSettings": { "minReplicas": 1 },
            },
        }))
        .unwrap();
        let observed = Observed {
            instance: object.into(),
            deployment: Some(deployment.into()),
            features: Features { data: true, ..OFF },
            networks: None,
            companions: Some([DataRef::config_map("settings"), DataRef::secret("db")].into()),
            timing: Timing::default(),
        };
        let show = |write: &Write<Cell>| match &write.op {
            Op::ConfirmListed { .. } => format!("list {}", write.object),
            Op::Merge { .. } => "open".to_owned(),
            other => panic!("{other:?}"),
        };
        plan(&observed, NOW).steps.iter().map(show).collect::<Vec<_>>()
    };
    assert_eq!(opens(&["ReferencedData"]), ["list ConfigMap ns/settings", "list Secret ns/db", "open"]);
    assert_eq!(opens(&["Network"]), ["open"], "one that was made without the gate");
}

/// A second manager without quota access opened the gate of the first one, which had made no claim.
#[test]
fn quota_disabled_condition_opens_no_gate_on_cell_with_quota() {
    let object = |reason| instance(1, &["Quota"], &json!([condition("QuotaGranted", "True", reason, 1)]));
    let quota = Features { quota: true, ..OFF };
    for (reason, features, opens) in
        [("QuotaDisabled", quota, false), ("QuotaAvailable", quota, true), ("QuotaDisabled", OFF, true)]
    {
        let object = object(reason);
        let steps = decide(&Judged { features, ..seen(&object) }, NOW).steps;
        assert_eq!(matches!(&steps[0].op, Op::Merge { .. }), opens, "{reason} {features:?}");
    }
}

/// If the cell refused to open a gate, only a log line reported it.
#[test]
fn refused_gate_opening_is_reported_after_a_delay() {
    let object = instance(1, &["Quota"], &json!([condition("QuotaGranted", "True", "QuotaDisabled", 1)]));
    let observed = Observed {
        instance: object.clone().into(),
        deployment: None,
        features: OFF,
        networks: None,
        companions: None,
        timing: Timing::default(),
    };
    let open = decide(&seen(&object), NOW).steps.remove(0);
    let failure = |seconds| Failure { words: "no".into(), is_final: false, lasted: Duration::from_secs(seconds) };
    assert!(refused(&observed, &open, &failure(19), NOW).is_none(), "it may pass");
    let told = refused(&observed, &open, &failure(20), NOW).unwrap();
    let mut said = object;
    carry_out(&mut said, told.clone());
    assert_eq!((&*ready_of(&said).reason, ready_of(&said).status), ("InstanceRefused", ConditionStatus::False));
    assert!(find(&said.status.as_ref().unwrap().conditions, "QuotaGranted").is_some());
    assert!(refused(&observed, &told, &failure(20), NOW).is_none(), "a refused status is not reported");
}
