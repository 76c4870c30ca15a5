//! Hub namespaces of projects that do not exist: what is known of them, and what their plan asks for.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use k8s_openapi::api::core::v1::Namespace;

use super::{
    hub_cache::HubCache,
    registry::{Discovered, ProjectRegistry},
};
use crate::{
    controllers::{carry_out, is_silence, record, worst},
    io::{Class, Error, clock::Now},
    metrics::Metrics,
    plan::{
        NamespaceFacts, Object, ObjectVersion,
        management::{
            stranded::{self, Decided, Existence, Observed, Present, Seen, Signal},
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
    /// 2. Decides, and reports it when the plan says so.
    /// 3. Reads one that is due as it is at present, decides once more, and removes it as far as the plan still agrees.
    ///
    /// # Errors
    /// The worst of what was refused; nothing more was tried once the hub, or discovery, did not answer.
    pub(super) async fn look(&self, memory: &mut Stranded, now: Now) -> Result<(), Error> {
        let mut stranded = Stranded::new();
        let mut failed = Vec::new();
        // Where projects are not discovered, nobody knows of any that it does not exist.
        let Some(discovered) = self.projects.discovered() else { return Ok(()) };
        for key in self.hub.namespaces.keys() {
            let Some(facts) = self.hub.namespaces.get(&key) else { continue };
            let before = memory.get(&*key.name).copied();
            let observed = self.observe(&key.name, &facts, before, now.instant);
            let plan = decide(&observed, now);
            if !plan.signals.contains(&Signal::Stranded) {
                continue;
            }
            let (since, mut reported) = before.unwrap_or((now.instant, false));
            if plan.signals.contains(&Signal::Reported) {
                memory.insert(key.name.to_string(), (since, reported));
                let project = facts.upstream().map(|(project, _)| project.to_string()).unwrap_or_default();
                tracing::warn!(namespace = %key.name, project, "hub namespace is stranded");
                carry_out(&self.hub.plane, &discovered.plane, &plan, &self.metrics).await?;
                reported = true;
                memory.insert(key.name.to_string(), (since, reported));
            } else if plan.signals.contains(&Signal::Read) && !failed.iter().any(is_silence) {
                match self.remove(discovered, observed, now).await {
                    Ok(()) => {}
                    // It has changed since it was read, or its project is there after all: the next look sees.
                    Err(error) if error.class() == Class::Conflict => {
                        tracing::info!(namespace = %key.name, %error, "stranded hub namespace stays for now");
                    }
                    Err(error) => {
                        tracing::warn!(namespace = %key.name, %error, "stranded hub namespace cannot be removed");
                        failed.push(error);
                    }
                }
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
            present: None,
        }
    }

    /// Removes a hub namespace that is due, as far as its present state allows. It is read anew before each write.
    async fn remove(&self, discovered: &Discovered, mut observed: Observed, now: Now) -> Result<(), Error> {
        let object = Object::named::<Namespace>("", &observed.namespace);
        let hub = &self.hub.plane;
        // Once for the protection, and once for the namespace.
        for _ in 0..2 {
            let Some(live) = hub.read_metadata(&object).await? else { return Ok(()) };
            let version = ObjectVersion::of(&live);
            observed.present = Some(Present { facts: NamespaceFacts::of(live), version });
            let plan = decide(&observed, now);
            carry_out(hub, &discovered.plane, &plan, &self.metrics).await?;
            let namespace = &observed.namespace;
            for signal in &plan.signals {
                match signal {
                    Signal::Stays(why) => tracing::info!(namespace, why, "stranded hub namespace stays for now"),
                    Signal::Removed => tracing::warn!(namespace, "stranded hub namespace is removed"),
                    Signal::Stranded | Signal::Reported | Signal::Read => {}
                }
            }
            if !plan.signals.contains(&Signal::Read) {
                break;
            }
        }
        Ok(())
    }
}

fn decide(observed: &Observed, now: Now) -> Decided {
    let plan = stranded::plan(observed, now.time);
    record("stranded-namespaces", &observed.namespace, observed, now, &plan);
    plan
}
