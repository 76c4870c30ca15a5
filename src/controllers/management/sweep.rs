//! Every few minutes: companions that nobody uses, bindings without their companion, namespaces of projects that are gone,
//! deployments that are still blocked, and Instances that could not be shown. Events find nearly all of it at once; this finds what was missed, and what
//! was left when a process died.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Resource,
    api::ListParams,
    core::{ObjectMeta, PartialObjectMeta},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{state::Management, stranded};
use crate::{
    api::{
        karmada::ResourceBinding,
        meta::label,
        referenced::{SourceKind, Token},
    },
    controllers::{is_silence, send, worst},
    io::{Class, Error, clock::Now, list, store::ObjectKey},
    plan::management::{
        facts::CompanionFacts,
        sweep::{self, Budget, Verdict},
    },
};

/// What earlier sweeps have seen.
#[derive(Default)]
struct Memory {
    stranded: stranded::Stranded,
    /// Uids of companions of which nobody can say who uses them.
    unclaimed: BTreeSet<String>,
}

/// What one sweep has seen.
#[derive(Default)]
struct Found {
    companions: BTreeSet<(String, Token)>,
    unclaimed: BTreeSet<String>,
}

/// Sweeps until `stop`.
pub(super) async fn run(all: &Arc<Management>, stop: &CancellationToken) {
    let every = all.options.sweep.interval;
    let mut memory = Memory::default();
    let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        all.enqueue_blocked();
        all.enqueue_quarantined();
        once(all, &mut memory).await;
    }
}

/// One sweep. Each part has its own end: what keeps one from its work keeps no other from it.
async fn once(all: &Arc<Management>, memory: &mut Memory) {
    if !all.hub.is_synced() || !all.hub.bindings.is_synced() {
        return; // nobody knows what is in use
    }
    note(all, "companions and their bindings", companions(all, memory).await);
    note(all, "stranded namespaces", stranded::look(all, &mut memory.stranded, Now::read()).await);
}

fn note(all: &Management, part: &'static str, done: Result<(), Error>) {
    if let Err(error) = done {
        tracing::warn!(part, %error, class = error.label(), "sweep could not do all its work");
        all.metrics.reconcile_failed("sweep", error.label());
    }
}

/// Companions that nobody uses, and bindings without their companion.
async fn companions(all: &Arc<Management>, memory: &mut Memory) -> Result<(), Error> {
    // A list that fails ends this part: what is not seen is not gone.
    let mut found = Found::default();
    collect::<ConfigMap>(all, SourceKind::ConfigMap, &memory.unclaimed, &mut found).await?;
    collect::<Secret>(all, SourceKind::Secret, &memory.unclaimed, &mut found).await?;
    memory.unclaimed = found.unclaimed;
    reap(all, &found.companions).await
}

/// Lists the companions of a kind, and has each looked at whom no event may have brought up.
async fn collect<K>(
    all: &Arc<Management>,
    kind: SourceKind,
    reported: &BTreeSet<String>,
    found: &mut Found,
) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let ours = ListParams::default().labels(&format!("{}=true", label::REFERENCED_DATA));
    list(all, ours, |companion: PartialObjectMeta<K>| {
        let facts = CompanionFacts::of(&companion.metadata);
        let key = ObjectKey::of(&companion);
        found.companions.insert((key.namespace.to_string(), Token { kind, name: key.name.to_string() }));
        if sweep::is_unclaimed(&facts) {
            if !reported.contains(&facts.uid) {
                tracing::warn!(companion = %key, kind = kind.as_str(), "companion is kept: its referenced-by is empty, or cannot be read");
            }
            found.unclaimed.insert(facts.uid);
        }
        let namespace = all.hub.namespaces.get(&ObjectKey::new("", &key.namespace));
        if !sweep::is_paused(namespace.as_deref(), all.options.sweep.paused) {
            all.enqueue_companion(kind, &key);
        }
    })
    .await
}

/// Removes bindings whose companion is gone; one that cannot be removed holds up no other.
async fn reap(all: &Arc<Management>, companions: &BTreeSet<(String, Token)>) -> Result<(), Error> {
    let mut orphans = Vec::new();
    list(all, ListParams::default(), |binding: PartialObjectMeta<ResourceBinding>| {
        orphans.extend(orphan(all, companions, binding.metadata));
    })
    .await?;
    let limit = all.options.sweep.max_bindings;
    if orphans.len() > limit {
        tracing::warn!(
            limit,
            found = orphans.len(),
            "more bindings without their companions than one sweep may remove"
        );
    }
    let mut budget = Budget::of(limit);
    let mut failed = Vec::new();
    for (token, binding) in orphans {
        if budget.is_spent() {
            break;
        }
        match remove(all, &token, &binding).await {
            Ok(()) => budget.removed(),
            // The companion is there after all, or the binding has changed: the next sweep sees.
            Err(error) if error.class() == Class::Conflict => {}
            Err(error) if is_silence(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(binding = ?binding.name, namespace = ?binding.namespace, %error, "binding without its companion cannot be removed");
                budget.refused();
                failed.push(error);
            }
        }
    }
    worst(failed).map_or(Ok(()), Err)
}

/// Removes one binding whose companion is gone.
async fn remove(all: &Management, companion: &Token, binding: &ObjectMeta) -> Result<(), Error> {
    let namespace = binding.namespace.as_deref().unwrap_or_default();
    for write in sweep::reap(namespace, binding, companion) {
        send(&all.hub.plane, &write, &all.metrics).await?;
    }
    all.metrics.reaped();
    tracing::info!(namespace, binding = ?binding.name, "binding without its companion is removed");
    Ok(())
}

/// The companion that a binding of ours has lost; nothing when it has not, or is none of ours, or clean-up is paused.
fn orphan(
    all: &Management,
    companions: &BTreeSet<(String, Token)>,
    binding: ObjectMeta,
) -> Option<(Token, ObjectMeta)> {
    let key = ObjectKey::new(binding.namespace.as_deref()?, binding.name.as_deref()?);
    let token = sweep::companion_of(&key.name)?;
    let observed = sweep::Observed {
        companion_exists: companions.contains(&(key.namespace.to_string(), token.clone())),
        namespace: all.hub.namespaces.get(&ObjectKey::new("", &key.namespace)).map(|facts| (*facts).clone()),
        paused: all.options.sweep.paused,
        ..sweep::Observed::of(token, &binding, all.hub.bindings.get(&key).as_deref())
    };
    match sweep::judge(&observed) {
        Verdict::Goes => Some((observed.companion, binding)),
        Verdict::Paused => {
            tracing::info!(binding = %key, "binding without its companion is kept: clean-up is paused");
            None
        }
        Verdict::Stays => None,
    }
}

/// The metadata of all objects of a kind on the hub.
async fn list<K>(all: &Management, params: ListParams, see: impl FnMut(PartialObjectMeta<K>)) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let plane = &all.hub.plane;
    list::metadata(&plane.connection().client(), plane.name(), params, see).await
}
