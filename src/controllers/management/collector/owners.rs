//! Copies and hub namespaces whose originals in the projects are gone, as caches know them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource, ResourceExt};

use super::Collector;
use crate::controllers::management::wiring::index::{namespace_index, origin_namespace_index};
use crate::{
    api::{
        compute::WorkloadDeployment,
        karmada::ResourceBinding,
        meta::{annotation, label},
        names::{HubNamespace, ProjectName},
        referenced::{DataRef, SourceKind},
    },
    io::store::ObjectKey,
    plan::{
        Keeper, Kind, Known, NamespaceFacts, Object, ObjectVersion, Plane, Project,
        management::{
            collector::{
                bindings::template_of,
                relabel,
                table::{Action, Item, Noted, Observed, Read, Rule, is_left_to_its_city, is_protected},
            },
            projects::engagement::Mirrored,
        },
        ownership,
    },
};

/// Finds copies and hub namespaces without their originals.
pub(super) struct Owners<'a>(&'a Collector);

impl<'a> Owners<'a> {
    pub(super) fn of(collector: &'a Collector) -> Self {
        Self(collector)
    }

    /// Every copy whose original is gone. The projects that have lost originals are counted.
    pub(super) fn lost_copies(&self) -> Vec<Observed> {
        let lost: Vec<Observed> = self.0.hub.copies.keys().iter().filter_map(|copy| self.lost_copy(copy)).collect();
        let projects: BTreeSet<&ProjectName> = lost.iter().filter_map(|copy| copy.project.as_ref()).collect();
        self.0.metrics.deletions_paused(Project::NAME, projects.len());
        lost
    }

    /// The copy with this key if its original is gone, as far as caches know. In another namespace of the same name (a project that
    /// was rebuilt, a wrong kubeconfig) the absence of an original proves nothing.
    pub(super) fn lost_copy(&self, key: &ObjectKey) -> Option<Observed> {
        let Collector { hub, projects, sweep, timing, .. } = self.0;
        let facts = hub.namespaces.get(&ObjectKey::new("", &key.namespace))?;
        let (name, own) = facts.upstream()?;
        let project = projects.get(&name)?;
        let (original, keeper) = (ObjectKey::new(own, &key.name), projects.keeper(&project));
        let is_known = keeper.management.is_some() && keeper.control_plane.is_some();
        let owner = match projects.mirrored(&name, own, &key.namespace) {
            Mirrored::Lives if project.deployments.contains(&original) => return None,
            Mirrored::Lives if project.deployments.has_unreadable(own) => return None,
            Mirrored::Lives => Read::NotInProject(Object::named::<WorkloadDeployment>(own, &key.name)),
            Mirrored::NamespaceGone if is_known && facts.keeper == keeper => no_namespace(own, &key.namespace)?,
            Mirrored::NamespaceGone | Mirrored::ProjectGone(_) | Mirrored::Unknown => return None,
        };
        let copy = hub.copy(key)?;
        let is_ours = ownership::is_hub_copy_from(&copy, own) && copy.metadata.deletion_timestamp.is_none();
        let item = is_ours.then(|| item(&copy))?;
        let since = copy.annotations().get(annotation::STRANDED_SINCE).and_then(|since| since.parse().ok());
        Some(Observed {
            rule: Rule::Copy,
            namespace: key.namespace.to_string(),
            namespace_uid: facts.uid.clone(),
            project: Some(name),
            owner,
            items: vec![item.clone()],
            grace: Rule::Copy.grace(sweep, timing),
            noted: Some(Noted { on: item, since }),
            created: copy.metadata.creation_timestamp.as_ref().map(|created| created.0),
            seen_before: false,
            paused: sweep.is_paused(Some(&facts)),
        })
    }

    /// Every hub namespace whose original is gone, or what it holds; and the steps by which this management plane adopts those
    /// whose original lives. Those that are stranded are counted.
    #[allow(clippy::type_complexity)]
    pub(super) fn lost_namespaces(&self) -> (Vec<Observed>, Vec<(ProjectName, Vec<Action>)>) {
        let Collector { hub, projects, metrics, .. } = self.0;
        let (mut lost, mut adoptions, mut stranded) = (Vec::new(), Vec::new(), 0);
        for key in hub.namespaces.keys() {
            let (Some(facts), Some(version)) = (hub.namespaces.get(&key), hub.namespaces.version(&key)) else {
                continue;
            };
            let Some((name, own)) = facts.upstream().filter(|_| !facts.terminating) else { continue };
            let version = ObjectVersion::new(&facts.uid, &version.to_string());
            let keeper = projects.get(&name).map(|project| projects.keeper(&project));
            let mirrored = projects.mirrored(&name, own, &key.name);
            if let (Mirrored::Lives, Some(keeper)) = (mirrored, &keeper) {
                let steps = relabel::adopt(&key.name, &facts, &version, keeper);
                adoptions.extend(steps.map(|steps| (name, steps.into_steps())));
                continue;
            }
            let management = projects.management();
            if management.is_none() || facts.keeper.management != management {
                continue; // another management plane keeps it, or nobody says so
            }
            let found = match mirrored {
                Mirrored::ProjectGone(kind) => Some(self.lost_project(&key.name, &facts, &version, &name, kind)),
                Mirrored::NamespaceGone => {
                    keeper.and_then(|keeper| self.lost_namespace(&key.name, &facts, &version, &keeper))
                }
                Mirrored::Lives | Mirrored::Unknown => None,
            };
            stranded += usize::from(found.is_some());
            lost.extend(found.filter(|found| !found.items.is_empty()));
        }
        metrics.stranded(stranded);
        (lost, adoptions)
    }

    /// A hub namespace whose project is gone, with what protects it from being deleted.
    fn lost_project(
        &self,
        namespace: &str,
        facts: &NamespaceFacts,
        version: &ObjectVersion,
        project: &ProjectName,
        kind: Kind,
    ) -> Observed {
        let own = facts.upstream().map(|(_, own)| own.to_owned()).unwrap_or_default();
        let protected = self.content(namespace, project, &own).into_iter().filter(|item| item.protected);
        let owner = Object { kind, namespace: String::new(), name: project.to_string() };
        let itself = namespace_item(namespace, facts, version);
        let items = protected.chain([itself]).collect();
        self.observed(Rule::Namespace, namespace, (facts, version, project), Read::NoProject(owner), items)
    }

    /// What a hub namespace holds whose original namespace is gone; `None` if that is nothing. Copies that its control plane has lost
    /// are judged one by one, and what they need waits for them.
    fn lost_namespace(
        &self,
        namespace: &str,
        facts: &NamespaceFacts,
        version: &ObjectVersion,
        keeper: &Keeper,
    ) -> Option<Observed> {
        let hub = &self.0.hub;
        let (project, own) = facts.upstream()?;
        let owner = no_namespace(own, namespace)?;
        let mut items = self.content(namespace, &project, own);
        let policies = hub.policies.by_index(&namespace_index(namespace));
        let has_policies = policies.iter().any(|policy| is_left_to_its_city(policy));
        let is_empty = items.is_empty() && !has_policies;
        let is_same = facts.keeper.control_plane.is_some() && facts.keeper.control_plane == keeper.control_plane;
        let has_copies = hub.has_copies(namespace);
        if is_same && has_copies {
            items.clear();
        }
        if has_policies && !has_copies {
            self.0.triggers.enqueue_policies(Some(namespace));
        }
        let rule = if is_same { Rule::Content } else { Rule::ControlPlane };
        (!is_empty).then(|| self.observed(rule, namespace, (facts, version, &project), owner, items))
    }

    fn observed(
        &self,
        rule: Rule,
        namespace: &str,
        (facts, version, project): (&NamespaceFacts, &ObjectVersion, &ProjectName),
        owner: Read,
        items: Vec<Item>,
    ) -> Observed {
        let Collector { sweep, timing, .. } = self.0;
        Observed {
            rule,
            namespace: namespace.to_owned(),
            namespace_uid: facts.uid.clone(),
            project: Some(project.clone()),
            owner,
            items,
            grace: rule.grace(sweep, timing),
            noted: Some(Noted { on: namespace_item(namespace, facts, version), since: facts.stranded_since }),
            created: None,
            seen_before: false,
            paused: sweep.is_paused(Some(facts)),
        }
    }

    /// What a hub namespace holds of the namespace of a project, but for what is terminating. Cells take back what they wrote once
    /// the copies are gone; of what is there without copies no cell knows any more. A binding goes with its copy, and after the
    /// last of them what has outlived its copy: by it Instances run on (fact 14).
    fn content(&self, namespace: &str, project: &ProjectName, own: &str) -> Vec<Item> {
        let hub = &self.0.hub;
        let index = namespace_index(namespace);
        let copies: Vec<_> = hub.copies.by_index(&index).iter().map(|copy| copy.open()).collect();
        let ours: Vec<_> = copies.iter().filter(|copy| ownership::is_hub_copy_from(copy, own)).collect();
        let mut items: Vec<Item> = ours.iter().filter(|copy| stays(**copy)).map(|copy| item(*copy)).collect();
        for kind in SourceKind::ALL {
            for key in hub.companions(kind).keys_by_index(&index) {
                let data_ref = DataRef { kind, name: key.name.to_string() };
                let facts = hub.companion(namespace, &data_ref).filter(|facts| !facts.terminating);
                let object = Object { kind: kind.into(), namespace: namespace.to_owned(), name: data_ref.name };
                items.extend(facts.map(|facts| Item::new(object, ObjectVersion::new(&facts.uid, &facts.version))));
            }
        }
        let instances = hub.instances.by_index(&origin_namespace_index(project, own));
        let here = instances.iter().filter(|instance| instance.namespace().as_deref() == Some(namespace));
        let here = here.filter(|instance| ours.is_empty() || is_protected(&****instance));
        items.extend(here.filter(|instance| stays(&****instance)).map(|instance| item(&***instance)));
        if ours.is_empty() {
            let keys = hub.bindings.keys_by_index(&index).into_iter();
            items.extend(keys.filter_map(|key| self.lost_binding(&key)));
        }
        items
    }

    /// A binding of a deployment of which no copy is known.
    fn lost_binding(&self, key: &ObjectKey) -> Option<Item> {
        let facts = self.0.hub.bindings.get(key)?;
        let copy = template_of(&key.namespace, &key.name).filter(|of| of.kind == Kind::WorkloadDeployment)?;
        let is_ours = ownership::is_binding_of_deployment(facts.policy.as_deref(), facts.scheduled_for.is_some());
        let has_copy = self.0.hub.copies.contains(&ObjectKey::new(&copy.namespace, &copy.name));
        (is_ours && !facts.terminating && !has_copy).then(|| Item {
            object: Object::named::<ResourceBinding>(&key.namespace, &key.name),
            version: ObjectVersion::new(&facts.uid, &facts.version),
            read: Some(Read::NotOnHub(copy)),
            protected: false,
        })
    }
}

fn no_namespace(own: &str, hub_namespace: &str) -> Option<Read> {
    let uid = HubNamespace::parse(hub_namespace)?.to_owned();
    Some(Read::NoNamespace { name: own.to_owned(), uid })
}

fn stays<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_none()
}

fn item<K: Known + Resource<DynamicType = ()>>(object: &K) -> Item {
    let item = Item::new(Object::of(object), ObjectVersion::of(object.meta()));
    Item { protected: is_protected(object), ..item }
}

fn namespace_item(name: &str, facts: &NamespaceFacts, version: &ObjectVersion) -> Item {
    let object = Object::named::<Namespace>("", name);
    let protected = facts.labels.contains_key(label::DELETION_PROTECTED);
    Item { protected, ..Item::new(object, version.clone()) }
}
