use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::json;

use super::*;
use crate::{
    io::{
        feed::pruned,
        store::{Incoming, ObjectKey, Store},
    },
    plan::takeover,
};

/// A deployment with its own settings, as a control plane has it after reconciles.
fn deployment(name: &str, template: usize) -> WorkloadDeployment {
    let env: Vec<Value> = (0..12)
        .map(|n| json!({ "name": format!("SETTING_{n}"), "value": format!("https://{n}.example.com/{template}") }))
        .collect();
    let says = |type_: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": message, "observedGeneration": 3,
            "lastTransitionTime": "2026-09-01T07:41:13Z",
        })
    };
    let own = json!({
        "f:spec": { "f:template": { "f:spec": { "f:runtime": { "f:sandbox": { "f:containers": { "k:{\"name\":\"web\"}": {
            ".": {}, "f:env": env.iter().map(|env| (format!("k:{{\"name\":{}}}", env["name"]), json!({ ".": {}, "f:value": {} })))
                .collect::<serde_json::Map<_, _>>(),
        } } } } } } },
    });
    let book = |manager: &str, operation: &str, subresource: Option<&str>, fields: &Value| {
        json!({
            "manager": manager, "operation": operation, "subresource": subresource, "fieldsType": "FieldsV1",
            "apiVersion": "compute.datumapis.com/v1alpha", "time": "2026-09-01T07:41:13Z", "fieldsV1": fields,
        })
    };
    let object: WorkloadDeployment = serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": {
            "name": name, "namespace": "storefront", "uid": "1b8a1d44-6a3e-4c52-9d0a-3e0f5a6f7d21", "resourceVersion": "7741922",
            "generation": 3, "creationTimestamp": "2026-08-30T23:01:55Z",
            "finalizers": ["compute.datumapis.com/federator"],
            "labels": { "compute.datumapis.com/workload-uid": "c4b0a4d1-24ab-44cf-8c5e-c3ed1f0c3b0d", "team": "checkout" },
            "annotations": {
                "compute.datumapis.com/federation-namespace": "ns-aa5ad2f5-a7f6-41bb-b20d-f16ad0d4ac3c",
                "compute.datumapis.com/expected-referenced-data": "[\"Secret/db\"]",
            },
            "managedFields": [
                book("compute-operator-workload", "Apply", None, &own),
                book("compute-operator-federator", "Apply", Some("status"), &json!({ "f:status": { "f:conditions": {} } })),
                book("kubectl", "Update", None, &json!({ "f:spec": { "f:cityCode": {} } })),
            ],
        },
        "spec": {
            "workloadRef": { "name": "web", "uid": "c4b0a4d1-24ab-44cf-8c5e-c3ed1f0c3b0d" },
            "placementName": "main", "cityCode": "DFW", "scaleSettings": { "minReplicas": 2 },
            "template": { "spec": {
                "runtime": {
                    "resources": { "instanceType": "datumcloud/d1-standard-2" },
                    "sandbox": { "containers": [{
                        "name": "web", "image": "registry.example.com/web:1", "env": env,
                        "envFrom": [{ "secretRef": { "name": "db" } }],
                    }] },
                },
                "networkInterfaces": [{ "network": { "name": "default" } }],
            } },
        },
        "status": {
            "conditions": [
                says("Available", "StableInstanceFound", "2/2 instances are ready"),
                says("ReplicasReady", "ReplicasAvailable", "2 of 2 desired replicas are ready"),
                says("Federated", "Propagated", "Applied on cell-dfw"),
                says("ReferencedDataReady", "Ready", "All 1 ConfigMaps and Secrets are in place"),
                says("Ready", "ReplicasAvailable", "2 of 2 Instances are ready"),
            ],
            "replicas": 2, "currentReplicas": 2, "desiredReplicas": 2, "readyReplicas": 2, "updatedReplicas": 2,
            "observedGeneration": 3, "selector": "compute.datumapis.com/workload-deployment-name=web-main-dfw",
        },
    }))
    .unwrap();
    pruned("WorkloadDeployment", object)
}

#[test]
fn packed_deployment_unpacks_to_an_equal_one() {
    let mut deleting = deployment("web-main-dfw", 1);
    deleting.metadata.deletion_timestamp = deleting.metadata.creation_timestamp.clone();
    let mut without_book = deployment("web-main-dfw", 1);
    without_book.metadata.managed_fields = Some(vec![takeover::trace_of_nobody(), ManagedFieldsEntry::default()]);
    let bare: WorkloadDeployment =
        WorkloadDeployment::new("bare", crate::api::compute::WorkloadDeploymentSpec::default());
    for of in [deployment("web-main-dfw", 1), deleting, without_book, bare] {
        let packed = PackedDeployment::of(of.clone());
        assert_eq!(*packed.open(), of);
        assert!(is_packed(&packed));
        assert_eq!(*packed.open(), of);
        assert_eq!(packed.references(), references(&of.spec.template.spec));
        assert_eq!(packed.workload_uid(), of.spec.workload_ref.uid);
        assert_eq!(packed.city_code(), of.spec.city_code);
        assert_eq!(packed.is_deleting(), of.metadata.deletion_timestamp.is_some());
    }
}

/// Packs a deployment now. False if it is kept open.
fn is_packed(packed: &PackedDeployment) -> bool {
    pack(&packed.body, &packed.template);
    matches!(*packed.body.lock().unwrap(), Body::Packed(_))
}

#[test]
fn deployment_is_packed_once_others_have_changed_after_it() {
    let first = PackedDeployment::of(deployment("web-main-dfw", 1));
    let is_open = || matches!(*first.body.lock().unwrap(), Body::Open(_));
    // Other tests of this process add deployments too. So only the end is certain.
    let later: Vec<_> = (0..OPEN).map(|n| PackedDeployment::of(deployment(&format!("web-{n}"), n))).collect();
    // One of them may have taken it from the list, and pack it just now.
    while is_open() && later.len() == OPEN {
        std::thread::yield_now();
    }
    assert_eq!(*first.open(), deployment("web-main-dfw", 1));
    assert!(!is_open(), "a read does not open it for good");
    assert!(RECENT.lock().unwrap().len() <= OPEN);
}

/// One object that did not decode to an equal one ended the process in a loop.
#[test]
fn packed_deployment_that_does_not_decode_is_kept_whole() {
    let mut of = deployment("web-main-dfw", 1);
    of.spec.template.spec.runtime.resources.instance_type = "another".into();
    let (template, _) = Template::of(of.spec.template.clone());
    let mut packed = Packed::of(&of, &template).unwrap();
    // The fraction of a second is not encoded, so it does not decode.
    let fraction = "2026-09-01T07:41:13.25Z".parse().unwrap();
    of.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(fraction));
    let whole = PackedDeployment::of(of.clone());
    assert!(!is_packed(&whole));
    assert_eq!(*whole.open(), of);
    // Broken text does not decode either.
    packed.text = Box::from([0xff, 0, 0xff]);
    assert_eq!(packed.unpack(&template), None);
}

#[test]
fn open_deployments_share_an_equal_decoded_template() {
    let [one, same, other] =
        [("a", 7), ("b", 7), ("c", 8)].map(|(name, template)| PackedDeployment::of(deployment(name, template)).open());
    assert!(one.spec.template.is_same_as(&same.spec.template));
    assert!(!one.spec.template.is_same_as(&other.spec.template));
}

#[test]
fn packed_deployments_share_template_and_field_sets() {
    let [one, same, other] =
        [("a", 1), ("b", 1), ("a", 2)].map(|(name, template)| PackedDeployment::of(deployment(name, template)));
    assert!(Arc::ptr_eq(&one.template, &same.template));
    assert!(!Arc::ptr_eq(&one.template, &other.template));
    let first = |packed: &PackedDeployment| {
        assert!(is_packed(packed));
        let body = packed.body.lock().unwrap();
        let Body::Packed(packed) = &*body else { unreachable!() };
        packed.fields[0].clone().unwrap()
    };
    assert!(Arc::ptr_eq(&first(&one), &first(&other)), "the same fields were applied");
}

/// A deployment, its copy and its binding may take 4 KiB. This is the share of the first two.
#[test]
fn packed_deployment_takes_little_memory_of_its_own() {
    let whole = json(&deployment("web-main-dfw", 1)).len();
    let own = PackedDeployment::of(deployment("web-main-dfw", 1)).own_bytes();
    assert!(own < 1100 && own * 4 < whole, "{own} bytes of {whole}");
}

/// The last change of a copy that Karmada must propagate is only known to a process that has seen it.
#[test]
fn packed_deployment_inherits_the_version_of_the_last_propagated_change() {
    type Change = fn(&mut WorkloadDeployment);
    let key = ObjectKey::new("storefront", "web");
    let store = Store::<PackedDeployment>::inheriting(PackedDeployment::inherit, |_, _| Vec::new());
    let at = |version: u64, change: Change| {
        let mut deployment = deployment("web", 1);
        deployment.metadata.resource_version = Some(version.to_string());
        change(&mut deployment);
        let frame = Incoming::<PackedDeployment>::new(&deployment, None);
        Incoming { value: Some(PackedDeployment::of(deployment).into()), ..frame }
    };
    let written = || store.get(&key).unwrap().written();
    store.replace(vec![at(5, |_| {})], 6);
    assert_eq!(written(), None, "a list does not show which change was the last");
    let status: Change = |of| of.status = None;
    let claim: Change = |of| {
        of.status = None;
        of.labels_mut().insert("propagationpolicy.karmada.io/permanent-id".into(), "1".into());
    };
    let spec: Change = |of| of.spec.scale_settings.min_replicas = 3;
    for (version, what, change, expected) in [
        (7, "a status", status, None),
        (8, "the spec", spec, Some(8)),
        (9, "nothing", spec, Some(8)),
        (10, "back again", status, Some(10)),
        (11, "what Karmada puts on it", claim, Some(10)),
    ] {
        store.observe(at(version, change));
        assert_eq!(written(), expected, "{what}");
    }
    store.wrote(at(12, spec));
    assert_eq!(written(), Some(12), "our own write");
    store.replace(vec![at(13, spec)], 14);
    assert_eq!(written(), Some(12), "a list without a change of it");
    store.replace(vec![at(15, status)], 16);
    assert_eq!(written(), None, "a list that skips changes");
    store.forget(&key, &deployment("web", 1).metadata.uid.unwrap());
    store.observe(at(17, |_| {}));
    assert_eq!(written(), Some(17), "a new object");
    store.replace(vec![at(3, |_| {})], 4);
    assert_eq!(written(), None, "versions from before a restore do not count");
}
