use super::*;
use crate::{
    api::{
        meta::{gate, label},
        names::ProjectName,
    },
    plan::{
        Op,
        cell::{claim::Names, reclaim},
        recorded::recorded,
    },
};
use serde_json::Value;

const CLUSTER: &str = "dfw-1";
const CELL_UID: &str = "uid-of-dfw";

fn cell() -> Identity {
    Identity { uid: CELL_UID.into(), names: Names { current: CLUSTER.into(), former: ["before".into()].into() } }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn instance(edit: impl FnOnce(&mut Value)) -> Instance {
    let mut object = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": {
            "name": "wd-0", "namespace": "ns-1", "uid": "i", "resourceVersion": "5", "generation": 3,
            "finalizers": [finalizer::QUOTA], "creationTimestamp": at(0).to_string(),
        },
        "spec": { "runtime": { "resources": { "instanceType": "datumcloud/d1-standard-2" } }, "networkInterfaces": [] },
        "status": { "conditions": [] },
    });
    edit(&mut object);
    serde_json::from_value(object).unwrap()
}

fn claim(edit: impl FnOnce(&mut Value)) -> Claim {
    let mut object = json!({
        "apiVersion": "quota.miloapis.com/v1alpha1", "kind": "ResourceClaim",
        "metadata": {
            "name": "instance-wd-0", "namespace": "default", "uid": "c", "resourceVersion": "9",
            "generation": 1, "creationTimestamp": at(0).to_string(),
            "labels": { label::SOURCE_CLUSTER: CLUSTER, label::CELL_UID: CELL_UID, label::INSTANCE_NAMESPACE: "ns-1" },
        },
        "spec": {
            "consumerRef": { "apiGroup": "g", "kind": "Project", "name": "shop" },
            "requests": [
                { "resourceType": "compute.datumapis.com/memory", "amount": 2048 },
                { "resourceType": "compute.datumapis.com/vcpus", "amount": 1000 },
                { "resourceType": "compute.datumapis.com/instances", "amount": 1 },
            ],
        },
    });
    edit(&mut object);
    Claim::Present(serde_json::from_value(object).unwrap())
}

/// Returns the writes for a claim without its Instance.
fn reclaim(claim: Shared<ResourceClaim>) -> Vec<Step<Cell, Project>> {
    let instance = Object::named::<Instance>("ns-1", "wd-0");
    let observed = reclaim::Observed { claim, cell: cell(), instance };
    let (decided, again) = (reclaim::plan(&observed, at(0)), reclaim::plan(&recorded(&observed), at(0)));
    assert_eq!(format!("{decided:?}"), format!("{again:?}"), "decided again from its record");
    decided.steps
}

fn granted(status: &str, reason: &str) -> Value {
    json!({ "conditions": [{ "type": "Granted", "status": status, "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" }] })
}

fn unknown(cause: Cause) -> Claim {
    Claim::Unknown(Trouble { cause, message: "no answer".into() })
}

type Decision = Plan<Step<Cell, Project>, Signal>;

fn observed(instance: &Instance, claim: Claim, watched: bool) -> Observed {
    let address = Address { project: ProjectName::new("shop"), namespace: "default".into() };
    let instance = instance.clone().into();
    Observed { instance, address: Some(address), claim, watched, cell: cell(), timing: Timing::default() }
}

fn decide(instance: &Instance, claim: Claim, second: i64) -> Decision {
    plan(&observed(instance, claim, true), at(second))
}

/// Decides while no watch shows the changes of the claim.
fn decide_unwatched(instance: &Instance, claim: Claim, second: i64) -> Decision {
    plan(&observed(instance, claim, false), at(second))
}

fn failure_of(decision: &Decision) -> Option<&'static str> {
    decision.signals.iter().find_map(|signal| match signal {
        Signal::Failed(cause) => Some(cause.label()),
        Signal::Orphaned => None,
    })
}

fn orphaned(decision: &Decision) -> bool {
    decision.signals.contains(&Signal::Orphaned)
}

/// Returns the condition that a decision writes, and its other calls in order.
fn reported(decision: &Decision) -> (String, Vec<String>) {
    let mut reason = String::new();
    let mut calls = Vec::new();
    for step in &decision.steps {
        match step {
            Step::Local(Write { op: Op::Apply { body, status: true, .. }, .. }) => {
                let condition = &body["status"]["conditions"][0];
                reason = format!("{} {}", condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap());
                assert_eq!(condition["observedGeneration"], 3);
            }
            Step::Local(write) => calls.push(format!("{} {}", call(&write.op), write.object.kind.gvk().1)),
            Step::Remote(write) => calls.push(format!("{} {}", call(&write.op), write.object)),
        }
    }
    (reason, calls)
}

fn call(op: &Op) -> &'static str {
    match op {
        Op::Create { .. } => "create",
        Op::Apply { .. } => "apply",
        Op::Merge { .. } => "patch",
        Op::Delete { .. } => "delete",
        Op::ConfirmAbsent | Op::ConfirmGone { .. } => "confirm absent",
        Op::TakeOver { .. } => "take over",
        Op::ConfirmPresent { .. } | Op::ConfirmListed { .. } => "confirm present",
        Op::ConfirmUnchanged { .. } => "confirm unchanged",
    }
}

#[test]
fn quota_each_answer_and_failure_has_its_reason() {
    let fresh = |edit: Value| claim(move |c| c["status"] = edit);
    for (name, claim, second, reason, failure) in [
        ("not evaluated", claim(|_| ()), 1, "Unknown PendingEvaluation", None),
        ("default", fresh(granted("False", "PendingEvaluation")), 1, "Unknown PendingEvaluation", None),
        (
            "not evaluated for long",
            fresh(granted("False", "PendingEvaluation")),
            60,
            "Unknown QuotaNoBudget",
            Some("no_budget"),
        ),
        ("granted", fresh(granted("True", "QuotaAvailable")), 1, "True QuotaAvailable", None),
        ("exceeded", fresh(granted("False", "QuotaExceeded")), 1, "False QuotaExceeded", None),
        ("invalid", fresh(granted("False", "ValidationFailed")), 1, "False ValidationFailed", None),
        ("away", unknown(Cause::Unavailable), 1, "False QuotaBackendUnavailable", Some("backend_unavailable")),
        ("no project", unknown(Cause::NoProject), 1, "False QuotaProjectNotFound", Some("project_not_found")),
        ("no namespace", unknown(Cause::NoNamespace), 1, "False QuotaNamespaceNotFound", Some("namespace_not_found")),
        ("forbidden", unknown(Cause::Misconfigured), 1, "False QuotaMisconfigured", Some("misconfigured")),
        (
            "no labels",
            unknown(Cause::Unresolvable),
            1,
            "False QuotaProjectIDUnresolvable",
            Some("project_id_unresolvable"),
        ),
    ] {
        let decision = decide(&instance(|_| ()), claim, second);
        assert_eq!((reported(&decision), failure_of(&decision)), ((reason.to_owned(), vec![]), failure), "{name}");
    }
    // A result for an older generation of the claim does not count.
    let older = claim(|c| {
        c["metadata"]["generation"] = json!(2);
        c["status"] = granted("True", "QuotaAvailable");
        c["status"]["conditions"][0]["observedGeneration"] = json!(1);
    });
    assert_eq!(reported(&decide(&instance(|_| ()), older, 1)).0, "Unknown PendingEvaluation");
}

#[test]
fn quota_pending_evaluation_is_not_rewritten() {
    let waiting = json!([{ "type": "QuotaGranted", "status": "Unknown", "reason": "PendingEvaluation", "message": "Waiting for quota evaluation", "lastTransitionTime": "1970-01-01T00:00:00Z" }]);
    let born = instance(|i| i["status"]["conditions"] = waiting);
    assert_eq!(
        reported(&decide(&born, Claim::Absent, 1)),
        (String::new(), vec!["create ResourceClaim default/instance-wd-0".into()])
    );
    assert_eq!(reported(&decide(&born, claim(|_| ()), 1)), (String::new(), vec![]));
    assert_eq!(
        reported(&decide(&born, claim(|c| c["status"] = granted("True", "QuotaAvailable")), 1)).0,
        "True QuotaAvailable"
    );
}

#[test]
fn claim_is_created_only_after_the_finalizer() {
    // If a webhook removed the finalizer, the claim was still created.
    let bare = instance(|i| i["metadata"]["finalizers"] = json!([]));
    assert_eq!(
        reported(&decide(&bare, Claim::Absent, 1)),
        ("Unknown PendingEvaluation".into(), vec!["apply Instance".into()])
    );
    let decision = decide(&instance(|_| ()), Claim::Absent, 1);
    let (reason, calls) = reported(&decision);
    assert_eq!(reason, "Unknown PendingEvaluation");
    assert_eq!(calls, ["create ResourceClaim default/instance-wd-0"], "stamped at birth");
    let Step::Remote(Write { op: Op::Create { body, .. }, .. }) = &decision.steps[0] else { panic!() };
    let project = json!({ "apiGroup": "resourcemanager.miloapis.com", "kind": "Project", "name": "shop" });
    assert_eq!((&body["spec"]["consumerRef"], &body["spec"]["resourceRef"]), (&project, &project));
    assert_eq!(
        body["metadata"]["labels"],
        json!({ label::SOURCE_CLUSTER: CLUSTER, label::CELL_UID: CELL_UID, label::INSTANCE_NAMESPACE: "ns-1" })
    );
    // An Instance from a time without the finalizer gets it now.
    assert_eq!(reported(&decide(&bare, claim(|_| ()), 1)).1, ["apply Instance"]);
}

/// The claim of an Instance that has passed its gate is never recreated, however its amounts are counted now: the Instance runs
/// on that grant. Before the gate, a grant for other amounts does not count. An earlier Instance of the name may have left it, or
/// the template has changed.
#[test]
fn grant_for_other_amounts_counts_only_for_running_instance() {
    let bigger = |gates: &[&str]| {
        let gates: Vec<Value> = gates.iter().map(|name| json!({ "name": name })).collect();
        instance(|i| {
            i["spec"]["controller"] = json!({ "templateHash": "h", "schedulingGates": gates });
            i["spec"]["runtime"]["sandbox"] = json!({ "containers": [
                { "name": "a", "image": "i", "resources": { "limits": { "cpu": "1500m", "memory": "1Gi" } } },
                { "name": "b", "image": "i", "resources": { "limits": { "cpu": "2", "memory": "100M" } } },
            ]});
        })
    };
    let granted = || claim(|c| c["status"] = granted("True", "QuotaAvailable"));
    for gates in [&[][..], &["Network"]] {
        assert_eq!(
            reported(&decide(&bigger(gates), granted(), 1)),
            ("True QuotaAvailable".into(), vec![]),
            "{gates:?}"
        );
    }
    let waits = bigger(&["Network", "Quota"]);
    assert_eq!(
        reported(&decide(&waits, granted(), 1)),
        ("Unknown PendingEvaluation".into(), REMOVAL.map(str::to_owned).into())
    );
    let same = instance(|i| {
        i["spec"]["controller"] = json!({ "templateHash": "h", "schedulingGates": [{ "name": "Quota" }] });
    });
    assert_eq!(reported(&decide(&same, granted(), 1)).0, "True QuotaAvailable");
    let leaving = claim(|c| c["metadata"]["deletionTimestamp"] = json!(at(1).to_string()));
    assert_eq!(reported(&decide(&waits, leaving, 1)).1, Vec::<String>::new());
}

/// Calls of a deletion. Without the confirmation, a new leader with an old cache would delete the claim that the present Instance
/// runs on.
const REMOVAL: [&str; 2] = ["confirm unchanged Instance", "delete ResourceClaim default/instance-wd-0"];

#[test]
fn claim_unwatched_is_read_again_until_granted() {
    let second = Next::After(Duration::from_secs(1));
    let living = instance(|_| ());
    let with = |status: Value| claim(move |c| c["status"] = status);
    assert_eq!(decide_unwatched(&living, with(granted("False", "QuotaExceeded")), 1).next, second);
    assert_eq!(decide_unwatched(&living, with(granted("True", "QuotaAvailable")), 1).next, Next::Await);
    assert_eq!(decide_unwatched(&living, Claim::Absent, 1).next, second);
}

/// A ten-minute-old Instance with an unwatched claim kept its name for five minutes after the claim was deleted.
#[test]
fn deleted_instance_unwatched_claim_is_released_in_one_plan() {
    let leaving = instance(|i| i["metadata"]["deletionTimestamp"] = json!(at(3600).to_string()));
    let gone = ["confirm absent ResourceClaim default/instance-wd-0", "patch Instance"];
    let unwatched = decide_unwatched(&leaving, claim(|_| ()), 3601);
    assert_eq!(reported(&unwatched).1, [REMOVAL, gone].concat());
    assert_eq!(unwatched.next, Next::After(Duration::from_secs(1)), "where something else holds the claim");
    let terminating = || claim(|c| c["metadata"]["deletionTimestamp"] = json!(at(3600).to_string()));
    let held = decide_unwatched(&leaving, terminating(), 3601);
    assert_eq!((reported(&held).1, held.next), (vec![], Next::After(Duration::from_secs(1))));
    let watched = decide(&leaving, claim(|_| ()), 3601);
    assert_eq!((reported(&watched).1, watched.next), (REMOVAL.map(str::to_owned).into(), Next::Await));
}

#[test]
fn deleted_instance_waits_for_claim_release_until_time_limit() {
    let leaving = instance(|i| i["metadata"]["deletionTimestamp"] = json!(at(0).to_string()));
    let hours = 3600;
    for (name, claim, second, calls, orphans) in [
        ("there", claim(|_| ()), 1, &REMOVAL[..], false),
        ("terminating", claim(|c| c["metadata"]["deletionTimestamp"] = json!(at(0).to_string())), 1, &[], false),
        ("gone", Claim::Absent, 1, &["confirm absent ResourceClaim default/instance-wd-0", "patch Instance"], false),
        ("away", unknown(Cause::Unavailable), hours, &[], false),
        ("away for too long", unknown(Cause::Unavailable), 2 * hours, &["create Event", "patch Instance"], true),
        ("namespace gone", unknown(Cause::NoNamespace), 1, &["patch Instance"], false),
        ("project not known", unknown(Cause::NoProject), 60, &[], false),
        ("no longer named", unknown(Cause::Unresolvable), 60, &[], false),
        ("project gone", unknown(Cause::NoProject), 120, &["create Event", "patch Instance"], true),
    ] {
        let decision = decide(&leaving, claim, second);
        let wanted: Vec<String> = calls.iter().map(ToString::to_string).collect();
        assert_eq!((reported(&decision).1, orphaned(&decision)), (wanted, orphans), "{name}");
    }
    let free = instance(|i| {
        i["metadata"]["deletionTimestamp"] = json!(at(0).to_string());
        i["metadata"]["finalizers"] = json!(["theirs"]);
    });
    assert!(decide(&free, claim(|_| ()), 1).steps.is_empty());
}

#[test]
fn address_is_read_from_namespace_labels() {
    let labels = |cluster: &str, namespace: &str| {
        [
            (label::UPSTREAM_CLUSTER.to_owned(), cluster.to_owned()),
            (label::UPSTREAM_NAMESPACE.to_owned(), namespace.to_owned()),
        ]
        .into()
    };
    let found = Address::from_labels(&labels("cluster-org_shop", "default")).unwrap();
    assert_eq!((found.project.as_str(), &*found.namespace), ("shop", "default"));
    assert!(Address::from_labels(&labels("shop", "default")).unwrap_err().contains("upstream-cluster-name"));
    assert!(Address::from_labels(&labels("cluster-shop", "")).unwrap_err().contains("upstream-namespace"));
}

#[test]
fn orphaned_claim_of_this_cell_is_deleted_after_live_read() {
    let steps = |claim: Claim| {
        let Claim::Present(claim) = claim else { panic!() };
        reclaim(claim)
    };
    let all = steps(claim(|_| ()));
    let [Step::Local(confirm), Step::Remote(delete)] = &all[..] else { panic!("{all:?}") };
    assert!(matches!(confirm.op, Op::ConfirmAbsent), "absent from a cache is not gone");
    assert_eq!((confirm.object.namespace.as_str(), confirm.object.name.as_str()), ("ns-1", "wd-0"));
    assert!(matches!(&delete.op, Op::Delete { uid, resource_version } if uid == "c" && resource_version == "9"));
    assert!(steps(claim(|c| c["metadata"]["labels"][label::CELL_UID] = json!("uid-of-ord"))).is_empty());
    assert!(steps(claim(|c| c["metadata"]["labels"][label::INSTANCE_NAMESPACE] = json!("ns-2"))).is_empty());
}

/// A backend that breaks connections names another port in each message, and each message was written.
#[test]
fn backend_message_with_another_number_is_not_written() {
    let said = |words: &str| format!("quota cannot be asked: {words}");
    let broken = "read tcp 10.0.0.5:41234: connection reset";
    let standing = instance(|i| {
        i["status"]["conditions"] = json!([{ "type": "QuotaGranted", "status": "False",
            "reason": "QuotaBackendUnavailable", "message": said(broken), "lastTransitionTime": at(0).to_string(),
            "observedGeneration": 3 }]);
    });
    let writes = |reason: Reason, words: &str| report(&standing, Verdict::no(reason, said(words)), at(9)).is_some();
    assert!(!writes(Reason::QuotaBackendUnavailable, &broken.replace("41234", "41999")));
    assert!(writes(Reason::QuotaBackendUnavailable, "no answer within 10 s"));
    assert!(writes(Reason::QuotaMisconfigured, broken));
}

/// Returns an Instance that has passed its gate on a grant that it reports.
fn running() -> Instance {
    instance(|i| {
        i["status"]["conditions"] = json!([{ "type": "QuotaGranted", "status": "True", "reason": "QuotaAvailable",
            "message": "m", "lastTransitionTime": at(0).to_string(), "observedGeneration": 3 }]);
    })
}

/// A manager that started during an outage of quota wrote QuotaGranted=False on every running Instance. It also sent a request
/// per minute for each of them.
#[test]
fn running_instance_quota_outage_is_not_reported() {
    for cause in [Cause::Unavailable, Cause::NoProject, Cause::NoNamespace, Cause::Misconfigured, Cause::Unresolvable] {
        for watched in [true, false] {
            let decided = plan(&observed(&running(), unknown(cause), watched), at(9));
            assert_eq!(reported(&decided), (String::new(), vec![]), "{cause:?}");
            assert_eq!((decided.next, failure_of(&decided)), (Next::Await, None), "{cause:?}");
        }
    }
    let leaving = Instance {
        metadata: ObjectMeta {
            deletion_timestamp: instance(|i| i["metadata"]["deletionTimestamp"] = json!(at(0).to_string()))
                .metadata
                .deletion_timestamp,
            ..running().metadata
        },
        ..running()
    };
    assert_eq!(reported(&decide(&leaving, unknown(Cause::Unavailable), 9)).0, "False QuotaBackendUnavailable");
}

/// Another controller kept deleting granted claims, and the conditions of running Instances flapped.
#[test]
fn running_instance_deleted_claim_is_recreated_without_report() {
    let make = "create ResourceClaim default/instance-wd-0".to_owned();
    assert_eq!(reported(&decide(&running(), Claim::Absent, 9)), (String::new(), vec![make]));
    for (what, claim) in [
        ("terminating", claim(|c| c["metadata"]["deletionTimestamp"] = json!(at(1).to_string()))),
        ("not evaluated", claim(|_| ())),
        ("granted", claim(|c| c["status"] = granted("True", "QuotaAvailable"))),
    ] {
        assert_eq!(reported(&decide(&running(), claim, 9)), (String::new(), vec![]), "{what}");
    }
    // A denial is reported on a running Instance too.
    let denied = claim(|c| c["status"] = granted("False", "QuotaExceeded"));
    assert_eq!(reported(&decide(&running(), denied, 9)).0, "False QuotaExceeded");
}

/// The same case as a contest: the claim is recreated at once three times, then more and more rarely, with an Event.
#[test]
fn claim_deleted_repeatedly_is_reported_as_taken_back() {
    use crate::plan::contest::{Memory, Regarding, Sent, hold_back};
    let (mut memory, instance, pause) = (Memory::default(), running(), Duration::from_mins(1));
    let regarding = Regarding::of(&instance);
    let mut events = Vec::new();
    for round in 0..10_i64 {
        let now = at(30 * round);
        let mut decided = plan(&observed(&instance, Claim::Absent, true), now);
        let held = hold_back(&mut decided, &memory, &regarding, "quota", now, pause);
        memory = held.made(now, |_| Sent::Stored { uid: format!("c{round}"), standing: None });
        let of = |step: &Step<Cell, Project>| match step {
            Step::Local(write) => write.object.kind == crate::plan::Kind::Event,
            Step::Remote(_) => false,
        };
        events.extend(decided.steps.iter().filter(|step| of(step)).map(|step| format!("{step:?}")));
    }
    assert!(events.iter().all(|event| event.contains("WritesTakenBack")), "{events:?}");
    assert_eq!(events.len(), 1, "reported once");
}

#[test]
fn refused_finalizer_is_reported_on_waiting_instance() {
    let failure = |seconds| Failure {
        words: "it answers with HTTP 500".into(),
        is_final: false,
        lasted: Duration::from_secs(seconds),
    };
    let waits = observed(&instance(|_| ()), Claim::Absent, true);
    assert!(refused(&waits, &failure(19), at(1)).is_none(), "it may pass");
    let told = format!("{:?}", refused(&waits, &failure(20), at(1)).unwrap());
    assert!(told.contains("InstanceRefused") && told.contains("it answers with HTTP 500"), "{told}");
    assert!(
        refused(&observed(&running(), Claim::Absent, true), &failure(20), at(1)).is_none(),
        "what runs waits for none"
    );
}

#[path = "quota_holder_tests.rs"]
mod holder;
