//! Hostile content: labels and annotations that tenants write because this operator or Karmada reads them.

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use crate::api::meta::{annotation, label};

/// The hub namespace of the author.
pub const OWN: &str = "ns-own";
/// The hub namespace of another tenant.
pub const VICTIM: &str = "ns-victim";

/// Keys that this operator or Karmada act on.
pub const LABELS: [&str; 10] = [
    label::UPSTREAM_CLUSTER,
    label::UPSTREAM_NAMESPACE,
    label::TOPOLOGY_CITY,
    label::MANAGED_BY,
    label::REFERENCED_DATA,
    label::CELL_UID,
    label::DELETION_PROTECTED,
    label::KARMADA_CLAIM,
    label::WORKLOAD_UID,
    label::WORKLOAD_DEPLOYMENT_NAME,
];
pub const ANNOTATIONS: [&str; 13] = [
    annotation::FEDERATION_NAMESPACE,
    annotation::EXPECTED_REFERENCED_DATA,
    annotation::SKIPPED_REFERENCED_DATA,
    annotation::REFERENCED_DATA_ERROR,
    annotation::REFERENCED_DATA_GATE_START,
    annotation::TEMPLATE_UID,
    annotation::SOURCE_GENERATION,
    annotation::SOURCE_UID,
    annotation::REPAIRED,
    annotation::POLICY_NAME,
    annotation::CLAIMED_BY_CELL,
    annotation::FORMER_CELL,
    annotation::PAUSE,
];
/// Values that an author who knows the victim would use.
pub const VALUES: [&str; 9] = [
    VICTIM,
    "shop",
    "cluster-victim",
    "[\"Secret/db\"]",
    "true",
    "city-dfw",
    "c1",
    "cell-victim",
    "{\"reason\":\"x\",\"message\":\"y\"}",
];

/// Generates a few of these keys, with values.
pub fn marks(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(select(keys), select(&VALUES[..]), 0..5).prop_map(|marks| json!(marks))
}

/// Returns `marks` with the needed entries set.
pub fn with(mut marks: Value, needed: &[(&str, &str)]) -> Value {
    for (key, value) in needed {
        marks[*key] = json!(value);
    }
    marks
}

/// Returns a template with these labels and annotations, and with fields that its author may not set.
pub fn template(labels: &Value, annotations: &Value) -> Value {
    json!({
        "metadata": { "labels": labels, "annotations": annotations },
        "spec": {
            "runtime": { "resources": { "instanceType": "datumcloud/d1-standard-2" }, "sandbox": { "containers": [
                { "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "db" } }] },
            ] } },
            "networkInterfaces": [{ "network": { "name": "default" } }],
            "controller": { "templateHash": "forged", "schedulingGates": [] },
            "location": { "name": "of-another", "namespace": "victim" },
        },
    })
}

/// True if one of these labels would steer Karmada. The label that protects an object from deletion belongs to the operator.
pub fn steers_karmada(labels: &Value) -> bool {
    let steers = |key: &String| key.contains("karmada.io") && key != label::DELETION_PROTECTED;
    labels.as_object().is_some_and(|labels| labels.keys().any(steers))
}
