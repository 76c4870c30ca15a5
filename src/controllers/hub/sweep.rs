//! Every few minutes: companions that nobody uses, bindings without their companion, and namespaces of projects that are
//! gone. Events find nearly all of it at once; this finds what was missed, and what was left when a process died.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Resource, ResourceExt, api::ListParams, core::PartialObjectMeta};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::state::{Management, copy_city};
use crate::{
    api::{
        karmada::{Cluster, ClusterSpec, ResourceBinding},
        meta::{annotation, label, reason},
        names::{self, ProjectName},
        referenced::{SourceKind, Token},
    },
    controllers::send,
    io::{Class, Error, deadline, store::ObjectKey, watch::PAGE_SIZE},
    plan::{
        Kind, NamespaceFacts, Object, Write,
        event::{self, Note, Severity},
        hub::{companion::CompanionFacts, sweep},
    },
};

/// What earlier sweeps have seen.
#[derive(Default)]
struct Memory {
    /// Hub namespaces of projects that do not exist: since when, and whether it has been told.
    stranded: BTreeMap<String, (Instant, bool)>,
    /// Clusters that hold a city without its label, and the city.
    mislabelled: BTreeMap<String, String>,
    /// Uids of companions of which nobody can say who uses them.
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
            () = all.relabelled.notified() => {
                look_at_labels(all, &mut memory.mislabelled).await;
                continue;
            }
            _ = ticks.tick() => {}
        }
        look_at_labels(all, &mut memory.mislabelled).await;
        if let Err(error) = once(all, &mut memory).await {
            tracing::warn!(%error, class = error.label(), "sweep was given up");
        }
    }
}

async fn once(all: &Arc<Management>, memory: &mut Memory) -> Result<(), Error> {
    if !all.hub.is_synced() || !all.hub.bindings.is_synced() {
        return Ok(()); // nobody knows what is in use
    }
    // A list that fails ends the sweep: what is not seen is not gone.
    let mut companions = BTreeSet::new();
    companions.extend(collect::<ConfigMap>(all, SourceKind::ConfigMap, &mut memory.unclaimed).await?);
    companions.extend(collect::<Secret>(all, SourceKind::Secret, &mut memory.unclaimed).await?);
    reap(all, &companions).await?;
    look_for_stranded(all, &mut memory.stranded).await
}

/// Clusters that hold a city without carrying its label: counted, and told on the Cluster when it is news.
async fn look_at_labels(all: &Arc<Management>, told: &mut BTreeMap<String, String>) {
    if !all.hub.knows_karmada() {
        return;
    }
    let mut now = BTreeMap::new();
    for copy in all.hub.copies.values() {
        let Some(city) = copy_city(&copy) else { continue };
        let binding = names::binding_name("WorkloadDeployment", &copy.name_any());
        let key = ObjectKey::new(&copy.namespace().unwrap_or_default(), &binding);
        for cluster in all.hub.bindings.get(&key).iter().flat_map(|binding| binding.clusters.iter()) {
            let facts = all.hub.clusters.get(&ObjectKey::new("", cluster));
            if facts.is_some_and(|facts| facts.city.as_ref() != Some(&city)) {
                now.insert(cluster.clone(), city.to_string());
            }
        }
    }
    all.metrics.mislabelled(now.len());
    for (name, city) in &now {
        if told.get(name) == Some(city) {
            continue;
        }
        let text = format!(
            "the label {} is not {city}, and what runs there of that city stays: put the label back, or annotate the \
             Cluster with {}=true to move the city",
            label::TOPOLOGY_CITY,
            annotation::DRAIN
        );
        let cluster = Cluster::new(name, ClusterSpec {});
        let note =
            Note { severity: Severity::Warning, reason: reason::CITY_LABEL_LOST, action: "Guarding", text: &text };
        let event = event::on(Kind::Cluster, &cluster, "city-guard", note, Timestamp::now());
        let _ = send(&all.hub.plane, &event, &all.metrics).await; // a lost Event is no error
        tracing::warn!(cluster = name, city, "cluster holds a city without its label");
    }
    *told = now;
}

/// Lists the companions of a kind, and has each looked at whom no event may have brought up.
async fn collect<K>(
    all: &Arc<Management>,
    kind: SourceKind,
    unclaimed: &mut BTreeSet<String>,
) -> Result<Vec<(String, Token)>, Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let ours = ListParams::default().labels(&format!("{}=true", label::REFERENCED_DATA));
    let mut found = Vec::new();
    for companion in list::<K>(all, ours).await? {
        let facts = CompanionFacts::of(&companion.metadata);
        let key = ObjectKey::of(&companion);
        found.push((key.namespace.to_string(), Token { kind, name: key.name.to_string() }));
        let claimed = facts.claims.as_ref().is_some_and(|claims| !claims.is_empty());
        if !claimed && unclaimed.insert(facts.uid.clone()) {
            tracing::warn!(companion = %key, kind = kind.as_str(), "companion is kept: its referenced-by is empty, or cannot be read");
        }
        let paused = all.hub.namespaces.get(&ObjectKey::new("", &key.namespace)).is_none_or(|ns| ns.paused);
        if !paused && !all.options.sweep.paused {
            all.wake_companion(kind, &key);
        }
    }
    Ok(found)
}

/// Removes bindings whose companion is gone.
async fn reap(all: &Arc<Management>, companions: &BTreeSet<(String, Token)>) -> Result<(), Error> {
    let mut left = all.options.sweep.max_bindings;
    for binding in list::<ResourceBinding>(all, ListParams::default()).await? {
        let key = ObjectKey::of(&binding);
        let Some(token) = sweep::companion_of(&key.name) else { continue };
        let Some(namespace) = all.hub.namespaces.get(&ObjectKey::new("", &key.namespace)) else { continue };
        let facts = all.hub.bindings.get(&key);
        let gone = !companions.contains(&(key.namespace.to_string(), token.clone()));
        let deleting = binding.metadata.deletion_timestamp.is_some();
        if !gone || deleting || !is_mirror(&namespace) || !sweep::is_of_companion(&binding.metadata, facts.as_deref()) {
            continue;
        }
        if namespace.paused || all.options.sweep.paused {
            tracing::info!(binding = %key, "binding without its companion is kept: clean-up is paused");
            continue;
        }
        if left == 0 {
            tracing::warn!(
                limit = all.options.sweep.max_bindings,
                "more bindings without their companions than one sweep may remove"
            );
            return Ok(());
        }
        left -= 1;
        for write in sweep::reap(&key.namespace, &binding.metadata, &token) {
            match send(&all.hub.plane, &write, &all.metrics).await {
                // It is there after all, or has changed: the next sweep sees.
                Err(error) if error.class() == Class::Conflict => break,
                sent => drop(sent?),
            }
            if write.object.kind == Kind::ResourceBinding {
                all.metrics.reaped();
                tracing::info!(binding = %key, "binding without its companion is removed");
            }
        }
    }
    Ok(())
}

fn is_mirror(namespace: &NamespaceFacts) -> bool {
    namespace.upstream().is_some()
}

/// Hub namespaces of projects that do not exist. One that is merely not known yet (discovery not read) is none.
async fn look_for_stranded(
    all: &Arc<Management>,
    stranded: &mut BTreeMap<String, (Instant, bool)>,
) -> Result<(), Error> {
    let mut present = BTreeSet::new();
    for key in all.hub.namespaces.keys() {
        let Some(facts) = all.hub.namespaces.get(&key) else { continue };
        let Some((project, _)) = facts.upstream() else { continue };
        if facts.terminating || !all.is_gone(&project) {
            continue;
        }
        present.insert(key.name.to_string());
        let (since, told) = *stranded.entry(key.name.to_string()).or_insert((Instant::now(), false));
        if !told {
            tell(all, &key.name, &facts, &project).await?;
            stranded.insert(key.name.to_string(), (since, true));
            continue; // never on one look
        }
        let due = all.options.sweep.stranded_grace.is_some_and(|grace| since.elapsed() >= grace);
        if due && !facts.paused && !all.options.sweep.paused {
            remove(all, &key.name, &facts).await?;
        }
    }
    stranded.retain(|name, _| present.contains(name));
    all.metrics.stranded(present.len());
    Ok(())
}

async fn tell(all: &Arc<Management>, name: &str, facts: &NamespaceFacts, project: &ProjectName) -> Result<(), Error> {
    let what = match all.options.sweep.stranded_grace {
        Some(grace) => format!("it is removed in {} s, with all that it holds", grace.as_secs()),
        None => "it is left as it is".to_owned(),
    };
    let text = format!("project {project}, whose objects this namespace holds, does not exist: {what}");
    tracing::warn!(namespace = name, %project, "hub namespace is stranded");
    let mut namespace = k8s_openapi::api::core::v1::Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    namespace.metadata.uid = Some(facts.uid.clone());
    let note = Note { severity: Severity::Warning, reason: reason::STRANDED, action: "Sweeping", text: &text };
    let event = event::on(Kind::Namespace, &namespace, "sweep", note, Timestamp::now());
    send(&all.hub.plane, &event, &all.metrics).await?;
    Ok(())
}

/// Removes a hub namespace; its protection is lifted for that alone (fact 53).
async fn remove(all: &Arc<Management>, name: &str, facts: &NamespaceFacts) -> Result<(), Error> {
    let object = Object { kind: Kind::Namespace, namespace: String::new(), name: name.to_owned() };
    let Some(live) = all.hub.plane.read_metadata(&object).await? else { return Ok(()) };
    let version = live.resource_version.unwrap_or_default();
    let patch = serde_json::json!({ "metadata": { "labels": { label::DELETION_PROTECTED: null } } });
    let lift = Write::merge_into(object.clone(), crate::api::meta::manager::FEDERATOR, patch, &facts.uid, &version);
    let Some(lifted) = send(&all.hub.plane, &lift, &all.metrics).await? else { return Ok(()) };
    send(&all.hub.plane, &Write::delete_version(object, &lifted.uid, &lifted.version), &all.metrics).await?;
    tracing::warn!(namespace = name, "stranded hub namespace is removed");
    Ok(())
}

/// The metadata of all objects of a kind on the hub.
async fn list<K>(all: &Arc<Management>, params: ListParams) -> Result<Vec<PartialObjectMeta<K>>, Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(all.hub.plane.connection().client());
    let what = || format!("list {} in {}", K::plural(&()), all.hub.plane.name());
    let mut params = params.limit(PAGE_SIZE);
    let mut items = Vec::new();
    loop {
        let page = deadline(crate::io::CALL * 3, what, api.list_metadata(&params)).await?;
        items.extend(page.items.into_iter().map(|mut item| {
            item.metadata.managed_fields = None;
            item
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(items),
        }
    }
}
