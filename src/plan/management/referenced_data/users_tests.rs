use jiff::Timestamp;

use super::*;
use crate::plan::{
    Shared,
    management::{
        observed::facts::CompanionFacts,
        referenced_data::companion::{self, Observed, Reading},
    },
};

/// Returns the decision about a companion with many users when these use it.
fn decided(users: BTreeMap<String, User>, fresh: bool) -> String {
    let list = UserList::parse(Some(r#"["more than 32"]"#));
    let facts = CompanionFacts { uid: "c".into(), version: "7".into(), users: list, ..CompanionFacts::default() };
    let observed = Observed {
        data_ref: DataRef::secret("db"),
        namespace: "shop".into(),
        hub_namespace: "ns-1".into(),
        hub_namespace_lives: true,
        users: Users { by_name: users, ..Users::default() },
        companion: Some(Shared::from(facts)),
        residue: None,
        fresh,
        waits: false,
        reading: Reading::Unknown,
    };
    format!("{:?}", companion::plan(&observed, Timestamp::UNIX_EPOCH))
}

fn user(n: usize, wants_copy: bool) -> (String, User) {
    (format!("web-{n:05}"), User { refers: true, wants_copy, ..User::default() })
}

#[test]
fn enough_users_of_many_that_want_the_copy_are_one_more_than_a_list_names() {
    for users in [100, 1_000, 10_000] {
        let mut asked = 0;
        let some = enough((0..users).inspect(|_| asked += 1).map(|n| user(n, true)));
        assert_eq!((some.len(), asked), (MAX_NAMED_USERS + 1, MAX_NAMED_USERS + 1), "of {users}");
    }
}

#[test]
fn enough_users_of_any_mix_give_the_decision_of_all_users() {
    let sizes = [0, 1, MAX_NAMED_USERS - 1, MAX_NAMED_USERS, MAX_NAMED_USERS + 1, MAX_NAMED_USERS + 2, 100];
    for (users, fresh) in sizes.into_iter().flat_map(|users| [(users, true), (users, false)]) {
        // No user wants the copy, one does, or all from this one on.
        for first in 0..=users {
            for last in [first + 1, users] {
                let all = || (0..users).map(|n| user(n, (first..last).contains(&n)));
                let some = enough(all());
                assert!(some.len() <= MAX_NAMED_USERS + 2);
                let decision = decided(all().collect(), fresh);
                assert_eq!(decided(some, fresh), decision, "{first}..{last} of {users}, fresh: {fresh}");
            }
        }
    }
}

/// The rule in one table: the next list, by the form of the present one.
#[test]
fn deployment_of_each_kind_uses_the_companion_by_the_form_of_its_list() {
    let refers = |wants_copy, copy| User { refers: true, wants_copy, copy, deployment: None };
    let copy = |copy| User { copy, ..User::default() };
    let users = Users {
        by_name: [
            ("wants".to_owned(), refers(true, HubCopy::Absent)),
            ("waits".to_owned(), refers(false, HubCopy::Exists)),
            ("runs".to_owned(), refers(false, HubCopy::Expects)),
            ("rolls".to_owned(), copy(HubCopy::Expects)),
            ("gone".to_owned(), User::default()),
        ]
        .into(),
        ..Users::default()
    };
    let next = |users: &Users, list: Option<&str>| {
        let list = UserList::parse(list);
        let (next, confirm) = users.next_list(&list, "shop", &DataRef::secret("db"));
        (if next == list { "unchanged".to_owned() } else { next.to_annotation() }, confirm.len())
    };
    let active = r#"["shop/rolls","shop/runs","shop/wants"]"#;
    let all = r#"["shop/rolls","shop/runs","shop/waits","shop/wants"]"#;
    let unreadable =
        [Users { unknown_copies: true, ..users.clone() }, Users { unknown_deployments: true, ..users.clone() }];
    for (list, expected, reads, [copies, deployments]) in [
        (None, active, 0, [active, active]),
        (Some(r#"["shop/waits"]"#), all, 0, [all, all]),
        (
            Some(r#"["shop/gone","x/gone","x/rolls"]"#),
            r#"["shop/rolls","shop/runs","shop/wants","x/rolls"]"#,
            2,
            [
                r#"["shop/rolls","shop/runs","shop/wants","x/rolls"]"#,
                r#"["shop/gone","shop/rolls","shop/runs","shop/wants","x/gone","x/rolls"]"#,
            ],
        ),
        (Some(r#"["more than 32","shop/gone"]"#), all, 0, ["unchanged", "unchanged"]),
        (
            Some(r#"["nobody any more"]"#),
            active,
            0,
            [r#"["nobody any more","shop/rolls","shop/runs","shop/wants"]"#, active],
        ),
        (Some("no list"), all, 0, [r#"["nobody any more","shop/rolls","shop/runs","shop/waits","shop/wants"]"#, all]),
    ] {
        assert_eq!(next(&users, list), (expected.to_owned(), reads), "{list:?}");
        assert_eq!(next(&unreadable[0], list).0, copies, "{list:?}, a copy is unreadable");
        assert_eq!(next(&unreadable[1], list), (deployments.to_owned(), 0), "{list:?}, one is unreadable");
    }
}

/// A companion was deleted although a copy that could not be read expected it.
#[test]
fn unreadable_copy_keeps_the_entry_of_its_deployment_and_the_last_list() {
    let left = User { copy: HubCopy::Exists, ..User::default() };
    let users = |unknown_copies, by_name: &[(&str, User)]| Users {
        by_name: by_name.iter().map(|(name, user)| ((*name).to_owned(), user.clone())).collect(),
        unknown_copies,
        ..Users::default()
    };
    let list = UserList::parse(Some(r#"["shop/left"]"#));
    let next = |users: Users| {
        let (next, confirm) = users.next_list(&list, "shop", &DataRef::secret("db"));
        (next.to_annotation(), confirm.len())
    };
    assert_eq!(next(users(true, &[("left", left.clone())])), (r#"["shop/left"]"#.to_owned(), 0));
    assert_eq!(next(users(false, &[("left", left)])), ("[]".to_owned(), 1));
    let (kept, reads) = next(users(true, &[]));
    assert!(kept.contains("shop/left") && reads == 0, "another copy may expect it: {kept}");
}

/// The copies were searched only if no deployment referred to the source. One that referred to it, and did not use the companion
/// yet, hid that the last user had gone.
#[test]
fn copies_are_searched_before_a_list_is_made_and_before_its_last_user_goes() {
    let wants = ("web".to_owned(), User { refers: true, wants_copy: true, ..User::default() });
    let other = ("web".to_owned(), User { refers: true, ..User::default() });
    let many = |count: usize| (0..count).map(|n| user(n, true)).collect::<Vec<_>>();
    for (users, list, searched) in [
        (vec![wants.clone()], None, true),
        (vec![other.clone()], None, false),
        (vec![], Some(r#"["shop/web"]"#), true),
        (vec![other.clone()], Some(r#"["shop/other"]"#), true),
        (vec![other], Some(r#"["shop/web"]"#), false),
        (vec![wants.clone()], Some(r#"["shop/other"]"#), false),
        (vec![wants.clone()], Some(r#"["nobody any more"]"#), true),
        (vec![wants], Some("no list"), true),
        (many(MAX_NAMED_USERS), Some(r#"["more than 32"]"#), true),
        (many(MAX_NAMED_USERS + 1), Some(r#"["more than 32"]"#), false),
    ] {
        let parsed = list.map(|list| UserList::parse(Some(list)));
        let users: BTreeMap<String, User> = users.into_iter().collect();
        assert_eq!(needs_copies(&users, parsed.as_ref(), "shop"), searched, "{list:?}");
    }
}
