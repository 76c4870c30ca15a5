//! Specs that are ours whole, whoever wrote them: what the plans of both planes do about it.

use std::time::Duration;

use jiff::{Span, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::plan::management::{
    federator::{federate, repair::Capacity},
    referenced_data::resolve,
    workload::{
        fan_out, placement,
        refusal::{self, Cause, Refusal},
    },
};
use crate::{
    api::{
        compute::{Workload, WorkloadDeployment},
        meta::label,
        names::{CityCode, ProjectName},
    },
    plan::{NamespaceFacts, Next, Op, Plan, Project, Shared, Step, Write},
    timing::Timing,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn workload(settings: &Value) -> Workload {
    serde_json::from_value(json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "w1", "generation": 3,
            "finalizers": ["compute.datumapis.com/workload-controller"],
        },
        "spec": {
            "template": { "spec": {
                "runtime": {
                    "resources": { "instanceType": "t", "requests": { "cpu": "1000m" } },
                    "sandbox": { "containers": [{ "name": "c", "image": "i", "args": [] }] },
                },
                "networkInterfaces": [],
            }},
            "placements": [{ "name": "p", "cityCodes": ["dfw"], "scaleSettings": settings }],
        },
    }))
    .unwrap()
}

/// Who holds something of the spec of what the Go operator or a hand wrote.
fn held_by(managers: &[&str]) -> Vec<ManagedFieldsEntry> {
    let entry =
        |manager: &&str| ManagedFieldsEntry { manager: Some((*manager).to_owned()), ..ManagedFieldsEntry::default() };
    managers.iter().map(entry).collect()
}

/// The writes, without the live read of the Workload that comes before what changes a deployment.
fn plan(workload: &Workload, live: Option<&WorkloadDeployment>) -> Vec<Write<Project>> {
    planned(workload, live).steps.into_iter().filter(|write| !write.op.is_look()).collect()
}

fn planned(workload: &Workload, live: Option<&WorkloadDeployment>) -> Plan<Write<Project>> {
    let named = placement::names(workload).into_iter().filter_map(|name| Some((name, live?.clone().into())));
    let observed = fan_out::Observed {
        locations_fail: None,
        unreadable: Vec::new(),
        workload: workload.clone().into(),
        deployments: live.cloned().into_iter().map(Shared::from).collect(),
        named: named.collect(),
        bound: [CityCode::parse("dfw").unwrap()].into(),
        namespace_uid: Some("n1".into()),
        networks: None,
        contested: false,
        timing: Timing::default(),
    };
    fan_out::plan(&observed, NOW)
}

/// What the federator of a deployment without a copy writes in its project.
fn federated(deployment: &WorkloadDeployment) -> Vec<Write<Project>> {
    let steps = federate::plan(&to_federate(deployment, None), NOW).steps;
    steps.into_iter().filter_map(|step| if let Step::Local(write) = step { Some(write) } else { None }).collect()
}

fn to_federate(deployment: &WorkloadDeployment, copy: Option<WorkloadDeployment>) -> federate::Observed {
    let labels = [
        (label::UPSTREAM_CLUSTER, "cluster-single"),
        (label::UPSTREAM_NAMESPACE, "shop"),
        (label::DELETION_PROTECTED, "Always"),
    ];
    let namespace = NamespaceFacts {
        uid: "h1".into(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..NamespaceFacts::default()
    };
    federate::Observed {
        unshown: None,
        outage: None,
        hub_namespace_version: None,
        rival: None,
        namespace_words: None,
        project: ProjectName::single(),
        deployment: deployment.clone().into(),
        namespace_uid: Some("n1".into()),
        hub_namespace: Some(namespace.into()),
        keeper: crate::plan::Keeper::default(),
        copy: copy.map(Shared::from),
        is_first_copy: false,
        hidden_copy: None,
        turn_in: None,
        data: resolve::View::default(),
        karmada: None,
        blocked: None,
        capacity: Capacity::default(),
        timing: Timing::default(),
    }
}

/// The deployment that a Workload makes, as its API server answers.
fn made(workload: &Workload, edit: impl FnOnce(&mut Value)) -> WorkloadDeployment {
    let writes = plan(workload, None);
    let Some(Op::Apply { body, .. }) = writes.first().map(|write| &write.op) else { panic!("{writes:?}") };
    let mut body = json!(body);
    body["metadata"]["uid"] = json!("u1");
    body["metadata"]["resourceVersion"] = json!("5");
    edit(&mut body);
    serde_json::from_value(body).unwrap()
}

/// The operations on deployments, in one word each; Events are told apart by their reason.
fn words<P>(writes: &[Write<P>]) -> Vec<String> {
    let word = |write: &Write<P>| match &write.op {
        Op::Apply { status: false, .. } => "apply".to_owned(),
        Op::TakeOver { manager, resource_version, .. } => {
            let told = write.told().map(|event| match event.op {
                Op::Create { body, .. } => {
                    format!(", {}: {}", body["reason"].as_str().unwrap(), body["note"].as_str().unwrap())
                }
                op => panic!("{op:?}"),
            });
            format!("take over as {manager} at {resource_version}{}", told.unwrap_or_default())
        }
        _ => String::new(),
    };
    writes.iter().map(word).filter(|word| !word.is_empty()).collect()
}

#[test]
fn what_others_hold_of_a_deployment_is_taken_over_before_it_is_changed() {
    let two = workload(&json!({ "minReplicas": 2 }));
    let mut live = made(&two, |_| ());
    assert!(words(&plan(&two, Some(&live))).is_empty());
    live.metadata.managed_fields = Some(held_by(&["manager", "kubectl-edit"]));
    let taken = [
        "take over as compute-operator-workload at 5, FieldsTakenOver: the operator took over the fields of the spec that \
             kubectl-edit, manager wrote, and sets them from the source object",
    ];
    assert_eq!(words(&plan(&two, Some(&live))), taken);
    let four = workload(&json!({ "minReplicas": 4 }));
    let writes = plan(&four, Some(&live));
    assert_eq!(words(&writes), [&taken[..], &["apply"]].concat());
    let Some(Op::Apply { body, .. }) = writes.last().map(|write| &write.op) else { panic!("{writes:?}") };
    assert_eq!(body["spec"]["replicas"], 4);
    live.metadata.deletion_timestamp = Some(Time(NOW));
    assert!(words(&plan(&four, Some(&live))).is_empty(), "nothing is done to what goes");
}

/// Found by reading: after a conflict the apply was sent all the same, and half of the change rolled out before the whole.
#[test]
fn what_could_not_be_taken_over_is_not_changed_either() {
    let mut live = made(&workload(&json!({ "minReplicas": 2 })), |_| ());
    live.metadata.managed_fields = Some(held_by(&["manager"]));
    let writes = plan(&workload(&json!({ "minReplicas": 4 })), Some(&live));
    assert!(matches!(writes[1].op, Op::Apply { status: false, .. }), "{writes:?}");
    let refused = [Refusal::of(&writes[0], Cause::Passing { lasted: Duration::ZERO }, String::new())];
    assert!(!refusal::may_follow(&writes[1], &refused), "the same object");
    let mut other = writes[1].clone();
    other.object.name = "web-p-ord".into();
    assert!(refusal::may_follow(&other, &refused), "another city");
}

/// Found by reading: somebody who took his fields back each time was followed at his pace, with an Event for each.
#[test]
fn who_takes_back_what_was_taken_is_not_followed_at_his_pace() {
    let object = workload(&json!({ "minReplicas": 2 }));
    let mut live = made(&object, |_| ());
    let entry = |manager: &str, operation: &str, seconds: i64| ManagedFieldsEntry {
        manager: Some(manager.into()),
        operation: Some(operation.into()),
        time: Some(Time(NOW + Span::new().seconds(seconds))),
        ..ManagedFieldsEntry::default()
    };
    for (ours, theirs, wanted) in [
        (-5, -5, Next::After(Duration::from_secs(55))),
        (-59, -5, Next::After(Duration::from_secs(1))),
        (-5, -59, Next::After(Duration::from_secs(1))),
        (-60, -5, Next::Await),
        (-5, -3600, Next::Await),
        (5, 5, Next::After(Duration::from_mins(1))),
    ] {
        live.metadata.managed_fields =
            Some(vec![entry("compute-operator-workload", "Apply", ours), entry("manager", "Update", theirs)]);
        let plan = planned(&object, Some(&live));
        assert_eq!(plan.next, wanted, "{ours} {theirs}");
        assert_eq!(words(&plan.steps).len(), usize::from(wanted == Next::Await), "{ours} {theirs}");
    }
}

/// Found by reading: a condition that the Go operator wrote, and nobody writes now, stayed for ever; and one of which it held
/// a part could not be removed without what its definition demands, which made every status invalid.
#[test]
fn what_others_hold_of_a_status_passes_as_well_and_is_not_told() {
    let object = workload(&json!({ "minReplicas": 2 }));
    let of_status = |manager: &&str| ManagedFieldsEntry {
        manager: Some((*manager).to_owned()),
        subresource: Some("status".into()),
        ..ManagedFieldsEntry::default()
    };
    let theirs: Vec<ManagedFieldsEntry> = ["manager"].iter().map(of_status).collect();
    let live = made(&object, |_| ());
    let mut held = object.clone();
    held.metadata.managed_fields = Some(theirs.clone());
    held.metadata.resource_version = Some("7".into());
    assert_eq!(words(&plan(&held, Some(&live))), ["take over as compute-operator-workload at 7"]);
    let mut deployment = live.clone();
    deployment.metadata.managed_fields = Some(theirs);
    assert!(words(&plan(&object, Some(&deployment))).is_empty(), "a deployment's status is its federator's");
    assert_eq!(words(&federated(&deployment)), ["take over as compute-operator-federator at 5"]);
    deployment.metadata.finalizers = None;
    assert_eq!(words(&federated(&deployment)), ["apply"], "its mark makes another version of it");
}

#[test]
fn a_deployment_without_a_number_gets_none() {
    let object = workload(&json!({ "minReplicas": 2 }));
    let live = made(&object, |body| drop(body["spec"].as_object_mut().unwrap().remove("replicas")));
    assert!(words(&plan(&object, Some(&live))).is_empty());
    let scaled = workload(&json!({ "minReplicas": 2, "maxReplicas": 4 }));
    let live = made(&scaled, |body| drop(body["spec"].as_object_mut().unwrap().remove("replicas")));
    let writes = plan(&scaled, Some(&live));
    let Some(Op::Apply { body, .. }) = writes.first().map(|write| &write.op) else { panic!("{writes:?}") };
    assert_eq!(body["spec"]["replicas"], 2, "whoever scales reads it");
}

#[test]
fn another_form_of_the_same_is_no_change() {
    let object = workload(&json!({ "minReplicas": 1 }));
    let live = made(&object, |body| {
        let spec = &mut body["spec"]["template"]["spec"];
        spec["runtime"]["resources"]["requests"]["cpu"] = json!("1");
        spec["runtime"]["sandbox"]["containers"][0].as_object_mut().unwrap().remove("args");
        body["spec"]["template"]["metadata"] = json!({});
    });
    assert!(words(&plan(&object, Some(&live))).is_empty(), "the Go operator's form stays");
    let mut more = object.clone();
    more.spec.template.spec.runtime.sandbox.as_mut().unwrap().containers[0].image = "j".into();
    let writes = plan(&more, Some(&live));
    let Some(Op::Apply { body, .. }) = writes.first().map(|write| &write.op) else { panic!("{writes:?}") };
    let template = &body["spec"]["template"];
    assert_eq!(template["spec"]["runtime"]["resources"]["requests"]["cpu"], "1", "what is not changed keeps its form");
    assert_eq!(template["metadata"], json!({}));
    assert_eq!(template["spec"]["runtime"]["sandbox"]["containers"][0], json!({ "name": "c", "image": "j" }));
}

#[test]
fn the_number_of_instances_is_the_workloads_unless_it_asks_for_autoscaling() {
    let metric = json!([{ "resource": { "name": "cpu", "target": { "averageUtilization": 80 } } }]);
    for (settings, standing, wanted) in [
        (json!({ "minReplicas": 2 }), Some(5), 2),
        (json!({ "minReplicas": 2, "maxReplicas": 2 }), Some(5), 2),
        (json!({ "minReplicas": 2, "metrics": [] }), Some(5), 2),
        (json!({ "minReplicas": 2, "maxReplicas": 9 }), None, 2),
        (json!({ "minReplicas": 2, "maxReplicas": 9 }), Some(5), 5),
        (json!({ "minReplicas": 2, "metrics": metric }), Some(5), 5),
        (json!({ "minReplicas": 2, "maxReplicas": 9 }), Some(2), 2),
        (json!({ "minReplicas": 2, "maxReplicas": 9 }), Some(9), 9),
        (json!({ "minReplicas": 2, "maxReplicas": 9 }), Some(1), 2),
        (json!({ "minReplicas": 2, "maxReplicas": 9 }), Some(12), 9),
        (json!({ "minReplicas": 2, "metrics": metric }), Some(1), 2),
        (json!({ "minReplicas": 2, "maxReplicas": 1, "metrics": metric }), Some(5), 2),
    ] {
        let object = workload(&settings);
        let live = made(&object, |body| body["spec"]["replicas"] = json!(standing));
        let writes = plan(&object, Some(&live));
        let applied = writes.iter().find_map(|write| match &write.op {
            Op::Apply { body, status: false, .. } => Some(body["spec"]["replicas"].clone()),
            _ => None,
        });
        let expected = (standing != Some(wanted)).then(|| json!(wanted));
        assert_eq!(applied, expected, "{settings} with {standing:?} standing");
        let told = writes.iter().find_map(|write| match &write.op {
            Op::Apply { body, status: true, .. } => Some(body["status"]["conditions"].to_string()),
            _ => None,
        });
        if let Some(told) = told {
            assert_eq!(
                told.contains("AutoscalingNotServed"),
                object.spec.placements[0].scale_settings.asks_for_autoscaling()
            );
        }
    }
}

#[test]
fn a_copy_on_the_hub_is_taken_over_and_carries_the_number_as_it_is() {
    let object = workload(&json!({ "minReplicas": 2, "maxReplicas": 9 }));
    let original = made(&object, |body| {
        body["metadata"]["generation"] = json!(4);
        body["spec"]["replicas"] = json!(5);
    });
    let on_hub = |copy: Option<WorkloadDeployment>| {
        let steps = federate::plan(&to_federate(&original, copy), NOW).steps;
        let remote =
            steps.into_iter().filter_map(|step| if let Step::Remote(write) = step { Some(write) } else { None });
        remote.collect::<Vec<_>>()
    };
    let writes = on_hub(None);
    let Some(Op::Apply { body, .. }) = writes.last().map(|write| &write.op) else { panic!("{writes:?}") };
    assert_eq!(body["spec"]["replicas"], 5);
    let mut copy: WorkloadDeployment = serde_json::from_value(json!(body)).unwrap();
    copy.metadata.uid = Some("c1".into());
    copy.metadata.resource_version = Some("9".into());
    assert!(words(&on_hub(Some(copy.clone()))).is_empty());
    copy.metadata.managed_fields = Some(held_by(&["manager"]));
    let writes = on_hub(Some(copy.clone()));
    assert!(
        words(&writes)[0].starts_with("take over as compute-operator-federator at 9, FieldsTakenOver: "),
        "{writes:?}"
    );
    assert_eq!(words(&writes).len(), 1, "{writes:?}");
    copy.annotations_mut().insert("example.com/theirs".into(), "stays".into());
    copy.metadata.managed_fields = None;
    assert!(words(&on_hub(Some(copy))).is_empty(), "others' annotations are theirs");
}
