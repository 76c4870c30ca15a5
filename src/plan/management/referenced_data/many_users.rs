//! Limits the users that are read for a companion whose list does not name them.

use super::companion::User;
use crate::api::referenced::MAX_NAMED_USERS;

/// Returns enough users of a companion for the same decision as with all of them. The list of that companion says only that there
/// are many users. Enough is more than a list names, and one that wants the copy. The rest of `users` is not read.
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

    /// Returns the decision about a companion with many users when these use it.
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
                    let all: Vec<User> = (0..users).map(|n| user(n, (first..last).contains(&n))).collect();
                    let some = enough(all.iter().cloned());
                    assert!(some.len() <= MAX_NAMED_USERS + 2);
                    assert_eq!(decided(some, fresh), decided(all, fresh), "{first}..{last} of {users}, fresh: {fresh}");
                }
            }
        }
    }
}
