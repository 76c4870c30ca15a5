use super::*;
use crate::{
    plan::{Op, Shared, cell::Features},
    timing::Timing,
};
use serde_json::Value;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn deployment(replicas: i32, image: &str) -> WorkloadDeployment {
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": { "name": "wd", "namespace": "ns", "uid": "d1", "generation": 7, "annotations": { "compute.datumapis.com/source-generation": "3" } },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "DFW",
            "template": { "metadata": { "labels": { "app": "x" } }, "spec": {
                "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [{ "name": "c", "image": image }] } },
                "networkInterfaces": [],
            }},
            "scaleSettings": { "minReplicas": replicas },
        },
    }))
    .unwrap()
}

fn instance(ordinal: u32, hash: &str, state: &str) -> Shared<Instance> {
    let ready = if state == "ready" { "True" } else { "False" };
    let mut object: Instance = serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": { "name": format!("wd-{ordinal}"), "namespace": "ns", "uid": format!("i{ordinal}"), "resourceVersion": "1" },
        "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [], "controller": { "templateHash": hash } },
        "status": { "conditions": [
            { "type": "Ready", "status": ready, "reason": if state == "crashing" { "InstanceCrashing" } else { "Available" }, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" },
            { "type": "Programmed", "status": "True", "reason": "Programmed", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" },
        ], "controller": { "observedTemplateHash": hash } },
    }))
    .unwrap();
    if state == "going" {
        object.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    }
    object.into()
}

fn observed(deployment: &WorkloadDeployment, instances: &[Shared<Instance>]) -> Observed {
    Observed {
        deployment: deployment.clone().into(),
        instances: instances.to_vec(),
        in_the_way: Vec::new(),
        unreadable: [].into(),
        features: Features::default(),
        networks: None,
        failing: false,
        timing: Timing::default(),
    }
}

fn act(deployment: &WorkloadDeployment, instances: &[Shared<Instance>]) -> String {
    act_on(&observed(deployment, instances))
}

fn act_on(observed: &Observed) -> String {
    match next_action(observed, &template_hash(&observed.deployment.spec.template)) {
        Action::Create(ordinal) => format!("create {ordinal}"),
        Action::Delete(instance) => format!("delete {}", instance.name_any()),
        Action::Remove(instance) => format!("remove {}", instance.name_any()),
        Action::Stamp(instance) => format!("stamp {}", instance.name_any()),
        Action::Wait => "wait".into(),
        Action::Nothing => "nothing".into(),
    }
}

#[test]
fn roll_out_takes_one_step_at_a_time_in_order() {
    let wd = deployment(3, "i:1");
    let hash = template_hash(&wd.spec.template);
    let new = |ordinal, state| instance(ordinal, &hash, state);
    let old = |ordinal, state| instance(ordinal, "j1-old", state);
    for (name, instances, wanted) in [
        ("nothing yet", vec![], "create 0"),
        ("the first is not ready", vec![new(0, "waiting")], "wait"),
        ("the first is ready", vec![new(0, "ready")], "create 1"),
        ("a gap is filled first", vec![new(0, "ready"), new(2, "ready")], "create 1"),
        ("complete", vec![new(0, "ready"), new(1, "ready"), new(2, "ready")], "nothing"),
        (
            "surplus, highest first",
            vec![new(0, "ready"), new(1, "ready"), new(2, "ready"), new(3, "ready"), new(4, "ready")],
            "delete wd-4",
        ),
        (
            "one is terminating, the next waits",
            vec![new(0, "ready"), new(1, "ready"), new(2, "ready"), new(3, "ready"), new(4, "going")],
            "wait",
        ),
        ("outdated, highest first", vec![old(0, "ready"), old(1, "ready"), old(2, "ready")], "delete wd-2"),
        ("a replacement is waited for", vec![old(0, "ready"), old(1, "ready"), new(2, "waiting")], "wait"),
        ("then the next", vec![old(0, "ready"), old(1, "ready"), new(2, "ready")], "delete wd-1"),
        ("a wanted one is terminating", vec![new(0, "going")], "wait"),
        (
            "broken and outdated is mended at once",
            vec![old(0, "ready"), old(1, "ready"), old(2, "crashing")],
            "delete wd-2",
        ),
        (
            "broken and current is waited for, and holds later work",
            vec![new(0, "crashing"), old(1, "ready"), old(2, "ready")],
            "wait",
        ),
    ] {
        assert_eq!(act(&wd, &instances), wanted, "{name}");
    }
    assert_eq!(act(&deployment(0, "i:1"), &[new(0, "crashing"), new(1, "ready")]), "delete wd-1", "down to none");
}

fn writes(deployment: &WorkloadDeployment, instances: &[Shared<Instance>]) -> Vec<Write<Cell>> {
    plan(&observed(deployment, instances), NOW).steps
}

/// Returns the status among these writes.
fn status_in(writes: &[Write<Cell>]) -> &Value {
    let status = writes.iter().find_map(|write| match &write.op {
        Op::Apply { body, status: true, .. } => Some(&body["status"]),
        _ => None,
    });
    status.unwrap_or_else(|| panic!("{writes:?}"))
}

/// Returns the body of the Instance that these writes create.
fn created(writes: &[Write<Cell>]) -> &Value {
    let created = writes.iter().find_map(|write| match &write.op {
        Op::Create { body, .. } => Some(body),
        _ => None,
    });
    created.unwrap_or_else(|| panic!("{writes:?}"))
}

#[test]
fn new_instance_has_gates_labels_and_owner() {
    let all = writes(&deployment(1, "i:1"), &[]);
    let body = created(&all);
    let gates: Vec<&Value> =
        body["spec"]["controller"]["schedulingGates"].as_array().unwrap().iter().map(|g| &g["name"]).collect();
    assert_eq!(gates, ["Network", "Quota"]);
    assert_eq!(body["metadata"]["name"], "wd-0");
    assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "d1");
    let labels = body["metadata"]["labels"].as_object().unwrap();
    assert_eq!(labels.len(), 8, "seven of ours and the template's: {labels:?}");
    assert_eq!(labels[label::CITY_CODE], "DFW");
}

#[test]
fn status_reports_counters_and_conditions() {
    let wd = deployment(3, "i:1");
    let hash = template_hash(&wd.spec.template);
    let all = writes(&wd, &[instance(0, &hash, "ready"), instance(1, "j1-old", "crashing")]);
    let status = status_in(&all);
    for (field, value) in [
        ("replicas", 2),
        ("readyReplicas", 1),
        ("desiredReplicas", 3),
        ("updatedReplicas", 1),
        ("currentReplicas", 1),
        ("observedGeneration", 7),
        ("observedSourceGeneration", 3),
    ] {
        assert_eq!(status[field], value, "{field}");
    }
    let condition =
        |type_: &str| status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == type_).unwrap().clone();
    assert_eq!(
        (condition("Available")["status"].as_str(), condition("Available")["message"].as_str()),
        (Some("True"), Some("1/2 instances are ready"))
    );
    assert_eq!(condition("ReplicasReady")["reason"], "InstanceCrashing");
    // An unchanged status is not written again.
    let mut same = wd.clone();
    same.status = serde_json::from_value(status.clone()).unwrap();
    let all = writes(&same, &[instance(0, &hash, "ready"), instance(1, "j1-old", "crashing")]);
    assert!(all.iter().all(|w| !matches!(w.op, Op::Apply { status: true, .. })), "{all:?}");
}

#[test]
fn counters_terminating_is_not_ready_and_unobserved_is_not_current() {
    let wd = deployment(3, "i:1");
    let hash = template_hash(&wd.spec.template);
    let edited = |ordinal, edit: fn(&mut Instance)| {
        let mut object = (*instance(ordinal, &hash, "ready")).clone();
        edit(&mut object);
        Shared::from(object)
    };
    let goes = edited(1, |object| {
        object.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    });
    let unseen = edited(2, |object| object.status.as_mut().unwrap().controller = None);
    let older = edited(3, |object| {
        object.status.as_mut().unwrap().controller.as_mut().unwrap().observed_template_hash = "j1-old".into();
    });
    let all = writes(&wd, &[instance(0, &hash, "ready"), goes, unseen, older]);
    let status = status_in(&all);
    let counts = ["replicas", "readyReplicas", "updatedReplicas", "currentReplicas"].map(|field| &status[field]);
    assert_eq!(counts, [&json!(4), &json!(3), &json!(4), &json!(2)]);
}

/// The create failed with 409 while the old Instance held its finalizer. Neither the status nor a NetworkBinding was ever
/// written.
#[test]
fn instance_name_in_use_is_awaited_and_reported() {
    let wd = deployment(2, "i:1");
    let hash = template_hash(&wd.spec.template);
    let old = |ordinal, going: bool, finalizers: &[&str]| {
        let mut old = (*instance(ordinal, "j1-old", if going { "going" } else { "ready" })).clone();
        old.metadata.finalizers = Some(finalizers.iter().map(|&name| name.to_owned()).collect());
        Shared::from(old)
    };
    for (what, instances, in_the_way, action, message) in [
        ("nothing", vec![], vec![], "create 0", "instances are being provisioned"),
        (
            "one that holds on to its quota",
            vec![],
            vec![old(0, true, &[finalizer::QUOTA])],
            "wait",
            "wd-0: an earlier Instance of this name is terminating; it is held by its finalizer \
             quota.compute.datumapis.com/claim-cleanup",
        ),
        (
            "one that nothing holds",
            vec![],
            vec![old(0, true, &[])],
            "wait",
            "wd-0: waiting for an earlier Instance of this name to be deleted",
        ),
        (
            "another owner's",
            vec![],
            vec![old(0, false, &[])],
            "wait",
            "wd-0: an Instance of this name has another owner; it must be deleted first",
        ),
        (
            "one further up does not hold up the first",
            vec![],
            vec![old(1, true, &[])],
            "create 0",
            "wd-1: waiting for an earlier Instance of this name to be deleted",
        ),
        (
            "what is worse is reported first",
            vec![instance(0, &hash, "crashing")],
            vec![old(1, true, &[])],
            "wait",
            "wd-0: m",
        ),
    ] {
        let observed = Observed { in_the_way, ..observed(&wd, &instances) };
        assert_eq!(act_on(&observed), action, "{what}");
        let steps = plan(&observed, NOW).steps;
        assert_eq!(status_in(&steps)["conditions"][0]["message"], message, "{what}");
    }
}

/// Each reconcile walked all possible names, so one deployment with `i32::MAX` replicas blocked the whole cell.
#[test]
fn deployment_with_max_replicas_costs_only_existing_instances() {
    let mut wd = deployment(1, "i:1");
    wd.spec.replicas = Some(i32::MAX);
    let hash = template_hash(&wd.spec.template);
    let far = instance(9, "j1-old", "going");
    let ready = instance(0, &hash, "ready");
    for (instances, in_the_way, action, message) in [
        (vec![], vec![], "create 0", "instances are being provisioned"),
        (vec![ready], vec![far], "create 1", "wd-9: waiting for an earlier Instance of this name to be deleted"),
    ] {
        let observed = Observed { in_the_way, ..observed(&wd, &instances) };
        assert_eq!(act_on(&observed), action);
        let steps = plan(&observed, NOW).steps;
        let status = status_in(&steps);
        assert_eq!(status["desiredReplicas"], i32::MAX);
        let said = status["conditions"][1]["message"].as_str().unwrap();
        assert!(said.contains(message) || instances.is_empty(), "{said}");
    }
}

#[test]
fn writes_instance_creation_comes_last() {
    let wd = deployment(2, "i:1");
    let steps = plan(&observed(&wd, &[]), NOW).steps;
    assert!(matches!(steps.last().unwrap().op, Op::Create { .. }), "{steps:?}");
    assert!(steps.iter().any(|write| matches!(write.op, Op::Apply { status: true, .. })), "{steps:?}");
}

#[test]
fn terminating_deployment_releases_only_own_finalizer() {
    let mut wd = deployment(1, "i:1");
    wd.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    assert!(writes(&wd, &[]).is_empty());
    wd.metadata.finalizers = Some(vec![finalizer::WORKLOAD.into(), "theirs".into()]);
    let all = writes(&wd, &[]);
    assert!(matches!(&all[0].op, Op::Merge { body, .. } if body["metadata"]["finalizers"] == json!(["theirs"])));
}

#[test]
fn foreign_hash_on_matching_instance_is_stamped() {
    let mut wd = deployment(2, "i:1");
    wd.spec.template.metadata.as_mut().unwrap().annotations =
        Some(BTreeMap::from([("compute.datumapis.com/restartedAt".into(), "1".into())]));
    let made = |ordinal, edit: &dyn Fn(&mut Instance)| {
        let mut object = (*instance(ordinal, "7b9fd8c4", "ready")).clone();
        object.spec = InstanceSpec { controller: object.spec.controller, ..wd.spec.template.spec.clone() };
        object.spec.location = Some(LocationReference { name: "dfw".into(), namespace: None });
        object.metadata.labels = Some(BTreeMap::from([("app".into(), "x".into()), ("more".into(), "y".into())]));
        object.metadata.annotations = wd.spec.template.metadata.clone().unwrap().annotations;
        edit(&mut object);
        object.into()
    };
    let all = [made(0, &|_| ()), made(1, &|_| ())];
    assert_eq!(act(&wd, &all), "stamp wd-0");
    let stamped = writes(&wd, &all).into_iter().find_map(|w| match w.op {
        Op::Merge { body, .. } => Some(body),
        _ => None,
    });
    let stamped = stamped.unwrap();
    assert_eq!(stamped["spec"]["controller"]["templateHash"], template_hash(&wd.spec.template));
    assert_eq!(stamped["metadata"]["resourceVersion"], "1", "exactly the one that was judged");
    // Any other difference means another template. So does a restart that was requested since.
    let restarted = |i: &mut Instance| i.metadata.annotations = None;
    let other = |i: &mut Instance| i.spec.runtime.resources.instance_type = "big".into();
    assert_eq!(act(&wd, &[made(0, &restarted), made(1, &other)]), "delete wd-1");
}

#[test]
fn missing_identity_labels_are_restored_without_restart() {
    let wd = deployment(1, "i:1");
    let hash = template_hash(&wd.spec.template);
    let all = writes(&wd, &[instance(0, &hash, "ready")]);
    let Op::Apply { body, status: false, .. } = &all[0].op else { panic!("{all:?}") };
    assert_eq!(body["metadata"]["labels"].as_object().unwrap().len(), 7);
    assert_eq!(body["metadata"]["uid"], "i0");
    assert!(body["spec"].is_null());
    let mut whole = (*instance(0, &hash, "ready")).clone();
    whole.metadata.labels = Some(identity_labels(&wd, 0).into());
    let again = writes(&wd, &[whole.into()]);
    assert!(again.iter().all(|w| matches!(w.op, Op::Apply { status: true, .. })), "{again:?}");
}

#[test]
fn replicas_ready_quota_exceeded_counts_pending_instances() {
    let wd = deployment(3, "i:1");
    let hash = template_hash(&wd.spec.template);
    let waiting = |ordinal: u32| {
        let mut object = (*instance(ordinal, &hash, "waiting")).clone();
        let condition = |type_: &str| {
            json!({
                "type": type_, "status": "False", "reason": "QuotaExceeded", "message": "no more", "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        object.status =
            serde_json::from_value(json!({ "conditions": [condition("Ready"), condition("QuotaGranted")] })).unwrap();
        object.into()
    };
    let all = writes(&wd, &[instance(0, &hash, "ready"), waiting(1)]);
    let reported = &status_in(&all)["conditions"][1];
    assert_eq!(
        (reported["type"].as_str(), reported["reason"].as_str()),
        (Some("ReplicasReady"), Some("QuotaExceeded"))
    );
    assert_eq!(reported["message"], "1 of 3 desired replicas pending quota: wd-1: no more");
}

#[test]
fn new_instance_city_label_has_no_blanks_and_quota_has_finalizer() {
    let mut wd = deployment(1, "i:1");
    wd.spec.city_code = "San Jose".into();
    let features = Features { quota: true, ..Features::default() };
    let all = plan(&Observed { features, ..observed(&wd, &[]) }, NOW).steps;
    let body = created(&all);
    assert_eq!(body["metadata"]["labels"][label::CITY_CODE], "San-Jose");
    assert_eq!(body["metadata"]["finalizers"], json!([finalizer::QUOTA]));
}

#[test]
fn new_instance_with_referenced_data_has_data_gate() {
    let mut wd = deployment(1, "i:1");
    let made = |wd: &WorkloadDeployment, data: bool| {
        let features = Features { data, ..Features::default() };
        let observed = Observed { features, ..observed(wd, &[]) };
        let steps = plan(&observed, NOW).steps;
        let body = created(&steps);
        let gates = body["spec"]["controller"]["schedulingGates"].as_array().unwrap();
        (gates.len(), body["metadata"]["annotations"].get(annotation::REFERENCED_DATA_GATE_START).cloned())
    };
    assert_eq!(made(&wd, true), (2, None));
    let volume = json!({ "name": "v", "secret": { "secretName": "db" } });
    wd.spec.template.spec.volumes = Some(vec![serde_json::from_value(volume).unwrap()].into());
    assert_eq!(made(&wd, false), (2, None));
    assert_eq!(made(&wd, true), (3, Some(json!("1970-01-01T00:00:00Z"))));
}

#[path = "instances_of_go_tests.rs"]
mod of_go;

/// Temporary errors, and refused writes of other kinds than Instance, were not reported.
#[test]
fn refused_write_is_reported_after_a_delay_until_success() {
    let failure = |is_final, seconds| Failure {
        words: "it answers with HTTP 500".into(),
        is_final,
        lasted: std::time::Duration::from_secs(seconds),
    };
    let instance_object = Object::named::<Instance>("ns", "wd-0");
    let binding = Object { kind: Kind::NetworkBinding, namespace: "ns".into(), name: "wd-net-0".into() };
    let mut wd = deployment(2, "i:1");
    let hash = template_hash(&wd.spec.template);
    let one = [instance(0, &hash, "waiting")];
    let failing =
        |wd: &WorkloadDeployment, instances: &[Shared<Instance>]| Observed { failing: true, ..observed(wd, instances) };
    let both = [(binding.clone(), failure(false, 20)), (instance_object.clone(), failure(false, 20))];
    let told = |wd: &WorkloadDeployment, failures: &[(Object, Failure)]| failed(&failing(wd, &one), failures, NOW);
    assert!(told(&wd, &[(instance_object.clone(), failure(false, 19))]).is_none(), "it may pass");
    assert!(told(&wd, &[(instance_object.clone(), failure(true, 0))]).is_some(), "it does not pass");
    let text = format!("{:?}", told(&wd, &both).unwrap());
    assert!(text.contains("wd-0: it answers with HTTP 500") && !text.contains("wd-net-0"), "Instances first: {text}");
    let status = [told(&wd, &both[..1]).unwrap()];
    assert!(status_in(&status).to_string().contains("NetworkBinding ns/wd-net-0: it answers with HTTP 500"));
    wd.status = serde_json::from_value(status_in(&status).clone()).unwrap();
    assert!(told(&wd, &both[..1]).is_none(), "once");
    let said = |plan: Plan<Write<Cell>>| plan.steps.iter().any(|write| write.reports());
    assert!(!said(plan(&failing(&wd, &one), NOW)), "it does not come and go with each attempt");
    assert!(said(plan(&observed(&wd, &one), NOW)), "a success takes it back");
}

/// The deletion of surplus Instances was refused while all desired Instances were ready.
#[test]
fn refused_change_is_reported_beside_availability() {
    let mut wd = deployment(1, "i:1");
    let hash = template_hash(&wd.spec.template);
    let two = [instance(0, &hash, "ready"), instance(1, &hash, "ready")];
    let failing = |wd: &WorkloadDeployment| Observed { failing: true, ..observed(wd, &two) };
    let status = [refused(&failing(&wd), "wd-1", "no", NOW).unwrap()];
    let available = status_in(&status)["conditions"][0].clone();
    assert_eq!(available["status"], "True");
    assert!(available["message"].as_str().unwrap().ends_with("rejects a change: wd-1: no"), "{available}");
    wd.status = serde_json::from_value(status_in(&status).clone()).unwrap();
    assert!(refused(&failing(&wd), "wd-1", "no", NOW).is_none(), "once");
    assert!(plan(&failing(&wd), NOW).steps.iter().all(|write| !write.reports()), "and it stays");
}

/// A roll-out waited for an Instance that a finalizer held, and the deployment reported provisioning.
#[test]
fn stuck_terminating_instance_is_reported_with_finalizers() {
    let wd = deployment(2, "i:1");
    let hash = template_hash(&wd.spec.template);
    let mut going = (*instance(1, &hash, "going")).clone();
    going.metadata.finalizers = Some(vec!["example.com/hold".into(), finalizer::QUOTA.into()]);
    let waits = json!({ "type": "QuotaGranted", "status": "False", "reason": "QuotaBackendUnavailable",
        "message": "waiting to release ResourceClaim instance-wd-1: no answer", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    going.status.as_mut().unwrap().conditions.push(serde_json::from_value(waits).unwrap());
    let instances = [instance(0, &hash, "ready"), going.into()];
    let at = |replicas, second| {
        let wd = deployment(replicas, "i:1");
        let plan = plan(&observed(&wd, &instances), Timestamp::from_second(second).unwrap());
        let conditions = status_in(&plan.steps)["conditions"].clone();
        (conditions[0]["message"].to_string(), conditions[1]["message"].to_string(), plan.next)
    };
    let (available, ready, next) = at(2, 100);
    assert!(!available.contains("terminating") && !ready.contains("terminating"), "it may take its time");
    assert_eq!(
        next,
        crate::plan::Next::After(std::time::Duration::from_secs(20)),
        "no event reports the end of the patience"
    );
    let held = "Instance wd-1 has been terminating for more than 120 s: it is held by its finalizer example.com/hold, ";
    let (available, ready, next) = at(2, 120);
    assert!(ready.contains(held) && available.contains(held), "{available} {ready}");
    assert!(ready.contains("(waiting to release ResourceClaim instance-wd-1: no answer)"), "{ready}");
    assert_eq!(next, crate::plan::Next::Await);
    assert!(at(1, 120).0.contains(held), "also where all that is desired is ready");
}
