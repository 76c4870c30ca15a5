//! A deployment keeps the data that its copy expects while another source cannot be copied, and after another client overwrote
//! the list of users.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::json;

use crate::plan::management::{
    observed::facts::{CompanionFacts, SharedCompanion},
    referenced_data::{
        companion::{self, Observed, Reading, Signal},
        resolve::{self, Limits, Source, View, wants_companion},
        users::{HubCopy, User, Users},
    },
};
use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::annotation,
        referenced::{DataRef, SourceKind},
        user_list::{UserList, UserName},
    },
    plan::{Hub, Op, Project, Shared, Step, payload::Payload, references::references},
};

fn db() -> DataRef {
    DataRef::secret("db")
}

fn cfg() -> DataRef {
    DataRef::config_map("cfg")
}

/// Returns a deployment that refers to the ConfigMap `cfg` and the Secret `db`. Its annotation expects both.
fn web() -> WorkloadDeployment {
    let both = json!([{ "configMapRef": { "name": "cfg" } }, { "secretRef": { "name": "db" } }]);
    let container = json!({ "name": "c", "image": "i", "envFrom": both });
    serde_json::from_value(json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "w", "generation": 1,
            "annotations": { annotation::EXPECTED_REFERENCED_DATA: r#"["ConfigMap/cfg","Secret/db"]"# },
        },
        "spec": {
            "workloadRef": { "name": "w", "uid": "w1" }, "placementName": "p", "cityCode": "dfw",
            "template": { "spec": {
                "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [container] } },
                "networkInterfaces": [],
            } },
            "scaleSettings": { "minReplicas": 1 },
        },
        "status": { "observedGeneration": 1, "replicas": 1, "currentReplicas": 1, "desiredReplicas": 1,
                    "readyReplicas": 1, "updatedReplicas": 1 },
    }))
    .unwrap()
}

fn of_users(users: &[&str]) -> CompanionFacts {
    let users = UserList::parse(Some(&json!(users).to_string()));
    CompanionFacts { uid: "c".into(), version: "7".into(), users, ..CompanionFacts::default() }
}

/// Returns the data that the deployment expects while its ConfigMap is missing. `on_hub`: its copy expects the Secret.
fn expected(companion: Option<&CompanionFacts>, on_hub: bool) -> Vec<DataRef> {
    let user = UserName::new("shop", "web");
    let companion = companion.map(|facts| (db(), SharedCompanion::of(facts, &user, None)));
    let mut copy = web();
    let list = if on_hub { r#"["Secret/db"]"# } else { "[]" };
    copy.metadata.annotations = Some([(annotation::EXPECTED_REFERENCED_DATA.to_owned(), list.to_owned())].into());
    let view = View {
        sources: [(cfg(), Source::Absent), (db(), Source::Present { size: 1 })].into(),
        companions: companion.into_iter().collect(),
        ..View::default()
    };
    resolve::data(&web(), Some(&copy), &view, Duration::MAX, Timestamp::UNIX_EPOCH).expected.unwrap_or_default()
}

/// While a ConfigMap was missing, a recreated Secret of the same deployment was removed from the cell, because its new copy named
/// no user. The same happened after another client overwrote the list of users.
#[test]
fn data_expected_by_hub_copy_stays_expected_in_any_state_of_the_companion() {
    let terminating = CompanionFacts { terminating: true, ..of_users(&["shop/web"]) };
    let unreadable = CompanionFacts { users: UserList::default(), ..of_users(&[]) };
    for (what, companion) in [
        ("the list names it", Some(of_users(&["shop/web"]))),
        ("the companion is recreated", None),
        ("the companion is terminating", Some(terminating)),
        ("the companion was recreated for others", Some(of_users(&["shop/api"]))),
        ("the list was removed", Some(of_users(&[]))),
        ("the list cannot be read", Some(unreadable)),
        ("there are many", Some(of_users(&["more than 32"]))),
    ] {
        assert_eq!(expected(companion.as_ref(), true), [db()], "{what}");
    }
    for (what, companion) in [("there is no companion", None), ("it has another user", Some(of_users(&["shop/api"])))] {
        assert!(expected(companion.as_ref(), false).is_empty(), "the tenant's annotation does not count: {what}");
    }
}

fn observed(users: &[(&str, User)], companion: Option<CompanionFacts>, reading: Reading) -> Observed {
    Observed {
        data_ref: db(),
        namespace: "shop".into(),
        hub_namespace: "ns-1".into(),
        hub_namespace_lives: true,
        users: Users {
            by_name: users.iter().map(|(name, user)| ((*name).to_owned(), user.clone())).collect(),
            ..Users::default()
        },
        companion: companion.map(Shared::from),
        residue: None,
        fresh: false,
        waits: false,
        reading,
    }
}

fn user(wants_copy: bool, copy: HubCopy) -> User {
    User { refers: true, wants_copy, copy, deployment: None }
}

fn secret() -> Payload {
    let object = json!({ "metadata": {}, "data": { "k": "QQ==" }, "type": "Opaque" });
    Payload::parse(SourceKind::Secret, object.to_string().as_bytes()).unwrap().1
}

/// Returns the users in the only write on the hub.
fn listed(steps: &[Step<Project, Hub>]) -> String {
    let hub = steps.iter().filter_map(|step| if let Step::Remote(write) = step { Some(&write.op) } else { None });
    match hub.collect::<Vec<_>>()[..] {
        [Op::Create { body, .. } | Op::Merge { body, .. }] => {
            body["metadata"]["annotations"][annotation::REFERENCED_BY].as_str().unwrap_or_default().to_owned()
        }
        ref writes => panic!("{writes:?}"),
    }
}

/// When the list no longer named a deployment, the companion was deleted while Instances used it.
#[test]
fn companion_expected_by_hub_copy_keeps_its_deployment_as_user() {
    let both = [("api", user(true, HubCopy::Absent)), ("web", user(false, HubCopy::Expects))];
    let made = companion::plan(&observed(&both, None, Reading::Source(secret())), Timestamp::UNIX_EPOCH);
    assert_eq!(listed(&made.steps), r#"["shop/api","shop/web"]"#, "recreated, it names both");
    // Another client has overwritten the list with another name, and the source itself is missing.
    let alone = [("web", user(false, HubCopy::Expects))];
    let list =
        companion::plan(&observed(&alone, Some(of_users(&["shop/ghost"])), Reading::Unknown), Timestamp::UNIX_EPOCH);
    assert_eq!(listed(&list.steps), r#"["shop/web"]"#, "it is kept, and names its user again");
    let without_copy = [("web", user(false, HubCopy::Absent))];
    let unused = companion::plan(
        &observed(&without_copy, Some(of_users(&["shop/ghost"])), Reading::Unknown),
        Timestamp::UNIX_EPOCH,
    );
    let deletes =
        |step: &Step<Project, Hub>| matches!(step, Step::Remote(write) if matches!(write.op, Op::Delete { .. }));
    assert!(unused.steps.iter().any(deletes), "without a user it is deleted: {unused:?}");
    // A missing source of another deployment does not block the update of this content.
    let renewed = companion::plan(
        &observed(&[("web", user(true, HubCopy::Expects))], Some(of_users(&["shop/web"])), Reading::Unknown),
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(renewed.signals, [Signal::Read]);
}

/// The cells kept an old password while a ConfigMap of the same deployment was missing.
#[test]
fn companion_that_is_expected_is_updated_while_another_source_is_missing() {
    let references = references(&web().spec.template.spec);
    let limits = Limits { per_object: 100, aggregate: 150 };
    let wants = |cfg_is: Source, db_is: Source, expected: bool| {
        let sources = BTreeMap::from([(cfg(), cfg_is), (db(), db_is)]);
        wants_companion(&references, &db(), "shop", limits, &sources, expected)
    };
    let present = |size| Source::Present { size };
    for (what, cfg_is, db_is, new, updated) in [
        ("all is there", present(1), present(1), true, true),
        ("another is missing", Source::Absent, present(1), false, true),
        ("another is too large", present(101), present(1), false, true),
        ("another has not been read", Source::Unknown, present(1), false, true),
        ("all together are too large", present(90), present(90), false, false),
        ("it is missing itself", present(1), Source::Absent, false, false),
        ("it is too large itself", present(1), present(101), false, false),
        ("it has not been read", present(1), Source::Unknown, false, false),
        ("it may not be read", present(1), Source::Unauthorized("no".into()), false, false),
        ("its place is taken", present(1), Source::Taken, false, false),
    ] {
        assert_eq!(wants(cfg_is.clone(), db_is.clone(), false), new, "not expected: {what}");
        assert_eq!(wants(cfg_is, db_is, true), updated, "expected: {what}");
    }
}
