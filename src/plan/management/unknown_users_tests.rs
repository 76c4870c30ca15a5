//! While a deployment of the namespace cannot be read, no user loses a companion, and the known users get their copies.

use jiff::Timestamp;

use crate::plan::management::{
    observed::facts::CompanionFacts,
    referenced_data::{
        companion::{Decided, Observed, Reading, Signal, plan},
        users::{User, Users},
    },
};
use crate::{
    api::{
        meta::annotation,
        referenced::{DataRef, SourceKind},
        user_list::UserList,
    },
    plan::{ObjectVersion, Op, Shared, Step, payload::Payload},
};

fn payload(value: &str, immutable: bool) -> Payload {
    let object =
        serde_json::json!({ "metadata": {}, "data": { "k": value }, "type": "Opaque", "immutable": immutable });
    Payload::parse(SourceKind::Secret, object.to_string().as_bytes()).unwrap().1
}

/// Plans the Secret `db`. The `users` refer to it, and the list of its companion is `listed`.
fn decided(users: &[&str], listed: Option<&[&str]>, reading: Reading, fresh: bool) -> Decided {
    let facts = |listed: &[&str]| CompanionFacts {
        uid: "c".into(),
        version: "7".into(),
        users: UserList::parse(Some(&serde_json::json!(listed).to_string())),
        ..CompanionFacts::default()
    };
    let user = |name: &&str| ((*name).to_owned(), User { refers: true, wants_copy: true, ..User::default() });
    let observed = Observed {
        data_ref: DataRef::secret("db"),
        namespace: "shop".into(),
        hub_namespace: "ns-1".into(),
        hub_namespace_lives: true,
        users: Users { by_name: users.iter().map(user).collect(), unknown_deployments: true, unknown_copies: false },
        companion: listed.map(|listed| Shared::from(facts(listed))),
        residue: None,
        fresh,
        waits: false,
        reading,
    };
    plan(&observed, Timestamp::UNIX_EPOCH)
}

/// Describes the steps in short words.
fn writes(decided: &Decided) -> Vec<String> {
    let short = |step: &Step<_, _>| match step {
        Step::Local(confirm) => format!("reads {}", confirm.object),
        Step::Remote(write) => match &write.op {
            Op::Create { body, .. } | Op::Merge { body, .. } => {
                let list = &body["metadata"]["annotations"][annotation::REFERENCED_BY];
                format!("writes {}", list.as_str().unwrap_or("content"))
            }
            Op::Delete { .. } => "deletes".to_owned(),
            op => format!("{op:?}"),
        },
    };
    decided.steps.iter().map(short).collect()
}

/// One unreadable deployment blocked the creation and update of every companion of its namespace, while all deployments reported
/// their data as ready.
#[test]
fn companion_with_unreadable_deployment_gives_known_users_new_content() {
    let new = decided(&["a"], None, Reading::Unknown, false);
    assert_eq!(new.signals, [Signal::Read]);
    assert_eq!(
        writes(&decided(&["a"], None, Reading::Source(payload("QQ==", false)), false)),
        [r#"writes ["shop/a"]"#]
    );
    let rotated = |immutable| Reading::Both {
        source: payload("Qg==", immutable),
        version: ObjectVersion::new("c", "7"),
        companion: payload("QQ==", immutable),
    };
    assert_eq!(writes(&decided(&["a"], Some(&["shop/a"]), rotated(false), false)), ["writes content"]);
    assert_eq!(writes(&decided(&["a"], Some(&["shop/a"]), rotated(true), false)), ["deletes"], "recreated at once");
}

#[test]
fn companion_with_unreadable_deployment_loses_no_user() {
    for (what, users, listed, expected) in [
        ("the last named user may be the unreadable one", &[][..], &["shop/gone"][..], &[][..]),
        ("one user is added, and none is removed", &["a"], &["shop/gone"], &[r#"writes ["shop/a","shop/gone"]"#]),
        ("the marker for many users is kept", &["a"], &["more than 32"], &[]),
        ("the marker for many is kept without a known user", &[], &["more than 32"], &[]),
        ("the marker for no users is kept", &[], &["nobody any more"], &[]),
        ("an empty list is kept", &[], &[], &[]),
    ] {
        assert_eq!(writes(&decided(users, Some(listed), Reading::Unknown, true)), expected, "{what}");
    }
}
