use super::*;
use crate::api::meta::annotation;
use crate::plan::{Op, recorded::recorded};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

fn instance(edit: impl FnOnce(&mut Value)) -> Instance {
    let mut object = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": {
            "name": "wd-0", "namespace": "ns-n1", "uid": "h", "resourceVersion": "5",
            "labels": {
                label::UPSTREAM_CLUSTER: "cluster-shop", label::UPSTREAM_NAMESPACE: "default",
                label::WORKLOAD_DEPLOYMENT_NAME: "wd", "app": "web",
            },
        },
        "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] },
    });
    edit(&mut object);
    serde_json::from_value(object).unwrap()
}

fn deployment() -> WorkloadDeployment {
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": { "name": "wd", "namespace": "default", "uid": "p1" },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

fn observed(
    source: Option<&Instance>,
    deployment: Option<&WorkloadDeployment>,
    projection: Option<&Instance>,
) -> Observed {
    let shared = |instance: &Instance| Shared::from(instance.clone());
    Observed {
        namespace: "default".into(),
        name: "wd-0".into(),
        facts: Some(NamespaceFacts { uid: "n1".into(), ..NamespaceFacts::default() }),
        source: source.map(shared),
        foreign: Vec::new(),
        deployment: deployment.map(|deployment| deployment.clone().into()),
        projection: projection.map(shared),
        bound: None,
        too_large: false,
        unbound: None,
        members: None,
    }
}

/// Returns the steps for one place, or the cause of the quarantine.
fn decide(observed: &Observed) -> Result<Vec<Step<Project, Hub>>, Quarantine> {
    let decided = plan(observed, Timestamp::UNIX_EPOCH);
    let again = plan(&recorded(observed), Timestamp::UNIX_EPOCH);
    assert_eq!(format!("{again:?}"), format!("{decided:?}"), "decided again from its record");
    match &decided.signals[..] {
        [] => Ok(decided.steps),
        [misplaced] => Err(misplaced.why),
        all => panic!("{all:?}"),
    }
}

fn steps_for(
    source: Option<&Instance>,
    deployment: Option<&WorkloadDeployment>,
    projection: Option<&Instance>,
) -> Result<Vec<Step<Project, Hub>>, Quarantine> {
    decide(&observed(source, deployment, projection))
}

fn projection() -> Instance {
    let steps = steps_for(Some(&instance(|_| ())), Some(&deployment()), None).unwrap();
    let [Step::Local(write)] = &steps[..] else { panic!("{steps:?}") };
    let Op::Apply { body, .. } = &write.op else { panic!("{write:?}") };
    let mut made: Instance = serde_json::from_value(json!(body)).unwrap();
    made.metadata.uid = Some("x".into());
    made.metadata.resource_version = Some("2".into());
    made
}

#[test]
fn instance_without_origin_is_quarantined() {
    for (key, value, why) in [
        (label::UPSTREAM_CLUSTER, "", Quarantine::Unidentifiable),
        (label::UPSTREAM_CLUSTER, "shop", Quarantine::Unidentifiable),
        (label::UPSTREAM_NAMESPACE, "", Quarantine::MissingNamespaceLabel),
        (label::WORKLOAD_DEPLOYMENT_NAME, "", Quarantine::MissingDeploymentName),
    ] {
        assert_eq!(identify(&instance(|o| o["metadata"]["labels"][key] = json!(value))), Err(why), "{key}={value}");
    }
    let claimed = identify(&instance(|_| ())).unwrap();
    assert_eq!((claimed.project.as_str(), &*claimed.namespace, &*claimed.deployment), ("shop", "default", "wd"));
}

#[test]
fn projection_is_owned_by_deployment_of_project() {
    let made = projection();
    assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
    let owner = &made.owner_references()[0];
    assert_eq!((owner.uid.as_str(), owner.controller), ("p1", None));
    assert_eq!(made.labels()["app"], "web");
    let (source, wd) = (instance(|_| ()), deployment());
    assert!(steps_for(Some(&source), Some(&wd), Some(&made)).unwrap().is_empty(), "it is up to date");
    let mut edited = made;
    edited.spec.runtime.resources.instance_type = "big".into();
    assert_eq!(steps_for(Some(&source), Some(&wd), Some(&edited)).unwrap().len(), 1, "it is put back");
}

#[test]
fn instance_in_foreign_namespace_is_quarantined() {
    let elsewhere = instance(|o| o["metadata"]["namespace"] = json!("ns-evil"));
    assert_eq!(steps_for(Some(&elsewhere), Some(&deployment()), None).unwrap_err(), Quarantine::Unidentifiable);
    assert_eq!(steps_for(Some(&instance(|_| ())), None, None).unwrap_err(), Quarantine::DeploymentAbsent);
}

#[test]
fn terminating_instance_gets_no_new_projection() {
    let leaving = instance(|o| o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    assert!(steps_for(Some(&leaving), Some(&deployment()), None).unwrap().is_empty());
    let mut wd = deployment();
    wd.metadata.deletion_timestamp = leaving.metadata.deletion_timestamp.clone();
    assert!(steps_for(Some(&instance(|_| ())), Some(&wd), None).unwrap().is_empty());
    // A terminating namespace gets no new projection.
    let mut going = observed(Some(&instance(|_| ())), Some(&deployment()), None);
    assert_eq!(decide(&going).unwrap().len(), 1);
    going.facts.as_mut().unwrap().terminating = true;
    assert!(decide(&going).unwrap().is_empty());
}

#[test]
fn instance_claiming_foreign_place_is_signalled_and_affects_no_other() {
    let (own, thief) = (instance(|_| ()), instance(|o| o["metadata"]["namespace"] = json!("ns-evil")));
    for (source, steps) in [(Some(&own), 1), (None, 0)] {
        let foreign = vec![thief.clone().into()];
        let plan = plan(&Observed { foreign, ..observed(source, Some(&deployment()), None) }, Timestamp::UNIX_EPOCH);
        assert_eq!(plan.steps.len(), steps);
        let [Misplaced { instance, why: Quarantine::Unidentifiable }] = &plan.signals[..] else { panic!("{plan:?}") };
        assert_eq!(instance.namespace().as_deref(), Some("ns-evil"));
    }
}

#[test]
fn projection_without_source_is_deleted_after_live_read() {
    let made = projection();
    let steps = steps_for(None, None, Some(&made)).unwrap();
    let [Step::Remote(confirm), Step::Local(delete)] = &steps[..] else { panic!("{steps:?}") };
    assert!(matches!(confirm.op, Op::ConfirmAbsent) && confirm.object.namespace == "ns-n1");
    assert!(matches!(&delete.op, Op::Delete { uid, .. } if uid == "x"));
    let mut tenants_own = made.clone();
    tenants_own.metadata.owner_references = None;
    assert!(steps_for(None, None, Some(&tenants_own)).unwrap().is_empty());
    let mut unlabelled = made;
    unlabelled.metadata.labels = None;
    assert!(steps_for(None, None, Some(&unlabelled)).unwrap().is_empty());
}

/// An Instance that a tenant had created in the place of a projection was overwritten.
#[test]
fn instance_of_tenant_in_place_is_reported_and_not_overwritten() {
    let (source, wd) = (instance(|_| ()), deployment());
    let forces = |live: Option<&Instance>| {
        let steps = steps_for(Some(&source), Some(&wd), live).unwrap();
        let [Step::Local(Write { op: Op::Apply { force, .. }, .. })] = &steps[..] else { panic!("{steps:?}") };
        *force
    };
    let mut edited = projection();
    edited.spec.runtime.resources.instance_type = "big".into();
    assert!(!forces(None), "one that bears no mark of ours is in no cache");
    assert!(forces(Some(&edited)), "a projection is put back");
    let observed = observed(Some(&source), Some(&wd), None);
    let event = tell_tenant(&observed, Quarantine::PlaceTaken, Timestamp::UNIX_EPOCH).unwrap();
    assert!(format!("{event:?}").contains("wd-0"), "{event:?}");
    assert!(tell_tenant(&observed, Quarantine::Unidentifiable, Timestamp::UNIX_EPOCH).is_none());
}

/// A projection that lost its label and was changed at the same moment was taken for a user's own.
#[test]
fn projection_without_label_is_recognised_by_its_owner() {
    let (source, wd) = (instance(|_| ()), deployment());
    let observed = observed(Some(&source), Some(&wd), None);
    let mut unlabelled = projection();
    unlabelled.metadata.labels = None;
    let found = with_unlabelled(&observed, unlabelled.clone()).unwrap();
    let plan = plan(&found, Timestamp::UNIX_EPOCH);
    assert!(
        matches!(&plan.steps[..], [Step::Local(Write { op: Op::Apply { force: true, .. }, .. })]),
        "{:?}",
        plan.steps
    );
    for edit in [
        (|owners| *owners = None) as fn(&mut Option<Vec<OwnerReference>>),
        |owners| owners.as_mut().unwrap()[0].uid = "another".into(),
        |owners| owners.as_mut().unwrap()[0].controller = Some(true),
    ] {
        let mut own = unlabelled.clone();
        edit(&mut own.metadata.owner_references);
        assert!(with_unlabelled(&observed, own).is_none());
    }
}

/// After a project rejected the projection, the copy stayed with the cell that no longer runs the Instance.
#[test]
fn copy_is_handed_over_before_projection_is_written() {
    let source = instance(|object| {
        object["metadata"]["labels"][label::CELL_UID] = json!("old");
        object["metadata"]["annotations"] = json!({ annotation::CLAIMED_BY_CELL: "new" });
    });
    let deployment = deployment();
    let observed = Observed { bound: Some("new".into()), ..observed(Some(&source), Some(&deployment), None) };
    let plan = plan(&observed, Timestamp::UNIX_EPOCH);
    assert!(matches!(&plan.steps[..], [Step::Remote(_), Step::Local(_)]), "{:?}", plan.steps);
}
