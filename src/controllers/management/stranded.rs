//! Hub namespaces of projects that do not exist: what is known of them, and what their plan asks for.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use k8s_openapi::api::core::v1::Namespace;

use super::{
    hub_cache::HubCache,
    registry::{Discovered, ProjectRegistry},
};
use crate::{
    controllers::{carry_out, is_silence, record, send, worst},
    io::{Class, Error, clock::Now},
    metrics::Metrics,
    plan::{
        NamespaceFacts, Object, ObjectVersion,
        management::{
            stranded::{self, Decision, Existence, Observed, Present, Removal, Seen},
            sweep::Sweep,
        },
    },
};

/// Since when each hub namespace has been stranded, and whether it has been reported.
pub(super) type Stranded = BTreeMap<String, (Instant, bool)>;

/// Looks for them.
pub(super) struct StrandedNamespaces {
    pub(super) hub: Arc<HubCache>,
    pub(super) projects: Arc<ProjectRegistry>,
    pub(super) sweep: Sweep,
    pub(super) metrics: Metrics,
}

impl StrandedNamespaces {
    /// Looks at them all. One whose project is merely not known yet (discovery not read) is none. One that cannot be removed
    /// holds up no other: it is looked at again by the next sweep.
    ///
    /// 1. Gathers what the caches know of each namespace, and what was seen of it before.
    /// 2. Has the plan judge it, and reports it when it says so.
    /// 3. Reads one that is due as it is at present, and removes it as far as the plan still agrees.
    ///
    /// # Errors
    /// The worst of what was refused; nothing more was tried once the hub, or discovery, did not answer.
    pub(super) async fn look(&self, memory: &mut Stranded, now: Now) -> Result<(), Error> {
        let mut stranded = Stranded::new();
        let mut failed = Vec::new();
        for key in self.hub.namespaces.keys() {
            let Some(facts) = self.hub.namespaces.get(&key) else { continue };
            let before = memory.get(&*key.name).copied();
            let observed = self.observe(&key.name, &facts, before, now.instant);
            let (since, reported) = before.unwrap_or((now.instant, false));
            let decision = stranded::plan(&observed, now.time);
            record("stranded-namespaces", &key.name, &observed, now, &decision);
            match decision {
                Decision::Belongs => continue,
                Decision::Keep => {}
                Decision::Report(event) => {
                    memory.insert(key.name.to_string(), (since, reported));
                    let project = facts.upstream().map(|(project, _)| project.to_string()).unwrap_or_default();
                    tracing::warn!(namespace = %key.name, project, "hub namespace is stranded");
                    send(&self.hub.plane, &event, &self.metrics).await?;
                    memory.insert(key.name.to_string(), (since, true));
                    stranded.insert(key.name.to_string(), (since, true));
                    continue;
                }
                Decision::Look if failed.iter().any(is_silence) => {}
                Decision::Look => match self.remove(&observed).await {
                    Ok(()) => {}
                    // It has changed since it was read, or its project is there after all: the next look sees.
                    Err(error) if error.class() == Class::Conflict => {
                        tracing::info!(namespace = %key.name, %error, "stranded hub namespace stays for now");
                    }
                    Err(error) => {
                        tracing::warn!(namespace = %key.name, %error, "stranded hub namespace cannot be removed");
                        failed.push(error);
                    }
                },
            }
            stranded.insert(key.name.to_string(), (since, reported));
        }
        self.metrics.stranded(stranded.len());
        *memory = stranded;
        worst(failed).map_or(Ok(()), Err)
    }

    fn observe(
        &self,
        namespace: &str,
        facts: &NamespaceFacts,
        before: Option<(Instant, bool)>,
        now: Instant,
    ) -> Observed {
        let project = facts.upstream().map_or(Existence::Unknown, |(project, _)| self.projects.existence(&project));
        Observed {
            namespace: namespace.to_owned(),
            facts: facts.clone(),
            project,
            seen: before.map(|(since, reported)| Seen { since: now.duration_since(since), reported }),
            grace: self.sweep.stranded_grace,
            paused: self.sweep.paused,
        }
    }

    /// Removes a hub namespace that is due, as far as its present state allows. It is read anew before each write.
    async fn remove(&self, observed: &Observed) -> Result<(), Error> {
        let Some(Discovered { plane: discovery, kind, .. }) = self.projects.discovered() else { return Ok(()) };
        let name = &observed.namespace;
        let object = Object::named::<Namespace>("", name);
        let hub = &self.hub.plane;
        // Once for the protection, and once for the namespace.
        for _ in 0..2 {
            let Some(live) = hub.read_metadata(&object).await? else { return Ok(()) };
            let version = ObjectVersion::of(&live);
            let present = Present { facts: NamespaceFacts::of(live), version };
            match stranded::remove(observed, &present, *kind) {
                Removal::Stays(why) => {
                    tracing::info!(namespace = name, why, "stranded hub namespace stays for now");
                    return Ok(());
                }
                Removal::Lift(plan) => {
                    carry_out(hub, discovery, &plan, &self.metrics).await?;
                }
                Removal::Delete(plan) => {
                    carry_out(hub, discovery, &plan, &self.metrics).await?;
                    tracing::warn!(namespace = name, "stranded hub namespace is removed");
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
