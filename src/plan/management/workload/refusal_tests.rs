use std::convert::identity;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{
        compute::{Workload, WorkloadDeployment},
        names::CityCode,
    },
    plan::{
        Proof, Shared,
        management::workload::fan_out::{self, Observed},
        ownership,
    },
    timing::Timing,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn workload() -> Workload {
    let placement = |name: &str, cities: &[&str]| json!({ "name": name, "cityCodes": cities, "scaleSettings": { "minReplicas": 3 } });
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload",
        "metadata": { "name": "web", "namespace": "ns", "uid": "w1", "generation": 3 },
        "spec": {
            "template": { "spec": {
                "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [{ "name": "c", "image": "i" }] } },
                "networkInterfaces": [{ "network": { "name": "n" } }],
            }},
            "placements": [placement("a", &["dfw", "ord"]), placement("b", &["lhr"])],
        },
        "status": { "observedGeneration": 2, "conditions": [], "placements": [],
            "deployments": 0, "replicas": 0, "currentReplicas": 0, "desiredReplicas": 0, "readyReplicas": 0, "updatedReplicas": 0 },
    }))
    .unwrap()
}

/// A deployment of the Workload with three ready replicas of three.
fn ready(name: &str, placement: &str) -> WorkloadDeployment {
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
            "ownerReferences": ownership::controller_reference(&workload()),
        },
        "spec": {
            "workloadRef": { "name": "web", "uid": "w1" }, "placementName": placement, "cityCode": "dfw",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 3 },
        },
        "status": {
            "replicas": 3, "currentReplicas": 3, "desiredReplicas": 3, "readyReplicas": 3,
            "conditions": [{
                "type": "Available", "status": "True", "reason": "StableInstanceFound", "message": "3/3 instances are ready",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    }))
    .unwrap()
}

fn observed(deployments: &[WorkloadDeployment]) -> Observed {
    let shared = |wd: &WorkloadDeployment| Shared::from(wd.clone());
    Observed {
        locations_fail: None,
        unreadable: Vec::new(),
        workload: workload().into(),
        deployments: deployments.iter().map(shared).collect(),
        named: deployments.iter().map(|wd| (wd.metadata.name.clone().unwrap(), shared(wd))).collect(),
        bound: ["dfw", "ord", "lhr"].map(|city| CityCode::parse(city).unwrap()).into(),
        namespace_uid: Some("n1".into()),
        networks: None,
        contested: false,
        timing: Timing::default(),
    }
}

fn on(kind: Kind, name: &str) -> Object {
    Object { kind, namespace: "ns".into(), name: name.into() }
}

fn refused(name: &str, cause: Cause) -> Refusal {
    Refusal { object: on(Kind::WorkloadDeployment, name), deletion: false, cause, message: "because".into() }
}

fn status(observed: &Observed, refused: &[Refusal]) -> Value {
    let write = fan_out::refused(observed, refused, NOW).expect("it is reported");
    let Op::Apply { body, status: true, .. } = write.op else { panic!("{write:?}") };
    body["status"].clone()
}

/// Name, existing deployments, failed write, and the expected conditions of the Workload and its two placements.
type Case<'a> = (&'a str, Vec<WorkloadDeployment>, Refusal, [(&'a str, &'a str); 3]);

/// Checks the status after the tenant's grace. kstatus does not read `Stalled` of a generation that is not observed.
fn assert_stalls(observed: &Observed, refusal: &Refusal, status: &Value, of_tenant: bool) {
    let mut later = observed.clone();
    let mut workload = (*later.workload).clone();
    workload.status = serde_json::from_value(status.clone()).unwrap();
    later.workload = workload.into();
    let has = |status: &Value, type_: &str| {
        status["conditions"].as_array().unwrap().iter().any(|c| c["type"] == type_ && c["status"] == "True")
    };
    assert!(has(status, "Reconciling") && !has(status, "Stalled"), "{status}");
    let at = |seconds| NOW + jiff::SignedDuration::from_secs(seconds);
    let refused = |at| fan_out::refused(&later, std::slice::from_ref(refusal), at);
    assert!(refused(at(19)).is_none(), "within the grace nothing changes");
    let Some(write) = refused(at(20)) else { return assert!(!of_tenant, "{status}") };
    let Op::Apply { body, .. } = &write.op else { panic!("{write:?}") };
    let late = &body["status"];
    assert!(of_tenant && has(late, "Stalled") && !has(late, "Reconciling"), "{late}");
    assert_eq!((&late["observedGeneration"], &late["updatedReplicas"]), (&json!(3), &json!(0)));
    assert_eq!(late["readyReplicas"], status["readyReplicas"]);
}

/// Any rejected write made the Workload unavailable, even with ready replicas, and was reported as an invalid placement.
#[test]
fn refusal_is_reported_on_its_placement_and_leaves_others_available() {
    let (dfw, lhr) = (ready("web-a-dfw", "a"), ready("web-b-lhr", "b"));
    let finalizer = Refusal { object: on(Kind::Workload, "web"), ..refused("web", Cause::Forbidden) };
    let removal = Refusal { deletion: true, ..refused("web-a-dfw", Cause::Forbidden) };
    let cases: [Case<'_>; 7] = [
        (
            "one city of a placement that runs in another",
            vec![dfw.clone(), lhr.clone()],
            refused("web-a-ord", Cause::Invalid),
            [
                ("True", "AvailablePlacementFound"),
                ("True", "AvailableDeploymentFound"),
                ("True", "AvailableDeploymentFound"),
            ],
        ),
        (
            "the only city of a placement",
            vec![dfw.clone()],
            refused("web-b-lhr", Cause::Invalid),
            [("True", "AvailablePlacementFound"), ("True", "AvailableDeploymentFound"), ("False", "InvalidPlacement")],
        ),
        (
            "where nothing runs",
            vec![],
            refused("web-a-dfw", Cause::Invalid),
            [("False", "InvalidPlacement"), ("False", "InvalidPlacement"), ("False", "NoAvailableDeployments")],
        ),
        (
            "for want of a right",
            vec![],
            refused("web-a-dfw", Cause::Forbidden),
            [("False", "DeploymentForbidden"), ("False", "DeploymentForbidden"), ("False", "NoAvailableDeployments")],
        ),
        (
            "by a quota of the tenant's own",
            vec![dfw.clone()],
            refused("web-b-lhr", Cause::Denied),
            [("True", "AvailablePlacementFound"), ("True", "AvailableDeploymentFound"), ("False", "DeploymentDenied")],
        ),
        (
            "the Workload's own finalizer",
            vec![],
            finalizer,
            [
                ("False", "DeploymentForbidden"),
                ("False", "NoAvailableDeployments"),
                ("False", "NoAvailableDeployments"),
            ],
        ),
        (
            "a deletion",
            vec![dfw, lhr],
            removal,
            [
                ("True", "AvailablePlacementFound"),
                ("True", "AvailableDeploymentFound"),
                ("True", "AvailableDeploymentFound"),
            ],
        ),
    ];
    for (what, deployments, refusal, [whole, a, b]) in cases {
        let status = status(&observed(&deployments), std::slice::from_ref(&refusal));
        let read = |condition: &Value| {
            let text = |field: &str| condition[field].as_str().unwrap().to_owned();
            (text("status"), text("reason"))
        };
        let expected = |(status, reason): (&str, &str)| (status.to_owned(), reason.to_owned());
        let reported = &status["conditions"][0];
        assert_eq!(read(reported), expected(whole), "{what}: {reported}");
        let message = reported["message"].as_str().unwrap();
        let is_reported = message.contains("because") || status["placements"].to_string().contains("because");
        assert!(is_reported, "{what}: {status}");
        assert_eq!(read(&status["placements"][0]["conditions"][0]), expected(a), "{what}");
        assert_eq!(read(&status["placements"][1]["conditions"][0]), expected(b), "{what}");
        assert_eq!(status["observedGeneration"], 2, "{what}: what is refused is not observed");
        let of_tenant = matches!(refusal.cause, Cause::Invalid | Cause::Denied);
        assert_stalls(&observed(&deployments), &refusal, &status, of_tenant);
        assert_eq!(status["readyReplicas"], 3 * deployments.len(), "{what}: the counters are up to date");
    }
}

/// An error that could pass by itself was never reported. While a webhook without endpoints blocked its deployments, a Workload
/// had no status.
#[test]
fn passing_error_is_reported_once_it_outlasts_the_grace() {
    let failing = |seconds| refused("web-b-lhr", Cause::Passing { lasted: Duration::from_secs(seconds) });
    for seconds in [0, 19] {
        assert!(fan_out::refused(&observed(&[]), &[failing(seconds)], NOW).is_none(), "{seconds} s");
    }
    for seconds in [20, 3600] {
        let status = status(&observed(&[]), &[failing(seconds)]);
        let placement = &status["placements"][1]["conditions"][0];
        assert_eq!(
            (placement["status"].as_str(), placement["reason"].as_str()),
            (Some("False"), Some("ProjectRefused"))
        );
        let message = status["conditions"][0]["message"].as_str().unwrap();
        assert!(message.contains("because") && message.contains("Running instances are not affected"), "{message}");
    }
    let runs = status(&observed(&[ready("web-b-lhr", "b")]), &[failing(20)]);
    assert_eq!(runs["conditions"][0]["status"], "True", "what runs is available all the same: {runs}");
    assert!(
        runs["conditions"][0]["message"].to_string().contains("because")
            || runs["placements"].to_string().contains("because")
    );
    assert!(fan_out::refused(&observed(&[]), &[], NOW).is_none());
    // A webhook that does not answer is nothing that the tenant could change in the Workload.
    assert_stalls(&observed(&[]), &failing(20), &status(&observed(&[]), &[failing(20)]), false);
}

#[test]
fn denial_names_who_rejects_the_deployment() {
    for (message, named) in [
        (r#"apply: admission webhook "guard.example.com" denied the request: no"#, "webhook guard.example.com of the"),
        ("apply: no", "a quota, a webhook or a policy of the project rejects"),
    ] {
        let denied = Refusal { message: message.to_owned(), ..refused("web-b-lhr", Cause::Denied) };
        let text = denied.text();
        assert!(text.starts_with(named) && text.contains(message) && text.contains("ask its owner"), "{text}");
    }
}

#[test]
fn refusal_blocks_only_writes_that_must_follow() {
    let city = refused("web-a-dfw", Cause::Invalid);
    let workload_itself = Refusal { object: on(Kind::Workload, "web"), ..city.clone() };
    let removal = Refusal { deletion: true, ..city.clone() };
    let some = |write: Option<Write<Project>>| write.unwrap();
    let live = ready("web-b-lhr", "b");
    let apply = some(Write::ensure::<WorkloadDeployment>("m", "ns", "web-a-ord", json!({ "spec": {} }), None));
    let delete = Proof::of_target().delete(&live, identity).into_steps().remove(0);
    for (what, refused, made, removed) in [
        ("nothing", vec![], true, true),
        ("a city: the deployment that it replaces is kept", vec![city.clone()], true, false),
        ("a removal", vec![removal.clone()], true, true),
        ("both", vec![removal, city], true, false),
        ("the Workload's finalizer: everything comes after it", vec![workload_itself], false, false),
    ] {
        assert_eq!((may_follow(&apply, &refused), may_follow(&delete, &refused)), (made, removed), "{what}");
    }
}
