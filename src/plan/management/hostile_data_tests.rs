//! Hostile sources, and deployments of users that refer to them: the operator writes only their own companions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use crate::plan::management::{
    observed::facts::CompanionFacts,
    referenced_data::{
        companion::{self, Observed, Reading},
        users::{HubCopy, User, Users},
    },
};
use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::{annotation, label},
        referenced::{DataRef, SourceKind},
    },
    plan::{
        Hub, Op, Plane, Shared, Step, Write,
        hostile::{ANNOTATIONS, LABELS, OWN, VICTIM, marks, template},
        payload::Payload,
    },
};

/// Names of sources. Some are names of other objects on the hub.
const NAMES: [&str; 3] = ["db", VICTIM, "city-dfw"];
/// Entries of a companion's list of users.
const ENTRIES: [&str; 6] = ["shop/web", "shop/gone", "victim/web", "ns-victim/web", "victim", "more than 32"];

fn source(labels: &Value, annotations: &Value, value: &str, immutable: bool) -> Payload {
    let object = json!({
        "metadata": {
            "name": "db", "namespace": VICTIM, "labels": labels, "annotations": annotations,
            "finalizers": ["example.com/never"],
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Namespace", "name": VICTIM, "uid": "v", "controller": true }],
        },
        "data": { "k": value, "namespace": "bnMtdmljdGlt" }, "type": "Opaque", "immutable": immutable,
    });
    Payload::parse(SourceKind::Secret, object.to_string().as_bytes()).unwrap().1
}

/// Returns a deployment with hostile metadata that does not refer to the source.
fn former(labels: &Value, annotations: &Value, copy: HubCopy) -> User {
    let mut deployment: WorkloadDeployment = serde_json::from_value(json!({
        "metadata": {
            "name": "gone", "namespace": "shop", "uid": "g", "generation": 1, "labels": labels, "annotations": annotations,
        },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw",
            "template": template(labels, annotations), "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap();
    deployment.spec.template.spec.runtime.sandbox = None;
    User { copy, deployment: Some(Shared::from(deployment)), ..User::default() }
}

fn observed() -> impl Strategy<Value = Observed> {
    let written = (marks(&LABELS), marks(&ANNOTATIONS), select(&["QQ==", "Qg=="][..]), any::<[bool; 6]>());
    let listed = prop::option::of(prop::collection::btree_set(select(&ENTRIES[..]), 0..3));
    (written, listed, select(&NAMES[..]), 0..3).prop_map(
        |((labels, annotations, value, [copies, expects, uses, is_read, immutable, fresh]), listed, name, form)| {
            let list = listed.map(|entries| json!(entries).to_string());
            // A companion of the Go operator or of a user may have any list.
            let meta =
                json!({ "uid": "c", "resourceVersion": "7", "annotations": { annotation::REFERENCED_BY: list } });
            let companion =
                (form != 0).then(|| CompanionFacts::of(&serde_json::from_value(without_null(meta)).unwrap()));
            let source = source(&labels, &annotations, value, immutable);
            let reading = match (&companion, is_read) {
                (_, false) => Reading::Unknown,
                (None, true) => Reading::Source(source),
                (Some(companion), true) => Reading::Both {
                    source,
                    version: crate::plan::ObjectVersion::new(&companion.uid, &companion.version),
                    companion: self::source(&json!({}), &json!({}), "QQ==", form == 2),
                },
            };
            let copy = match (copies, expects) {
                (_, true) => HubCopy::Expects,
                (true, false) => HubCopy::Exists,
                (false, false) => HubCopy::Absent,
            };
            let mut by_name = BTreeMap::from([("gone".to_owned(), former(&labels, &annotations, copy))]);
            if uses {
                by_name.insert("web".into(), User { refers: true, wants_copy: true, ..User::default() });
            }
            Observed {
                data_ref: DataRef::secret(name),
                namespace: "shop".into(),
                hub_namespace: OWN.into(),
                hub_namespace_lives: true,
                users: Users { by_name, ..Users::default() },
                companion: companion.map(Shared::from),
                residue: None,
                fresh,
                waits: false,
                reading,
            }
        },
    )
}

/// Removes an annotation with a null value, as a client does.
fn without_null(mut meta: Value) -> Value {
    if meta["annotations"][annotation::REFERENCED_BY].is_null() {
        meta["annotations"] = json!({});
    }
    meta
}

fn is_live_read<P: Plane>(write: &Write<P>) -> bool {
    matches!(write.op, Op::ConfirmAbsent | Op::ConfirmUnchanged { .. })
}

/// True if a write on the hub creates a missing companion, or changes or deletes exactly the observed one.
fn is_of_the_companion(write: &Write<Hub>, observed: &Observed) -> bool {
    let metadata = |body: &Value| body["metadata"].as_object().cloned().unwrap_or_default();
    let list = |body: &Value| body["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let is_listed = |body: &Value| list(body).keys().all(|key| key == annotation::REFERENCED_BY);
    let is_place = write.object.namespace == OWN && write.object.name == observed.data_ref.name;
    let seen = observed.companion.as_ref().map(|companion| (companion.uid.clone(), companion.version.clone()));
    is_place
        && match &write.op {
            Op::Create { body, .. } => {
                let of_us = ["annotations", "labels", "name", "namespace"];
                seen.is_none()
                    && metadata(body).keys().eq(of_us)
                    && body["metadata"]["labels"] == json!({ label::REFERENCED_DATA: "true" })
                    && is_listed(body)
            }
            Op::Merge { body, .. } => {
                let version = |key: &str| body["metadata"][key].as_str().unwrap().to_owned();
                let known = ["annotations", "resourceVersion", "uid"];
                seen == Some((version("uid"), version("resourceVersion")))
                    && metadata(body).keys().all(|key| known.contains(&&**key))
                    && is_listed(body)
            }
            Op::Delete { uid, resource_version } => seen == Some((uid.clone(), resource_version.clone())),
            _ => false,
        }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn companion_of_hostile_source_is_only_write_and_takes_no_metadata_of_it(observed in observed()) {
        let wanted = observed.users.by_name.contains_key("web").then_some("shop/web");
        for step in companion::plan(&observed, Timestamp::UNIX_EPOCH).steps {
            match step {
                Step::Local(write) => {
                    prop_assert!(is_live_read(&write) && write.object.namespace == "shop", "{:?}", write);
                }
                Step::Remote(write) => {
                    prop_assert!(is_of_the_companion(&write, &observed), "{:?}", write);
                    let list = write.op.asked().map(|body| body["metadata"]["annotations"][annotation::REFERENCED_BY].clone());
                    if let Some(list) = list.as_ref().and_then(Value::as_str) {
                        let own = wanted.is_none_or(|user| list.contains(user));
                        prop_assert!(own, "the list keeps its user: {}", list);
                    }
                }
            }
        }
    }
}
