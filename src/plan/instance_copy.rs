//! Copies of an Instance on another plane: the write-back on the hub, and the projection in a project.
//!
//! Copies are read-only. Changes by others of our labels, the spec or the status are reverted.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Write, diff, ownership, takeover::Part};
use crate::api::compute::Instance;

/// The desired copy.
pub struct Copy<'a> {
    /// The copied Instance.
    pub source: &'a Instance,
    /// Namespace of the copy. Its name is the name of the source.
    pub namespace: &'a str,
    /// Additional labels. They override labels of the source.
    pub labels: BTreeMap<&'static str, String>,
    /// The owner of the copy, as `ownerReferences`.
    pub owner: Value,
    /// The field manager of the writes.
    pub manager: &'static str,
}

/// Returns the next write that `live` needs to equal the copy: metadata and spec, then status. `None` if it is up to date.
pub fn ensure<P>(copy: &Copy<'_>, live: Option<&Instance>) -> Option<Write<P>> {
    if live.is_some_and(|live| live.metadata.deletion_timestamp.is_some()) {
        return None; // the event of its deletion enqueues it, and then it is recreated
    }
    let name = copy.source.name_any();
    let mut labels: BTreeMap<&str, &str> = copy
        .source
        .labels()
        .iter()
        .filter(|(key, _)| ownership::may_travel(key))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    labels.extend(copy.labels.iter().map(|(key, value)| (*key, value.as_str())));
    let fields = json!({
        "metadata": { "labels": labels, "ownerReferences": copy.owner },
        "spec": copy.source.spec,
    });
    // The whole copy belongs to us. Fields of others that the source does not have are removed by the following apply.
    if let Some(taken) = live.and_then(|live| Write::take_over(copy.manager, &[Part::Spec, Part::Status], live)) {
        return Some(taken);
    }
    let applied = Write::ensure(copy.manager, copy.namespace, &name, fields, live);
    let (None, Some(live)) = (&applied, live) else { return applied };
    // All our fields are there. Additional fields in the spec are not the source's, and an apply would keep them.
    if live.spec != copy.source.spec {
        let patch = json!({ "spec": diff::merge_patch(&json!(live.spec), &json!(copy.source.spec)) });
        return Some(Write::amend(copy.manager, patch, live));
    }
    let status = copy.source.status.as_ref()?;
    Write::status(copy.manager, &json!(status), live)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Hub, Op};

    fn instance(edit: impl FnOnce(&mut Value)) -> Instance {
        let mut object = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
            "metadata": { "name": "web-0", "namespace": "ns-1", "uid": "u", "resourceVersion": "5", "labels": { "app": "web", "x.karmada.io/y": "z" } },
            "spec": {
                "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [{ "name": "c", "image": "i" }] } },
                "networkInterfaces": [{ "network": { "name": "n" } }],
            },
            "status": { "conditions": [] },
        });
        edit(&mut object);
        serde_json::from_value(object).unwrap()
    }

    fn next(source: &Instance, live: Option<&Instance>) -> Option<Write<Hub>> {
        let owner = json!([{ "apiVersion": "v", "kind": "K", "name": "wd", "uid": "o", "controller": true }]);
        let labels = BTreeMap::from([("plane", "hub".to_owned())]);
        ensure(&Copy { source, namespace: "ns-1", labels, owner, manager: "compute-operator-test" }, live)
    }

    fn copy(edit: impl FnOnce(&mut Value)) -> Instance {
        instance(|o| {
            o["metadata"]["labels"] = json!({ "app": "web", "plane": "hub" });
            o["metadata"]["ownerReferences"] =
                json!([{ "apiVersion": "v", "kind": "K", "name": "wd", "uid": "o", "controller": true }]);
            edit(o);
        })
    }

    #[test]
    fn copy_absent_is_created_and_equal_is_kept() {
        let source = instance(|_| ());
        let made = next(&source, None).unwrap();
        let Op::Apply { body, status: false, .. } = &made.op else { panic!("{made:?}") };
        assert_eq!(body["metadata"]["labels"], json!({ "app": "web", "plane": "hub" }), "karmada's labels stay behind");
        assert!(next(&source, Some(&copy(|_| ()))).is_none());
        let leaving = copy(|o| o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        assert!(next(&instance(|o| o["spec"]["volumes"] = json!([])), Some(&leaving)).is_none());
    }

    #[test]
    fn copy_changes_by_others_are_reverted() {
        let source = instance(|_| ());
        let changed = copy(|o| o["spec"]["runtime"]["resources"]["instanceType"] = json!("big"));
        assert!(matches!(next(&source, Some(&changed)).unwrap().op, Op::Apply { status: false, .. }));
        let added = copy(|o| o["spec"]["volumes"] = json!([{ "name": "v" }]));
        let Op::Merge { body, .. } = next(&source, Some(&added)).unwrap().op else { panic!() };
        assert_eq!(body["spec"], json!({ "volumes": null }));
        assert_eq!(body["metadata"]["resourceVersion"], "5");
    }

    #[test]
    fn copy_status_is_written_after_metadata_and_spec() {
        let condition = json!({ "type": "Ready", "status": "True", "reason": "Available", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let source = instance(|o| o["status"]["conditions"] = json!([condition]));
        let write = next(&source, Some(&copy(|_| ()))).unwrap();
        assert!(matches!(write.op, Op::Apply { status: true, .. }), "{write:?}");
    }
}
