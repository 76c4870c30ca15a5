//! What Karmada still keeps on clusters of what is gone from the hub: told, counted, and removed where Karmada has forgotten
//! it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::api::ListParams;

use crate::controllers::management::{hub::hub_cache::HubCache, projects::losses::Losses};
use crate::{
    api::referenced::DataRef,
    controllers::{is_silence, record, send, worst},
    io::{Class, Error, clock::Now, list, store::ObjectKey, watch::Metadata},
    metrics::Metrics,
    plan::{
        Hub, Kind, Op, Write,
        management::collector::{
            sweep::{Budget, Sweep},
            works::{self, AllLeft, Observed, Signal, WorkFacts},
        },
    },
    timing::Timing,
};

/// ConfigMaps and Secrets that there are, by hub namespace.
pub(crate) type Companions = BTreeSet<(String, DataRef)>;

/// What earlier sweeps have seen.
#[derive(Default)]
pub(crate) struct Memory {
    /// Uids of Works that Karmada may have forgotten.
    suspected: BTreeSet<String>,
    /// Uids of Works of whose template a live read has found nothing, for as long as none is listed.
    proved: BTreeSet<String>,
    /// Hub namespaces and clusters of which it was told what is left.
    told: BTreeSet<(String, String)>,
}

/// How far one Work has come.
struct Progress {
    /// Whether a live read has found no template.
    proved: bool,
    removed: bool,
}

/// Looks at Works.
pub(crate) struct LeftOnClusters {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) losses: Arc<Losses>,
    pub(crate) sweep: Sweep,
    pub(crate) timing: Timing,
    pub(crate) metrics: Metrics,
}

impl LeftOnClusters {
    /// One look at the metadata of all Works, beside the ConfigMaps and Secrets that were just listed. While it is not known what there
    /// is on the hub nothing is concluded.
    pub(crate) async fn look(&self, memory: &mut Memory, sources: &Companions, now: Now) -> Result<(), Error> {
        let hub = &self.hub;
        if !hub.is_synced() || !hub.knows_karmada() {
            return Ok(());
        }
        let mut without = Vec::new();
        let client = hub.plane.connection().client();
        let see = |work: Metadata| {
            without.extend(WorkFacts::of(&work.metadata).filter(|work| !self.has_template(work, sources)));
        };
        list::metadata(&client, hub.plane.name(), Kind::Work, ListParams::default(), see).await?;
        let (mut suspected, mut proved) = (BTreeSet::new(), BTreeSet::new());
        let (mut left, mut failed) = (AllLeft::new(), Vec::new());
        let mut budget = Budget::of(self.sweep.max_bindings);
        // Where few are taken, and some are refused each time, none is always the last.
        fastrand::shuffle(&mut without);
        for work in without {
            let uid = work.version.uid.clone();
            let observed = self.observe(work, memory);
            let plan = works::plan(&observed, now.time);
            record("works", &observed.work.work, &observed, now, &plan);
            if plan.signals.contains(&Signal::Suspected) {
                suspected.insert(uid.clone());
            }
            let mut progress = Progress { proved: observed.proved, removed: false };
            match self.carry_out(&observed.work, &plan.steps, !budget.is_spent(), &mut progress).await {
                Ok(()) if progress.removed => budget.removed(),
                Ok(()) => {}
                // Its template is there after all.
                Err(Error::StillThere(_)) => progress.proved = false,
                // It has changed: the next sweep sees.
                Err(error) if error.class() == Class::Conflict => {}
                Err(error) if is_silence(&error) => return Err(error),
                Err(error) => {
                    budget.refused();
                    failed.push(error);
                }
            }
            if progress.removed || !progress.proved {
                continue;
            }
            proved.insert(uid);
            if plan.signals.contains(&Signal::Left) {
                works::count(&mut left, &observed.work);
            }
        }
        (memory.suspected, memory.proved) = (suspected, proved);
        self.tell(memory, &left, now).await;
        worst(failed).map_or(Ok(()), Err)
    }

    /// Whether what a Work was made of is there.
    fn has_template(&self, work: &WorkFacts, sources: &Companions) -> bool {
        let (namespace, name) = (&work.template.namespace, &work.template.name);
        match work.template.kind {
            Kind::Referenced(kind) => sources.contains(&(namespace.clone(), DataRef { kind, name: name.clone() })),
            _ => self.hub.copies.contains(&ObjectKey::new(namespace, name)),
        }
    }

    fn observe(&self, work: WorkFacts, memory: &Memory) -> Observed {
        let namespace = self.hub.namespaces.get(&ObjectKey::new("", &work.template.namespace));
        let project = namespace.as_ref().and_then(|facts| facts.upstream()).map(|(project, _)| project);
        let held = project.is_some_and(|project| self.losses.holds_project(&project));
        Observed {
            bound: self.hub.bindings.contains(&ObjectKey::new(&work.template.namespace, &work.binding)),
            namespace: namespace.map(|facts| (*facts).clone()),
            suspected: memory.suspected.contains(&work.version.uid),
            proved: memory.proved.contains(&work.version.uid),
            work,
            paused: self.sweep.paused || held,
            timing: self.timing,
        }
    }

    /// Reads what is to be proved, and removes the Work where that is due and `may_remove` says so.
    async fn carry_out(
        &self,
        work: &WorkFacts,
        steps: &[Write<Hub>],
        may_remove: bool,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        for write in steps {
            let removes = matches!(write.op, Op::Delete { .. });
            if removes && !may_remove {
                break;
            }
            send(&self.hub.plane, write, &self.metrics).await?;
            (progress.proved, progress.removed) = (true, removes);
        }
        if progress.removed {
            self.metrics.work_removed();
            tracing::info!(work = %work.work, template = %work.template, "Work that Karmada has forgotten is removed");
        }
        Ok(())
    }

    /// Counts what is left by cluster, and tells it on each hub namespace, once for as long as it lasts.
    async fn tell(&self, memory: &mut Memory, left: &AllLeft, now: Now) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for ((_, cluster), left) in left {
            *counts.entry(cluster).or_default() += left.count;
        }
        let clusters = self.hub.clusters.keys();
        for cluster in clusters.iter().map(|key| &*key.name).chain(counts.keys().copied()).collect::<BTreeSet<_>>() {
            self.metrics.left_on_cluster(cluster, counts.get(cluster).copied().unwrap_or_default());
        }
        let gone: Vec<_> = memory.told.iter().filter(|place| !left.contains_key(*place)).cloned().collect();
        for place in gone {
            // One whose Cluster has gone as well is counted no more.
            self.metrics.left_on_cluster(&place.1, counts.get(&*place.1).copied().unwrap_or_default());
            memory.told.remove(&place);
        }
        for (place, left) in left {
            let (namespace, cluster) = place;
            if memory.told.insert(place.clone()) {
                tracing::warn!(namespace, cluster, works = left.count, "Works are left of what is deleted on the hub");
                // Of a namespace that has gone itself the log and the gauge alone can tell.
                let Some(facts) = self.hub.namespaces.get(&ObjectKey::new("", namespace)) else { continue };
                let event = works::tell(namespace, &facts.uid, cluster, left, now.time);
                let _ = send(&self.hub.plane, &event, &self.metrics).await; // a lost Event is no error
            }
        }
    }
}
