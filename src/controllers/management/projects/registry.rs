//! Registry of the engaged projects and of the discovered ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock},
};

use crate::controllers::management::{hub::hub_cache::HubCache, projects::project_cache::ProjectCache};
use crate::{
    api::names::{HubNamespace, ProjectName},
    io::{
        clients::ControlPlane,
        store::{ObjectKey, Store},
    },
    plan::{
        self, Keeper, Kind, NamespaceFacts,
        management::projects::{
            engagement::{self, Discovery, Existence, Mirrored, ProjectFacts},
            rival::{self, Named, Rival},
        },
    },
};

/// Result of discovery.
pub(crate) struct Discovered {
    pub(crate) plane: ControlPlane<plan::Discovery>,
    /// Kind of object that represents a project.
    pub(crate) kind: Kind,
    pub(crate) projects: Arc<Store<ProjectFacts>>,
}

/// Engaged projects, and the discovered ones if discovery is configured.
#[derive(Default)]
pub(crate) struct ProjectRegistry {
    engaged: RwLock<BTreeMap<ProjectName, Arc<ProjectCache>>>,
    discovered: OnceLock<Discovered>,
    /// Identity of the management control plane: the uid of a namespace that cannot be deleted.
    management: OnceLock<String>,
    /// Projects that were found to have a rival, with the hub namespace.
    rivals: Mutex<BTreeSet<(ProjectName, String)>>,
}

impl ProjectRegistry {
    /// Returns the engaged project of this name.
    pub(crate) fn get(&self, name: &ProjectName) -> Option<Arc<ProjectCache>> {
        self.read().get(name).cloned()
    }

    /// True if a project is engaged.
    pub(crate) fn is_engaged(&self, name: &ProjectName) -> bool {
        self.read().contains_key(name)
    }

    /// Returns every engaged project.
    pub(crate) fn all(&self) -> Vec<Arc<ProjectCache>> {
        self.read().values().cloned().collect()
    }

    /// Engages a project. Returns the one that it replaces.
    pub(crate) fn insert(&self, project: Arc<ProjectCache>) -> Option<Arc<ProjectCache>> {
        self.write().insert(project.name.clone(), project)
    }

    /// Disengages a project.
    pub(crate) fn remove(&self, name: &ProjectName) -> Option<Arc<ProjectCache>> {
        self.rivals().retain(|(project, _)| project != name);
        self.write().remove(name)
    }

    /// Forgets rivals at hub namespaces that are gone.
    pub(crate) fn forget_gone(&self, is_there: impl Fn(&str) -> bool) {
        self.rivals().retain(|(_, namespace)| is_there(namespace));
    }

    /// Starts the use of discovery. Called once, at the start.
    pub(crate) fn discover(&self, discovered: Discovered) {
        let _ = self.discovered.set(discovered);
    }

    /// Returns the result of discovery. `None` if it is not configured.
    pub(crate) fn discovered(&self) -> Option<&Discovered> {
        self.discovered.get()
    }

    /// Sets the identity of the management control plane.
    pub(crate) fn identify(&self, uid: String) {
        let _ = self.management.set(uid);
    }

    /// Returns the identity of the management control plane. `None` until it was read.
    pub(crate) fn management(&self) -> Option<String> {
        match self.discovered() {
            Some(_) => self.management.get().cloned(),
            None => self.all().first()?.control_plane(),
        }
    }

    /// Returns the known keeper of a project's hub namespaces.
    pub(crate) fn keeper(&self, project: &ProjectCache) -> Keeper {
        Keeper { management: self.management(), control_plane: project.control_plane() }
    }

    /// Returns the existence of a project by discovery. An unreadable project exists.
    pub(crate) fn existence(&self, name: &ProjectName) -> Existence {
        let discovery = self.discovered().map(|discovered| Discovery {
            kind: discovered.kind,
            has_it: discovered.projects.contains(&ObjectKey::new("", name.as_str())),
            live: discovered.projects.is_live(),
        });
        engagement::existence(self.is_engaged(name), discovery)
    }

    /// Returns the state of a project's namespace `own` that the hub namespace `namespace` mirrors.
    pub(crate) fn mirrored(&self, name: &ProjectName, own: &str, namespace: &str) -> Mirrored {
        let Some(project) = self.get(name) else {
            return match self.existence(name) {
                Existence::Absent(kind) => Mirrored::ProjectGone(kind),
                Existence::Exists | Existence::Unknown => Mirrored::Unknown,
            };
        };
        if !project.is_synced() || !project.namespaces.is_live() {
            return Mirrored::Unknown;
        }
        let uid = project.namespace_uid(own);
        if uid.as_deref() == HubNamespace::parse(namespace) { Mirrored::Lives } else { Mirrored::NamespaceGone }
    }

    /// Returns the rival of a project: another project that a hub namespace belongs to. `facts` are those of the hub namespace.
    pub(crate) fn rival(
        &self,
        project: &ProjectName,
        namespace: &str,
        facts: Option<&NamespaceFacts>,
        hub: &HubCache,
    ) -> Option<Rival> {
        let (named, own) = facts?.upstream()?;
        if named == *project {
            return None;
        }
        let (mirrored, has_content) = (self.mirrored(&named, own, namespace), hub.has_content(namespace));
        rival::of(facts, project, Named { mirrored, has_content }, self.discovered().is_some())
    }

    /// Logs that a project has a rival at a hub namespace, once.
    pub(crate) fn note_rival(&self, project: &ProjectName, namespace: &str) {
        if self.rivals().insert((project.clone(), namespace.to_owned())) {
            tracing::warn!(%project, namespace, "the hub namespace belongs to another project that has a namespace with the same uid");
        }
    }

    fn rivals(&self) -> MutexGuard<'_, BTreeSet<(ProjectName, String)>> {
        self.rivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<ProjectName, Arc<ProjectCache>>> {
        self.engaged.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<ProjectName, Arc<ProjectCache>>> {
        self.engaged.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "rival_tests.rs"]
mod tests;
