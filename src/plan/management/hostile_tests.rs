//! Hostile projects: no object of a tenant leads the operator to another tenant's objects.

use jiff::Timestamp;
use proptest::{prelude::*, sample::select};
use serde_json::json;

use crate::plan::management::{
    federator::{
        federate::{self, Observed, copy_namespace},
        repair::Capacity,
    },
    referenced_data::resolve,
};
use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::{annotation, finalizer, label},
        names::ProjectName,
    },
    plan::{
        Hub, Keeper, NamespaceFacts, Op, Shared, Step, Write,
        hostile::{ANNOTATIONS, LABELS, OWN, VICTIM, marks, steers_karmada},
    },
    timing::Timing,
};

const FINALIZERS: [&[&str]; 3] = [&[], &[finalizer::FEDERATOR], &["example.com/x", finalizer::FEDERATOR]];
const CITIES: [&str; 5] = ["dfw", "DFW", "ord", "", "../x"];

/// Returns deployments of the hostile project. The victim has one of the same name, in a namespace of the same name.
fn deployment() -> impl Strategy<Value = WorkloadDeployment> {
    let (finalizers, city) = (select(&FINALIZERS[..]), select(&CITIES[..]));
    (marks(&LABELS), marks(&ANNOTATIONS), finalizers, any::<bool>(), city).prop_map(
        |(labels, annotations, finalizers, deleting, city)| {
            let mut object = json!({
                "metadata": {
                    "name": "web", "namespace": "shop", "uid": "c1", "resourceVersion": "5", "generation": 1,
                    "labels": labels, "annotations": annotations, "finalizers": finalizers,
                },
                "spec": {
                    "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": city,
                    "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
                    "scaleSettings": { "minReplicas": 1 },
                },
            });
            if deleting {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            serde_json::from_value(object).unwrap()
        },
    )
}

/// Returns the federator's snapshot with a hub where both tenants have the copy of a deployment `shop/web`.
fn observed(deployment: WorkloadDeployment, uid: Option<&str>) -> Observed {
    let namespace = copy_namespace(&deployment, uid).unwrap_or_default();
    let project = match &*namespace {
        OWN => Some("cluster-hostile"),
        VICTIM => Some("cluster-victim"),
        _ => None,
    };
    let facts = project.map(|project| {
        let labels = [(label::UPSTREAM_CLUSTER, project), (label::UPSTREAM_NAMESPACE, "shop")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        NamespaceFacts { uid: namespace.clone(), labels, ..NamespaceFacts::default() }
    });
    let mut copy = deployment.clone();
    copy.metadata = serde_json::from_value(json!({
        "name": "web", "namespace": namespace, "uid": "copy", "resourceVersion": "9",
        "labels": { label::UPSTREAM_NAMESPACE: "shop" },
    }))
    .unwrap();
    Observed {
        unshown: None,
        outage: None,
        hub_namespace_version: None,
        rival: None,
        namespace_words: None,
        project: ProjectName::new("hostile"),
        namespace_uid: uid.map(str::to_owned),
        copy: facts.is_some().then(|| copy.into()),
        hub_namespace: facts.map(Shared::from),
        keeper: Keeper::default(),
        deployment: deployment.into(),
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

/// Returns the writes of a plan on the hub without live reads.
fn on_hub(observed: &Observed) -> Vec<Write<Hub>> {
    let plan = federate::plan(observed, Timestamp::UNIX_EPOCH);
    let remote = plan.steps.into_iter().filter_map(|step| match step {
        Step::Remote(write) => Some(write),
        Step::Local(_) => None,
    });
    remote.filter(|write| !matches!(write.op, Op::ConfirmAbsent | Op::ConfirmPresent { .. })).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hub_copy_of_hostile_deployment_is_written_only_in_its_own_namespace(deployment in deployment()) {
        for write in on_hub(&observed(deployment, Some("own"))) {
            let place = if write.object.namespace.is_empty() { &write.object.name } else { &write.object.namespace };
            prop_assert_eq!(place, OWN, "{:?}", write);
            let Op::Apply { body, .. } = &write.op else { continue };
            prop_assert!(!steers_karmada(&body["metadata"]["labels"]), "{:?}", write);
            let annotations = &body["metadata"]["annotations"];
            prop_assert!(annotations[annotation::EXPECTED_REFERENCED_DATA] != "[\"Secret/db\"]", "{:?}", write);
            prop_assert!(annotations[annotation::POLICY_NAME].is_null() && annotations[annotation::TEMPLATE_UID].is_null());
        }
    }

    /// A user who may force the deletion of a namespace can leave deployments behind that name any namespace on the hub.
    #[test]
    fn hostile_deployment_without_namespace_deletes_nothing_of_another_tenant(deployment in deployment()) {
        for write in on_hub(&observed(deployment, None)) {
            prop_assert_ne!(&*write.object.namespace, VICTIM, "{:?}", write);
        }
    }
}

#[test]
fn hub_copy_of_deleted_namespace_is_deleted() {
    let object = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "c1", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": [finalizer::FEDERATOR], "annotations": { annotation::FEDERATION_NAMESPACE: OWN },
        },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    });
    let writes = on_hub(&observed(serde_json::from_value(object).unwrap(), None));
    assert!(matches!(&writes[..], [write] if write.object.namespace == OWN && matches!(write.op, Op::Delete { .. })));
}
