use serde_json::{Value, json};

use super::*;

fn deployment(metadata: &Value, status: &Value) -> WorkloadDeployment {
    let mut deployment = WorkloadDeployment::new("wd", crate::api::compute::WorkloadDeploymentSpec::default());
    deployment.metadata = serde_json::from_value(metadata.clone()).unwrap();
    deployment.status = serde_json::from_value(status.clone()).unwrap();
    deployment
}

fn copy(created: &str, listed: &str) -> WorkloadDeployment {
    let annotations = json!({ annotation::EXPECTED_REFERENCED_DATA: listed });
    let metadata = json!({ "name": "wd", "uid": "c1", "creationTimestamp": created, "annotations": annotations });
    deployment(&metadata, &Value::Null)
}

fn recorded(copy: &str, clusters: &[&str], data: &[&str], time: &str) -> LastDelivery {
    serde_json::from_value(json!({ "copyUID": copy, "clusters": clusters, "data": data, "time": time })).unwrap()
}

#[test]
fn delivery_of_another_copy_is_ignored() {
    let copy = copy("2026-01-01T00:00:00Z", "[]");
    for (uid, is_this) in [("c1", true), ("c0", false)] {
        let delivery = recorded(uid, &["cell-dfw"], &[], "2026-01-01T00:01:00Z");
        let deployment = deployment(&json!({ "name": "wd" }), &json!({ "lastDelivery": delivery }));
        assert_eq!(of(&deployment, &copy), is_this.then_some(delivery));
    }
}

#[test]
fn delivery_record_changes_only_with_copy_clusters_data_or_companions() {
    let (then, at) = ("2026-01-01T00:01:00Z", "2026-01-01T00:09:00Z");
    let copy = copy("2026-01-01T00:00:00Z", r#"["ConfigMap/c","Secret/a"]"#);
    let both = ["ConfigMap/c", "Secret/a"];
    let same = recorded("c1", &["cell-dfw"], &both, then);
    let (clusters, old, new) = (["cell-dfw".to_owned()], "2026-01-01T00:00:30Z", "2026-01-01T00:08:00Z");
    for (name, record, created, expected) in [
        ("nothing has changed", Some(same.clone()), old, then),
        ("nothing is recorded", None, old, at),
        ("another copy", Some(recorded("c0", &["cell-dfw"], &both, then)), old, at),
        ("another cluster", Some(recorded("c1", &["cell-ord"], &both, then)), old, at),
        ("more data", Some(recorded("c1", &["cell-dfw"], &["ConfigMap/c"], then)), old, at),
        ("a companion was recreated", Some(same.clone()), new, at),
        ("the hub's clock is ahead", Some(same), "2026-01-01T00:10:00Z", "2026-01-01T00:10:00Z"),
    ] {
        let companion = SharedCompanion { created: Some(created.parse().unwrap()), ..SharedCompanion::default() };
        let companions = BTreeMap::from([(DataRef::secret("a"), companion)]);
        let now = now(record, &copy, &clusters, &companions, at.parse().unwrap());
        assert_eq!(now, recorded("c1", &["cell-dfw"], &both, expected), "{name}");
    }
}

/// Releases without a record reported the delivery in the messages of their conditions.
#[test]
fn delivery_of_an_earlier_release_is_read_from_its_messages() {
    let (created, since) = ("2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z");
    let delivered = "cell-dfw has what the hub was given";
    let all = "All 1 referenced companion(s) are materialised";
    let none = "All 0 referenced companion(s) are materialised";
    let dfw = |data: &[&str]| Some(recorded("c1", &["cell-dfw"], data, since));
    for (federated, ready, expected) in [
        (("True", "Propagated", delivered), ("Ready", all), dfw(&["Secret/db"])),
        (("True", "Propagated", delivered), ("Ready", none), dfw(&[])),
        (("True", "Propagated", delivered), ("AwaitingPropagation", "BindingMissing"), dfw(&[])),
        (("True", "Propagated", delivered), ("SourceNotFound", "there is no Secret late"), dfw(&["Secret/db"])),
        (
            ("True", "DrainWaiting", "cell-dfw has what the hub was given; dfw is to leave"),
            ("Ready", all),
            dfw(&["Secret/db"]),
        ),
        (
            ("Unknown", "HubUnavailable", "it is away; last known: cell-dfw has what the hub was given"),
            ("Ready", none),
            dfw(&[]),
        ),
        (("True", "CityLabelLost", "put it back"), ("Ready", none), Some(recorded("c1", &[], &[], since))),
        (("False", "BindingMissing", "no binding"), ("Ready", all), None),
    ] {
        let (status, reason, message) = federated;
        let conditions = json!([
            { "type": "Federated", "status": status, "reason": reason, "message": message, "lastTransitionTime": since },
            { "type": "ReferencedDataReady", "status": "True", "reason": ready.0, "message": ready.1,
              "lastTransitionTime": since },
        ]);
        let deployment = deployment(&json!({ "name": "wd" }), &json!({ "conditions": conditions }));
        let read = |created| of(&deployment, &copy(created, r#"["Secret/db"]"#));
        assert_eq!(read(created), expected, "{message} {}", ready.1);
        assert_eq!(read("2026-01-01T00:01:01Z"), None, "a copy that was created later");
    }
}
