//! Every few minutes: companions that nobody uses, bindings without their template, namespaces of projects that are gone,
//! deployments that are still blocked, and Instances that could not be shown. Events find nearly all of it at once; this
//! finds what was missed, and what was left when a process died.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::{api::ListParams, core::ObjectMeta};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::controllers::management::{
    city_policy::policy_memory::PolicyMemory,
    collector::{
        relabel::{relabel, relabel_namespaces},
        stranded::StrandedNamespaces,
        strangers,
        works::{self, Companions, LeftOnClusters},
    },
    hub::hub_cache::HubCache,
    projects::{
        losses::{Losses, Scope},
        registry::ProjectRegistry,
    },
    wiring::triggers::Triggers,
};
use crate::{
    api::{
        meta::label,
        referenced::{DataRef, SourceKind},
    },
    controllers::{is_silence, record, send, worst},
    io::{Class, Error, clock::Now, list, shared, store::ObjectKey, watch::Metadata},
    metrics::Metrics,
    plan::{
        Hub, Kind, NamespaceFacts, Object, ObjectVersion, Write,
        management::{
            collector::{
                stranded::Mirrored,
                sweep::{self, Budget, Observed, Refused, Signal, Sweep},
            },
            federator::held_copies,
            observed::facts::CompanionFacts,
            projects::unreadable,
            triggers::HubWork,
        },
        ownership,
    },
    timing::Timing,
};

/// The ConfigMap that any cluster puts into each of its namespaces.
const IN_EVERY_NAMESPACE: &str = "kube-root-ca.crt";

/// What earlier sweeps have seen.
#[derive(Default)]
struct Memory {
    /// Uids of companions of which nobody can say who uses them.
    without_users: BTreeSet<String>,
    /// Uids of companions that are held, and of which it was told.
    held: BTreeSet<String>,
    /// Hub namespaces on which it was told that bindings cannot be removed.
    refused: BTreeSet<String>,
    /// Uids of bindings of deployments that may have lost their copies.
    suspected: BTreeSet<String>,
    /// Uids of hub namespaces of which nobody knows what they mirror.
    unknown: BTreeSet<String>,
    works: works::Memory,
}

/// What one sweep has seen.
#[derive(Default)]
struct Found {
    companions: Companions,
    /// What is there beside them, in namespaces that mirror one of a project.
    others: Companions,
    /// Why companions without their label could not get it back.
    failed: Vec<Error>,
    without_users: BTreeSet<String>,
    held: BTreeSet<String>,
    /// Events on those of them of which nothing was told before.
    to_tell: Vec<Write<Hub>>,
}

/// How a sweep ended, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// It has done all its work.
    Success,
    /// The hub's caches are not filled: it has done nothing.
    Postponed,
    /// Some of its work failed.
    Error,
}

impl End {
    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Postponed => "postponed",
            Self::Error => "error",
        }
    }
}

/// Sweeps.
pub(crate) struct Sweeper {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) projects: Arc<ProjectRegistry>,
    pub(crate) triggers: Arc<Triggers>,
    pub(crate) losses: Arc<Losses>,
    pub(crate) stranded: StrandedNamespaces,
    pub(crate) works: LeftOnClusters,
    pub(crate) policies: Arc<PolicyMemory>,
    pub(crate) sweep: Sweep,
    pub(crate) timing: Timing,
    pub(crate) metrics: Metrics,
}

impl Sweeper {
    /// Sweeps until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let every = self.sweep.interval;
        let mut memory = Memory::default();
        let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.triggers.enqueue_blocked();
            self.triggers.enqueue_deleting();
            self.triggers.enqueue_quarantined();
            self.triggers.enqueue(HubWork::Asked(None));
            shared::clean();
            self.forget_gone();
            let began = Now::read();
            let result = self.once(&mut memory).await;
            let ended = Now::read();
            self.metrics.swept(result.label(), ended.instant.duration_since(began.instant), ended.time.as_second());
        }
    }

    /// Has forgotten what is remembered of hub namespaces that are gone.
    pub(crate) fn forget_gone(&self) {
        if !self.hub.is_synced() {
            return; // nobody knows which there are
        }
        let is_there = |namespace: &str| self.hub.namespaces.contains(&ObjectKey::new("", namespace));
        self.policies.forget_gone(is_there);
        self.projects.forget_gone(is_there);
    }

    /// One sweep. Each part has its own end: what keeps one from its work keeps no other from it.
    async fn once(&self, memory: &mut Memory) -> End {
        if !self.hub.is_synced() || !self.hub.bindings.is_synced() {
            return End::Postponed; // nobody knows what is in use
        }
        // Before companions are looked at, for what has gone of their claims is known then.
        let mut end = self.note("policies of others", strangers::look(&self.hub, self.sweep.paused).await);
        end = end.max(match self.companions(memory).await {
            Ok((companions, reaped)) => {
                let works = self.works.look(&mut memory.works, &companions, Now::read()).await;
                self.note("bindings without their template", reaped).max(self.note("Works", works))
            }
            // A list that fails ends this part: what is not seen is not gone.
            Err(error) => self.note("companions", Err(error)),
        });
        let now = Now::read().time;
        let relabelled = relabel_namespaces(&self.hub, &self.projects, &mut memory.unknown, &self.metrics, now).await;
        end = end.max(self.note("hub namespaces without their labels", relabelled));
        // Whoever seems to be gone may be back.
        if !self.losses.holds(&Scope::Hub) && !self.losses.holds(&Scope::Discovery) {
            end = end.max(self.note("stranded namespaces", self.stranded.look(Now::read()).await));
        }
        end
    }

    fn note(&self, part: &'static str, done: Result<(), Error>) -> End {
        let Err(error) = done else { return End::Success };
        tracing::warn!(part, %error, class = error.label(), "sweep could not do all its work");
        self.metrics.reconcile_failed("sweep", error.label());
        End::Error
    }

    /// Companions that nobody uses, and bindings without their template. Answers with all that there is of what companions may
    /// be, and with what came of the bindings.
    async fn companions(&self, memory: &mut Memory) -> Result<(Companions, Result<(), Error>), Error> {
        let mut found = Found::default();
        for kind in SourceKind::ALL {
            self.collect(kind, memory, &mut found).await?;
        }
        (memory.without_users, memory.held) = (found.without_users, found.held);
        for event in &found.to_tell {
            let _ = send(&self.hub.plane, event, &self.metrics).await; // a lost Event is no error
        }
        let reaped = self.reap(&found.companions, memory).await.and(worst(found.failed).map_or(Ok(()), Err));
        found.companions.extend(found.others);
        Ok((found.companions, reaped))
    }

    /// Lists the companions of a kind, and has each looked at whom no event may have brought up; and whatever else there is of
    /// that kind, of which some may be companions that have lost their label, and with it everybody who would look at them.
    async fn collect(&self, kind: SourceKind, memory: &Memory, found: &mut Found) -> Result<(), Error> {
        let ours = ListParams::default().labels(&format!("{}=true", label::REFERENCED_DATA));
        self.list(kind.into(), ours, |companion| self.see(kind, &companion, memory, found)).await?;
        let others = ListParams::default().labels(&format!("{}!=true", label::REFERENCED_DATA));
        let (others, mut lost) = (others.fields(&format!("metadata.name!={IN_EVERY_NAMESPACE}")), Vec::new());
        self.list(kind.into(), others, |other| lost.extend(self.see_other(kind, &other, found))).await?;
        for companion in lost {
            match relabel(&self.hub, &companion, &self.metrics).await {
                Err(error) if is_silence(&error) => return Err(error),
                // It holds up no other; what has changed meanwhile the next sweep sees.
                Err(error) if error.class() != Class::Conflict => found.failed.push(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes what is there beside companions. Answers with what may be one without its label.
    fn see_other(&self, kind: SourceKind, other: &Metadata, found: &mut Found) -> Option<Object> {
        let key = ObjectKey::of(other);
        let facts = self.hub.namespaces.get(&ObjectKey::new("", &key.namespace))?;
        facts.upstream()?;
        let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
        found.others.insert((namespace.clone(), DataRef { kind, name: name.clone() }));
        let may_be_ours = ownership::may_be_unlabelled_companion(&other.metadata);
        let looks = may_be_ours && !sweep::is_paused(Some(&facts), self.sweep.paused);
        looks.then(|| Object { kind: kind.into(), namespace, name })
    }

    /// Has one companion looked at, its residue and its users, and notes what only a sweep tells.
    fn see(&self, kind: SourceKind, companion: &Metadata, memory: &Memory, found: &mut Found) {
        let facts = CompanionFacts::of(&companion.metadata);
        let key = ObjectKey::of(companion);
        found.companions.insert((key.namespace.to_string(), DataRef { kind, name: key.name.to_string() }));
        let object = Object { kind: kind.into(), namespace: key.namespace.to_string(), name: key.name.to_string() };
        let (version, now) = (ObjectVersion::of(&companion.metadata), Now::read().time);
        if let Some(event) = held_copies::tell(&object, &version, &facts, self.timing.deletion_patience, now) {
            if !memory.held.contains(&facts.uid) {
                tracing::warn!(companion = %object, "companion is deleted and held by somebody's finalizer");
                found.to_tell.push(event);
            }
            found.held.insert(facts.uid.clone());
        }
        if sweep::has_no_known_user(&facts) {
            if !memory.without_users.contains(&facts.uid) {
                tracing::warn!(companion = %object, "companion is kept: its referenced-by is empty, or cannot be read");
                found.to_tell.push(unreadable::users(&object, &version, now));
            }
            found.without_users.insert(facts.uid);
        }
        let namespace = self.hub.namespaces.get(&ObjectKey::new("", &key.namespace));
        if !sweep::is_paused(namespace.as_deref(), self.sweep.paused) {
            self.triggers.enqueue_companion(kind, &key);
        }
    }

    /// Removes bindings whose companion, or whose deployment's copy, is gone; one that cannot be removed holds up no other, and is
    /// told on its namespace, once for as long as that lasts.
    async fn reap(&self, companions: &Companions, memory: &mut Memory) -> Result<(), Error> {
        let (mut orphans, mut suspected) = (Vec::new(), BTreeSet::new());
        self.list(Kind::ResourceBinding, ListParams::default(), |binding| {
            orphans.extend(self.orphan(companions, &binding.metadata, &memory.suspected, &mut suspected));
        })
        .await?;
        memory.suspected = suspected;
        // Where few are taken, and some are refused each time, none is always the last.
        fastrand::shuffle(&mut orphans);
        let limit = self.sweep.max_bindings;
        if orphans.len() > limit {
            tracing::warn!(
                limit,
                found = orphans.len(),
                "more bindings without their templates than one sweep may remove"
            );
        }
        let mut budget = Budget::of(limit);
        let (mut failed, mut refused) = (Vec::new(), BTreeMap::<String, Refused>::new());
        for (binding, removal) in orphans {
            if budget.is_spent() {
                break;
            }
            match self.remove(&binding, &removal).await {
                Ok(()) => budget.removed(),
                // A companion or a copy that no list of ours has, for it has lost its label, is led to by its binding.
                Err(Error::StillThere(_)) => match relabel(&self.hub, &removal[0].object, &self.metrics).await {
                    Err(error) if is_silence(&error) => return Err(error),
                    // It holds up no other, like one that cannot be removed.
                    Err(error) if error.class() != Class::Conflict => failed.push(error),
                    _ => {}
                },
                // The binding has changed: the next sweep sees.
                Err(error) if error.class() == Class::Conflict => {}
                Err(error) if is_silence(&error) => return Err(error),
                Err(error) => {
                    tracing::warn!(%binding, %error, "binding without its template cannot be removed");
                    budget.refused();
                    refused.entry(binding.namespace.clone()).or_default().count(&binding, &error.words_for_tenants());
                    failed.push(error);
                }
            }
        }
        self.tell_refused(&refused, &mut memory.refused).await;
        worst(failed).map_or(Ok(()), Err)
    }

    /// Tells on each namespace of which it was not told before.
    async fn tell_refused(&self, refused: &BTreeMap<String, Refused>, told: &mut BTreeSet<String>) {
        for (namespace, refused) in refused.iter().filter(|(namespace, _)| !told.contains(*namespace)) {
            let Some(facts) = self.hub.namespaces.get(&ObjectKey::new("", namespace)) else { continue };
            let event = refused.tell(namespace, &facts.uid, Now::read().time);
            let _ = send(&self.hub.plane, &event, &self.metrics).await; // a lost Event is no error
        }
        *told = refused.keys().cloned().collect();
    }

    /// Removes one binding whose template is gone.
    async fn remove(&self, binding: &Object, removal: &[Write<Hub>]) -> Result<(), Error> {
        for write in removal {
            send(&self.hub.plane, write, &self.metrics).await?;
        }
        self.metrics.reaped();
        tracing::info!(%binding, "binding without its template is removed");
        Ok(())
    }

    /// A binding that goes, and the writes that remove it; nothing when it stays.
    fn orphan(
        &self,
        companions: &Companions,
        binding: &ObjectMeta,
        before: &BTreeSet<String>,
        suspected: &mut BTreeSet<String>,
    ) -> Option<(Object, Vec<Write<Hub>>)> {
        let key = ObjectKey::new(binding.namespace.as_deref()?, binding.name.as_deref()?);
        let template = sweep::template_of(&key.namespace, &key.name)?;
        let namespace = self.hub.namespaces.get(&ObjectKey::new("", &key.namespace)).map(|facts| (*facts).clone());
        let (template_exists, may_return) = match template.kind {
            Kind::Referenced(kind) => (
                companions.contains(&(template.namespace.clone(), DataRef { kind, name: template.name.clone() })),
                false,
            ),
            _ => (
                self.hub.copies.contains(&ObjectKey::new(&template.namespace, &template.name)),
                self.may_return(&template, namespace.as_ref()),
            ),
        };
        let observed = Observed {
            template_exists,
            may_return,
            suspected: binding.uid.as_ref().is_some_and(|uid| before.contains(uid)),
            namespace,
            paused: self.sweep.paused,
            ..Observed::of(template, binding, self.hub.bindings.get(&key).as_deref())
        };
        let now = Now::read();
        let plan = sweep::plan(&observed, now.time);
        record("sweep", &key, &observed, now, &plan);
        if plan.signals.contains(&Signal::Paused) {
            tracing::info!(binding = %key, "binding without its template is kept: clean-up is paused");
        }
        if plan.signals.contains(&Signal::Suspected) {
            suspected.extend(binding.uid.clone());
        }
        (!plan.steps.is_empty()).then_some((observed.binding, plan.steps))
    }

    /// Whether the project may have the deployment of which this is a copy.
    fn may_return(&self, copy: &Object, namespace: Option<&NamespaceFacts>) -> bool {
        let Some((project, own)) = namespace.and_then(NamespaceFacts::upstream) else { return true };
        if self.projects.mirrored(&project, own, &copy.namespace) != Mirrored::Lives {
            return true;
        }
        let original = ObjectKey::new(own, &copy.name);
        self.projects.get(&project).is_none_or(|project| project.deployments.contains(&original))
    }

    /// The metadata of all objects of a kind on the hub.
    async fn list(&self, kind: Kind, params: ListParams, see: impl FnMut(Metadata)) -> Result<(), Error> {
        let plane = &self.hub.plane;
        list::metadata(&plane.connection().client(), plane.name(), kind, params, see).await
    }
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
