//! What has lost the label by which we find it -> the label, put back. Without it a companion, or a deployment's copy, is in no
//! cache of ours: nobody would renew it, and nobody would ever remove it.

use kube::core::ObjectMeta;
use serde_json::json;

use crate::{
    api::meta::{label, manager},
    plan::{Hub, Object, ObjectVersion, Write, ownership},
};

/// The write that puts the label back on a companion that a live read has found; nothing where that is somebody else's, or as it
/// should be.
pub fn relabel(object: &Object, found: &ObjectMeta) -> Option<Write<Hub>> {
    ownership::is_unlabelled_companion(found).then(|| {
        let patch = json!({ "metadata": { "labels": { label::REFERENCED_DATA: "true" } } });
        Write::amend_version(manager::COMPANION, object.clone(), patch, &ObjectVersion::of(found))
    })
}

/// The same for a deployment's copy; `own` is the project's namespace that its hub namespace mirrors.
pub fn relabel_copy(object: &Object, found: &ObjectMeta, own: &str) -> Option<Write<Hub>> {
    ownership::is_unlabelled_copy(found, own).then(|| {
        let patch = json!({ "metadata": { "labels": { label::UPSTREAM_NAMESPACE: own } } });
        Write::amend_version(manager::FEDERATOR, object.clone(), patch, &ObjectVersion::of(found))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{
        api::{meta::annotation, referenced::SourceKind},
        plan::Op,
    };

    /// Found by reading: a copy that somebody had taken the label off stayed on the hub, and its Instances ran on.
    #[test]
    fn a_copy_of_ours_gets_its_label_back_and_no_other_deployment_does() {
        let written = |by: &str, subresource: &str| {
            let entry = json!({ "manager": by, "operation": "Apply", "subresource": subresource });
            let plain = json!({ "manager": by, "operation": "Apply" });
            json!([if subresource.is_empty() { plain } else { entry }])
        };
        let object =
            Object { kind: crate::plan::Kind::WorkloadDeployment, namespace: "ns-1".into(), name: "web".into() };
        let of = |labels: &Value, annotations: Value, managers: Value| {
            let found = json!({
                "uid": "u", "resourceVersion": "7", "labels": labels, "annotations": annotations, "managedFields": managers,
            });
            relabel_copy(&object, &serde_json::from_value(found).unwrap(), "shop")
        };
        let (ours, says) = (written(manager::FEDERATOR, ""), |own: &str| json!({ label::UPSTREAM_NAMESPACE: own }));
        let original = json!({ annotation::FEDERATION_NAMESPACE: "ns-2" });
        for (what, labels, annotations, managers, expected) in [
            ("the label is gone", json!({}), json!({}), ours.clone(), true),
            ("it says something else", says("other"), json!({}), ours.clone(), true),
            ("it is as it should be", says("shop"), json!({}), ours.clone(), false),
            ("somebody else's", json!({}), json!({}), written("kubectl", ""), false),
            ("only its status is ours", json!({}), json!({}), written(manager::FEDERATOR, "status"), false),
            ("a project's own, in a namespace of such a name", json!({}), original, ours.clone(), false),
        ] {
            assert_eq!(of(&labels, annotations, managers).is_some(), expected, "{what}");
        }
        let write = of(&json!({}), json!({}), ours).unwrap();
        let Op::Merge { body, .. } = &write.op else { panic!("{write:?}") };
        let metadata = body["metadata"].as_object().unwrap();
        assert_eq!((&metadata["labels"], &metadata["resourceVersion"]), (&says("shop"), &json!("7")), "{body}");
    }

    /// Found by reading: somebody took the label off, and the copy of a Secret stayed on the hub for ever, told as somebody else's.
    #[test]
    fn what_we_made_gets_its_label_back_and_nothing_else_does() {
        let ours = json!([{ "manager": manager::COMPANION, "operation": "Update" }]);
        let theirs = json!([{ "manager": "kubectl", "operation": "Update" }]);
        let users = json!({ annotation::REFERENCED_BY: "[\"shop/web\"]" });
        let object = Object { kind: SourceKind::Secret.into(), namespace: "ns-1".into(), name: "db".into() };
        let of = |labels: &Value, annotations: &Value, managers: &Value| {
            let found = json!({
                "uid": "u", "resourceVersion": "7", "labels": labels, "annotations": annotations, "managedFields": managers,
            });
            relabel(&object, &serde_json::from_value(found).unwrap())
        };
        let spelt = |value: &str| json!({ label::REFERENCED_DATA: value });
        for (what, labels, annotations, managers, expected) in [
            ("the label is gone", json!({}), &users, &ours, true),
            ("it says something else", spelt("True"), &users, &ours, true),
            ("it is as it should be", spelt("true"), &users, &ours, false),
            ("somebody has made it alike", json!({}), &users, &theirs, false),
            ("it says nothing of users", json!({}), &json!({}), &ours, false),
        ] {
            assert_eq!(of(&labels, annotations, managers).is_some(), expected, "{what}");
        }
        let write = of(&json!({}), &users, &ours).unwrap();
        let Op::Merge { body, .. } = &write.op else { panic!("{write:?}") };
        let metadata = body["metadata"].as_object().unwrap();
        assert_eq!((&metadata["labels"], &metadata["resourceVersion"]), (&spelt("true"), &json!("7")), "{body}");
    }
}
