//! The labels and annotations by which objects of ours are found, put back. Without them a companion, a deployment's copy or a hub
//! namespace is in no cache: no controller would renew it, and none would ever delete it.

use k8s_openapi::api::core::v1::Namespace;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::table::Action;
use crate::{
    api::{
        meta::{annotation, label, manager},
        names::{HubNamespace, ProjectName},
    },
    plan::{Hub, Keeper, NamespaceFacts, Object, ObjectVersion, Proof, Write, ownership},
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

/// What is to become of a namespace that holds what is ours, and that does not say what it mirrors.
#[derive(Debug)]
pub enum LostNamespace {
    /// It is none of ours, or on its way out, or as it should be by now.
    Left,
    /// It was ours, and nobody can say which project it is of.
    Unknown,
    /// It gets its labels back.
    Relabelled(Write<Hub>),
}

/// Decides about one that a live read has found. It keeps in its annotations by whom it is kept, and of which project's control
/// plane it is: `projects` are those that there are, and who keeps each one's. `own`: the namespace of the project that the copies
/// in it say they are of, where they agree.
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
    let mut of = projects.iter().filter(|(_, keeper)| keeper.control_plane.is_some() && *keeper == facts.keeper);
    let own = facts.labels.get(label::UPSTREAM_NAMESPACE).map(String::as_str).or(own);
    match (of.next(), of.next(), own) {
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

/// Has a hub namespace whose original lives say who keeps it, and that nothing is stranded there. `None` if it says so.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::referenced::SourceKind, plan::Op};

    /// Found by reading: somebody took the label off, and what the namespace held of one that went stayed for ever.
    #[test]
    fn a_hub_namespace_of_ours_gets_its_labels_back_where_it_is_known_whose_it_is() {
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
        let of = label::UPSTREAM_CLUSTER;
        let own = json!({ label::UPSTREAM_NAMESPACE: "shop" });
        let both = json!({ label::UPSTREAM_NAMESPACE: "shop", of: "cluster-b" });
        let (none, name) = (json!({}), "ns-1");
        let cases: [Case<'_>; 10] = [
            ("the project's label is gone", name, &own, &ours, &projects, None, "cluster-b shop"),
            ("both are gone, and the copies say it", name, &none, &ours, &projects, Some("web"), "cluster-b web"),
            ("what it says itself is believed first", name, &own, &ours, &projects, Some("web"), "cluster-b shop"),
            ("both are gone, and nobody says it", name, &none, &ours, &projects, None, "unknown"),
            ("a project that is gone", name, &own, &kept("us", "plane-x"), &projects, None, "unknown"),
            ("two projects in one control plane", name, &own, &kept("us", "plane-a"), &doubled, None, "unknown"),
            ("it is as it should be by now", name, &both, &ours, &projects, None, "left"),
            ("another management plane's", name, &own, &theirs, &projects, None, "left"),
            ("nobody has noted who keeps it", name, &own, &none, &projects, None, "left"),
            ("somebody else's name", "shop", &own, &ours, &projects, None, "left"),
        ];
        for (what, name, labels, annotations, projects, own, expected) in cases {
            let found = |more: Value| -> ObjectMeta {
                let mut found =
                    json!({ "uid": "u", "resourceVersion": "7", "labels": labels, "annotations": annotations });
                found.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                serde_json::from_value(found).unwrap()
            };
            let said = match relabel_namespace(name, &found(json!({})), projects, own) {
                LostNamespace::Left => "left".to_owned(),
                LostNamespace::Unknown => "unknown".to_owned(),
                LostNamespace::Relabelled(write) => {
                    let Op::Merge { body, .. } = &write.op else { panic!("{write:?}") };
                    assert_eq!(body["metadata"]["resourceVersion"], "7", "{what}");
                    let labels = &body["metadata"]["labels"];
                    [of, label::UPSTREAM_NAMESPACE].map(|key| labels[key].as_str().unwrap()).join(" ")
                }
            };
            assert_eq!(said, expected, "{what}");
            let leaving = found(json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }));
            assert!(matches!(relabel_namespace(name, &leaving, projects, own), LostNamespace::Left), "{what}: leaving");
        }
    }

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
