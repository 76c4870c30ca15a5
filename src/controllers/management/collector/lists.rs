//! What one sweep lists: Works, companions and bindings, and what of them has lost what it was made of.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use kube::api::ListParams;

use super::{Collector, relabel::relabel};
use crate::{
    api::{meta::label, names::HubNamespace, referenced::SourceKind},
    controllers::is_silence,
    io::{Class, Error, clock::Now, list, store::ObjectKey, watch::Metadata},
    plan::{
        Hub, Kind, NamespaceFacts, Object, ObjectVersion, Write,
        management::{
            collector::{
                bindings::Binding,
                table::{Item, Observed, Read, Rule},
                works::{self, AllLeft, WorkFacts},
            },
            federator::held_copies,
            observed::facts::CompanionFacts,
            projects::{engagement::Mirrored, unreadable},
        },
        ownership,
    },
};

/// The ConfigMap that any cluster puts into each of its namespaces.
const IN_EVERY_NAMESPACE: &str = "kube-root-ca.crt";

/// What one sweep has listed.
#[derive(Default)]
pub(super) struct Lists {
    /// Works of deployments, and of what may be companions, listed before everything else. `None` if that list failed.
    works: Option<Vec<WorkFacts>>,
    /// ConfigMaps and Secrets in hub namespaces, companions and others.
    sources: BTreeSet<Object>,
    /// Those of them that are companions.
    companions: BTreeSet<Object>,
    bindings: Vec<Binding>,
    /// Events on companions that only a sweep can report.
    pub(super) events: Vec<Write<Hub>>,
    /// Why Works could not be listed, and why companions without their label could not get it back.
    pub(super) failed: Vec<Error>,
}

impl Lists {
    /// Lists everything, and enqueues each companion. Companions and bindings do not depend on the list of Works.
    ///
    /// # Errors
    /// If a list of companions or bindings does not come to its end.
    pub(super) async fn read(of: &Collector, now: Now) -> Result<Self, Error> {
        let (mut lists, mut works) = (Self::default(), Vec::new());
        match list(of, Kind::Work, ListParams::default(), |work| works.extend(WorkFacts::of(&work.metadata))).await {
            Ok(()) => lists.works = Some(works),
            Err(error) => lists.failed.push(error),
        }
        for kind in SourceKind::ALL {
            let ours = ListParams::default().labels(&format!("{}=true", label::REFERENCED_DATA));
            list(of, kind.into(), ours, |companion| lists.see(of, kind, &companion, now.time)).await?;
            let others = ListParams::default().labels(&format!("{}!=true", label::REFERENCED_DATA));
            let others = others.fields(&format!("metadata.name!={IN_EVERY_NAMESPACE}"));
            let mut unlabelled = Vec::new();
            list(of, kind.into(), others, |other| unlabelled.extend(lists.see_other(of, kind, &other))).await?;
            for companion in unlabelled {
                match relabel(&of.ctx.hub, &companion, &of.ctx.metrics).await {
                    Err(error) if is_silence(&error) => return Err(error),
                    // It holds up no other; what has changed meanwhile the next sweep sees.
                    Err(error) if error.class() != Class::Conflict => lists.failed.push(error),
                    _ => {}
                }
            }
        }
        let facts = |key: &ObjectKey| of.ctx.hub.bindings.get(key);
        list(of, Kind::ResourceBinding, ListParams::default(), |binding| {
            let known = facts(&ObjectKey::of(&binding));
            lists.bindings.extend(Binding::ours(&binding.metadata, known.as_deref()));
        })
        .await?;
        Ok(lists)
    }

    /// Has one companion looked at, which no event may have brought up.
    pub(super) fn see(&mut self, of: &Collector, kind: SourceKind, companion: &Metadata, now: Timestamp) {
        let (facts, key) = (CompanionFacts::of(&companion.metadata), ObjectKey::of(companion));
        let object = Object { kind: kind.into(), namespace: key.namespace.to_string(), name: key.name.to_string() };
        let version = ObjectVersion::of(&companion.metadata);
        self.events.extend(held_copies::tell(&object, &version, &facts, of.ctx.options.timing.deletion_patience, now));
        if facts.has_no_known_user() {
            tracing::debug!(companion = %object, "companion is kept: its referenced-by is empty, or cannot be read");
            self.events.push(unreadable::users(&object, &version, now));
        }
        self.sources.insert(object.clone());
        self.companions.insert(object);
        if !of.ctx.options.sweep.is_paused(namespace_of(of, &key.namespace).as_deref()) {
            of.ctx.triggers.enqueue_companion(kind, &key);
        }
    }

    /// Notes what is there beside companions. Returns it if it may be a companion without its label.
    pub(super) fn see_other(&mut self, of: &Collector, kind: SourceKind, other: &Metadata) -> Option<Object> {
        let key = ObjectKey::of(other);
        let facts = namespace_of(of, &key.namespace)?;
        facts.upstream()?;
        let object = Object { kind: kind.into(), namespace: key.namespace.to_string(), name: key.name.to_string() };
        self.sources.insert(object.clone());
        let may_be_ours = ownership::may_be_unlabelled_companion(&other.metadata);
        (may_be_ours && !of.ctx.options.sweep.is_paused(Some(&facts))).then_some(object)
    }

    /// Bindings of companions and copies that are gone. While the project may have the deployment its copy may come back.
    pub(super) fn bindings_without_template(&self, of: &Collector, seen: &BTreeSet<String>) -> Vec<Observed> {
        let lost = self.bindings.iter().filter_map(|binding| {
            let facts = namespace_of(of, &binding.template.namespace)?;
            facts.upstream()?;
            let rule = match binding.template.kind {
                Kind::WorkloadDeployment if has_copy(of, &binding.template) => return None,
                Kind::WorkloadDeployment if may_return(of, &binding.template, &facts) => return None,
                Kind::WorkloadDeployment => Rule::CopyBinding,
                _ if self.companions.contains(&binding.template) => return None,
                _ => Rule::CompanionBinding,
            };
            Some(observed(of, rule, &binding.template, (&binding.object, &binding.version), Some(&facts), seen))
        });
        lost.collect()
    }

    /// Works that Karmada has forgotten: they are not terminating, and neither binding nor template is there. `None` if Works, or what
    /// they were made of, are not known at present.
    pub(super) fn works_without_template(&self, of: &Collector, seen: &BTreeSet<String>) -> Option<Vec<Observed>> {
        let forgotten = self.without_template(of)?.filter(|work| work.terminating_since.is_none());
        let lost = forgotten.map(|work| {
            // Of a hub namespace that is gone nothing says whose it was: what is left of it is counted, and not deleted.
            let facts = namespace_of(of, &work.template.namespace);
            observed(of, Rule::Work, &work.template, (&work.work, &work.version), facts.as_deref(), seen)
        });
        Some(lost.collect())
    }

    /// What is left on clusters of what is deleted: Works that Karmada cannot delete, and those that it has forgotten. `settled`: uids
    /// of Works that the collector has deleted, or whose template a live read has found. `None` if that is not known at present.
    pub(super) fn left_on_clusters(
        &self,
        of: &Collector,
        seen: &BTreeSet<String>,
        settled: &BTreeSet<String>,
        now: Now,
    ) -> Option<AllLeft> {
        let mut left = AllLeft::new();
        let is_forgotten = |work: &WorkFacts| {
            let uid = &work.version.uid;
            work.terminating_since.is_none() && seen.contains(uid) && !settled.contains(uid)
        };
        for work in self.without_template(of)? {
            if work.is_left(of.ctx.options.timing.work_removal, now.time) || is_forgotten(work) {
                works::count(&mut left, work);
            }
        }
        Some(left)
    }

    /// Works in hub namespaces, also those that are gone, of what is not there and has no binding by which Karmada would make them
    /// again. `None` if it is not known at present what there is.
    fn without_template(&self, of: &Collector) -> Option<impl Iterator<Item = &WorkFacts>> {
        let known = of.ctx.hub.is_synced() && of.ctx.hub.knows_karmada();
        let works = self.works.as_ref().filter(|_| known)?;
        Some(works.iter().filter(|work| {
            let Object { kind, namespace, .. } = &work.template;
            let facts = namespace_of(of, namespace);
            let is_ours = facts.map_or_else(|| HubNamespace::is_form_of(namespace), |facts| facts.upstream().is_some());
            let is_there = match kind {
                Kind::WorkloadDeployment => has_copy(of, &work.template),
                _ => self.sources.contains(&work.template),
            };
            let is_bound = || of.ctx.hub.bindings.contains(&ObjectKey::new(namespace, &work.binding));
            is_ours && !is_there && (work.terminating_since.is_some() || !is_bound())
        }))
    }
}

#[cfg(test)]
impl Lists {
    /// Nothing but this Work.
    pub(super) fn of_work(work: &kube::core::ObjectMeta) -> Self {
        Self { works: Some(WorkFacts::of(work).into_iter().collect()), ..Self::default() }
    }

    pub(super) fn has_seen_sources(&self) -> bool {
        !self.sources.is_empty()
    }
}

fn observed(
    of: &Collector,
    rule: Rule,
    template: &Object,
    (object, version): (&Object, &ObjectVersion),
    facts: Option<&NamespaceFacts>,
    seen: &BTreeSet<String>,
) -> Observed {
    Observed {
        rule,
        namespace: template.namespace.clone(),
        hub_namespace: facts.cloned().unwrap_or_default(),
        present: None,
        project: None,
        owner: Read::NotOnHub(template.clone()),
        items: vec![Item::new(object.clone(), version.clone())],
        grace: rule.grace(&of.ctx.options.sweep, &of.ctx.options.timing),
        noted: None,
        created: None,
        seen_before: seen.contains(&version.uid),
        in_sweep: true,
        paused: of.ctx.options.sweep.is_paused(facts),
    }
}

fn namespace_of(of: &Collector, namespace: &str) -> Option<Arc<NamespaceFacts>> {
    of.ctx.hub.namespaces.get(&ObjectKey::new("", namespace))
}

fn has_copy(of: &Collector, copy: &Object) -> bool {
    of.ctx.hub.copies.contains(&ObjectKey::new(&copy.namespace, &copy.name))
}

/// True if the project may have the original of a copy.
fn may_return(of: &Collector, copy: &Object, facts: &NamespaceFacts) -> bool {
    let Some((project, own)) = facts.upstream() else { return true };
    if of.ctx.projects.mirrored(&project, own, &copy.namespace) != Mirrored::Lives {
        return true; // it is judged with the hub namespace
    }
    let original = ObjectKey::new(own, &copy.name);
    of.ctx.projects.get(&project).is_none_or(|project| project.deployments.contains(&original))
}

/// Shows the metadata of all objects of a kind on the hub to `see`.
async fn list(of: &Collector, kind: Kind, params: ListParams, see: impl FnMut(Metadata)) -> Result<(), Error> {
    let plane = &of.ctx.hub.plane;
    list::metadata(&plane.connection().client(), plane.name(), kind, params, see).await
}
