//! Facts of bindings and companions that decisions depend on, and the part of them that one deployment sees.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube::{ResourceExt, core::ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::placement;
pub use super::{
    companion_facts::{CompanionFacts, Going, SharedCompanion, cluster_policy, holders},
    phase::{Phase, selects_companions},
    replicas::Replicas,
};
pub use crate::api::names::Template;
use crate::plan::management::referenced_data::foreign_claim::{self, ClaimIds, ForeignClaim};
use crate::{
    api::{
        karmada::{AggregatedStatusItem, BindingSnapshot, PolicyPlacement, ResourceBinding, Suspension},
        meta::{annotation, finalizer},
        names::{CityCode, CityPolicyName},
        referenced::DataRef,
    },
    plan::Shared,
};

/// Condition `Scheduled` of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scheduled {
    /// True if its status is `True`.
    pub succeeded: bool,
    /// Karmada's reason.
    pub reason: String,
    /// Karmada's message.
    pub message: String,
}

/// Facts of a binding.
#[allow(clippy::struct_excessive_bools)] // independent facts
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingFacts {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// Time of the last write to anything but the status, according to the managed fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Timestamp>,
    /// Object that the binding was made for.
    pub template: Template,
    /// Of a deployment's binding: the resourceVersion of the copy that Karmada last made the binding from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
    /// PropagationPolicy that claims the template.
    pub policy: Option<Arc<str>>,
    /// ClusterPropagationPolicy that claims the template: its name, or its id if no name is recorded (fact 67).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_policy: Option<String>,
    /// Claim ids of both policies, of a companion's binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ids: Option<Box<ClaimIds>>,
    /// True if it has a placement, or the mark of one that it was scheduled by. A binding that only follows others has neither
    /// (facts 15, 58).
    #[serde(default)]
    pub placed: bool,
    /// Digest of the placement, of a deployment's binding.
    #[serde(default)]
    pub placement: Option<Arc<str>>,
    /// Digest of the placement that the scheduler last used. It may be an earlier one.
    #[serde(default)]
    pub scheduled_by: Option<Arc<str>>,
    /// City of the policy that made that placement, as far as its form shows.
    #[serde(default)]
    pub scheduled_for: Option<CityCode>,
    /// Clusters that the binding itself is scheduled to.
    pub clusters: Shared<Vec<String>>,
    /// Bindings that need it, with their clusters, sorted by name.
    pub required_by: Vec<BindingSnapshot>,
    /// Condition `Scheduled`. `None` until the scheduler has processed the binding.
    pub scheduled: Shared<Option<Scheduled>>,
    /// Result of the apply on each cluster. The error is Karmada's message.
    pub applied: Shared<BTreeMap<String, Result<(), String>>>,
    /// Number of Instances that a deployment has on each cluster.
    pub replicas: Shared<BTreeMap<String, Replicas>>,
    /// True if a cluster that it is scheduled to has a deployment, and none of them reports a status. A status without `replicas`
    /// is no report, as for the interpreter on the hub. A cluster that could not apply the latest change shows no status, and does
    /// not count: Karmada leaves it out (fact 82).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreported: bool,
    /// True if the template's dependencies follow it.
    pub propagates: bool,
    /// True if Karmada's dependency distributor has processed the binding (fact 37).
    pub distributed: bool,
    /// The template's dependencies that Karmada recorded. `None` if it recorded nothing (fact 38).
    pub dependencies: Shared<Option<Vec<DataRef>>>,
    /// Parts of the binding that are suspended.
    #[serde(default)]
    pub suspension: Shared<Suspension>,
    /// True if Karmada evicts it from a cluster, and keeps it there for a grace period (fact 81).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evicting: bool,
    /// True if it is terminating.
    pub terminating: bool,
}

/// Replaces a cluster's message about a rejected ConfigMap or Secret.
pub(crate) const WITHHELD: &str = "the cluster refuses it, with a message that may quote a value";

/// Replaces the message about a ConfigMap or Secret. Karmada repeats the cluster's answer in full, and webhooks and policies that
/// have seen the data contribute to that answer. Conditions, Events and annotations have more readers than Secrets. An empty
/// message stays empty.
fn without_values(message: String) -> String {
    if message.is_empty() { message } else { WITHHELD.to_owned() }
}

/// Decides [`BindingFacts::unreported`]. While Karmada evicts from a cluster, that cluster's report counts.
fn is_unreported(items: &[AggregatedStatusItem], clusters: &[String], evicting: bool) -> bool {
    let is_present = |item: &&AggregatedStatusItem| clusters.contains(&item.cluster_name);
    let reports = |item: &AggregatedStatusItem| item.status.get("replicas").is_some_and(|replicas| !replicas.is_null());
    let heard = items.iter().filter(|item| evicting || is_present(item)).any(reports);
    !heard && items.iter().filter(is_present).any(|item| item.applied)
}

impl BindingFacts {
    /// Extracts the facts from a binding. Other fields are dropped.
    pub fn of(binding: ResourceBinding) -> Self {
        let (uid, version) = (binding.uid().unwrap_or_default(), binding.resource_version().unwrap_or_default());
        let policy = binding.annotations().get(annotation::POLICY_NAME).map(|name| name.as_str().into());
        let cluster_policy = cluster_policy(&binding.metadata);
        let applied = binding.annotations().get(annotation::APPLIED_PLACEMENT).cloned();
        let placed = binding.spec.placement.is_some() || applied.is_some();
        let dependencies = binding.annotations().get(annotation::DEPENDENCIES).map(|text| dependencies(text));
        let distributed = binding.finalizers().iter().any(|f| f == finalizer::KARMADA_DEPENDENCIES);
        let terminating = binding.metadata.deletion_timestamp.is_some();
        let mut required_by = binding.spec.required_by;
        required_by.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let status = binding.status.unwrap_or_default();
        let scheduled = status.conditions.into_iter().find(|c| c.type_ == "Scheduled");
        let changed = written(&binding.metadata, None);
        let seen = binding.spec.resource.resource_version.parse().ok();
        let template = Template::of(&binding.spec.resource.kind, binding.spec.resource.name);
        let of_deployment = |placement: PolicyPlacement| template.is_deployment().then_some(placement);
        let scheduled_by = applied.as_deref().and_then(|text| serde_json::from_str(text).ok()).and_then(of_deployment);
        let placement = binding.spec.placement.and_then(|placement| serde_json::from_value(placement).ok());
        let placement = placement.and_then(of_deployment);
        let claim_ids = ClaimIds::of(&binding.metadata).filter(|_| !template.is_deployment());
        let items = status.aggregated_status.iter().filter(|_| template.is_deployment());
        let replicas = items.filter_map(|item| Some((item.cluster_name.clone(), Replicas::of(&item.status)?)));
        let replicas: BTreeMap<_, _> = replicas.collect();
        let clusters: Vec<String> = binding.spec.clusters.into_iter().map(|c| c.name).collect();
        let evicting = !binding.spec.graceful_eviction_tasks.is_empty();
        let unreported = template.is_deployment() && is_unreported(&status.aggregated_status, &clusters, evicting);
        let words = |message: String| if template.is_deployment() { message } else { without_values(message) };
        let applied = status
            .aggregated_status
            .into_iter()
            .map(|item| (item.cluster_name, if item.applied { Ok(()) } else { Err(words(item.applied_message)) }));
        let applied: BTreeMap<_, _> = applied.collect();
        Self {
            uid,
            version,
            changed,
            seen: seen.filter(|_| template.is_deployment()),
            template,
            replicas: replicas.into(),
            policy,
            cluster_policy,
            claim_ids,
            placed,
            placement: placement.as_ref().map(|placement| placement::digest(placement).into()),
            scheduled_for: scheduled_by.as_ref().and_then(placement::made_for),
            scheduled_by: scheduled_by.as_ref().map(|placement| placement::digest(placement).into()),
            clusters: clusters.into(),
            required_by,
            propagates: binding.spec.propagate_deps,
            scheduled: scheduled
                .map(|c| Scheduled { succeeded: c.status == "True", reason: c.reason, message: c.message })
                .into(),
            applied: applied.into(),
            distributed,
            dependencies: dependencies.into(),
            suspension: binding.spec.suspension.unwrap_or_default().into(),
            evicting,
            unreported,
            terminating,
        }
    }

    /// True if all facts except the resourceVersion are equal.
    pub fn says_the_same(&self, other: &Self) -> bool {
        // Each field is named, so that a new one cannot be forgotten. Nothing is copied, because thousands may need the binding.
        let Self {
            uid,
            version: _,
            changed,
            seen,
            template,
            policy,
            cluster_policy,
            claim_ids,
            placed,
            placement,
            scheduled_by,
            scheduled_for,
            clusters,
            required_by,
            scheduled,
            applied,
            replicas,
            unreported,
            propagates,
            distributed,
            dependencies,
            suspension,
            evicting,
            terminating,
        } = self;
        (uid, changed, seen, template, policy, cluster_policy)
            == (&other.uid, &other.changed, &other.seen, &other.template, &other.policy, &other.cluster_policy)
            && (claim_ids, placed, placement, scheduled_by, scheduled_for)
                == (&other.claim_ids, &other.placed, &other.placement, &other.scheduled_by, &other.scheduled_for)
            && (clusters, required_by, scheduled, applied, replicas)
                == (&other.clusters, &other.required_by, &other.scheduled, &other.applied, &other.replicas)
            && (unreported, propagates, distributed, dependencies)
                == (&other.unreported, &other.propagates, &other.distributed, &other.dependencies)
            && (suspension, evicting, terminating) == (&other.suspension, &other.evicting, &other.terminating)
    }

    /// Returns how the binding of this name needs it. The search is binary, because thousands of bindings may ask.
    pub fn needed_by(&self, binding: &str) -> Option<&BindingSnapshot> {
        let at = self.required_by.binary_search_by(|by| by.name.as_str().cmp(binding)).ok()?;
        self.required_by.get(at)
    }

    /// Cities with a policy that claims it, or that it was scheduled for.
    pub fn cities(&self) -> BTreeSet<CityCode> {
        let claimed = self.policy.as_deref().and_then(CityPolicyName::parse);
        claimed.into_iter().chain(self.scheduled_for.clone()).collect()
    }

    /// True if it goes, or may go, to a cluster by itself. A binding that only follows others does not.
    pub fn has_own_place(&self) -> bool {
        self.policy.is_some() || self.cluster_policy.is_some() || self.placed || !self.clusters.is_empty()
    }

    /// Claims of policies that are not city policies, of a companion's binding. `None` if a claim does not name its policy.
    pub fn foreign_claims(&self) -> Option<Vec<ForeignClaim>> {
        foreign_claim::all(self.policy.as_deref(), self.cluster_policy.as_deref(), self.claim_ids.as_deref())
    }

    /// True if this PropagationPolicy claims the template, and no ClusterPropagationPolicy does.
    pub fn is_claimed_by(&self, policy: &str) -> bool {
        self.cluster_policy.is_none() && self.policy.as_deref() == Some(policy)
    }

    /// True if the city's policy has placed it: the policy claims it, or the policy was removed and its placement remains.
    pub fn is_of_city(&self, city: &CityCode) -> bool {
        let orphaned = self.policy.is_none() && self.cluster_policy.is_none();
        self.is_claimed_by(&city.policy_name()) || orphaned && self.scheduled_for.as_ref() == Some(city)
    }

    /// True if the scheduler has applied this placement (a digest), and no newer one is pending.
    pub fn is_scheduled_by(&self, placement: &str) -> bool {
        self.placement.as_deref() == Some(placement) && self.scheduled_by.as_deref() == Some(placement)
    }

    /// True if it shows that Karmada on this hub brings dependencies. Without the feature, the distributor does not process the
    /// binding. Without the interpreter's script, the binding has no record of dependencies (facts 37, 38).
    pub fn shows_dependencies(&self) -> bool {
        self.propagates && self.distributed && self.dependencies.is_some() && !self.terminating
    }
}

/// Returns the clusters of each binding that the city's policy has placed, and true if a new placement is under way. `asked` is
/// the digest of the placement that the policy asks for now. While a placement is under way, its result is unknown. A binding
/// that is suspended from scheduling stays on its clusters.
pub fn places(city: &CityCode, asked: Option<&str>, bindings: &[&BindingFacts]) -> (Vec<BTreeSet<String>>, bool) {
    let is_there = |binding: &&&BindingFacts| !binding.terminating && !binding.clusters.is_empty();
    let ours: Vec<_> = bindings.iter().filter(is_there).filter(|binding| binding.is_of_city(city)).collect();
    let is_under_way = |binding: &BindingFacts| {
        let asked = asked.filter(|_| !binding.suspension.stops_scheduling());
        asked.is_some_and(|asked| !binding.is_scheduled_by(asked))
    };
    let under_way = ours.iter().any(|binding| is_under_way(binding));
    (ours.iter().map(|binding| binding.clusters.iter().cloned().collect()).collect(), under_way)
}

/// Returns when an object was last written, according to its managed fields: its status, or everything else.
pub fn written(meta: &ObjectMeta, subresource: Option<&str>) -> Option<Timestamp> {
    let of_part = meta.managed_fields.iter().flatten().filter(|manager| manager.subresource.as_deref() == subresource);
    of_part.filter_map(|manager| Some(manager.time.as_ref()?.0)).max()
}

/// Names the policy that claims an object, with its kind. A ClusterPropagationPolicy keeps what it has claimed (fact 67).
pub fn claimant(policy: Option<&str>, cluster_policy: Option<&str>) -> Option<String> {
    let cluster_policy = cluster_policy.map(|name| format!("ClusterPropagationPolicy {name}"));
    cluster_policy.or_else(|| policy.map(|name| format!("PropagationPolicy {name}")))
}

/// Returns the data refs in Karmada's record of dependencies, a JSON array of object references.
fn dependencies(text: &str) -> Vec<DataRef> {
    let list: Vec<BTreeMap<String, Value>> = serde_json::from_str(text).unwrap_or_default();
    let field = |entry: &BTreeMap<String, Value>, key: &str| {
        entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    list.iter().filter_map(|entry| format!("{}/{}", field(entry, "kind"), field(entry, "name")).parse().ok()).collect()
}

/// Facts of a companion's binding as one deployment sees it. Facts of other deployments are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedBinding {
    /// Clusters that the companion's binding itself is scheduled to.
    pub clusters: Vec<String>,
    /// Clusters that the companion goes to because the deployment needs it.
    pub needed_on: Vec<String>,
    /// Result of the companion's apply on each cluster of the deployment. The error is Karmada's message.
    pub applied: BTreeMap<String, Result<(), String>>,
    /// Parts of the binding that are suspended.
    #[serde(default)]
    pub suspension: Suspension,
    /// True if it is terminating.
    pub terminating: bool,
}

impl AttachedBinding {
    /// Returns the facts for the deployment with the binding `parent`, which goes to `clusters`.
    pub fn of(facts: &BindingFacts, parent: &str, clusters: &[String]) -> Self {
        let needed = facts.needed_by(parent);
        let taken = |name: &String| Some((name.clone(), facts.applied.get(name)?.clone()));
        Self {
            clusters: facts.clusters.to_vec(),
            needed_on: needed.into_iter().flat_map(|by| &by.clusters).map(|cluster| cluster.name.clone()).collect(),
            applied: clusters.iter().filter_map(taken).collect(),
            suspension: (*facts.suspension).clone(),
            terminating: facts.terminating,
        }
    }
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
