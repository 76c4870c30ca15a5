//! What tenants who know others write where this operator and Karmada look.

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use crate::api::meta::{annotation, label};

/// The hub namespace of whoever writes.
pub const OWN: &str = "ns-own";
/// That of somebody else.
pub const VICTIM: &str = "ns-victim";

/// Keys by which this operator and Karmada go somewhere.
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
/// What somebody who knows the victim would write there.
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

/// A few of these keys, with values.
pub fn marks(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(select(keys), select(&VALUES[..]), 0..5).prop_map(|marks| json!(marks))
}

/// `marks` with what has to stand there put over them.
pub fn with(mut marks: Value, needed: &[(&str, &str)]) -> Value {
    for (key, value) in needed {
        marks[*key] = json!(value);
    }
    marks
}

/// A template with these labels and annotations, and a few things more that are not its author's to say.
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

/// Whether Karmada would be steered by one of these labels; that it keeps an object from being deleted is the operator's to say.
pub fn steers_karmada(labels: &Value) -> bool {
    let steers = |key: &String| key.contains("karmada.io") && key != label::DELETION_PROTECTED;
    labels.as_object().is_some_and(|labels| labels.keys().any(steers))
}
