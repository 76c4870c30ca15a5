//! The list of users on a companion: the annotation `referenced-by`.
//!
//! Only this module knows the texts in the annotation. All others ask a [`UserList`].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Most users that a list names. Metadata holds 256 KiB, and Karmada updates the companion on every cell whenever it changes.
pub const MAX_NAMED_USERS: usize = 32;

/// The entry of a list with more users. No deployment can have this name. The Go operator keeps the entry when it adds a name,
/// and keeps a companion with an entry that names no deployment.
const MANY_USERS: &str = "more than 32";

/// The entry of a list that may lack users. A list whose last users are gone has only this entry before the companion is deleted.
/// A later user changes the list, and with it the resourceVersion that the deletion requires. That holds even for a delete request
/// sent long before.
const NO_USERS: &str = "nobody any more";

/// A deployment in a list: `<namespace in the project>/<deployment>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserName(String);

impl UserName {
    /// Names a deployment.
    pub fn new(namespace: &str, deployment: &str) -> Self {
        Self(format!("{namespace}/{deployment}"))
    }

    /// Parses an entry. `None` if it names no deployment.
    fn parse(entry: &str) -> Option<Self> {
        let (namespace, deployment) = entry.split_once('/')?;
        let is_name = !namespace.is_empty() && !deployment.is_empty() && !deployment.contains('/');
        is_name.then(|| Self(entry.to_owned()))
    }

    /// Returns the namespace in the project. An entry of another client may have any.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').unwrap_or_default().0
    }

    /// Returns the name of the deployment.
    pub fn deployment(&self) -> &str {
        self.0.split_once('/').unwrap_or_default().1
    }
}

/// What a list says about one deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Listed {
    /// The deployment is not in the list, or the list is unreadable.
    #[default]
    No,
    /// The list names the deployment.
    Named,
    /// The list has too many users to name them.
    Many,
}

/// The list of users of a companion: the entries of the annotation, or `None` if it is unreadable. Entries of other clients that
/// name no deployment are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UserList(Option<BTreeSet<String>>);

impl UserList {
    /// Parses the annotation. A companion without it has an empty list.
    pub fn parse(annotation: Option<&str>) -> Self {
        Self(annotation.map_or_else(|| Some(BTreeSet::new()), |text| serde_json::from_str(text).ok()))
    }

    /// Returns the value of the annotation.
    pub fn to_annotation(&self) -> String {
        serde_json::json!(self.0).to_string()
    }

    /// Returns this list with these users in place of its own. It names them, or says that there are many. If a list with many
    /// users has none left, it says so before the companion is deleted: a later user then changes the list.
    #[must_use]
    pub fn with(&self, users: BTreeSet<UserName>) -> Self {
        let is_other =
            |entry: &&String| ![MANY_USERS, NO_USERS].contains(&&***entry) && UserName::parse(entry).is_none();
        let mut entries: BTreeSet<String> = self.0.iter().flatten().filter(is_other).cloned().collect();
        match users.len() {
            0 if self.has_many() && entries.is_empty() => entries.extend([NO_USERS.to_owned()]),
            0..=MAX_NAMED_USERS => entries.extend(users.into_iter().map(|user| user.0)),
            _ => entries.extend([MANY_USERS.to_owned()]),
        }
        Self(Some(entries))
    }

    /// Returns this list with these users added. It does not say that they are all: others may be unknown.
    #[must_use]
    pub fn opened_with(&self, users: BTreeSet<UserName>) -> Self {
        let all: BTreeSet<UserName> = self.names().chain(users).collect();
        let mut opened = self.with(all);
        if !opened.has_many() {
            opened.0.get_or_insert_default().insert(NO_USERS.to_owned());
        }
        opened
    }

    /// Iterates over the deployments that the list names. Names in a list with many users do not count.
    pub fn names(&self) -> impl Iterator<Item = UserName> {
        self.0.iter().flatten().filter(|_| !self.has_many()).filter_map(|entry| UserName::parse(entry))
    }

    /// Returns what the list says about a deployment.
    pub fn listed(&self, user: &UserName) -> Listed {
        match self.has_many() {
            true => Listed::Many,
            false if self.has(&user.0) => Listed::Named,
            false => Listed::No,
        }
    }

    /// True if a deployment may be in the list: the list names it, has many users, or is unreadable.
    pub fn may_have(&self, user: &UserName) -> bool {
        self.0.is_none() || self.listed(user) != Listed::No
    }

    /// True if there are more users than a list names.
    pub fn has_many(&self) -> bool {
        self.has(MANY_USERS)
    }

    /// True if the list does not name its users. Then the copies on the hub show who uses the companion.
    pub fn is_open(&self) -> bool {
        self.0.is_none() || self.has_many() || self.has(NO_USERS)
    }

    /// True if the list has no entry.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// True if the list is empty or unreadable, so that the users are unknown. Such a companion is kept and reported.
    pub fn is_unknown(&self) -> bool {
        self.0.is_none() || self.is_empty()
    }

    fn has(&self, entry: &str) -> bool {
        self.0.as_ref().is_some_and(|entries| entries.contains(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(entry: &str) -> UserName {
        UserName(entry.to_owned())
    }

    fn crowd(size: usize) -> BTreeSet<UserName> {
        (0..size).map(|n| UserName::new("shop", &format!("web-{n:02}"))).collect()
    }

    #[test]
    fn user_list_of_each_form_is_parsed_and_written_back() {
        use Listed::{Many, Named, No};
        for (text, names, is_open, is_unknown, of_web) in [
            (None, 0, false, true, No),
            (Some("[]"), 0, false, true, No),
            (Some(r#"["other/x","shop/web"]"#), 2, false, false, Named),
            (Some(r#"["/x","?","other/","other/x/y"]"#), 0, false, false, No),
            (Some(r#"["more than 32"]"#), 0, true, false, Many),
            (Some(r#"["?","more than 32","shop/web"]"#), 0, true, false, Many),
            (Some(r#"["nobody any more"]"#), 0, true, false, No),
            (Some(r#"["nobody any more","shop/web"]"#), 1, true, false, Named),
        ] {
            let list = UserList::parse(text);
            assert_eq!((list.names().count(), list.has_many()), (names, of_web == Many), "{text:?}");
            assert_eq!((list.is_open(), list.is_unknown()), (is_open, is_unknown), "{text:?}");
            assert_eq!(list.listed(&user("shop/web")), of_web, "{text:?}");
            assert_eq!(list.may_have(&user("shop/web")), of_web != No, "{text:?}");
            assert_eq!(list.to_annotation(), text.unwrap_or("[]"));
        }
        for text in ["no list", r#"{"shop/web":1}"#, "[1]"] {
            let list = UserList::parse(Some(text));
            assert!(list.is_open() && list.is_unknown() && !list.is_empty() && list.names().next().is_none(), "{text}");
            assert!(list.listed(&user("shop/web")) == No && list.may_have(&user("shop/web")), "{text}");
        }
    }

    #[test]
    fn user_list_with_other_users_names_up_to_32_and_keeps_foreign_entries() {
        let named = UserList::parse(None).with(crowd(MAX_NAMED_USERS));
        assert_eq!(named.names().count(), MAX_NAMED_USERS);
        let many = named.with(crowd(MAX_NAMED_USERS + 1));
        assert_eq!(many.to_annotation(), r#"["more than 32"]"#);
        assert_eq!(many.with(crowd(1)).to_annotation(), r#"["shop/web-00"]"#);
        assert!(named.with(crowd(0)).is_empty(), "a list that named its users can be deleted at once");
        let nobody = many.with(crowd(0));
        assert_eq!(nobody.to_annotation(), r#"["nobody any more"]"#);
        assert!(nobody.with(crowd(0)).is_empty());
        assert_eq!(nobody.with(crowd(1)).to_annotation(), r#"["shop/web-00"]"#);
        let foreign = UserList::parse(Some(r#"["?","more than 32"]"#));
        assert_eq!(foreign.with(crowd(0)).to_annotation(), r#"["?"]"#);
        assert_eq!(foreign.with(crowd(40)), foreign);
    }

    #[test]
    fn user_name_has_namespace_and_deployment() {
        let name = UserName::new("shop", "web");
        assert_eq!((name.namespace(), name.deployment()), ("shop", "web"));
        assert_eq!(UserList::parse(Some(r#"["shop/web"]"#)).names().collect::<Vec<_>>(), [name]);
    }
}
