//! Restores the labels and annotations by which our objects are found. A companion, a copy or a hub namespace without them is in
//! no cache: no controller would update it, and none would ever delete it.

use k8s_openapi::api::core::v1::Namespace;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::table::Action;
use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::{annotation, label, manager},
        names::{HubNamespace, ProjectName},
    },
    plan::{Hub, Keeper, NamespaceFacts, Object, ObjectVersion, Proof, Write, ownership},
};

/// Returns the write that restores the label of a companion that a live read found. `None` if the companion is another owner's,
/// or has its label.
pub fn relabel(object: &Object, found: &ObjectMeta) -> Option<Write<Hub>> {
    ownership::is_unlabelled_companion(found).then(|| {
        let patch = json!({ "metadata": { "labels": { label::REFERENCED_DATA: "true" } } });
        Write::amend_version(manager::COMPANION, object.clone(), patch, &ObjectVersion::of(found))
    })
}

/// Does the same for a deployment's copy. `own` is the project's namespace that its hub namespace mirrors.
pub fn relabel_copy(object: &Object, found: &ObjectMeta, own: &str) -> Option<Write<Hub>> {
    ownership::is_unlabelled_copy(found, own).then(|| {
        let patch = json!({ "metadata": { "labels": { label::UPSTREAM_NAMESPACE: own } } });
        Write::amend_version(manager::FEDERATOR, object.clone(), patch, &ObjectVersion::of(found))
    })
}

/// Decision about a namespace that holds our objects, and does not say what it mirrors.
#[derive(Debug)]
pub enum LostNamespace {
    /// It is not ours, or it is terminating, or it has its labels by now.
    Left,
    /// It was ours, and its project is unknown.
    Unknown,
    /// It gets its labels back.
    Relabelled(Write<Hub>),
}

/// Decides about a namespace that a live read found. Its annotations name its keeper, and the control plane of its project.
/// `projects` are the existing ones, each with its keeper. `own` is the project's namespace that the copies in it name, if they
/// agree.
pub fn relabel_namespace(
    name: &str,
    found: &ObjectMeta,
    projects: &[(ProjectName, Keeper)],
    own: Option<&str>,
) -> LostNamespace {
    let facts = NamespaceFacts::of(found.clone());
    let us = projects.iter().find_map(|(_, keeper)| keeper.management.as_ref());
    let is_ours = us.is_some() && facts.keeper.management.as_ref() == us && HubNamespace::parse(name).is_some();
    if !is_ours || facts.terminating || facts.upstream().is_some() {
        return LostNamespace::Left;
    }
    let mut matching = projects.iter().filter(|(_, keeper)| keeper.control_plane.is_some() && *keeper == facts.keeper);
    let own = facts.labels.get(label::UPSTREAM_NAMESPACE).map(String::as_str).or(own);
    match (matching.next(), matching.next(), own) {
        (Some((project, _)), None, Some(own)) => {
            let labels = json!({ label::UPSTREAM_CLUSTER: project.label_value(), label::UPSTREAM_NAMESPACE: own });
            let patch = json!({ "metadata": { "labels": labels } });
            let object = Object::named::<Namespace>("", name);
            let version = ObjectVersion::of(found);
            LostNamespace::Relabelled(Write::amend_version(manager::FEDERATOR, object, patch, &version))
        }
        _ => LostNamespace::Unknown,
    }
}

/// Records in a hub namespace its keeper, and that nothing is stranded there. A live read must find its original. `None` if both
/// are recorded.
pub fn adopt(
    namespace: &str,
    facts: &NamespaceFacts,
    version: &ObjectVersion,
    keeper: &Keeper,
) -> Option<Proof<Action>> {
    let (_, own) = facts.upstream()?;
    let uid = HubNamespace::parse(namespace)?;
    let kept = keeper.of(Some(&facts.keeper));
    let forgets = facts.stranded_since.is_some() && kept.management == keeper.management;
    if facts.terminating || keeper.management.is_none() || !forgets && facts.keeper.management.is_some() {
        return None;
    }
    let mut annotations = json!(kept.to_annotations());
    annotations[annotation::STRANDED_SINCE] = Value::Null;
    let patch = json!({ "metadata": { "annotations": annotations } });
    let write = Write::amend_version(manager::FEDERATOR, Object::named::<Namespace>("", namespace), patch, version);
    let lives = Write::confirm_present(Object::named::<Namespace>("", own), uid);
    Some(Proof::read(lives, Action::Project).then([Action::Hub(write)]))
}

/// Removes the start of its grace from a copy whose original is there.
pub fn end_grace(copy: &WorkloadDeployment) -> Write<Hub> {
    let patch = json!({ "metadata": { "annotations": { annotation::STRANDED_SINCE: Value::Null } } });
    Write::amend(manager::FEDERATOR, patch, copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::referenced::SourceKind, plan::Op};

    /// A user removed the label. Then the objects of a deleted project stayed in the namespace forever.
    #[test]
    fn hub_namespace_without_labels_gets_them_back_if_project_is_known() {
        type Case<'a> = (&'a str, &'a str, &'a Value, &'a Value, &'a [(ProjectName, Keeper)], Option<&'a str>, &'a str);
        let keeper = |management: &str, plane: &str| Keeper {
            management: Some(management.into()),
            control_plane: Some(plane.into()),
        };
        let project = |name: &str| ProjectName::new(name);
        let projects = [(project("a"), keeper("us", "plane-a")), (project("b"), keeper("us", "plane-b"))];
        let doubled = [projects[0].clone(), (project("c"), keeper("us", "plane-a"))];
        let kept = |by: &str, plane: &str| json!({ annotation::KEPT_BY: by, annotation::PROJECT_CONTROL_PLANE: plane });
        let [ours, theirs] = ["us", "them"].map(|by| kept(by, "plane-b"));
        let cluster_label = label::UPSTREAM_CLUSTER;
        let own = json!({ label::UPSTREAM_NAMESPACE: "shop" });
        let both = json!({ label::UPSTREAM_NAMESPACE: "shop", cluster_label: "cluster-b" });
        let (none, name) = (json!({}), "ns-1");
        let cases: [Case<'_>; 10] = [
            ("the project's label is gone", name, &own, &ours, &projects, None, "cluster-b shop"),
            ("both are gone, and copies name it", name, &none, &ours, &projects, Some("web"), "cluster-b web"),
            ("what it says itself is believed first", name, &own, &ours, &projects, Some("web"), "cluster-b shop"),
            ("both are gone, and no copy names it", name, &none, &ours, &projects, None, "unknown"),
            ("a project that is gone", name, &own, &kept("us", "plane-x"), &projects, None, "unknown"),
            ("two projects in one control plane", name, &own, &kept("us", "plane-a"), &doubled, None, "unknown"),
            ("it is as it should be by now", name, &both, &ours, &projects, None, "left"),
            ("another management plane's", name, &own, &theirs, &projects, None, "left"),
            ("no keeper is recorded", name, &own, &none, &projects, None, "left"),
            ("not the name of a hub namespace", "shop", &own, &ours, &projects, None, "left"),
        ];
        for (what, name, labels, annotations, projects, own, expected) in cases {
            let found = |more: Value| -> ObjectMeta {
                let mut found =
                    json!({ "uid": "u", "resourceVersion": "7", "labels": labels, "annotations": annotations });
                found.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                serde_json::from_value(found).unwrap()
            };
            let outcome = match relabel_namespace(name, &found(json!({})), projects, own) {
                LostNamespace::Left => "left".to_owned(),
                LostNamespace::Unknown => "unknown".to_owned(),
                LostNamespace::Relabelled(write) => {
                    let Op::Merge { body, .. } = &write.op else { panic!("{write:?}") };
                    assert_eq!(body["metadata"]["resourceVersion"], "7", "{what}");
                    let labels = &body["metadata"]["labels"];
                    [cluster_label, label::UPSTREAM_NAMESPACE].map(|key| labels[key].as_str().unwrap()).join(" ")
                }
            };
            assert_eq!(outcome, expected, "{what}");
            let leaving = found(json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }));
            assert!(matches!(relabel_namespace(name, &leaving, projects, own), LostNamespace::Left), "{what}: leaving");
        }
    }

    /// A copy stayed on the hub after a user removed its label, and its Instances ran on.
    #[test]
    fn copy_without_label_gets_it_back() {
        let written = |by: &str, subresource: &str| {
            let entry = json!({ "manager": by, "operation": "Apply", "subresource": subresource });
            let plain = json!({ "manager": by, "operation": "Apply" });
            json!([if subresource.is_empty() { plain } else { entry }])
        };
        let object =
            Object { kind: crate::plan::Kind::WorkloadDeployment, namespace: "ns-1".into(), name: "web".into() };
        let relabelled = |labels: &Value, annotations: Value, managers: Value| {
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
            ("another owner's", json!({}), json!({}), written("kubectl", ""), false),
            ("only its status is ours", json!({}), json!({}), written(manager::FEDERATOR, "status"), false),
            ("a project's own, in a namespace of such a name", json!({}), original, ours.clone(), false),
        ] {
            assert_eq!(relabelled(&labels, annotations, managers).is_some(), expected, "{what}");
        }
        let write = relabelled(&json!({}), json!({}), ours).unwrap();
        let Op::Merge { body, .. } = &write.op else { panic!("{write:?}") };
        let metadata = body["metadata"].as_object().unwrap();
        assert_eq!((&metadata["labels"], &metadata["resourceVersion"]), (&says("shop"), &json!("7")), "{body}");
    }

    /// A user removed the label. Then the copy of a Secret stayed on the hub forever, and was reported as another owner's.
    #[test]
    fn companion_without_label_gets_it_back() {
        let ours = json!([{ "manager": manager::COMPANION, "operation": "Update" }]);
        let theirs = json!([{ "manager": "kubectl", "operation": "Update" }]);
        let users = json!({ annotation::REFERENCED_BY: "[\"shop/web\"]" });
        let object = Object { kind: SourceKind::Secret.into(), namespace: "ns-1".into(), name: "db".into() };
        let relabelled = |labels: &Value, annotations: &Value, managers: &Value| {
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
            ("created alike by another client", json!({}), &users, &theirs, false),
            ("it says nothing of users", json!({}), &json!({}), &ours, false),
        ] {
            assert_eq!(relabelled(&labels, annotations, managers).is_some(), expected, "{what}");
        }
        let write = relabelled(&json!({}), &users, &ours).unwrap();
        let Op::Merge { body, .. } = &write.op else { panic!("{write:?}") };
        let metadata = body["metadata"].as_object().unwrap();
        assert_eq!((&metadata["labels"], &metadata["resourceVersion"]), (&spelt("true"), &json!("7")), "{body}");
    }
}
