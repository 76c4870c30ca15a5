//! A manager that has just begun has known nothing that could be missing: what the hub has copies of is what was known before.
//!
//! Where an etcd was restored while no manager ran, or the manager's own Lease lay in it, a first list lacks what later ones
//! would be missed for, and every copy without its original would go.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::controllers::management::{
    hub::hub_cache::HubCache,
    projects::{project_cache::ProjectCache, registry::ProjectRegistry},
    wiring::{index::namespace_index, index::project_index},
};
use crate::{
    api::names::{HubNamespace, ProjectName},
    io::store::{Listed, Lost, ObjectKey},
};

/// Which projects have been compared with what the hub holds of them.
pub(crate) struct FirstLook {
    hub: Weak<HubCache>,
    projects: Weak<ProjectRegistry>,
    done: Mutex<BTreeSet<ProjectName>>,
}

/// What a first look has come to.
pub(crate) enum Compared {
    /// Nothing is known yet, of the hub or of the project: nothing may be concluded from what is not there.
    NotYet,
    /// There is no such project.
    NoProject,
    /// It was compared, now or before, and what it misses has been noted.
    Done,
}

impl FirstLook {
    pub(crate) fn new(hub: &Arc<HubCache>, projects: &Arc<ProjectRegistry>) -> Self {
        Self { hub: Arc::downgrade(hub), projects: Arc::downgrade(projects), done: Mutex::default() }
    }

    /// Compares a project with what the hub holds of it, once, and has `note` take down what is missing before anybody else learns
    /// that it has been compared.
    pub(crate) fn look(&self, name: &ProjectName, note: impl FnOnce(&Listed)) -> Compared {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if done.contains(name) {
            return Compared::Done;
        }
        let (Some(hub), Some(projects)) = (self.hub.upgrade(), self.projects.upgrade()) else {
            return Compared::NotYet;
        };
        let Some(project) = projects.get(name) else { return Compared::NoProject };
        if !hub.is_synced() || !project.is_synced() {
            return Compared::NotYet;
        }
        let mut listed = Listed { another_history: false, known: 0, missing: Vec::new() };
        for namespace in hub.namespaces.keys_by_index(&project_index(name)) {
            let facts = hub.namespaces.get(&namespace);
            let Some((_, own)) = facts.as_ref().and_then(|facts| facts.upstream()) else { continue };
            let Some(uid) = HubNamespace::parse(&namespace.name) else { continue };
            let copies = hub.copies.keys_by_index(&namespace_index(&namespace.name));
            listed.known += copies.len();
            let originals =
                copies.iter().map(|copy| Lost { key: ObjectKey::new(own, &copy.name), uid: uid.to_owned() });
            listed.missing.extend(originals.filter(|original| !has(&project, original)));
        }
        note(&listed);
        done.insert(name.clone());
        Compared::Done
    }

    /// Whether the original of a copy is there by now.
    pub(crate) fn is_there(&self, name: &ProjectName) -> crate::controllers::IsThere {
        let (projects, name) = (self.projects.clone(), name.clone());
        Box::new(move |original| {
            let project = projects.upgrade().and_then(|projects| projects.get(&name));
            project.is_some_and(|project| has(&project, original))
        })
    }

    /// A project is let go: whoever comes in its place is compared anew.
    pub(crate) fn forget(&self, name: &ProjectName) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// Whether a project has the original of a copy. In another namespace of the same name, one of its name is not it: what the
/// hub holds is of the namespace with that uid.
fn has(project: &ProjectCache, original: &Lost) -> bool {
    project.namespace_uid(&original.key.namespace).is_some_and(|uid| uid == original.uid)
        && project.deployments.contains(&original.key)
}

#[cfg(test)]
#[path = "first_look_tests.rs"]
mod tests;
