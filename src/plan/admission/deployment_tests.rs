use serde_json::{Value, json};

use super::*;

fn deployment(annotations: &Value, reference: (&str, &str), owner: Option<&str>) -> WorkloadDeployment {
    let owners = owner.map(|uid| {
        json!([{ "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload", "name": "web", "uid": uid, "controller": true }])
    });
    serde_json::from_value(json!({
        "metadata": { "name": "web-main-dfw", "namespace": "shop", "annotations": annotations, "ownerReferences": owners },
        "spec": {
            "workloadRef": { "name": reference.0, "uid": reference.1 }, "placementName": "main", "cityCode": "dfw",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

fn user(name: &str, groups: &[&str]) -> User {
    User { username: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..User::default() }
}

fn identities() -> Identities {
    let own = Own { username: "operator".into(), uid: String::new() };
    Identities { own: Ok(own), resolvers: ["resolver".to_owned()].into() }
}

/// A tenant's ServiceAccount with the operator's name counted as the operator in that project.
#[test]
fn user_with_the_operators_name_and_another_uid_is_not_the_operator() {
    let named = |uid: &str| User { uid: uid.into(), ..user("operator", &[]) };
    let own = |uid: &str| Own { username: "operator".into(), uid: uid.into() };
    for (ours, theirs, expected) in
        [("u", "u", true), ("u", "of-a-tenant", false), ("u", "", false), ("", "", true), ("", "of-a-tenant", false)]
    {
        let identities = Identities { own: Ok(own(ours)), resolvers: BTreeSet::new() };
        let part = deployment(&json!({}), ("web", "u"), Some("u"));
        let is_part = is_part_of_reviewed_workload(&part, &named(theirs), &identities);
        assert_eq!(is_part, Ok(expected), "{ours:?} {theirs:?}");
        let powerful = deployment(&json!({ annotation::EXPECTED_REFERENCED_DATA: "[]" }), ("web", "u"), Some("u"));
        assert_eq!(powers(&powerful, None, &named(theirs), &identities).is_empty(), expected);
    }
}

#[test]
fn data_annotation_is_written_by_operator_resolver_and_masters_only() {
    let with = |value: Value| deployment(&value, ("web", "u"), None);
    let key = annotation::EXPECTED_REFERENCED_DATA;
    let (none, one, other) = (with(json!({})), with(json!({ key: "[]" })), with(json!({ key: "[\"Secret/x\"]" })));
    let others = with(json!({ key: "[]", "example.com/note": "x" }));
    let both = with(json!({ annotation::FEDERATION_NAMESPACE: "ns-1", annotation::REFERENCED_DATA_ERROR: "{}" }));
    for (new, old, errors) in [
        (&one, None, 1),
        (&one, Some(&none), 1),
        (&none, Some(&one), 1),
        (&other, Some(&one), 1),
        (&one, Some(&one), 0),
        (&others, Some(&one), 0),
        (&none, None, 0),
        (&both, Some(&none), 2),
    ] {
        for (user, refused) in [
            (user("tenant", &["system:authenticated"]), errors),
            (user("operator", &[]), 0),
            (user("resolver", &[]), 0),
            (user("admin", &["system:masters"]), 0),
            (user("", &[]), errors),
        ] {
            let found = powers(new, old, &user, &identities());
            assert_eq!(found.len(), refused, "{user:?}: {}", super::super::field::joined(&found));
            assert!(found.iter().all(|error| error.to_string().contains(&format!("{:?}", user.username))));
        }
    }
    let found = powers(&one, None, &user("tenant", &[]), &identities());
    assert!(found[0].to_string().starts_with(&format!("metadata.annotations[{key}]: Forbidden: ")), "{}", found[0]);
}

#[test]
fn data_annotation_under_unknown_identity_is_written_by_resolvers_only() {
    let unknown = Identities { own: Err("no answer".into()), ..identities() };
    let one = deployment(&json!({ annotation::EXPECTED_REFERENCED_DATA: "[]" }), ("web", "u"), None);
    assert_eq!(powers(&one, None, &user("resolver", &[]), &unknown), []);
    let found = powers(&one, None, &user("operator", &[]), &unknown);
    assert_eq!(found[0].kind, super::super::field::ErrorKind::Internal);
}

#[test]
fn operator_write_under_controlling_workload_is_not_reviewed() {
    for (owner, name, expected) in [
        (Some("u"), "operator", true),
        (Some("u"), "resolver", false),
        (Some("u"), "tenant", false),
        (Some("v"), "operator", false),
        (None, "operator", false),
    ] {
        let deployment = deployment(&json!({}), ("web", "u"), owner);
        let is_part = is_part_of_reviewed_workload(&deployment, &user(name, &[]), &identities());
        assert_eq!(is_part, Ok(expected), "{owner:?} {name}");
    }
}

#[test]
fn resolver_under_unknown_identity_counts_as_the_operator() {
    let unknown = Identities { own: Err("no answer".into()), ..identities() };
    for (owner, name, expected) in [
        (Some("u"), "resolver", Ok(true)),
        (Some("v"), "resolver", Ok(false)),
        (Some("u"), "tenant", Err("no answer".to_owned())),
        (None, "tenant", Ok(false)),
    ] {
        let deployment = deployment(&json!({}), ("web", "u"), owner);
        let is_part = is_part_of_reviewed_workload(&deployment, &user(name, &[]), &unknown);
        assert_eq!(is_part, expected, "{owner:?} {name}");
    }
}

#[test]
fn deployment_with_uid_of_another_workload_is_refused() {
    let known = Ok([("web", "u"), ("db", "v")].map(|(name, uid)| (name.to_owned(), uid.to_owned())).into());
    let of = |reference| deployment(&json!({}), reference, None);
    for (reference, refused) in [
        (("web", "u"), false),
        (("gone", "w"), false),
        (("web", "w"), true),
        (("web", "v"), true),
        (("gone", "u"), true),
    ] {
        let error = workload_ref(&of(reference), None, &known);
        assert_eq!(error.is_some(), refused, "{reference:?}: {error:?}");
        let known = ["\"u\"", "\"v\""];
        let tells = |text: &str| known.iter().any(|uid| !uid.contains(reference.1) && text.contains(uid));
        assert!(error.is_none_or(|error| error.field == "spec.workloadRef.uid" && !tells(&error.to_string())));
    }
    assert_eq!(workload_ref(&of(("web", "v")), Some(&of(("web", "v"))), &known), None);
    assert!(workload_ref(&of(("web", "u")), None, &Err("no answer".into())).is_some());
    assert_eq!(workload_ref(&of(("web", "u")), Some(&of(("web", "u"))), &Err("no answer".into())), None);
}
