//! The lists of one sweep: Works, companions and bindings, and those of them without their template.

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

/// The objects that one sweep has listed.
#[derive(Default)]
pub(super) struct Lists {
    /// Works of deployments and of possible companions, listed before everything else. `None` if that list failed.
    works: Option<Vec<WorkFacts>>,
    /// ConfigMaps and Secrets in hub namespaces, companions and others.
    sources: BTreeSet<Object>,
    /// Companions among the sources.
    companions: BTreeSet<Object>,
    bindings: Vec<Binding>,
    /// Events on companions that only a sweep can report.
    pub(super) events: Vec<Write<Hub>>,
    /// Errors of the list of Works, and of companions that could not get their label back.
    pub(super) failed: Vec<Error>,
}

impl Lists {
    /// Lists everything, and enqueues each companion. Companions and bindings do not depend on the list of Works.
    ///
    /// # Errors
    /// If a list of companions or bindings fails.
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
                    // The error does not block other companions. After a conflict, the next sweep decides again.
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

    /// Records one companion, reports it if necessary, and enqueues it. Its event may have been missed.
    pub(super) fn see(&mut self, of: &Collector, kind: SourceKind, companion: &Metadata, now: Timestamp) {
        let (facts, key) = (CompanionFacts::of(&companion.metadata), ObjectKey::of(companion));
        let object = Object { kind: kind.into(), namespace: key.namespace.to_string(), name: key.name.to_string() };
        let version = ObjectVersion::of(&companion.metadata);
        self.events.extend(held_copies::tell(&object, &version, &facts, of.ctx.options.timing.deletion_patience, now));
        if facts.users.is_unknown() {
            tracing::debug!(companion = %object, "companion is kept: its annotation referenced-by is empty or unreadable");
            self.events.push(unreadable::users(&object, &version, now));
        }
        self.sources.insert(object.clone());
        self.companions.insert(object);
        if !of.ctx.options.sweep.is_paused(namespace_of(of, &key.namespace).as_deref()) {
            of.ctx.triggers.enqueue_companion(kind, &key);
        }
    }

    /// Records an object without the companion label. Returns it if it may be a companion that lost its label.
    pub(super) fn see_other(&mut self, of: &Collector, kind: SourceKind, other: &Metadata) -> Option<Object> {
        let key = ObjectKey::of(other);
        let facts = namespace_of(of, &key.namespace)?;
        facts.upstream()?;
        let object = Object { kind: kind.into(), namespace: key.namespace.to_string(), name: key.name.to_string() };
        self.sources.insert(object.clone());
        let may_be_ours = ownership::may_be_unlabelled_companion(&other.metadata);
        (may_be_ours && !of.ctx.options.sweep.is_paused(Some(&facts))).then_some(object)
    }

    /// Returns bindings of deleted companions and copies. A copy may come back while the project may have the original.
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

    /// Returns Works that Karmada has forgotten: they are not terminating, and have neither binding nor template. `None` if Works or
    /// templates are unknown at present.
    pub(super) fn works_without_template(&self, of: &Collector, seen: &BTreeSet<String>) -> Option<Vec<Observed>> {
        let forgotten = self.without_template(of)?.filter(|work| work.terminating_since.is_none());
        let lost = forgotten.map(|work| {
            // No object names the owner of a deleted hub namespace. So its Works are counted, and not deleted.
            let facts = namespace_of(of, &work.template.namespace);
            observed(of, Rule::Work, &work.template, (&work.work, &work.version), facts.as_deref(), seen)
        });
        Some(lost.collect())
    }

    /// Counts what deleted objects have left on clusters: Works that Karmada cannot delete, and those that it has forgotten.
    /// `settled`: uids of Works that the collector has deleted, or with a template that a live read has found. `None` if they are
    /// unknown at present.
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
            if work.is_left(of.ctx.options.timing.deletion_patience, now.time) || is_forgotten(work) {
                works::count(&mut left, work);
            }
        }
        Some(left)
    }

    /// Returns Works in existing and deleted hub namespaces without their template. They are terminating, or have no binding from
    /// which Karmada would recreate them. `None` if Works or templates are unknown at present.
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
    /// Returns lists with this Work only.
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
        return true; // it is judged with its hub namespace
    }
    let original = ObjectKey::new(own, &copy.name);
    of.ctx.projects.get(&project).is_none_or(|project| project.deployments.contains(&original))
}

/// Passes the metadata of all objects of a kind on the hub to `see`.
async fn list(of: &Collector, kind: Kind, params: ListParams, see: impl FnMut(Metadata)) -> Result<(), Error> {
    let plane = &of.ctx.hub.plane;
    list::metadata(plane.connection(), plane.name(), kind, params, see).await
}
