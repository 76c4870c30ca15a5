//! Decides which deployments use a companion, and the next list of its users.
//!
//! A deployment uses a companion if its copy on the hub expects it. It also does if it refers to the source, and needs a copy now
//! or is in the list. Two writers of the list must not lose an entry. So an entry is removed only after a live read, unless the
//! list does not name its users.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::annotation,
        referenced::DataRef,
        user_list::{MAX_NAMED_USERS, UserList, UserName},
    },
    plan::{
        Confirm, Object, Project, Shared, Write,
        references::{annotated, references},
    },
};

/// State of a deployment's copy on the hub, for one companion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HubCopy {
    /// The hub has no copy.
    #[default]
    Absent,
    /// The copy does not expect the companion, or cannot be read.
    Exists,
    /// The copy expects the companion. It brings the companion to the cell.
    Expects,
}

/// A deployment that may use the companion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct User {
    /// True if the deployment refers to the source, and does not do without it.
    pub refers: bool,
    /// True if the deployment also needs a copy now. It is not terminating, and all its sources can be copied or its copy on the
    /// hub expects this one.
    pub wants_copy: bool,
    /// Its copy on the hub.
    pub copy: HubCopy,
    /// The deployment, if the list names it and it does not refer to the source. `None` if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<Shared<WorkloadDeployment>>,
}

impl User {
    /// True if the deployment uses the companion. `is_listed`: it is, or may be, in the list of users. A terminating user is kept
    /// in the list, and so is one whose other data cannot be copied.
    fn uses(&self, is_listed: bool) -> bool {
        self.copy == HubCopy::Expects || self.wants_copy || self.refers && is_listed
    }
}

/// Snapshot of the deployments that may use one companion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Users {
    /// The deployments by name: those that refer to the source, those that the list names, and those whose copies expect the
    /// companion if [`needs_copies`] says so. Of an entry with another namespace only the name counts, because a hub namespace has
    /// the objects of one project namespace. The Go operator's collector does the same.
    pub by_name: BTreeMap<String, User>,
    /// True if a deployment of the namespace cannot be read. It may use the companion too. Then no user is removed from the list,
    /// and the known users still get their copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown_deployments: bool,
    /// True if a copy in the hub namespace cannot be read. It may expect the companion.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown_copies: bool,
}

impl Users {
    /// Returns the next list of a companion, and the live reads that must confirm each removal from it.
    pub(super) fn next_list(
        &self,
        list: &UserList,
        namespace: &str,
        data_ref: &DataRef,
    ) -> (UserList, Vec<Confirm<Project>>) {
        if list.has_many() && (self.unknown_copies || self.unknown_deployments) {
            return (list.clone(), Vec::new());
        }
        let named = self.by_name.iter().map(|(name, user)| (user, UserName::new(namespace, name)));
        let in_use = named.filter(|(user, name)| user.uses(list.may_have(name)));
        let mut users: BTreeSet<UserName> = in_use.map(|(_, name)| name).collect();
        let mut confirm = Vec::new();
        for name in list.names() {
            if users.contains(&name) {
                continue;
            }
            match self.removal(&name, namespace, data_ref) {
                Some(reads) => confirm.extend(reads),
                None => {
                    users.insert(name);
                }
            }
        }
        // An unreadable copy may expect the companion. Known users are added, and nobody is removed.
        match (self.unknown_copies, users.is_empty()) {
            (true, true) => return (list.clone(), Vec::new()),
            (true, false) if list.is_open() => return (list.opened_with(users), Vec::new()),
            _ => {}
        }
        let next = list.with(users);
        if next.has_many() {
            confirm.clear(); // it replaces all names, so no user is removed
        }
        (next, confirm)
    }

    /// Returns the live reads that confirm the removal of an entry. `None` if its deployment may still use the companion.
    fn removal(&self, entry: &UserName, namespace: &str, data_ref: &DataRef) -> Option<Vec<Confirm<Project>>> {
        let unknown = User::default();
        let user = self.by_name.get(entry.deployment()).unwrap_or(&unknown);
        let exists = user.refers || user.deployment.is_some() || user.copy != HubCopy::Absent;
        let is_foreign = entry.namespace() != namespace;
        // Its copy may be the unreadable one.
        let may_expect = self.unknown_copies && user.copy == HubCopy::Exists;
        if self.unknown_deployments || user.uses(true) || may_expect || is_foreign && exists {
            return None;
        }
        let Some(deployment) = user.deployment.as_deref() else {
            let object = Object::named::<WorkloadDeployment>(namespace, entry.deployment());
            return Some(vec![Write::confirm_absent(object)]);
        };
        if expects(deployment, data_ref) {
            return None;
        }
        let mut reads = vec![Write::confirm_unchanged(deployment)];
        // It refers to the source as optional. Its copy is released only if the source is absent.
        if references(&deployment.spec.template.spec).iter().any(|reference| reference.data_ref == *data_ref) {
            let (kind, name) = (data_ref.kind.into(), data_ref.name.clone());
            reads.push(Write::confirm_absent(Object { kind, namespace: namespace.to_owned(), name }));
        }
        Some(reads)
    }
}

/// True if a deployment, in the project or on the hub, expects a companion.
pub fn expects(deployment: &WorkloadDeployment, data_ref: &DataRef) -> bool {
    annotated(deployment, annotation::EXPECTED_REFERENCED_DATA).contains(data_ref)
}

/// True if the copies on the hub have to be searched for more users. `users`: those that refer to the source or are in the list.
///
/// A deployment that no longer refers to a source may still run Instances with it. A list that names its users has it. But another
/// client may have changed the list, and the list of a new companion is made from nothing. So the copies are searched before a
/// list is made, while it does not name its users, and before the companion loses its last user. With more users than a list
/// names, the copies do not change the decision about a list with many.
pub fn needs_copies(users: &BTreeMap<String, User>, list: Option<&UserList>, namespace: &str) -> bool {
    match list {
        None => users.values().any(|user| user.wants_copy),
        Some(list) if list.is_open() => !list.has_many() || users.len() <= MAX_NAMED_USERS,
        Some(list) => !users.iter().any(|(name, user)| user.uses(list.may_have(&UserName::new(namespace, name)))),
    }
}

/// Returns enough users of a companion whose list has many for the same decision as with all of them. Enough is more than a list
/// names, and one that wants the copy. The rest of `users` is not read.
pub fn enough(mut users: impl Iterator<Item = (String, User)>) -> BTreeMap<String, User> {
    let mut enough: BTreeMap<String, User> = users.by_ref().take(MAX_NAMED_USERS + 1).collect();
    if !enough.values().any(|user| user.wants_copy) {
        enough.extend(users.find(|(_, user)| user.wants_copy));
    }
    enough
}

#[cfg(test)]
#[path = "users_tests.rs"]
mod tests;
