//! A companion that has lost its label -> the label, put back. Without it the companion is in no cache of ours: nobody would renew
//! it, and nobody would ever remove it.

use kube::core::ObjectMeta;
use serde_json::json;

use crate::{
    api::meta::{label, manager},
    plan::{Hub, Object, ObjectVersion, Write, ownership},
};

/// The write that puts the label back on what a live read has found; nothing where that is somebody else's, or as it should be.
pub fn relabel(object: &Object, found: &ObjectMeta) -> Option<Write<Hub>> {
    ownership::is_unlabelled_companion(found).then(|| {
        let patch = json!({ "metadata": { "labels": { label::REFERENCED_DATA: "true" } } });
        Write::amend_version(manager::COMPANION, object.clone(), patch, &ObjectVersion::of(found))
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
