//! The facts that each request needs, and the verdict.

use serde_json::{Value, json};

use super::*;
use crate::{api::meta::annotation, plan::admission::field::ErrorKind};

fn template(secret: &str) -> Value {
    json!({ "spec": {
        "runtime": { "resources": { "instanceType": "datumcloud/d1-standard-2" }, "sandbox": { "containers": [
            { "name": "web", "image": "i", "envFrom": [{ "secretRef": { "name": secret } }] },
        ] } },
        "networkInterfaces": [{ "network": { "name": "default" } }],
    } })
}

fn a_workload(cities: &[&str], secret: &str, metadata: &Value) -> Box<Workload> {
    let mut value = json!({
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "template": template(secret), "placements": [
            { "name": "main", "cityCodes": cities, "scaleSettings": { "minReplicas": 1 } },
        ] },
    });
    value["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    serde_json::from_value(value).unwrap()
}

fn a_deployment(secret: &str, metadata: &Value) -> Box<WorkloadDeployment> {
    let mut value = json!({
        "metadata": { "name": "web-main-dfw", "namespace": "shop" },
        "spec": {
            "workloadRef": { "name": "web", "uid": "u" }, "placementName": "main", "cityCode": "dfw",
            "template": template(secret), "scaleSettings": { "minReplicas": 1 },
        },
    });
    value["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    serde_json::from_value(value).unwrap()
}

fn user(name: &str) -> User {
    User { username: name.into(), ..User::default() }
}

fn identities() -> Identities {
    let own = super::super::deployment::Own { username: "operator".into(), uid: String::new() };
    Identities { own: Ok(own), resolvers: std::collections::BTreeSet::new() }
}

/// Facts that deny every access and open no city.
fn closed(needs: &Needs) -> Facts {
    Facts {
        bound: Bound::Known(std::collections::BTreeSet::new()),
        workloads: Ok([("web".to_owned(), "other".to_owned())].into()),
        answers: needs.accesses.keys().map(|access| (access.clone(), Answer::Denied(String::new()))).collect(),
        claimed: None,
        project: None,
    }
}

const GOING: &str = "2026-01-01T00:00:00Z";

#[test]
fn unchanged_workload_needs_no_facts() {
    let none = json!({});
    let old = a_workload(&["dfw"], "db", &none);
    let going = a_workload(&["ord"], "other", &json!({ "deletionTimestamp": GOING }));
    for (new, cities, accesses) in [
        (a_workload(&["DFW"], "db", &none), false, 0),
        (a_workload(&["dfw", "ord"], "db", &none), true, 0),
        (a_workload(&["dfw"], "other", &none), false, 1),
        (going, false, 0),
    ] {
        let subject = Subject::Workload(new, Some(old.clone()));
        let needs = subject.needs(&user("tenant"), &identities());
        assert_eq!((needs.cities, needs.workloads, needs.accesses.len()), (cities, false, accesses));
        assert!(!subject.needs_identity(&user("tenant")));
        // A fact that was not needed refuses nothing.
        let errors = subject.judge(&user("tenant"), &identities(), &closed(&needs)).errors;
        assert_eq!(errors.len(), usize::from(cities) + accesses, "{errors:?}");
    }
    let created = Subject::Workload(old, None).needs(&user("tenant"), &identities());
    assert!(created.cities && created.accesses.len() == 2);
}

#[test]
fn deployment_of_a_user_is_reviewed_and_the_operators_is_not() {
    let owned = json!({ "ownerReferences": [{
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload", "name": "web", "uid": "u", "controller": true,
    }] });
    for (name, metadata, needed) in [
        ("tenant", json!({}), true),
        ("tenant", owned.clone(), true),
        ("operator", json!({}), true),
        ("operator", owned, false),
        ("tenant", json!({ "deletionTimestamp": GOING }), false),
    ] {
        let subject = Subject::Deployment(a_deployment("db", &metadata), None);
        let needs = subject.needs(&user(name), &identities());
        assert_eq!(!needs.is_empty(), needed, "{name} {metadata}");
        assert_eq!(subject.may_clash(), metadata["deletionTimestamp"].is_null(), "{metadata}");
        let elsewhere = InUse {
            deployment: "api-main-ord".into(),
            workload: "api".into(),
            city: crate::api::names::CityCode::parse("ord").unwrap(),
            data: [crate::api::referenced::DataRef::secret("db")].into(),
        };
        let facts = Facts { claimed: Some(vec![elsewhere]), ..closed(&needs) };
        let errors = subject.judge(&user(name), &identities(), &facts).errors;
        // The uid of another Workload, the city, the network, and the Secret, which another city uses.
        assert_eq!(errors.len(), if needed { 5 } else { 0 }, "{name} {metadata}: {errors:?}");
    }
}

/// The rules of templates hold for a deployment that a user writes, and an update is refused only for added violations.
#[test]
fn deployment_of_a_user_is_validated_like_a_workload() {
    let with = |change: &dyn Fn(&mut WorkloadDeployment)| {
        let mut deployment = a_deployment("db", &json!({}));
        change(&mut deployment);
        deployment
    };
    let good = with(&|_| {});
    let foreign = with(&|d| d.spec.template.spec.network_interfaces[0].network.namespace = Some("other".into()));
    let moved = with(&|d| d.spec.city_code = "ord".into());
    let respelt = with(&|d| d.spec.city_code = "DFW ".into());
    let open = |needs: &Needs| Facts {
        bound: Bound::Known([crate::api::names::CityCode::parse("dfw").unwrap()].into()),
        workloads: Ok(BTreeMap::new()),
        answers: needs.accesses.keys().map(|access| (access.clone(), Answer::Allowed)).collect(),
        claimed: None,
        project: None,
    };
    let namespace = "spec.template.spec.networkInterfaces[0].network.namespace";
    for (new, old, expected) in [
        (&good, None, &[][..]),
        (&foreign, None, &[namespace]),
        (&foreign, Some(&good), &[namespace]),
        (&foreign, Some(&foreign), &[]),
        (&moved, None, &["spec.cityCode"]),
        (&moved, Some(&good), &["spec.cityCode"]),
        (&moved, Some(&moved), &[]),
        (&respelt, Some(&good), &[]),
    ] {
        let subject = Subject::Deployment(new.clone(), old.cloned());
        let needs = subject.needs(&user("tenant"), &identities());
        let errors = subject.judge(&user("tenant"), &identities(), &open(&needs)).errors;
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), expected);
        // The identity of the writer matters for every violation.
        assert!(errors.is_empty() || subject.needs_identity(&user("tenant")));
    }
}

/// Names that become label values on every Instance, and the number of Instances, were not validated. Only the cell's API server
/// refused them, or none did.
#[test]
fn deployment_with_invalid_names_or_scale_is_refused() {
    use ErrorKind::{Invalid, Required, TooLong};
    let (long, label) = ("x".repeat(64), "x".repeat(63));
    let set = |path: &str, value: &Value| -> Box<WorkloadDeployment> {
        let mut object = serde_json::to_value(a_deployment("db", &json!({}))).unwrap();
        object[path.split('.').next().unwrap()]
            .pointer_mut(&format!("/{}", path.split('.').skip(1).collect::<Vec<_>>().join("/")))
            .map(|at| *at = value.clone())
            .unwrap();
        serde_json::from_value(object).unwrap()
    };
    let scale = |settings: Value| set("spec.scaleSettings", &settings);
    let counted = |replicas: i32| {
        let mut deployment = a_deployment("db", &json!({}));
        deployment.spec.replicas = Some(replicas);
        deployment
    };
    let metrics = json!([{ "resource": { "name": "cpu", "target": { "averageUtilization": 80 } } }]);
    let open = |needs: &Needs| Facts {
        bound: Bound::Known([crate::api::names::CityCode::parse("dfw").unwrap()].into()),
        workloads: Ok(BTreeMap::new()),
        answers: needs.accesses.keys().map(|access| (access.clone(), Answer::Allowed)).collect(),
        claimed: None,
        project: None,
    };
    let errors = |new: &WorkloadDeployment, old: Option<&WorkloadDeployment>| {
        let subject = Subject::Deployment(Box::new(new.clone()), old.cloned().map(Box::new));
        let needs = subject.needs(&user("tenant"), &identities());
        let errors = subject.judge(&user("tenant"), &identities(), &open(&needs)).errors;
        // The identity of the writer matters for every violation.
        assert!(errors.is_empty() || subject.needs_identity(&user("tenant")));
        errors.iter().map(|error| (error.kind, error.field.clone())).collect::<Vec<_>>()
    };
    let good = a_deployment("db", &json!({}));
    for (new, expected) in [
        (set("metadata.name", &json!(label)), None),
        (set("metadata.name", &json!(long)), Some((TooLong, "metadata.name"))),
        (set("metadata.name", &json!("web.main")), Some((Invalid, "metadata.name"))),
        (set("spec.workloadRef.name", &json!("")), Some((Required, "spec.workloadRef.name"))),
        (set("spec.workloadRef.name", &json!(long)), Some((TooLong, "spec.workloadRef.name"))),
        (set("spec.workloadRef.name", &json!("a b")), Some((Invalid, "spec.workloadRef.name"))),
        (set("spec.workloadRef.uid", &json!("")), Some((Required, "spec.workloadRef.uid"))),
        (set("spec.workloadRef.uid", &json!(long)), Some((TooLong, "spec.workloadRef.uid"))),
        (set("spec.workloadRef.uid", &json!("a/b")), Some((Invalid, "spec.workloadRef.uid"))),
        (set("spec.placementName", &json!("")), Some((Required, "spec.placementName"))),
        (set("spec.placementName", &json!(long)), Some((TooLong, "spec.placementName"))),
        (set("spec.placementName", &json!("Main")), Some((Invalid, "spec.placementName"))),
        (scale(json!({ "minReplicas": 0 })), Some((Invalid, "spec.scaleSettings.minReplicas"))),
        (scale(json!({ "minReplicas": 1001 })), Some((Invalid, "spec.scaleSettings.minReplicas"))),
        (scale(json!({ "minReplicas": 1, "maxReplicas": 2 })), Some((Required, "spec.scaleSettings.metrics"))),
        (
            scale(json!({ "minReplicas": 1, "maxReplicas": i32::MAX, "metrics": metrics })),
            Some((Invalid, "spec.scaleSettings.maxReplicas")),
        ),
        (counted(0), None),
        (counted(1000), None),
        (counted(1001), Some((Invalid, "spec.replicas"))),
        (counted(i32::MAX), Some((Invalid, "spec.replicas"))),
    ] {
        let expected: Vec<_> = expected.map(|(kind, field)| (kind, field.to_owned())).into_iter().collect();
        assert_eq!(errors(&new, None), expected, "{:?}", new.spec);
        // An update is refused only for added violations, and no update renames a deployment.
        assert_eq!(errors(&new, Some(&new)), []);
        assert_eq!(errors(&new, Some(&good)), expected);
    }
    // A deployment from before the limit can be scaled down, and not up.
    for (new, old, refused) in [(4000, 5000, false), (5000, 5000, false), (5001, 5000, true)] {
        assert_eq!(!errors(&counted(new), Some(&counted(old))).is_empty(), refused, "{new} {old}");
        let subject = Subject::Scale(new, Some(old));
        assert!(!subject.needs_identity(&user("tenant")) && !subject.may_clash());
        let needs = subject.needs(&user("tenant"), &identities());
        assert!(needs.is_empty());
        let verdict = subject.judge(&user("tenant"), &identities(), &Facts::unknown(&needs, "not asked"));
        assert_eq!(!verdict.errors.is_empty(), refused, "{new} {old}");
    }
    let verdict = |new| Subject::Scale(new, Some(1)).judge(&user("tenant"), &identities(), &closed(&Needs::default()));
    assert_eq!(verdict(1000).errors, []);
    let text = verdict(i32::MAX).errors[0].to_string();
    assert_eq!(text, "spec.replicas: Invalid value: 2147483647: want at most 1000");
}

#[test]
fn scale_to_another_number_gets_a_warning() {
    let warnings = |new| {
        let subject = Subject::Scale(new, Some(1));
        subject.judge(&user("tenant"), &identities(), &closed(&Needs::default())).warnings
    };
    assert!(warnings(2)[0].contains("restores spec.replicas"), "{:?}", warnings(2));
    assert!(warnings(1).is_empty(), "nothing changes");
}

#[test]
fn deployment_under_unknown_identity_gets_a_temporary_error() {
    let owned = json!({ "ownerReferences": [{
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload", "name": "web", "uid": "u", "controller": true,
    }] });
    let mut powerful = owned.clone();
    powerful["annotations"] = json!({ annotation::EXPECTED_REFERENCED_DATA: "[]" });
    let unknown = Identities { own: Err("away".into()), resolvers: ["resolver".to_owned()].into() };
    for (name, metadata, expected) in [
        ("tenant", &owned, &[ErrorKind::Internal][..]),
        ("tenant", &powerful, &[ErrorKind::Internal]),
        ("resolver", &powerful, &[]),
    ] {
        let subject = Subject::Deployment(a_deployment("db", metadata), None);
        assert!(subject.needs_identity(&user(name)));
        let needs = subject.needs(&user(name), &unknown);
        let errors = subject.judge(&user(name), &unknown, &closed(&needs)).errors;
        assert_eq!(errors.iter().map(|error| error.kind).collect::<Vec<_>>(), expected, "{name} {metadata}");
    }
    // A valid write is allowed for every user. A write that no user may make is refused permanently.
    let subject = Subject::Deployment(a_deployment("db", &owned), Some(a_deployment("db", &owned)));
    assert_eq!(subject.judge(&user("tenant"), &unknown, &Facts::unknown(&Needs::default(), "away")).errors, []);
    let subject = Subject::Deployment(a_deployment("db", &json!({})), None);
    let errors = subject.judge(&user("tenant"), &unknown, &closed(&subject.needs(&user("tenant"), &unknown))).errors;
    assert!(errors.len() == 4 && errors.iter().all(|error| error.kind != ErrorKind::Internal), "{errors:?}");
}

#[test]
fn oversized_workload_is_refused_without_reading_facts() {
    let mut large = a_workload(&["dfw"], "db", &json!({}));
    let containers = &mut large.spec.template.spec.runtime.sandbox.as_mut().unwrap().containers;
    let source = containers[0].env_from.as_ref().unwrap()[0].clone();
    let sources = (0..1000).map(|n| {
        let mut source = source.clone();
        source.secret_ref.as_mut().unwrap().name = format!("s-{n}");
        source
    });
    containers[0].env_from = Some(sources.collect());
    let subject = Subject::Workload(large, Some(a_workload(&["ord"], "db", &json!({}))));
    let needs = subject.needs(&user("tenant"), &identities());
    assert!(needs.is_empty(), "{needs:?}");
    let errors = subject.judge(&user("tenant"), &identities(), &closed(&needs)).errors;
    assert_eq!(errors.iter().map(|error| error.kind).collect::<Vec<_>>(), [ErrorKind::TooMany]);
}

/// The garbage collector and the namespace controller change no reserved annotation and no reference. In a Milo control plane
/// their requests have no project, so no fact may be needed.
#[test]
fn request_of_a_control_plane_needs_no_facts() {
    let (none, marked) = (json!({}), json!({ "finalizers": ["foregroundDeletion"] }));
    for subject in [
        Subject::Deployment(a_deployment("db", &marked), Some(a_deployment("db", &none))),
        Subject::Workload(a_workload(&["dfw"], "db", &marked), Some(a_workload(&["dfw"], "db", &none))),
    ] {
        let collector = user("system:serviceaccount:kube-system:generic-garbage-collector");
        assert!(!subject.needs_identity(&collector));
        let needs = subject.needs(&collector, &identities());
        assert!(needs.is_empty(), "{needs:?}");
        assert_eq!(subject.judge(&collector, &identities(), &Facts::unknown(&needs, "no project")).errors, []);
    }
}

#[test]
fn reserved_annotation_on_terminating_deployment_is_protected() {
    let going = json!({ "deletionTimestamp": GOING });
    let spoofed =
        json!({ "deletionTimestamp": GOING, "annotations": { annotation::FEDERATION_NAMESPACE: "ns-other" } });
    let subject = Subject::Deployment(a_deployment("db", &spoofed), Some(a_deployment("db", &going)));
    assert!(subject.needs_identity(&user("tenant")));
    let needs = subject.needs(&user("tenant"), &identities());
    let errors = subject.judge(&user("tenant"), &identities(), &closed(&needs)).errors;
    assert_eq!(errors.iter().map(|error| error.kind).collect::<Vec<_>>(), [ErrorKind::Forbidden]);
    assert_eq!(subject.judge(&user("operator"), &identities(), &closed(&needs)).errors, []);
}

#[test]
fn unknown_facts_are_reported_at_each_field() {
    let subject = Subject::Workload(a_workload(&["dfw"], "db", &json!({})), None);
    let needs = subject.needs(&user("tenant"), &identities());
    let errors = subject.judge(&user("tenant"), &identities(), &Facts::unknown(&needs, "no answer")).errors;
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().all(|error| error.kind == ErrorKind::Internal && error.detail.contains("no answer")));
}

#[test]
fn project_whose_name_fits_no_label_takes_no_new_workload() {
    let judge = |length: usize, old: Option<Box<Workload>>| {
        let subject = Subject::Workload(a_workload(&["dfw"], "db", &json!({})), old);
        let needs = subject.needs(&user("tenant"), &identities());
        let facts = Facts {
            bound: Bound::Known([crate::api::names::CityCode::parse("dfw").unwrap()].into()),
            answers: needs.accesses.keys().map(|access| (access.clone(), Answer::Allowed)).collect(),
            project: Some(ProjectName::new(&"p".repeat(length))),
            ..closed(&needs)
        };
        subject.judge(&user("tenant"), &identities(), &facts).errors
    };
    assert_eq!(judge(55, None), []);
    assert_eq!(judge(60, Some(a_workload(&["ord"], "db", &json!({})))), [], "what is there can be changed");
    let errors = judge(60, None);
    assert_eq!((errors.len(), errors[0].kind, &*errors[0].field), (1, ErrorKind::Forbidden, "metadata.namespace"));
    assert!(errors[0].to_string().contains("has 60 characters, 55 is the limit"), "{}", errors[0]);
}
