//! While some deployment of the namespace cannot be read, nobody loses a companion, and whoever is known gets what he needs.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::plan::management::{
    observed::facts::CompanionFacts,
    referenced_data::companion::{Decided, FormerUser, Observed, Reading, Signal, User, plan},
};
use crate::{
    api::{
        meta::annotation,
        referenced::{DataRef, MANY_USERS, NO_USERS, SourceKind},
    },
    plan::{ObjectVersion, Op, Shared, Step, payload::Payload},
};

fn payload(value: &str, immutable: bool) -> Payload {
    let object =
        serde_json::json!({ "metadata": {}, "data": { "k": value }, "type": "Opaque", "immutable": immutable });
    Payload::parse(SourceKind::Secret, object.to_string().as_bytes()).unwrap().1
}

/// A look at the Secret `db`, which `a` refers to if it is among the `users`; its copy names `listed`.
fn look(users: &[&str], listed: Option<&[&str]>, reading: Reading, fresh: bool) -> Decided {
    let facts = |listed: &[&str]| CompanionFacts {
        uid: "c".into(),
        version: "7".into(),
        users: Some(listed.iter().map(|user| (*user).to_owned()).collect::<BTreeSet<_>>()),
        ..CompanionFacts::default()
    };
    let former = listed.into_iter().flatten().filter_map(|user| user.split_once('/'));
    let observed = Observed {
        data_ref: DataRef::secret("db"),
        namespace: "shop".into(),
        hub_namespace: "ns-1".into(),
        hub_namespace_lives: true,
        users: users.iter().map(|name| User { name: (*name).into(), wants_copy: true, promised: false }).collect(),
        unknown_users: true,
        former_users: former.map(|(_, name)| (name.to_owned(), FormerUser::default())).collect(),
        expecting: Some(BTreeSet::new()),
        companion: listed.map(|listed| Shared::from(facts(listed))),
        residue: None,
        fresh,
        waits: false,
        reading,
    };
    plan(&observed, Timestamp::UNIX_EPOCH)
}

/// What goes to the hub, in short.
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

/// Found by reading: one deployment that could not be read kept every companion of its namespace from being made or renewed,
/// while all deployments said that their data was ready.
#[test]
fn whoever_is_known_gets_a_copy_and_its_new_content() {
    let new = look(&["a"], None, Reading::Unknown, false);
    assert_eq!(new.signals, [Signal::Read]);
    assert_eq!(writes(&look(&["a"], None, Reading::Source(payload("QQ==", false)), false)), [r#"writes ["shop/a"]"#]);
    let rotated = |immutable| Reading::Both {
        source: payload("Qg==", immutable),
        version: ObjectVersion::new("c", "7"),
        companion: payload("QQ==", immutable),
    };
    assert_eq!(writes(&look(&["a"], Some(&["shop/a"]), rotated(false), false)), ["writes content"]);
    assert_eq!(writes(&look(&["a"], Some(&["shop/a"]), rotated(true), false)), ["deletes"], "made anew at once");
}

#[test]
fn nothing_is_taken_from_anybody() {
    for (what, users, listed, expected) in [
        ("the last who is named may be the one that cannot be read", &[][..], &["shop/gone"][..], &[][..]),
        ("one comes, and nobody is struck off", &["a"], &["shop/gone"], &[r#"writes ["shop/a","shop/gone"]"#]),
        ("too many to be named: so it stays", &["a"], &[MANY_USERS], &[]),
        ("too many, and nobody is known", &[], &[MANY_USERS], &[]),
        ("nobody was one", &[], &[NO_USERS], &[]),
        ("nobody has ever said that he is one", &[], &[], &[]),
    ] {
        assert_eq!(writes(&look(users, Some(listed), Reading::Unknown, true)), expected, "{what}");
    }
}
