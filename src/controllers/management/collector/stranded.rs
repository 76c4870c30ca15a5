//! Hub namespaces of projects, or of namespaces in them, that do not exist: what is known of them, and what their plan asks
//! for.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource, ResourceExt};

use crate::controllers::management::{
    collector::relabel::relabel,
    hub::hub_cache::HubCache,
    projects::registry::ProjectRegistry,
    wiring::{
        index::{namespace_index, origin_namespace_index},
        triggers::Triggers,
    },
};
use crate::{
    api::{
        names::ProjectName,
        referenced::{DataRef, SourceKind},
    },
    controllers::{is_silence, record, send, worst},
    io::{Class, Error, clock::Now, store::ObjectKey},
    metrics::Metrics,
    plan::{
        Keeper, Known, NamespaceFacts, Object, ObjectVersion, Op,
        management::{
            collector::{
                stranded::{self, Action, Content, Decided, LostBinding, Mirrored, Observed, Present, Purpose, Signal},
                sweep::{Budget, Sweep},
            },
            triggers::HubWork,
        },
        ownership,
    },
};

/// On how many namespaces one sweep writes something.
const NOTES: usize = 100;

/// How many may be refused in one sweep that were to be removed.
const REFUSALS: usize = 10;

/// Looks for them.
pub(crate) struct StrandedNamespaces {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) projects: Arc<ProjectRegistry>,
    pub(crate) triggers: Arc<Triggers>,
    pub(crate) sweep: Sweep,
    pub(crate) metrics: Metrics,
}

/// What one sweep has done.
struct Sweeping {
    notes: Budget,
    removals: Budget,
    stranded: usize,
    failed: Vec<Error>,
}

impl StrandedNamespaces {
    /// Looks at them all. One of which nobody knows whether it is one (a project that is not read yet) is none. One that
    /// cannot be removed holds up no other: it is looked at again by the next sweep.
    ///
    /// 1. Gathers what the caches know of each namespace, and decides.
    /// 2. Where something is due, reads the namespace as it is at present and decides once more.
    /// 3. Does what the plan asks for, which begins with a live read of what is said to be gone.
    ///
    /// # Errors
    /// The worst of what was refused; nothing more was tried once nobody answered.
    pub(crate) async fn look(&self, now: Now) -> Result<(), Error> {
        let mut keys = self.hub.namespaces.keys();
        // Where few are taken, none is always the last.
        fastrand::shuffle(&mut keys);
        let removals = stranded::removals(self.kept(&keys));
        let mut sweeping = Sweeping {
            notes: Budget::of(NOTES),
            removals: Budget::of(removals).patient(REFUSALS),
            stranded: 0,
            failed: Vec::new(),
        };
        for key in keys {
            let Some(facts) = self.hub.namespaces.get(&key) else { continue };
            self.look_at(self.observe(&key.name, &facts), &mut sweeping, now).await;
        }
        self.metrics.stranded(sweeping.stranded);
        worst(sweeping.failed).map_or(Ok(()), Err)
    }

    /// How many of them this management plane keeps.
    fn kept(&self, keys: &[ObjectKey]) -> usize {
        let management = self.projects.management();
        let kept = |key: &&ObjectKey| {
            let facts = self.hub.namespaces.get(key);
            management.is_some() && facts.is_some_and(|facts| facts.keeper.management == management)
        };
        keys.iter().filter(kept).count()
    }

    async fn look_at(&self, observed: Observed, sweeping: &mut Sweeping, now: Now) {
        let plan = decide(&observed, now);
        sweeping.stranded += usize::from(plan.signals.contains(&Signal::Stranded));
        let purpose = plan.signals.iter().find_map(|signal| match signal {
            Signal::Read(purpose) => Some(*purpose),
            _ => None,
        });
        let budget = match purpose {
            None => return,
            Some(Purpose::Note) => Some(&mut sweeping.notes),
            Some(Purpose::Empty) => None,
            Some(Purpose::Remove) => Some(&mut sweeping.removals),
        };
        if budget.as_ref().is_some_and(|budget| budget.is_spent()) || sweeping.failed.iter().any(is_silence) {
            return;
        }
        let namespace = observed.namespace.clone();
        let done = self.judge_live(observed, now).await;
        if let Some(budget) = budget {
            if done.is_ok() { budget.removed() } else { budget.refused() }
        }
        match done {
            Ok(()) => {}
            // It has changed since it was read, or what is said to be gone is there after all: the next look sees.
            Err(error) if error.class() == Class::Conflict => {
                tracing::info!(namespace, %error, "stranded hub namespace stays for now");
            }
            Err(error) => {
                tracing::warn!(namespace, %error, "stranded hub namespace cannot be removed");
                sweeping.failed.push(error);
            }
        }
    }

    fn observe(&self, namespace: &str, facts: &NamespaceFacts) -> Observed {
        let upstream = facts.upstream();
        let project = upstream.as_ref().and_then(|(project, _)| self.projects.get(project));
        let mirrored =
            upstream.as_ref().map_or(Mirrored::Unknown, |(name, own)| self.projects.mirrored(name, own, namespace));
        let keeper = project.as_deref().map_or_else(
            || Keeper { management: self.projects.management(), control_plane: None },
            |project| self.projects.keeper(project),
        );
        let protected = match (&mirrored, &upstream) {
            (Mirrored::ProjectGone(_) | Mirrored::NamespaceGone, Some((project, own))) => {
                self.protected(namespace, project, own)
            }
            _ => Vec::new(),
        };
        let content = upstream.filter(|_| mirrored == Mirrored::NamespaceGone);
        Observed {
            protected,
            namespace: namespace.to_owned(),
            facts: facts.clone(),
            mirrored,
            keeper,
            content: content.map(|(project, own)| self.content(namespace, &project, own)).unwrap_or_default(),
            grace: self.sweep.stranded_grace,
            paused: self.sweep.paused,
            present: None,
        }
    }

    /// Copies and Instances of a hub namespace that Karmada's protection keeps from being deleted.
    fn protected(&self, namespace: &str, project: &ProjectName, own: &str) -> Vec<(Object, ObjectVersion)> {
        let copies = self.hub.copies.by_index(&namespace_index(namespace));
        let copies = copies.iter().map(|copy| copy.open()).filter(stranded::is_protected);
        let instances = self.hub.instances.by_index(&origin_namespace_index(project, own));
        let here = instances.iter().filter(|instance| instance.namespace().as_deref() == Some(namespace));
        let here =
            here.map(|instance| &***instance).filter(|instance| stranded::is_protected(*instance)).filter_map(standing);
        copies.filter_map(|copy| standing(&copy)).chain(here).collect()
    }

    /// What a hub namespace holds of the namespace of a project.
    fn content(&self, namespace: &str, project: &ProjectName, own: &str) -> Content {
        let index = namespace_index(namespace);
        let copies: Vec<_> = self.hub.copies.by_index(&index).iter().map(|copy| copy.open()).collect();
        let ours: Vec<_> = copies.iter().filter(|copy| ownership::is_hub_copy_from(copy, own)).collect();
        let policies = self.hub.policies.by_index(&index);
        let instances = self.hub.instances.by_index(&origin_namespace_index(project, own));
        let here = instances.iter().filter(|instance| instance.namespace().as_deref() == Some(namespace));
        let mut companions = Vec::new();
        for kind in SourceKind::ALL {
            for key in self.hub.companions(kind).keys_by_index(&index) {
                let data_ref = DataRef { kind, name: key.name.to_string() };
                let facts = self.hub.companion(namespace, &data_ref);
                if let Some(facts) = facts.filter(|facts| !facts.terminating) {
                    let object = Object { kind: kind.into(), namespace: namespace.to_owned(), name: data_ref.name };
                    companions.push((object, ObjectVersion::new(&facts.uid, &facts.version)));
                }
            }
        }
        let bindings = self.hub.bindings.keys_by_index(&index).into_iter().filter_map(|key| {
            let lost = LostBinding::of(namespace, &key.name, self.hub.bindings.get(&key)?.as_ref())?;
            let has_copy = self.hub.copies.contains(&ObjectKey::new(namespace, &lost.copy.name));
            (!has_copy).then_some(lost)
        });
        Content {
            bindings: bindings.collect(),
            copies: ours.iter().filter_map(|copy| standing(*copy)).collect(),
            copies_left: ours.len(),
            companions,
            instances: here.filter_map(|instance| standing(&***instance)).collect(),
            policies: policies.iter().filter(|policy| stranded::is_left(policy)).count(),
        }
    }

    /// Reads a hub namespace, and does what its present state allows. It is read anew before each write on it.
    async fn judge_live(&self, mut observed: Observed, now: Now) -> Result<(), Error> {
        let object = Object::named::<Namespace>("", &observed.namespace);
        // Once for the protection, and once for the namespace.
        for _ in 0..2 {
            let Some(live) = self.hub.plane.read_metadata(&object).await? else { return Ok(()) };
            let version = ObjectVersion::of(&live);
            observed.present = Some(Present { facts: NamespaceFacts::of(live), version });
            let plan = decide(&observed, now);
            self.carry_out(&observed.facts, &plan).await?;
            if let Some((project, own)) = observed.facts.upstream().filter(|_| !observed.protected.is_empty()) {
                observed.protected = self.protected(&observed.namespace, &project, own);
            }
            let namespace = &observed.namespace;
            for signal in &plan.signals {
                match signal {
                    Signal::Stays(why) => tracing::info!(namespace, why, "stranded hub namespace stays for now"),
                    Signal::Removed => tracing::warn!(namespace, "stranded hub namespace is removed"),
                    Signal::Emptied => {
                        tracing::warn!(namespace, "what a namespace that is gone has left on the hub is removed");
                        self.triggers.enqueue(HubWork::Policies(Some(namespace.clone())));
                    }
                    Signal::Stranded | Signal::Read(_) => {}
                }
            }
            if !plan.signals.contains(&Signal::Read(Purpose::Remove)) {
                break;
            }
        }
        Ok(())
    }

    /// Does what a plan asks for, one after the other. A live read that does not find what it must ends it; an object that
    /// cannot be deleted keeps no other.
    async fn carry_out(&self, facts: &NamespaceFacts, plan: &Decided) -> Result<(), Error> {
        let project = facts.upstream().and_then(|(project, _)| self.projects.get(&project));
        let mut refused = Vec::new();
        for action in &plan.steps {
            let (sent, deletes) = match action {
                Action::Hub(write) => {
                    (send(&self.hub.plane, write, &self.metrics).await, matches!(write.op, Op::Delete { .. }))
                }
                Action::Discovery(write) => match self.projects.discovered() {
                    Some(discovered) => (send(&discovered.plane, write, &self.metrics).await, false),
                    None => return Ok(()),
                },
                Action::Project(write) => match &project {
                    Some(project) => (send(&project.plane, write, &self.metrics).await, false),
                    None => return Ok(()), // let go in between: nothing is proved
                },
            };
            match sent {
                Ok(_) => {}
                Err(error) if deletes && !is_silence(&error) => refused.push(error),
                Err(error @ Error::StillThere(_)) => {
                    // A copy of which no list of ours knows has lost its label: with it the next sweep takes it.
                    if let Action::Hub(write) = action {
                        relabel(&self.hub, &write.object, &self.metrics).await?;
                    }
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        worst(refused).map_or(Ok(()), Err)
    }
}

/// An object that is not on its way out, at this version.
fn standing<K: Known + Resource<DynamicType = ()>>(object: &K) -> Option<(Object, ObjectVersion)> {
    let stays = object.meta().deletion_timestamp.is_none();
    stays.then(|| (Object::of(object), ObjectVersion::of(object.meta())))
}

fn decide(observed: &Observed, now: Now) -> Decided {
    let plan = stranded::plan(observed, now.time);
    record("stranded-namespaces", &observed.namespace, observed, now, &plan);
    plan
}
