use std::time::Duration;

use super::*;
use crate::{
    api::{names::ProjectName, referenced::DataRef},
    plan::{
        Body, Keeper, Next, Op, Shared,
        management::federator::repair::{Absence, Capacity},
        recorded::recorded,
    },
    timing::Timing,
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn deployment() -> WorkloadDeployment {
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": {
            "name": "wd", "namespace": "shop", "uid": "u1", "resourceVersion": "5", "generation": 4,
            "labels": { "app": "x", "propagationpolicy.karmada.io/permanent-id": "forged" },
            "annotations": { "private": "stays" },
        },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

fn marked() -> WorkloadDeployment {
    let mut wd = deployment();
    wd.metadata.finalizers = Some(vec![finalizer::FEDERATOR.into()]);
    wd.annotations_mut().insert(annotation::FEDERATION_NAMESPACE.into(), "ns-n1".into());
    status::judged(wd, NOW)
}

fn deleting() -> WorkloadDeployment {
    let mut wd = marked();
    wd.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    wd
}

fn namespace() -> NamespaceFacts {
    let labels = [
        (label::UPSTREAM_CLUSTER, "cluster-single"),
        (label::UPSTREAM_NAMESPACE, "shop"),
        (label::DELETION_PROTECTED, "Always"),
    ];
    NamespaceFacts {
        uid: "h1".into(),
        labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..NamespaceFacts::default()
    }
}

#[allow(clippy::needless_pass_by_value)] // reads better where it is called
fn steps(
    wd: &WorkloadDeployment,
    uid: Option<&str>,
    hub: Option<NamespaceFacts>,
    copy: Option<WorkloadDeployment>,
) -> Vec<Step<Project, Hub>> {
    let observed = observed(wd, uid, hub, copy);
    let plan_of = |observed: &Observed| plan(observed, NOW);
    let plan = plan_of(&observed);
    assert_eq!(format!("{:?}", plan_of(&recorded(&observed))), format!("{plan:?}"), "decided again from its record");
    plan.steps
}

/// A snapshot of a deployment that nothing blocks. Objects of the hub are seen only in the hub namespace ns-n1.
#[allow(clippy::needless_pass_by_value)] // reads better where it is called
fn observed(
    wd: &WorkloadDeployment,
    uid: Option<&str>,
    hub: Option<NamespaceFacts>,
    copy: Option<WorkloadDeployment>,
) -> Observed {
    let namespace = copy_namespace(wd, uid);
    let here = namespace.as_deref() == Some("ns-n1");
    Observed {
        unshown: None,
        outage: None,
        hub_namespace_version: None,
        rival: None,
        namespace_words: None,
        project: ProjectName::single(),
        deployment: wd.clone().into(),
        namespace_uid: uid.map(str::to_owned),
        hub_namespace: hub.filter(|_| here).map(Shared::from),
        keeper: Keeper::default(),
        copy: copy.filter(|_| here).map(Shared::from),
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

/// The copy as the hub holds it after our writes.
fn copy_of(wd: &WorkloadDeployment) -> WorkloadDeployment {
    let steps = steps(wd, Some("n1"), Some(namespace()), None);
    let written = steps.iter().rev().find_map(|step| match step {
        Step::Remote(Write { op: Op::Apply { body, .. }, .. }) => Some(body),
        _ => None,
    });
    let mut copy: WorkloadDeployment = serde_json::from_value(json!(written.unwrap())).unwrap();
    copy.metadata.uid = Some("c1".into());
    copy.metadata.resource_version = Some("9".into());
    copy
}

#[test]
fn deployment_is_marked_before_any_write_to_the_hub() {
    let all = steps(&deployment(), Some("n1"), None, None);
    let shown: Vec<String> = all
        .iter()
        .map(|step| match step {
            Step::Local(write) => format!("project {}", write.object),
            Step::Remote(write) => format!("hub {}", write.object),
        })
        .collect();
    let of_project = "project WorkloadDeployment shop/wd";
    let marked = [of_project, "hub Namespace ns-n1", "hub WorkloadDeployment ns-n1/wd", of_project];
    assert_eq!(shown[0], "project Namespace shop", "a live read of what the hub namespace mirrors");
    assert_eq!(shown[1..], marked, "the mark comes first, and the first status last");
}

/// Each new deployment got two statuses within a moment. The first one only said that nothing was known yet.
#[test]
fn first_status_waits_for_the_report_of_the_city() {
    let mut new = marked();
    new.status = None;
    let mut copy = copy_of(&new);
    copy.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    let mut reported = copy.clone();
    reported.status = serde_json::from_value(json!({ "replicas": 1, "observedSourceGeneration": 4 })).unwrap();
    let mut refers = json!(new);
    refers["spec"]["template"]["spec"]["runtime"]["sandbox"] = json!({ "containers": [{
        "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "a" } }],
    }]});
    let refers: WorkloadDeployment = serde_json::from_value(refers).unwrap();
    let mut without_a_source = observed(&refers, Some("n1"), Some(namespace()), None);
    without_a_source.data.sources = [(DataRef::secret("a"), resolve::Source::Absent)].into();
    let after = |observed: &Observed, millis: i64| {
        let plan = plan(observed, NOW + jiff::SignedDuration::from_millis(millis));
        let reports = |step: &&Step<Project, Hub>| matches!(step, Step::Local(write) if write.reports());
        (plan.steps.iter().filter(reports).count(), plan.next)
    };
    let mut created = new.clone();
    created.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    let without_a_copy = observed(&created, Some("n1"), Some(namespace()), None);
    assert_eq!(after(&without_a_copy, 4_000), (0, Next::After(Duration::from_secs(16))), "this plan creates it");
    assert_eq!(after(&without_a_copy, 20_000).0, 1, "no plan has created it");
    let silent = observed(&new, Some("n1"), Some(namespace()), Some(copy));
    assert_eq!(after(&silent, 0), (0, Next::After(Duration::from_secs(2))));
    assert_eq!(after(&silent, 1_900), (0, Next::After(Duration::from_millis(100))));
    assert_eq!(after(&silent, 2_000).0, 1);
    assert_eq!(after(&silent, -5_000).0, 1, "the clock is wrong");
    let reported = observed(&new, Some("n1"), Some(namespace()), Some(reported));
    assert_eq!(after(&reported, 0).0, 1);
    assert_eq!(after(&without_a_source, 0).0, 2, "its tenant has to act: a status and an Event");
}

#[test]
fn status_that_is_stored_as_written_needs_no_other_look_unless_something_waits_for_it() {
    let plan_of = |wd: &WorkloadDeployment| {
        let mut copy = copy_of(wd);
        copy.status = serde_json::from_value(json!({ "replicas": 1, "updatedReplicas": 1, "observedGeneration": 4,
            "observedSourceGeneration": 4 }))
        .unwrap();
        let observed = observed(wd, Some("n1"), Some(namespace()), Some(copy));
        let plan = plan(&observed, NOW);
        let written = status_of(&plan).unwrap();
        (observed, Decided { next: Next::Await, signals: Vec::new(), ..plan }, written)
    };
    let mut expecting = marked();
    let expected = json!(["Secret/db"]).to_string();
    expecting.annotations_mut().insert(annotation::EXPECTED_REFERENCED_DATA.into(), expected);
    expecting.status = None;
    let (observed, plan, written) = plan_of(&marked());
    let like = |plan: &Decided| Decided { steps: plan.steps.clone(), next: plan.next, signals: Vec::new() };
    let waiting = Decided { next: Next::After(Duration::from_secs(1)), ..like(&plan) };
    let blocked = Signal::Blocked { reason: "NotApplied".into(), silence: None };
    let blocked = like(&plan).with([blocked]);
    assert_eq!(status_of(&Plan::nothing()), None);
    let stored = |status: &WorkloadDeploymentStatus, version: &str| {
        let mut stored = (*observed.deployment).clone();
        stored.status = Some(status.clone());
        stored.metadata.resource_version = Some(version.into());
        stored
    };
    let other = WorkloadDeploymentStatus { replicas: 9, ..written.clone() };
    for (case, plan, stored, expected) in [
        ("as written", &plan, stored(&written, "6"), false),
        ("not in the cache", &plan, stored(&other, "5"), false),
        ("changed by the server", &plan, stored(&other, "6"), true),
        ("a grace runs", &waiting, stored(&written, "6"), true),
        ("blocked", &blocked, stored(&written, "6"), true),
    ] {
        assert_eq!(asks_for_another_look(&observed, plan, &written, &stored), expected, "{case}");
    }
    let (observed, plan, written) = plan_of(&expecting);
    let mut stored = (*observed.deployment).clone();
    (stored.status, stored.metadata.resource_version) = (Some(written.clone()), Some("6".into()));
    assert!(asks_for_another_look(&observed, &plan, &written, &stored), "the rollout has ended, and released its data");
}

#[test]
fn copy_has_labels_for_its_cell_and_none_of_karmada() {
    let copy = copy_of(&marked());
    let labels = copy.labels();
    assert_eq!(
        (labels["app"].as_str(), labels[label::TOPOLOGY_CITY].as_str(), labels[label::UPSTREAM_NAMESPACE].as_str()),
        ("x", "DFW", "shop"),
        "the city as the user spells it"
    );
    assert!(!labels.contains_key("propagationpolicy.karmada.io/permanent-id"));
    assert_eq!(copy.annotations()[annotation::SOURCE_GENERATION], "4");
    assert!(
        !copy.annotations().contains_key("private")
            && !copy.annotations().contains_key(annotation::FEDERATION_NAMESPACE)
    );
    assert!(copy.finalizers().is_empty() && copy.owner_references().is_empty());
}

#[test]
fn copy_without_a_difference_is_not_written() {
    let wd = marked();
    assert!(steps(&wd, Some("n1"), Some(namespace()), Some(copy_of(&wd))).is_empty());
}

/// A deployment with a changed city stayed in the old one forever, and its message advised to remove the operator's own policy.
#[test]
fn copy_claimed_by_policy_of_another_city_is_recreated() {
    let wd = marked();
    let mut copy = copy_of(&wd);
    copy.annotations_mut().insert(annotation::POLICY_NAME.into(), "city-dfw".into());
    assert!(steps(&wd, Some("n1"), Some(namespace()), Some(copy.clone())).is_empty(), "its own");
    for other in ["city-ord", "theirs"] {
        copy.annotations_mut().insert(annotation::POLICY_NAME.into(), other.into());
        let all = steps(&wd, Some("n1"), Some(namespace()), Some(copy.clone()));
        let deletes = all.iter().any(|step| matches!(step, Step::Remote(Write { op: Op::Delete { .. }, .. })));
        assert_eq!(deletes, other == "city-ord", "{other}: {all:?}");
        if deletes {
            let first = &all[0];
            assert!(matches!(first, Step::Local(Write { op: Op::ConfirmUnchanged { .. }, .. })), "its cause: {all:?}");
        }
    }
    assert!(!steps(&wd, Some("n1"), Some(namespace()), None).is_empty(), "it is recreated");
}

/// On real Karmada, a closed network with `ingress: []` reached the cell as `ingress: {}`, and was rejected there.
#[test]
fn copy_has_no_empty_list_and_an_old_one_with_it_is_written_once() {
    let mut wd = marked();
    let policies = [json!({ "ingress": [{}] }), json!({ "ingress": [] })];
    let interfaces = policies.map(|policy| json!({ "network": { "name": "n" }, "networkPolicy": policy }));
    wd.spec.template.spec.network_interfaces = serde_json::from_value(json!(interfaces)).unwrap();
    let copy = copy_of(&wd);
    let sent = |copy: &WorkloadDeployment| json!(copy.spec.template.spec.network_interfaces[1].network_policy);
    assert_eq!(sent(&copy), json!({}));
    assert!(steps(&wd, Some("n1"), Some(namespace()), Some(copy.clone())).is_empty());
    // As an earlier version wrote it.
    let mut old = copy;
    old.spec = wd.spec.clone();
    let all = steps(&wd, Some("n1"), Some(namespace()), Some(old));
    let [Step::Remote(Write { op: Op::Apply { body, .. }, .. })] = &all[..] else { panic!("{all:?}") };
    assert_eq!(body["spec"]["template"]["spec"]["networkInterfaces"][1]["networkPolicy"], json!({}));
}

/// A suspended project kept running, and a suspension by the Go operator on the hub never ended.
#[test]
fn suspension_and_its_end_are_copied() {
    let mut wd = marked();
    for value in ["true", "false"] {
        wd.annotations_mut().insert(annotation::SUSPENDED.into(), value.into());
        assert_eq!(copy_of(&wd).annotations()[annotation::SUSPENDED], value);
    }
    let of_go = copy_of(&wd);
    assert!(
        steps(&wd, Some("n1"), Some(namespace()), Some(of_go.clone())).is_empty(),
        "what the project says stays there"
    );
    wd.annotations_mut().remove(annotation::SUSPENDED);
    let all = steps(&wd, Some("n1"), Some(namespace()), Some(of_go));
    let [Step::Remote(Write { op: Op::Merge { body, .. }, .. })] = &all[..] else { panic!("{all:?}") };
    assert_eq!(body["metadata"]["annotations"], json!({ annotation::SUSPENDED: null }));
}

#[test]
fn expected_data_written_by_another_client_is_removed() {
    let mut wd = marked();
    wd.annotations_mut().insert(annotation::EXPECTED_REFERENCED_DATA.into(), "[\"Secret/s\"]".into());
    let all = steps(&wd, Some("n1"), Some(namespace()), None);
    let cleared = json!({ annotation::EXPECTED_REFERENCED_DATA: null });
    assert!(matches!(&all[0], Step::Local(Write { op: Op::Merge { body, .. }, .. })
        if body["metadata"]["annotations"] == cleared));
    assert!(!format!("{:?}", all[1]).contains("Secret/s"), "{all:?}");
    // Writers of the hub cannot set it either.
    let mut copy = copy_of(&marked());
    copy.annotations_mut().insert(annotation::EXPECTED_REFERENCED_DATA.into(), "[\"Secret/s\"]".into());
    let all = steps(&marked(), Some("n1"), Some(namespace()), Some(copy));
    assert!(
        matches!(&all[0], Step::Remote(Write { op: Op::Merge { body, .. }, .. })
        if body["metadata"]["annotations"] == cleared),
        "{all:?}"
    );
}

#[test]
fn source_that_cannot_be_copied_is_reported_at_once() {
    let mut wd = marked();
    let volume = json!({ "name": "v", "secret": { "secretName": "db" } });
    wd.spec.template.spec.volumes = Some(vec![serde_json::from_value(volume).unwrap()].into());
    let sources = [(DataRef::secret("db"), resolve::Source::Absent)].into();
    let data = resolve::View { sources, ..resolve::View::default() };
    let plan = plan(&Observed { data, ..observed(&wd, Some("n1"), Some(namespace()), None) }, NOW);
    let bodies: Vec<&Body> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Local(Write { op: Op::Apply { body, .. }, .. })
            | Step::Remote(Write { op: Op::Apply { body, .. }, .. }) => Some(body),
            _ => None,
        })
        .collect();
    let error = |body: &Body| body["metadata"]["annotations"][annotation::REFERENCED_DATA_ERROR].to_string();
    assert!(bodies[..2].iter().all(|body| error(body).contains("SourceNotFound")), "project and hub: {bodies:?}");
    let condition = &bodies[2]["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("ReferencedDataReady"), &json!("SourceNotFound")));
}

#[test]
fn forged_hub_namespace_is_corrected() {
    let mut wd = marked();
    wd.annotations_mut().insert(annotation::FEDERATION_NAMESPACE.into(), "ns-of-another-tenant".into());
    let all = steps(&wd, Some("n1"), Some(namespace()), None);
    assert!(matches!(&all[0], Step::Local(Write { op: Op::Apply { body, .. }, .. })
        if body["metadata"]["annotations"][annotation::FEDERATION_NAMESPACE] == "ns-n1"));
    assert!(matches!(&all[1], Step::Remote(write) if write.object.namespace == "ns-n1"));
}

#[test]
fn status_is_mirrored_with_generations_of_the_project() {
    let wd = marked();
    let mut copy = copy_of(&wd);
    copy.status = Some(
        serde_json::from_value(json!({
            "replicas": 2, "currentReplicas": 2, "desiredReplicas": 2, "readyReplicas": 1, "observedGeneration": 77, "observedSourceGeneration": 4,
            "conditions": [
                { "type": "Available", "status": "True", "reason": "StableInstanceFound", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 77 },
                { "type": "ReferencedDataReady", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" },
            ],
        }))
        .unwrap(),
    );
    let all = steps(&wd, Some("n1"), Some(namespace()), Some(copy));
    let [Step::Local(Write { op: Op::Apply { body, status: true, .. }, .. })] = &all[..] else { panic!("{all:?}") };
    let status = &body["status"];
    assert_eq!((&status["observedGeneration"], &status["readyReplicas"]), (&json!(4), &json!(1)));
    let types: Vec<&Value> = status["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
    assert_eq!(types, ["Available", "Ready", "Reconciling"], "ReferencedDataReady is the project's own");
    assert_eq!(status["conditions"][0]["observedGeneration"], 4);
    let ready = &status["conditions"][1];
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("InstancesProvisioning")), "{ready}");
}

#[test]
fn deployment_deletion_deletes_copy_first_and_needs_a_live_read() {
    let wd = deleting();
    let all = steps(&wd, Some("n1"), Some(namespace()), Some(copy_of(&marked())));
    assert!(
        matches!(
            &all[..],
            [
                Step::Local(Write { op: Op::ConfirmUnchanged { .. }, .. }),
                Step::Remote(Write { op: Op::Delete { uid, resource_version }, .. })
            ] if uid == "c1" && resource_version == "9"
        ),
        "{all:?}"
    );
    // The same if the project's namespace is gone: then the recorded hub namespace is used.
    let all = steps(&wd, None, Some(namespace()), Some(copy_of(&marked())));
    assert!(matches!(&all[..], [Step::Local(_), Step::Remote(_)]), "{all:?}");
    // But not if it is another project's: any client that writes the deployment could have recorded it.
    let mut others = namespace();
    others.labels.insert(label::UPSTREAM_CLUSTER.into(), "cluster-other".into());
    let all = steps(&wd, None, Some(others), Some(copy_of(&marked())));
    assert!(matches!(&all[..], [Step::Local(Write { op: Op::Merge { .. }, .. })]), "{all:?}");
    let all = steps(&wd, Some("n1"), Some(namespace()), None);
    assert!(
        matches!(
            &all[..],
            [Step::Remote(Write { op: Op::ConfirmAbsent, .. }), Step::Local(Write { op: Op::Merge { .. }, .. })]
        ),
        "{all:?}"
    );
}

#[test]
fn object_of_another_owner_with_the_same_name_is_not_deleted() {
    let mut foreign = copy_of(&marked());
    foreign.labels_mut().insert(label::UPSTREAM_NAMESPACE.into(), "other".into());
    let all = steps(&deleting(), Some("n1"), Some(namespace()), Some(foreign));
    assert!(matches!(&all[..], [Step::Local(Write { op: Op::Merge { .. }, .. })]), "{all:?}");
}

/// The finalizer was removed while a copy with a changed label existed, and no controller found the copy any more.
#[test]
fn copy_with_changed_label_is_deleted_before_its_deployment() {
    let written = json!([{ "manager": manager::FEDERATOR, "operation": "Apply" }]);
    for value in [Some("other"), None] {
        let mut copy = copy_of(&marked());
        copy.metadata.managed_fields = serde_json::from_value(written.clone()).unwrap();
        copy.labels_mut().remove(label::UPSTREAM_NAMESPACE);
        copy.labels_mut().extend(value.map(|value| (label::UPSTREAM_NAMESPACE.to_owned(), value.to_owned())));
        let deletes = |steps: &[Step<Project, Hub>]| matches!(steps.last(), Some(Step::Remote(Write { op: Op::Delete { uid, .. }, .. })) if uid == "c1");
        let all = steps(&deleting(), Some("n1"), Some(namespace()), Some(copy.clone()));
        assert!(all.len() == 2 && deletes(&all), "{all:?}");
        let elsewhere = NamespaceFacts { labels: BTreeMap::new(), ..namespace() };
        let all = steps(&deleting(), None, Some(elsewhere), Some(copy));
        assert!(!deletes(&all), "in a namespace that mirrors another it is not ours: {all:?}");
    }
}

#[test]
fn deployment_never_federated_is_released() {
    let mut wd = deleting();
    wd.metadata.annotations = None;
    assert!(matches!(&steps(&wd, None, None, None)[..], [Step::Local(_)]));
}

#[test]
fn hub_namespace_terminating_gets_no_copy() {
    let facts = NamespaceFacts { terminating: true, ..namespace() };
    assert!(steps(&marked(), Some("n1"), Some(facts), None).is_empty());
}

#[test]
fn invalid_city_is_reported() {
    let mut wd = marked();
    wd.spec.city_code = "a/b".into();
    let all = steps(&wd, Some("n1"), Some(namespace()), None);
    let [Step::Local(Write { op: Op::Apply { body, status: true, .. }, .. })] = &all[..] else { panic!("{all:?}") };
    assert_eq!(body["status"]["conditions"][0]["reason"], Reason::InvalidPlacement.as_str());
    assert_eq!(body["status"]["conditions"][2]["type"], "Reconciling", "the tenant has a grace");
    wd.status = serde_json::from_value(body["status"].clone()).unwrap();
    let observed = observed(&wd, Some("n1"), Some(namespace()), None);
    let again = plan(&observed, NOW);
    assert_eq!((again.steps.len(), again.next), (0, Next::After(Timing::default().error_grace)));
    let late = plan(&observed, NOW + jiff::SignedDuration::from_secs(20));
    let [Step::Local(Write { op: Op::Apply { body, .. }, .. })] = &late.steps[..] else { panic!("{late:?}") };
    assert_eq!((&body["status"]["conditions"][2]["type"], late.next), (&json!("Stalled"), Next::Await));
}

/// Returns how many objects a plan repairs.
fn touches(plan: &Decided) -> usize {
    let repairs = |step: &&Step<Project, Hub>| {
        matches!(step, Step::Remote(Write { op: Op::Merge { body, .. }, .. })
        if body["metadata"]["annotations"][annotation::REPAIRED] == "0")
    };
    plan.steps.iter().filter(repairs).count()
}

/// A snapshot as it is in a debug log. If a field is renamed, older records become unreadable.
#[test]
fn snapshot_from_its_record_is_decided_again() {
    let mut delivered = marked();
    delivered.status = serde_json::from_value(json!({ "lastDelivery": {
        "copyUID": "c1", "clusters": ["cell-dfw"], "time": "1970-01-01T00:00:00Z",
    }}))
    .unwrap();
    let record = json!({
        "project": "single",
        "deployment": delivered,
        "namespace_uid": "n1",
        "hub_namespace": {
            "uid": "h1", "labels": namespace().labels, "terminating": false, "paused": false,
        },
        "copy": copy_of(&marked()),
        "data": { "limits": { "per_object": 262_144, "aggregate": 1_048_576 }, "sources": {}, "companions": {} },
        "karmada": {
            "policy_lives": true, "phase": "Dependencies", "binding": null, "attached": {},
            "clusters": { "cell-dfw": {
                "city": "dfw", "label": "DFW", "ready": { "Ok": null }, "obstacle": null, "taints": [], "draining": false,
                "deleting": false, "generation": 1,
            } },
            "drain_waits": null,
        },
        "blocked": {
            "reason": "BindingMissing", "silence": "Lost", "elapsed": { "secs": 6, "nanos": 0 }, "repairs": 0,
        },
        "capacity": {
            "is_karmada_behind": false, "repair_in": { "secs": 0, "nanos": 0 }, "trial_in": { "secs": 0, "nanos": 0 },
        },
        "timing": Timing::default(),
    });
    let observed: Observed = serde_json::from_value(record.clone()).unwrap();
    assert_eq!(json!(observed), record);
    let plan = plan(&observed, NOW);
    let reason = "BindingMissing".to_owned();
    let blocked = Signal::Blocked { reason, silence: Some(Absence::Lost) };
    assert_eq!(plan.signals, [blocked, Signal::Repaired(Absence::Lost)]);
    assert_eq!(plan.next, Next::After(Timing::default().delivery_grace));
    assert_eq!(touches(&plan), 1, "{:?}", plan.steps);
}

/// A copy of a deployment that had this generation and uid when it was copied.
fn copy_of_source(wd: &WorkloadDeployment, generation: i64, uid: &str) -> WorkloadDeployment {
    let mut wd = wd.clone();
    wd.metadata.generation = Some(generation);
    wd.metadata.uid = Some(uid.into());
    copy_of(&wd)
}

/// A new leader with a stale project cache rolled copies back, and overwrote those of newer deployments.
#[test]
fn copy_of_later_or_other_deployment_is_applied_after_a_live_read() {
    let wd = marked();
    let unnamed = || {
        let mut copy = copy_of(&wd);
        copy.annotations_mut().remove(annotation::SOURCE_UID);
        copy.spec.scale_settings.min_replicas = 7;
        copy
    };
    for (what, copy, is_read) in [
        ("an earlier generation", copy_of_source(&wd, 3, "u1"), false),
        ("a later one", copy_of_source(&wd, 5, "u1"), true),
        ("another deployment", copy_of_source(&wd, 1, "u0"), true),
        ("of an unknown deployment", unnamed(), true),
    ] {
        let all = steps(&wd, Some("n1"), Some(namespace()), Some(copy));
        let read = Op::ConfirmUnchanged { uid: "u1".into(), generation: 4 };
        let reads: Vec<bool> = all.iter().map(|step| matches!(step, Step::Local(write) if write.op == read)).collect();
        assert_eq!(reads.contains(&true), is_read, "{what}: {all:?}");
        assert_eq!(reads[0], is_read, "{what}: the read comes first: {all:?}");
        let applied = all.iter().find_map(|step| match step {
            Step::Remote(Write { op: Op::Apply { body, .. }, .. }) => Some(body),
            _ => None,
        });
        let metadata = &applied.unwrap()["metadata"];
        assert_eq!(metadata["resourceVersion"], "9", "{what}: of the version that was judged");
        assert_eq!(metadata["annotations"][annotation::SOURCE_UID], "u1", "{what}");
    }
}

#[test]
fn copy_without_uid_of_its_source_is_not_written_only_for_that() {
    let mut copy = copy_of(&marked());
    copy.annotations_mut().remove(annotation::SOURCE_UID);
    assert!(steps(&marked(), Some("n1"), Some(namespace()), Some(copy)).is_empty());
}

#[test]
fn copy_in_no_cache_makes_a_conflict_and_is_applied_at_its_version() {
    let wd = marked();
    let version = |observed: &Observed| {
        let all = plan(observed, NOW).steps;
        let Some(Step::Remote(Write { op: Op::Apply { body, .. }, .. })) = all.last() else { panic!("{all:?}") };
        (all.len(), body["metadata"]["resourceVersion"].clone())
    };
    let mut observed = observed(&wd, Some("n1"), Some(namespace()), None);
    assert_eq!(version(&observed), (1, json!("1")), "a version that no object has");
    let hidden = |copy: WorkloadDeployment| {
        Some(HiddenCopy { version: ObjectVersion::new("c1", "9"), annotations: copy.annotations().clone() })
    };
    observed.hidden_copy = hidden(copy_of(&wd));
    assert_eq!(version(&observed), (1, json!("9")));
    observed.hidden_copy = hidden(copy_of_source(&wd, 5, "u1"));
    assert_eq!(version(&observed), (2, json!("9")), "and a live read before it");
}

/// Copies were written to the hub namespace of a deleted namespace. Its successor had the same name.
#[test]
fn first_copy_of_a_hub_namespace_comes_after_a_live_read_of_the_project_namespace() {
    for (hub, is_first_copy, is_read) in
        [(Some(namespace()), false, false), (Some(namespace()), true, true), (None, false, true)]
    {
        let observed = Observed { is_first_copy, ..observed(&marked(), Some("n1"), hub, None) };
        let all = plan(&observed, NOW).steps;
        let read = matches!(&all[0], Step::Local(write) if write.op == Op::ConfirmPresent { uid: "n1".into() }
            && write.object == Object::named::<Namespace>("", "shop"));
        assert_eq!(read, is_read, "{all:?}");
    }
}

#[path = "federate_repair_tests.rs"]
mod repairs;

#[path = "federate_keeper_tests.rs"]
mod keepers;

#[path = "federate_trouble_tests.rs"]
mod troubles;

#[path = "federate_bounds_tests.rs"]
mod bounds;
/// The API server answers the subresource `scale` of a deployment without replicas with an error.
#[test]
fn copy_of_a_deployment_without_replicas_gets_the_number_that_it_runs() {
    for (original, standing, scales, expected) in [
        (None, None, false, json!(1)),
        (Some(3), None, false, json!(3)),
        (None, Some(Some(7)), false, json!(1)),
        // As the Go operator made them. A write of the number would change only the object.
        (None, Some(None), false, Value::Null),
        (None, Some(None), true, json!(1)),
        (None, Some(Some(2)), true, json!(2)),
        (Some(3), Some(None), false, json!(3)),
    ] {
        let mut wd = marked();
        wd.spec.replicas = original;
        wd.spec.scale_settings.max_replicas = scales.then_some(5);
        let live = standing.map(|replicas: Option<i32>| {
            let mut copy = copy_of(&wd);
            copy.spec.replicas = replicas;
            copy.spec.placement_name = "another".into();
            copy
        });
        let city = CityCode::parse("dfw").unwrap();
        let write = ensure_copy(&wd, &city, "ns-n1", live.as_ref(), BTreeMap::new()).unwrap();
        let Op::Apply { body, .. } = &write.op else { panic!("{write:?}") };
        assert_eq!(body["spec"]["replicas"], expected, "{original:?}, standing {standing:?}, scales: {scales}");
    }
}

/// Returns the condition of a deployment that is not brought to the hub. The plan must not write to the hub.
fn kept_from_the_hub(observed: &Observed) -> (String, String) {
    let steps = plan(observed, NOW).steps;
    assert!(steps.iter().all(|step| matches!(step, Step::Local(_))), "{steps:?}");
    let status = steps.iter().find_map(|step| match step {
        Step::Local(Write { op: Op::Apply { body, status: true, .. }, .. }) => Some(body["status"].clone()),
        _ => None,
    });
    let status = status.unwrap();
    let federated =
        status["conditions"].as_array().unwrap().iter().find(|federated| federated["type"] == "Federated").unwrap();
    let text = |key: &str| federated[key].as_str().unwrap().to_owned();
    (text("reason"), text("message"))
}

#[test]
fn deployment_over_a_limit_is_reported_and_its_copy_is_not_changed() {
    let mut large = marked();
    let variables: Vec<_> = (0..512).map(|n| json!({ "name": format!("V{n}") })).collect();
    let container = json!({ "containers": [{ "name": "c", "image": "i", "env": variables }] });
    large.spec.template.spec.runtime.sandbox = serde_json::from_value(container).unwrap();
    for copy in [None, Some(copy_of(&marked()))] {
        let (reason, message) = kept_from_the_hub(&observed(&large, Some("n1"), Some(namespace()), copy));
        assert_eq!(reason, "LimitExceeded");
        assert!(message.contains(" has 513 containers, variables"), "{message}");
    }
    assert!(!steps(&deleting(), Some("n1"), Some(namespace()), Some(copy_of(&marked()))).is_empty(), "deleted");
}

/// The hub answered the Namespace with 422 forever, and nothing reported the cause.
#[test]
fn project_with_too_long_name_is_reported_before_any_write() {
    let named = |length: usize| {
        let mut observed = observed(&marked(), Some("n1"), None, None);
        observed.project = ProjectName::new(&"p".repeat(length));
        observed
    };
    let (reason, message) = kept_from_the_hub(&named(60));
    assert_eq!(reason, "LimitExceeded");
    assert!(message.contains("has 60 characters, 55 is the limit"), "{message}");
    assert!(plan(&named(55), NOW).steps.iter().any(|step| matches!(step, Step::Remote(_))));
}

#[test]
fn copy_out_of_turn_is_not_written() {
    let wd = marked();
    let due = Observed { turn_in: Some(Duration::from_secs(9)), ..observed(&wd, Some("n1"), Some(namespace()), None) };
    let waiting = plan(&due, NOW);
    assert!(waiting.steps.iter().all(|step| matches!(step, Step::Local(_))), "{waiting:?}");
    assert!(waiting.signals.contains(&Signal::AwaitsTurn) && waiting.next != Next::Await, "{waiting:?}");
    let its_turn = plan(&Observed { turn_in: None, ..due }, NOW);
    assert!(its_turn.steps.iter().any(applies_copy) && !its_turn.signals.contains(&Signal::AwaitsTurn));
}
