//! How many of a companion's users it takes to decide about it, where it does not name them.

use super::companion::User;
use crate::api::referenced::MAX_NAMED_USERS;

/// The users of a companion whose list says only that there are many, or as many of them as it takes to decide the same: more
/// than a list names, and one who wants the copy. No more of `users` is asked for.
pub fn enough(users: impl Iterator<Item = User>) -> Vec<User> {
    let (mut enough, mut wanted) = (Vec::new(), false);
    for user in users {
        if enough.len() <= MAX_NAMED_USERS || user.wants_copy {
            wanted |= user.wants_copy;
            enough.push(user);
        }
        if wanted && enough.len() > MAX_NAMED_USERS {
            break;
        }
    }
    enough
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        api::referenced::{DataRef, MANY_USERS},
        plan::{
            Shared,
            management::{
                observed::facts::CompanionFacts,
                referenced_data::companion::{self, Observed, Reading},
            },
        },
    };

    /// What is decided about a companion of many when these use it.
    fn decided(users: Vec<User>, fresh: bool) -> String {
        let list = Some([MANY_USERS.to_owned()].into());
        let facts = CompanionFacts { uid: "c".into(), version: "7".into(), users: list, ..CompanionFacts::default() };
        let observed = Observed {
            data_ref: DataRef::secret("db"),
            namespace: "shop".into(),
            hub_namespace: "ns-1".into(),
            hub_namespace_lives: true,
            users,
            unknown_users: false,
            former_users: [].into(),
            expecting: Some([].into()),
            companion: Some(Shared::from(facts)),
            residue: None,
            fresh,
            waits: false,
            reading: Reading::Unknown,
        };
        format!("{:?}", companion::plan(&observed, Timestamp::UNIX_EPOCH))
    }

    fn user(n: usize, wants_copy: bool) -> User {
        User { name: format!("web-{n}"), wants_copy, promised: false }
    }

    #[test]
    fn of_many_who_want_the_copy_as_few_are_asked_as_of_a_hundred() {
        for users in [100, 1_000, 10_000] {
            let mut asked = 0;
            let some = enough((0..users).inspect(|_| asked += 1).map(|n| user(n, true)));
            assert_eq!((some.len(), asked), (MAX_NAMED_USERS + 1, MAX_NAMED_USERS + 1), "of {users}");
        }
    }

    #[test]
    fn whoever_wants_the_copy_is_found_and_the_decision_is_that_about_all() {
        let sizes = [0, 1, MAX_NAMED_USERS - 1, MAX_NAMED_USERS, MAX_NAMED_USERS + 1, MAX_NAMED_USERS + 2, 100];
        for (users, fresh) in sizes.into_iter().flat_map(|users| [(users, true), (users, false)]) {
            // Nobody wants it, one does, or everybody from this one on.
            for first in 0..=users {
                for last in [first + 1, users] {
                    let all: Vec<User> = (0..users).map(|n| user(n, (first..last).contains(&n))).collect();
                    let some = enough(all.iter().cloned());
                    assert!(some.len() <= MAX_NAMED_USERS + 2);
                    assert_eq!(decided(some, fresh), decided(all, fresh), "{first}..{last} of {users}, fresh: {fresh}");
                }
            }
        }
    }
}
