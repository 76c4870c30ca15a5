use serde_json::{Value, json};

use super::*;

const GRACE: Duration = Duration::from_secs(20);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// A deployment of generation 2 that wants two Instances, with this status.
fn deployment(status: &Value) -> WorkloadDeployment {
    serde_json::from_value(json!({
        "metadata": { "name": "web-p-dfw", "namespace": "shop", "generation": 2 },
        "spec": {
            "workloadRef": { "name": "web", "uid": "w" }, "placementName": "p", "cityCode": "dfw", "replicas": 2,
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 2 },
        },
        "status": status,
    }))
    .unwrap()
}

fn reports(type_: &str, status: &str, reason: &str, generation: i64) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": format!("why {reason}"),
        "observedGeneration": generation, "lastTransitionTime": "1970-01-01T00:00:00Z",
    })
}

/// The status of a city that runs both Instances of generation 2.
fn complete() -> Value {
    json!({
        "replicas": 2, "currentReplicas": 2, "desiredReplicas": 2, "readyReplicas": 2, "updatedReplicas": 2,
        "observedGeneration": 2,
        "conditions": [
            reports("Available", "True", "StableInstanceFound", 2), reports("ReplicasReady", "True", "ReplicasAvailable", 2),
            reports("Federated", "True", "Propagated", 2),
        ],
    })
}

fn with(edit: impl FnOnce(&mut Value)) -> Value {
    let mut status = complete();
    edit(&mut status);
    status
}

/// Judges a status, and returns status and reason of `Ready`, and the other condition that is True.
fn judged(status: &Value) -> (ConditionStatus, String, &'static str) {
    let wd = deployment(status);
    let stands = wd.status.clone().unwrap_or_default();
    let readiness = of_deployment(&wd, &stands, Report::Dated);
    let second = match readiness.actor {
        Actor::Nobody => "",
        Actor::Platform | Actor::Cell(_) => "Reconciling",
        Actor::Tenant | Actor::OverdueTenant => "Stalled",
    };
    (readiness.status, readiness.reason.to_string(), second)
}

#[test]
fn deployment_is_ready_only_if_everything_runs_and_is_up_to_date() {
    use ConditionStatus::{False, True, Unknown};
    let replaced = |n: usize, condition: Value| with(|status| status["conditions"][n] = condition);
    let zero = json!({ "replicas": 0, "currentReplicas": 0, "desiredReplicas": 0, "readyReplicas": 0, "updatedReplicas": 0,
        "observedGeneration": 2, "conditions": [] });
    for (what, status, expected) in [
        ("complete", complete(), (True, "ReplicasAvailable", "")),
        ("without a report", json!({}), (False, "Pending", "Reconciling")),
        ("only looked at", zero, (False, "Pending", "Reconciling")),
        ("of the generation before", with(|s| s["observedGeneration"] = json!(1)), (False, "Pending", "Reconciling")),
        ("of no known generation", with(|s| s["observedGeneration"] = json!(null)), (False, "Pending", "Reconciling")),
        ("one not ready", with(|s| s["readyReplicas"] = json!(1)), (False, "InstancesProvisioning", "Reconciling")),
        ("one not updated", with(|s| s["updatedReplicas"] = json!(1)), (False, "InstancesProvisioning", "Reconciling")),
        ("one too many", with(|s| s["replicas"] = json!(3)), (False, "InstancesProvisioning", "Reconciling")),
        ("another number", with(|s| s["desiredReplicas"] = json!(0)), (False, "InstancesProvisioning", "Reconciling")),
        (
            "the hub does not answer",
            replaced(2, reports("Federated", "Unknown", "HubUnavailable", 2)),
            (Unknown, "HubUnavailable", "Reconciling"),
        ),
        (
            "the cluster does not answer",
            replaced(2, reports("Federated", "False", "ClusterNotReady", 2)),
            (Unknown, "ClusterNotReady", "Reconciling"),
        ),
        (
            "for the platform",
            replaced(2, reports("Federated", "False", "NotScheduled", 2)),
            (False, "NotScheduled", "Reconciling"),
        ),
        (
            "a note without an effect",
            replaced(2, reports("Federated", "True", "InstancesNotShown", 2)),
            (True, "ReplicasAvailable", ""),
        ),
        (
            "for the tenant",
            replaced(1, reports("ReplicasReady", "False", "InstanceCrashing", 2)),
            (False, "InstanceCrashing", "Stalled"),
        ),
        (
            "for the tenant, before the last change",
            replaced(1, reports("ReplicasReady", "False", "InstanceCrashing", 1)),
            (False, "Pending", "Reconciling"),
        ),
        (
            "progress before the last change",
            replaced(1, reports("ReplicasReady", "False", "InstancesProvisioning", 1)),
            (False, "Pending", "Reconciling"),
        ),
        (
            "a suspension that has ended",
            replaced(0, reports("Available", "False", "Suspended", 1)),
            (False, "Pending", "Reconciling"),
        ),
        (
            "a worse cause before the last change, and one that lasts",
            with(|status| {
                status["conditions"][1] = reports("ReplicasReady", "False", "InstanceCrashing", 1);
                status["conditions"][2] = reports("Federated", "False", "AwaitingPropagation", 2);
            }),
            (False, "AwaitingPropagation", "Reconciling"),
        ),
        (
            "of another component",
            replaced(1, reports("ReplicasReady", "False", "SomethingElse", 2)),
            (False, "SomethingElse", "Reconciling"),
        ),
        ("suspended", replaced(0, reports("Available", "False", "Suspended", 2)), (False, "Suspended", "")),
    ] {
        let (status, reason, second) = judged(&status);
        assert_eq!((status, &*reason, second), expected, "{what}");
    }
}

#[test]
fn deployment_with_an_autoscaler_may_want_another_number() {
    let five = with(|s| {
        for counter in ["replicas", "desiredReplicas", "readyReplicas", "updatedReplicas"] {
            s[counter] = json!(5);
        }
    });
    let mut wd = deployment(&five);
    let ready = |wd: &WorkloadDeployment| of_deployment(wd, wd.status.as_ref().unwrap(), Report::Dated).status;
    assert_eq!(ready(&wd), ConditionStatus::False);
    wd.spec.scale_settings.max_replicas = Some(9);
    assert_eq!(ready(&wd), ConditionStatus::True);
}

#[test]
fn every_deployment_whose_copy_reports_nothing_now_is_not_ready() {
    let wd = deployment(&complete());
    let stands = wd.status.clone().unwrap();
    assert_eq!(of_deployment(&wd, &stands, Report::Missing).reason, Reason::Pending);
}

/// Early cells of the Go operator report no generation. Their deployments said for ever that the city had not reported the latest
/// change, as if waiting helped.
#[test]
fn report_without_a_generation_is_unknown_and_never_ready() {
    let wd = deployment(&with(|status| {
        status.as_object_mut().unwrap().remove("observedGeneration");
    }));
    let stands = wd.status.clone().unwrap();
    let readiness = of_deployment(&wd, &stands, Report::Undated);
    assert_eq!((readiness.status, &readiness.reason), (ConditionStatus::Unknown, &Reason::CellNotReporting));
    assert!(readiness.missing.contains("update it"), "{readiness:?}");
    let (conditions, next) = written(&readiness, &[], 2, 0);
    assert_eq!((types(&conditions), next), (vec!["Ready", "Reconciling"], Next::Await));
    assert!(conditions.iter().all(|c| c.type_ != "Stalled"), "no tenant can update a cell");
    let mut crashing = stands.clone();
    let cause = json!({ "type": "Available", "status": "False", "reason": "InstanceCrashing", "message": "it exits",
        "lastTransitionTime": "1970-01-01T00:00:00Z" });
    crashing.conditions[0] = serde_json::from_value(cause).unwrap();
    let readiness = of_deployment(&wd, &crashing, Report::Undated);
    assert_eq!(readiness.reason, Reason::CellNotReporting, "its cause may be gone: {readiness:?}");
    assert!(readiness.missing.ends_with("update it. It reports: it exits"), "{readiness:?}");
    let waits = of_deployment(&wd, &stands, Report::Dated);
    assert_eq!(waits.status, ConditionStatus::False, "the cell has not observed the latest change yet: {waits:?}");
}

#[test]
fn report_is_dated_by_the_generation_of_the_project_or_of_the_cell() {
    let status = |observed: Option<i64>, source: Option<i64>| WorkloadDeploymentStatus {
        observed_generation: observed,
        observed_source_generation: source,
        ..WorkloadDeploymentStatus::default()
    };
    for (report, kind) in [
        (None, Report::Missing),
        (Some(status(None, None)), Report::Undated),
        (Some(status(Some(-1), None)), Report::Undated),
        (Some(status(Some(3), None)), Report::Dated),
        (Some(status(None, Some(3))), Report::Dated),
        (Some(status(Some(-1), Some(3))), Report::Dated),
    ] {
        assert_eq!(Report::of(report.as_ref()), kind, "{report:?}");
    }
}

/// Returns the conditions at this time.
fn written(readiness: &Readiness, old: &[Condition], generation: i64, seconds: i64) -> (Vec<Condition>, Next) {
    let instances = Instances { ready: 1, wanted: 2 };
    conditions(readiness, instances, old, Some(generation), GRACE, at(seconds))
}

fn types(conditions: &[Condition]) -> Vec<&str> {
    conditions.iter().map(|c| &*c.type_).collect()
}

#[test]
fn tenant_has_a_grace_that_outlives_the_manager_and_begins_anew_with_each_change() {
    let crashing = || Readiness::incomplete(Verdict::no(Reason::InstanceCrashing, "web-0 exits"));
    let pending = Readiness::pending(Reason::Pending, "on its way");
    let (first, next) = written(&pending, &[], 2, 0);
    assert_eq!((types(&first), next), (vec!["Ready", "Reconciling"], Next::Await));
    assert_eq!(first[0].message, "1 of 2 Instances are ready; on its way");
    let (begun, next) = written(&crashing(), &first, 2, 100);
    assert_eq!((types(&begun), next), (vec!["Ready", "Reconciling"], Next::After(GRACE)), "its grace begins now");
    let (same, next) = written(&crashing(), &begun, 2, 105);
    assert_eq!((&same, next), (&begun, Next::After(Duration::from_secs(15))), "nothing to write");
    let (late, next) = written(&crashing(), &begun, 2, 120);
    assert_eq!((types(&late), next), (vec!["Ready", "Stalled"], Next::Await));
    let (still, _) = written(&crashing(), &late, 2, 121);
    assert_eq!(still, late);
    let (changed, next) = written(&crashing(), &late, 3, 130);
    assert_eq!((types(&changed), next), (vec!["Ready", "Reconciling"], Next::After(GRACE)));
    let unknown = Readiness::incomplete(Verdict::unknown(Reason::HubUnavailable, "no answer"));
    let (away, _) = written(&unknown, &late, 2, 140);
    assert_eq!((types(&away), away[0].status), (vec!["Ready", "Reconciling"], ConditionStatus::Unknown));
    let (back, next) = written(&crashing(), &away, 2, 150);
    assert_eq!((types(&back), next), (vec!["Ready", "Reconciling"], Next::After(GRACE)));
    let (done, next) = written(&Readiness::complete(), &late, 2, 200);
    assert_eq!((types(&done), next), (vec!["Ready"], Next::Await));
}

#[test]
fn cell_that_does_not_report_is_named_after_a_grace_that_begins_with_delivery_and_change() {
    let judge = |delivered: &str, generation: i64, old: &[Condition], seconds: i64| {
        let mut status = json!({ "conditions": [reports("Federated", "True", "Propagated", 2)] });
        status["conditions"][0]["lastTransitionTime"] = json!(delivered);
        let mut wd = deployment(&status);
        wd.metadata.generation = Some(generation);
        let readiness = of_deployment(&wd, wd.status.as_ref().unwrap(), Report::Missing);
        let (written, next) = written(&readiness, old, generation, seconds);
        (written[0].reason.clone(), written, next)
    };
    // It was created at 0 and delivered at 30, after another wait.
    let (delivered, left) = ("1970-01-01T00:00:30Z", |seconds| Next::After(Duration::from_secs(seconds)));
    let (before, _) = written(&Readiness::incomplete(Verdict::no(Reason::NoClusterForCity, "words")), &[], 2, 0);
    let (reason, begun, next) = judge(delivered, 2, &before, 31);
    assert_eq!((&*reason, next), ("Pending", left(20)));
    let (reason, same, next) = judge(delivered, 2, &begun, 50);
    assert_eq!((&*reason, next), ("Pending", left(1)));
    assert_eq!(same, begun, "nothing to write");
    let (reason, silent, next) = judge(delivered, 2, &begun, 51);
    assert_eq!((&*reason, types(&silent), next), ("CellNotReporting", vec!["Ready", "Reconciling"], Next::Await));
    let (reason, still, _) = judge(delivered, 2, &silent, 900);
    assert_eq!((&*reason, &still), ("CellNotReporting", &silent));
    // A change gets a grace of its own.
    let (reason, changed, next) = judge(delivered, 3, &silent, 900);
    assert_eq!((&*reason, next), ("Pending", left(20)));
    let (reason, ..) = judge(delivered, 3, &changed, 920);
    assert_eq!(reason, "CellNotReporting");
    // It waited for its delivery under the same reason.
    let (reason, ..) = judge("1970-01-01T00:15:00Z", 2, &begun, 901);
    assert_eq!(reason, "Pending");
    let undelivered = deployment(&json!({ "conditions": [] }));
    assert_eq!(
        of_deployment(&undelivered, undelivered.status.as_ref().unwrap(), Report::Missing).actor,
        Actor::Platform
    );
}

#[test]
fn deletion_is_never_the_tenants_stall() {
    let refused = Readiness::incomplete(Verdict::no(Reason::ProjectRefused, "words")).of_deletion();
    let (first, _) = written(&refused, &[], 2, 0);
    let (late, next) = written(&refused, &first, 2, 100);
    assert_eq!((types(&late), next), (vec!["Ready", "Reconciling"], Next::Await));
}

#[test]
fn workload_repeats_what_its_deployment_reports_for_its_generation() {
    let of = |conditions: Value| {
        let mut status = complete();
        status["conditions"] = conditions;
        Readiness::reported_by(&deployment(&status))
    };
    let ready = |generation| reports("Ready", "True", "ReplicasAvailable", generation);
    assert_eq!(of(json!([ready(2)])), Readiness::complete());
    assert_eq!(of(json!([ready(1)])).reason, Reason::Pending);
    assert_eq!(of(json!([])).reason, Reason::Pending);
    let crashing = |second: &str| {
        json!([reports("Ready", "False", "InstanceCrashing", 2), reports(second, "True", "InstanceCrashing", 2)])
    };
    assert_eq!(of(crashing("Stalled")).actor, Actor::OverdueTenant);
    assert_eq!(of(crashing("Reconciling")).actor, Actor::Platform, "the deployment measures the grace");
    assert_eq!(of(json!([reports("Ready", "False", "Suspended", 2)])).actor, Actor::Nobody);
}

#[test]
fn worst_cause_is_reported_with_the_name_of_its_object() {
    let all = || {
        vec![
            ("a".to_owned(), Readiness::complete()),
            ("b".to_owned(), Readiness::pending(Reason::Pending, "soon")),
            ("c".to_owned(), Readiness::incomplete(Verdict::no(Reason::SourceNotFound, "no Secret db"))),
            ("d".to_owned(), Readiness::incomplete(Verdict::no(Reason::SourceNotFound, "no Secret db"))),
        ]
    };
    let worst = Readiness::worst(all());
    assert_eq!((worst.reason, &*worst.missing), (Reason::SourceNotFound, "c: no Secret db"));
    assert_eq!(Readiness::worst(all().into_iter().take(1)), Readiness::complete());
}
