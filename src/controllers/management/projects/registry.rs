//! Which projects are worked on, and which are known to exist.

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

/// Where it is known which projects exist.
pub(crate) struct Discovered {
    pub(crate) plane: ControlPlane<plan::Discovery>,
    /// What a project is there.
    pub(crate) kind: Kind,
    pub(crate) projects: Arc<Store<ProjectFacts>>,
}

/// The projects.
#[derive(Default)]
pub(crate) struct ProjectRegistry {
    engaged: RwLock<BTreeMap<ProjectName, Arc<ProjectCache>>>,
    discovered: OnceLock<Discovered>,
    /// Uid of a namespace there that nobody can delete.
    management: OnceLock<String>,
    /// Which projects have been found to have a rival, and at which hub namespace.
    rivals: Mutex<BTreeSet<(ProjectName, String)>>,
}

impl ProjectRegistry {
    /// The project of this name, while it is engaged.
    pub(crate) fn get(&self, name: &ProjectName) -> Option<Arc<ProjectCache>> {
        self.read().get(name).cloned()
    }

    /// Whether a project is engaged.
    pub(crate) fn is_engaged(&self, name: &ProjectName) -> bool {
        self.read().contains_key(name)
    }

    /// Every project that is engaged.
    pub(crate) fn all(&self) -> Vec<Arc<ProjectCache>> {
        self.read().values().cloned().collect()
    }

    /// Engages a project; answers with the one that it replaces.
    pub(crate) fn insert(&self, project: Arc<ProjectCache>) -> Option<Arc<ProjectCache>> {
        self.write().insert(project.name.clone(), project)
    }

    /// Lets a project go.
    pub(crate) fn remove(&self, name: &ProjectName) -> Option<Arc<ProjectCache>> {
        self.rivals().retain(|(project, _)| project != name);
        self.write().remove(name)
    }

    /// Forgets rivals at hub namespaces that are gone.
    pub(crate) fn forget_gone(&self, is_there: impl Fn(&str) -> bool) {
        self.rivals().retain(|(_, namespace)| is_there(namespace));
    }

    /// Projects are discovered from now on. Said once, at the start.
    pub(crate) fn discover(&self, discovered: Discovered) {
        let _ = self.discovered.set(discovered);
    }

    /// Where projects are discovered, if they are.
    pub(crate) fn discovered(&self) -> Option<&Discovered> {
        self.discovered.get()
    }

    /// It has been read which control plane that is.
    pub(crate) fn identify(&self, uid: String) {
        let _ = self.management.set(uid);
    }

    /// The management plane that this is; unknown for its first moment.
    pub(crate) fn management(&self) -> Option<String> {
        match self.discovered() {
            Some(_) => self.management.get().cloned(),
            None => self.all().first()?.control_plane(),
        }
    }

    /// Who is to keep the hub namespaces of a project, as far as is known.
    pub(crate) fn keeper(&self, project: &ProjectCache) -> Keeper {
        Keeper { management: self.management(), control_plane: project.control_plane() }
    }

    /// Whether a project exists, as far as discovery knows; one that cannot be read does.
    pub(crate) fn existence(&self, name: &ProjectName) -> Existence {
        let discovery = self.discovered().map(|discovered| Discovery {
            kind: discovered.kind,
            has_it: discovered.projects.contains(&ObjectKey::new("", name.as_str())),
            live: discovered.projects.is_live(),
        });
        engagement::existence(self.is_engaged(name), discovery)
    }

    /// What is known of the namespace `own` of a project, which the hub namespace `namespace` mirrors.
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

    /// Another project that has a better right to a hub namespace than this one; `facts`: what that namespace says.
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

    /// Says that a project has a rival at a hub namespace, once.
    pub(crate) fn note_rival(&self, project: &ProjectName, namespace: &str) {
        if self.rivals().insert((project.clone(), namespace.to_owned())) {
            tracing::warn!(%project, namespace, "another project has a namespace of the same uid, and has it on the hub");
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
