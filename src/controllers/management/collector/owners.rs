//! Copies and hub namespaces without their originals in the projects, according to the caches.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource, ResourceExt};

use super::Collector;
use crate::controllers::management::{
    Context, Options,
    wiring::index::{namespace_index, origin_namespace_index},
};
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
        Hub, Keeper, Kind, Known, NamespaceFacts, Object, ObjectVersion, Shared, Write,
        management::{
            collector::{
                bindings::template_of,
                relabel, report,
                table::{
                    Action, Grace, Item, Noted, Observed, Read, Rule, is_left_to_its_city, is_protected, is_replaced,
                },
            },
            projects::engagement::Mirrored,
        },
        ownership,
    },
};

/// Findings about hub namespaces.
#[derive(Default)]
pub(super) struct Namespaces {
    /// Hub namespaces without their original, or their content.
    pub(super) lost: Vec<Observed>,
    /// Steps that adopt hub namespaces with an original: those without a recorded keeper, or with the start of a grace.
    pub(super) adopted: Vec<(ProjectName, Vec<Action>)>,
    /// Events on copies of deleted namespaces that finalizers keep.
    pub(super) events: Vec<Write<Hub>>,
}

/// Finds copies and hub namespaces without their originals.
pub(super) struct Owners<'a>(&'a Collector);

impl<'a> Owners<'a> {
    pub(super) fn of(collector: &'a Collector) -> Self {
        Self(collector)
    }

    /// Returns the number of hub namespaces that this management plane keeps.
    pub(super) fn kept_namespaces(&self) -> usize {
        let management = self.0.ctx.projects.management();
        let is_ours = |facts: &&NamespaceFacts| management.is_some() && facts.keeper.management == management;
        self.0.ctx.hub.namespaces.values().iter().map(AsRef::as_ref).filter(is_ours).count()
    }

    /// Returns every copy without its original.
    pub(super) fn lost_copies(&self) -> Vec<Observed> {
        self.0.ctx.hub.copies.keys().iter().filter_map(|copy| self.lost_copy(copy)).collect()
    }

    /// Returns the step that ends the grace of each waiting copy with an existing original. The federator does the same with its
    /// next write of the copy, but that write may have to wait for data.
    pub(super) fn returned_copies(&self) -> Vec<(ProjectName, Vec<Action>)> {
        let Context { hub, projects, .. } = &*self.0.ctx;
        let waiting = hub.copies.entries().into_iter().filter(|(_, copy)| copy.is_waiting());
        let returned = waiting.filter_map(|(key, copy)| {
            let facts = hub.namespaces.get(&ObjectKey::new("", &key.namespace))?;
            let (name, own) = facts.upstream()?;
            let lives = projects.mirrored(&name, own, &key.namespace) == Mirrored::Lives;
            let has_original = projects.get(&name)?.deployments.contains(&ObjectKey::new(own, &key.name));
            let copy = copy.open();
            let is_ours = lives && has_original && ownership::is_hub_copy_from(&copy, own) && stays(&*copy);
            is_ours.then(|| (name, vec![Action::Hub(relabel::end_grace(&copy))]))
        });
        returned.collect()
    }

    /// Returns the copy with this key if its original is gone according to the caches. In another namespace of the same name, such
    /// as that of a rebuilt project or a wrong kubeconfig, the absence of an original proves nothing.
    pub(super) fn lost_copy(&self, key: &ObjectKey) -> Option<Observed> {
        let Context { hub, projects, options: Options { sweep, timing, .. }, .. } = &*self.0.ctx;
        let facts = hub.namespaces.get(&ObjectKey::new("", &key.namespace))?;
        let (name, own) = facts.upstream()?;
        let project = projects.get(&name)?;
        let (original, keeper) = (ObjectKey::new(own, &key.name), projects.keeper(&project));
        let is_known = keeper.management.is_some() && keeper.control_plane.is_some();
        let namesake = project.namespaces.get(&ObjectKey::new("", own));
        let mut grace = Rule::Copy.grace(sweep, timing);
        let owner = match projects.mirrored(&name, own, &key.namespace) {
            Mirrored::Lives if project.deployments.contains(&original) => return None,
            Mirrored::Lives if project.deployments.has_unreadable(own) => return None,
            Mirrored::Lives => Read::NotInProject(Object::named::<WorkloadDeployment>(own, &key.name)),
            Mirrored::NamespaceGone if is_known && facts.keeper == keeper => {
                if is_replaced(&facts, namesake.as_deref()) {
                    grace = Grace::Nothing;
                }
                no_namespace(own, &key.namespace)?
            }
            Mirrored::NamespaceGone | Mirrored::ProjectGone(_) | Mirrored::Unknown => return None,
        };
        let copy = hub.copy(key)?;
        let is_ours = ownership::is_hub_copy_from(&copy, own) && copy.metadata.deletion_timestamp.is_none();
        let item = is_ours.then(|| item(&*copy))?;
        let since = copy.annotations().get(annotation::STRANDED_SINCE).and_then(|since| since.parse().ok());
        Some(Observed {
            rule: Rule::Copy,
            namespace: key.namespace.to_string(),
            hub_namespace: (*facts).clone(),
            present: None,
            project: Some(name),
            owner,
            items: vec![item.clone()],
            grace,
            noted: Some(Noted { on: item, since }),
            created: copy.metadata.creation_timestamp.as_ref().map(|created| created.0),
            seen_before: false,
            in_sweep: true,
            paused: sweep.is_paused(Some(&facts)),
        })
    }

    /// Finds hub namespaces without their original, and those to adopt. Counts the stranded ones.
    pub(super) fn namespaces(&self, now: Timestamp) -> Namespaces {
        let Context { hub, projects, metrics, .. } = &*self.0.ctx;
        let (mut found, mut stranded) = (Namespaces::default(), 0);
        for key in hub.namespaces.keys() {
            let Some((facts, version)) = hub.namespaces.get_versioned(&key) else { continue };
            let Some((name, own)) = facts.upstream().filter(|_| !facts.terminating) else { continue };
            let version = ObjectVersion::new(&facts.uid, &version.to_string());
            let keeper = projects.get(&name).map(|project| projects.keeper(&project));
            let mirrored = projects.mirrored(&name, own, &key.name);
            if let (Mirrored::Lives, Some(keeper)) = (mirrored, &keeper) {
                let steps = relabel::adopt(&key.name, &facts, &version, keeper);
                found.adopted.extend(steps.map(|steps| (name, steps.into_steps())));
                continue;
            }
            let management = projects.management();
            if management.is_none() || facts.keeper.management != management {
                continue; // another management plane keeps it, or its keeper is unknown
            }
            let lost = match mirrored {
                Mirrored::ProjectGone(kind) => Some(self.lost_project(&key.name, &facts, &version, &name, kind)),
                Mirrored::NamespaceGone => keeper.and_then(|keeper| {
                    let copies = self.copies_of(&key.name, own);
                    found.events.extend(self.held_copies(&copies, now));
                    self.lost_namespace(&key.name, &facts, &version, &keeper, &copies)
                }),
                Mirrored::Lives | Mirrored::Unknown => None,
            };
            stranded += usize::from(lost.is_some());
            found.lost.extend(lost.filter(|lost| !lost.items.is_empty()));
        }
        metrics.stranded(stranded);
        found
    }

    /// Returns our copies in the hub namespace of a project's namespace.
    fn copies_of(&self, namespace: &str, own: &str) -> Vec<Shared<WorkloadDeployment>> {
        let copies = self.0.ctx.hub.copies.by_index(&namespace_index(namespace));
        copies.iter().map(|copy| copy.open()).filter(|copy| ownership::is_hub_copy_from(copy, own)).collect()
    }

    /// Reports copies that finalizers keep from being deleted for too long.
    fn held_copies(&self, copies: &[Shared<WorkloadDeployment>], now: Timestamp) -> Vec<Write<Hub>> {
        let patience = self.0.ctx.options.timing.deletion_patience;
        copies.iter().filter_map(|copy| report::copy_held(copy, patience, now)).collect()
    }

    /// Returns a hub namespace without its project, and the objects that protect it from deletion.
    fn lost_project(
        &self,
        namespace: &str,
        facts: &NamespaceFacts,
        version: &ObjectVersion,
        project: &ProjectName,
        kind: Kind,
    ) -> Observed {
        let own = facts.upstream().map(|(_, own)| own.to_owned()).unwrap_or_default();
        let copies = self.copies_of(namespace, &own);
        let protected = self.content(namespace, project, &own, &copies).into_iter().filter(|item| item.protected);
        let owner = Object { kind, namespace: String::new(), name: project.to_string() };
        let itself = namespace_item(namespace, facts, version);
        let items = protected.chain([itself]).collect();
        self.observed(Rule::Namespace, namespace, (facts, version, project), Read::NoProject(owner), items)
    }

    /// Returns the content of a hub namespace without its original. `None` if it is empty. If the project has the same control
    /// plane, each copy is judged alone, and the other content waits for the copies. An unreadable copy blocks it as well. A
    /// deployment of another owner does not.
    fn lost_namespace(
        &self,
        namespace: &str,
        facts: &NamespaceFacts,
        version: &ObjectVersion,
        keeper: &Keeper,
        copies: &[Shared<WorkloadDeployment>],
    ) -> Option<Observed> {
        let hub = &self.0.ctx.hub;
        let (project, own) = facts.upstream()?;
        let owner = no_namespace(own, namespace)?;
        let mut items = self.content(namespace, &project, own, copies);
        let policies = hub.policies.by_index(&namespace_index(namespace));
        let has_policies = policies.iter().any(|policy| is_left_to_its_city(policy));
        let is_empty = items.is_empty() && !has_policies;
        let is_same = facts.keeper.control_plane.is_some() && facts.keeper.control_plane == keeper.control_plane;
        let has_copies = !copies.is_empty() || hub.copies.has_unreadable(namespace);
        if is_same && has_copies {
            items.clear();
        }
        if has_policies && !has_copies {
            self.0.ctx.triggers.enqueue_policies(Some(namespace));
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
        let Options { sweep, timing, .. } = &self.0.ctx.options;
        Observed {
            rule,
            namespace: namespace.to_owned(),
            hub_namespace: facts.clone(),
            present: None,
            project: Some(project.clone()),
            owner,
            items,
            grace: rule.grace(sweep, timing),
            noted: Some(Noted { on: namespace_item(namespace, facts, version), since: facts.stranded_since }),
            created: None,
            seen_before: false,
            in_sweep: true,
            paused: sweep.is_paused(Some(facts)),
        }
    }

    /// Returns the content of a hub namespace, except terminating objects. Of Instances, only the protected ones are listed: the
    /// hub's garbage collection deletes the others with their copies. A binding is deleted with its copy. A binding without its
    /// copy is deleted after the last copy, because it keeps Instances running (fact 14).
    fn content(
        &self,
        namespace: &str,
        project: &ProjectName,
        own: &str,
        copies: &[Shared<WorkloadDeployment>],
    ) -> Vec<Item> {
        let hub = &self.0.ctx.hub;
        let index = namespace_index(namespace);
        let mut items: Vec<Item> = copies.iter().filter(|copy| stays(&***copy)).map(|copy| item(&**copy)).collect();
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
        let here = here.filter(|instance| is_protected(&****instance));
        items.extend(here.filter(|instance| stays(&****instance)).map(|instance| item(&***instance)));
        if copies.is_empty() {
            let keys = hub.bindings.keys_by_index(&index).into_iter();
            items.extend(keys.filter_map(|key| self.lost_binding(&key)));
        }
        items
    }

    /// Returns a binding of a deployment without a known copy.
    fn lost_binding(&self, key: &ObjectKey) -> Option<Item> {
        let facts = self.0.ctx.hub.bindings.get(key)?;
        let copy = template_of(&key.namespace, &key.name).filter(|of| of.kind == Kind::WorkloadDeployment)?;
        let is_ours = ownership::is_binding_of_deployment(facts.policy.as_deref(), facts.scheduled_for.is_some());
        let has_copy = self.0.ctx.hub.copies.contains(&ObjectKey::new(&copy.namespace, &copy.name));
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
