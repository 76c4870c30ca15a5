//! Take-over of fields: the operator owns the whole spec of its objects on both planes, even fields that another manager wrote.

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

/// Returns managed fields of these managers.
fn held_by(managers: &[&str]) -> Vec<ManagedFieldsEntry> {
    let entry =
        |manager: &&str| ManagedFieldsEntry { manager: Some((*manager).to_owned()), ..ManagedFieldsEntry::default() };
    managers.iter().map(entry).collect()
}

/// Returns the writes of the plan without the live reads that confirm the Workload.
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

/// Returns the federator's writes in the project for a deployment without a copy.
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

/// Returns the deployment that a Workload creates, as the API server returns it.
fn made(workload: &Workload, edit: impl FnOnce(&mut Value)) -> WorkloadDeployment {
    let writes = plan(workload, None);
    let Some(Op::Apply { body, .. }) = writes.first().map(|write| &write.op) else { panic!("{writes:?}") };
    let mut body = json!(body);
    body["metadata"]["uid"] = json!("u1");
    body["metadata"]["resourceVersion"] = json!("5");
    edit(&mut body);
    serde_json::from_value(body).unwrap()
}

/// Describes each apply and take-over in short words, with the Event of a take-over.
fn words<P>(writes: &[Write<P>]) -> Vec<String> {
    let word = |write: &Write<P>| match &write.op {
        Op::Apply { status: false, .. } => "apply".to_owned(),
        Op::TakeOver { manager, resource_version, .. } => {
            let event = write.told().map(|event| match event.op {
                Op::Create { body, .. } => {
                    format!(", {}: {}", body["reason"].as_str().unwrap(), body["note"].as_str().unwrap())
                }
                op => panic!("{op:?}"),
            });
            format!("take over as {manager} at {resource_version}{}", event.unwrap_or_default())
        }
        _ => String::new(),
    };
    writes.iter().map(word).filter(|word| !word.is_empty()).collect()
}

#[test]
fn deployment_with_fields_of_others_is_taken_over_before_change() {
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
    assert!(words(&plan(&four, Some(&live))).is_empty(), "a terminating deployment is not changed");
}

/// After a conflict of the take-over the apply was still sent, and half of the change rolled out before the rest.
#[test]
fn deployment_with_failed_take_over_is_not_changed() {
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

/// A client that took its fields back each time was followed at its own pace, with an Event for each take-over.
#[test]
fn take_over_of_fields_taken_back_waits_a_minute() {
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

/// A condition that only the Go operator wrote stayed for ever. A condition of which it owned some fields could not be removed
/// without its required fields, which made every status invalid.
#[test]
fn status_with_fields_of_others_is_taken_over_without_event() {
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
    assert!(words(&plan(&object, Some(&deployment))).is_empty(), "the federator owns a deployment's status");
    assert_eq!(words(&federated(&deployment)), ["take over as compute-operator-federator at 5"]);
    deployment.metadata.finalizers = None;
    assert_eq!(words(&federated(&deployment)), ["apply"], "the finalizer changes the version first");
}

#[test]
fn deployment_without_replicas_gets_none_until_it_scales() {
    let object = workload(&json!({ "minReplicas": 2 }));
    let live = made(&object, |body| drop(body["spec"].as_object_mut().unwrap().remove("replicas")));
    assert!(words(&plan(&object, Some(&live))).is_empty());
    let scaled = workload(&json!({ "minReplicas": 2, "maxReplicas": 4 }));
    let live = made(&scaled, |body| drop(body["spec"].as_object_mut().unwrap().remove("replicas")));
    let writes = plan(&scaled, Some(&live));
    let Some(Op::Apply { body, .. }) = writes.first().map(|write| &write.op) else { panic!("{writes:?}") };
    assert_eq!(body["spec"]["replicas"], 2, "an autoscaler reads it");
}

#[test]
fn deployment_in_another_form_of_the_same_spec_is_not_changed() {
    let object = workload(&json!({ "minReplicas": 1 }));
    let live = made(&object, |body| {
        let spec = &mut body["spec"]["template"]["spec"];
        spec["runtime"]["resources"]["requests"]["cpu"] = json!("1");
        spec["runtime"]["sandbox"]["containers"][0].as_object_mut().unwrap().remove("args");
        body["spec"]["template"]["metadata"] = json!({});
    });
    assert!(words(&plan(&object, Some(&live))).is_empty(), "the Go operator's form is kept");
    let mut more = object.clone();
    more.spec.template.spec.runtime.sandbox.as_mut().unwrap().containers[0].image = "j".into();
    let writes = plan(&more, Some(&live));
    let Some(Op::Apply { body, .. }) = writes.first().map(|write| &write.op) else { panic!("{writes:?}") };
    let template = &body["spec"]["template"];
    assert_eq!(template["spec"]["runtime"]["resources"]["requests"]["cpu"], "1", "an unchanged field keeps its form");
    assert_eq!(template["metadata"], json!({}));
    assert_eq!(template["spec"]["runtime"]["sandbox"]["containers"][0], json!({ "name": "c", "image": "j" }));
}

#[test]
fn deployment_replicas_follow_the_workload_unless_it_asks_for_autoscaling() {
    let metric = json!([{ "resource": { "name": "cpu", "target": { "averageUtilization": 80 } } }]);
    for (settings, present, wanted) in [
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
        let live = made(&object, |body| body["spec"]["replicas"] = json!(present));
        let writes = plan(&object, Some(&live));
        let applied = writes.iter().find_map(|write| match &write.op {
            Op::Apply { body, status: false, .. } => Some(body["spec"]["replicas"].clone()),
            _ => None,
        });
        let expected = (present != Some(wanted)).then(|| json!(wanted));
        assert_eq!(applied, expected, "{settings} with {present:?}");
        let conditions = writes.iter().find_map(|write| match &write.op {
            Op::Apply { body, status: true, .. } => Some(body["status"]["conditions"].to_string()),
            _ => None,
        });
        if let Some(conditions) = conditions {
            assert_eq!(
                conditions.contains("AutoscalingNotServed"),
                object.spec.placements[0].scale_settings.asks_for_autoscaling()
            );
        }
    }
}

#[test]
fn hub_copy_is_taken_over_and_carries_the_replicas_unchanged() {
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
    assert!(words(&on_hub(Some(copy))).is_empty(), "annotations of others are kept");
}
