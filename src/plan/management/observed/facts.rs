//! What is kept of bindings and companions, as far as a decision depends on it, and what of it one deployment sees.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube::{ResourceExt, core::ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use super::{
    companion_facts::{CompanionFacts, Going, Need, SharedCompanion, cluster_policy, holders},
    phase::{Phase, selects_companions},
    replicas::Replicas,
};
pub use crate::api::names::Template;
use crate::plan::management::{
    city_policy::guard,
    referenced_data::foreign_claim::{self, ClaimIds, ForeignClaim},
};
use crate::{
    api::{
        karmada::{BindingSnapshot, PolicyPlacement, ResourceBinding, Suspension},
        meta::{annotation, finalizer},
        names::{CityCode, CityPolicyName},
        referenced::DataRef,
    },
    plan::Shared,
};

/// Condition `Scheduled` of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scheduled {
    /// Whether it is `True`.
    pub succeeded: bool,
    /// Karmada's reason.
    pub reason: String,
    /// Karmada's message.
    pub message: String,
}

/// What is kept of a binding.
#[allow(clippy::struct_excessive_bools)] // facts, each its own
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingFacts {
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// When something other than its status was written last, as far as its managers say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Timestamp>,
    /// What it was made for.
    pub template: Template,
    /// Of a deployment's: the resourceVersion of the copy that Karmada made it of last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
    /// The PropagationPolicy that claims the template.
    pub policy: Option<Arc<str>>,
    /// The ClusterPropagationPolicy that claims it: its name, or its id where no name stands (fact 67).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_policy: Option<String>,
    /// The ids of both, of a companion's binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ids: Option<Box<ClaimIds>>,
    /// Whether it has a placement of its own, or the mark of one that it was scheduled by: one that only follows others
    /// has neither (facts 15, 58).
    #[serde(default)]
    pub placed: bool,
    /// Digest of its placement, of a deployment's binding.
    #[serde(default)]
    pub placement: Option<Arc<str>>,
    /// Digest of the placement that the scheduler has scheduled it by, which may be an earlier one.
    #[serde(default)]
    pub scheduled_by: Option<Arc<str>>,
    /// The city whose policy made that placement, as far as its form shows.
    #[serde(default)]
    pub scheduled_for: Option<CityCode>,
    /// Where the template goes on its own account.
    pub clusters: Shared<Vec<String>>,
    /// The bindings that need it, sorted by name, and where they go.
    pub required_by: Vec<BindingSnapshot>,
    /// What the scheduler says of it; `None` while it has not looked at it.
    pub scheduled: Shared<Option<Scheduled>>,
    /// Of each cluster, whether it took it; if not, in Karmada's words.
    pub applied: Shared<BTreeMap<String, Result<(), String>>>,
    /// Of each cluster, how many Instances a deployment has there.
    pub replicas: Shared<BTreeMap<String, Replicas>>,
    /// Whether what the template depends on is to follow it.
    pub propagates: bool,
    /// Whether Karmada's dependency distributor has taken it up (fact 37).
    pub distributed: bool,
    /// What Karmada understood that the template depends on; `None` when it did not say (fact 38).
    pub dependencies: Shared<Option<Vec<DataRef>>>,
    /// What somebody has stopped of it.
    #[serde(default)]
    pub suspension: Shared<Suspension>,
    /// True if Karmada takes it from a cluster and leaves it there for the time being (fact 81).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evicting: bool,
    /// Whether it is on its way out.
    pub terminating: bool,
}

/// Stands for what a cluster says of a ConfigMap or Secret that it refuses.
pub(crate) const WITHHELD: &str = "the cluster refuses it, in words that may quote a value";

/// Karmada repeats the cluster's answer in full, and the cluster that of its webhooks and policies, which have seen the data. So
/// none of it is kept: conditions, Events and annotations are read by more people than Secrets are. No words stay none.
fn without_values(message: String) -> String {
    if message.is_empty() { message } else { WITHHELD.to_owned() }
}

impl BindingFacts {
    /// From a binding. What others own of it is dropped.
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
            placement: placement.as_ref().map(|placement| guard::digest(placement).into()),
            scheduled_for: scheduled_by.as_ref().and_then(guard::made_for),
            scheduled_by: scheduled_by.as_ref().map(|placement| guard::digest(placement).into()),
            clusters: binding.spec.clusters.into_iter().map(|c| c.name).collect::<Vec<_>>().into(),
            required_by,
            propagates: binding.spec.propagate_deps,
            scheduled: scheduled
                .map(|c| Scheduled { succeeded: c.status == "True", reason: c.reason, message: c.message })
                .into(),
            applied: applied.into(),
            distributed,
            dependencies: dependencies.into(),
            suspension: binding.spec.suspension.unwrap_or_default().into(),
            evicting: !binding.spec.graceful_eviction_tasks.is_empty(),
            terminating,
        }
    }

    /// Whether it says what `other` says, be it of another version.
    pub fn says_the_same(&self, other: &Self) -> bool {
        // Each field is named, so that a new one cannot be forgotten; nothing is copied, for thousands may need it.
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
            && (propagates, distributed, dependencies) == (&other.propagates, &other.distributed, &other.dependencies)
            && (suspension, evicting, terminating) == (&other.suspension, &other.evicting, &other.terminating)
    }

    /// How the binding of this name needs it. Thousands may, and each of them asks.
    pub fn needed_by(&self, binding: &str) -> Option<&BindingSnapshot> {
        let at = self.required_by.binary_search_by(|by| by.name.as_str().cmp(binding)).ok()?;
        self.required_by.get(at)
    }

    /// The cities whose policies have, or had, it where it is.
    pub fn cities(&self) -> BTreeSet<CityCode> {
        let claimed = self.policy.as_deref().and_then(CityPolicyName::parse);
        claimed.into_iter().chain(self.scheduled_for.clone()).collect()
    }

    /// Whether it goes anywhere on its own account, or may: one that only follows others does not.
    pub fn has_own_place(&self) -> bool {
        self.policy.is_some() || self.cluster_policy.is_some() || self.placed || !self.clusters.is_empty()
    }

    /// The claims of policies that are not a city's, of a companion's binding; `None` where one names no policy.
    pub fn foreign_claims(&self) -> Option<Vec<ForeignClaim>> {
        foreign_claim::all(self.policy.as_deref(), self.cluster_policy.as_deref(), self.claim_ids.as_deref())
    }

    /// Whether this PropagationPolicy claims the template, and no other policy does.
    pub fn is_claimed_by(&self, policy: &str) -> bool {
        self.cluster_policy.is_none() && self.policy.as_deref() == Some(policy)
    }

    /// Whether a city's policy has it where it is: it claims it, or did until it was removed and what it asked for stands.
    pub fn is_of_city(&self, city: &CityCode) -> bool {
        let orphaned = self.policy.is_none() && self.cluster_policy.is_none();
        self.is_claimed_by(&city.policy_name()) || orphaned && self.scheduled_for.as_ref() == Some(city)
    }

    /// Whether the scheduler has done what this placement, by its digest, asks for, and nothing newer is on its way.
    pub fn is_scheduled_by(&self, placement: &str) -> bool {
        self.placement.as_deref() == Some(placement) && self.scheduled_by.as_deref() == Some(placement)
    }

    /// Whether it shows that Karmada on this hub brings dependencies: without the feature the distributor does not take it
    /// up, without the interpreter's script it has no record of them (facts 37, 38).
    pub fn shows_dependencies(&self) -> bool {
        self.propagates && self.distributed && self.dependencies.is_some() && !self.terminating
    }
}

/// Of each binding that a city's policy has somewhere: the clusters that it goes to; and whether what the policy asks for now,
/// as the digest `asked` of its placement says, is on its way: where that ends is not known yet. One that somebody keeps from
/// being scheduled is where it is.
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

/// When something of an object was written last, as far as its managers say: its status, or everything else.
pub(super) fn written(meta: &ObjectMeta, subresource: Option<&str>) -> Option<Timestamp> {
    let of_part = meta.managed_fields.iter().flatten().filter(|manager| manager.subresource.as_deref() == subresource);
    of_part.filter_map(|manager| Some(manager.time.as_ref()?.0)).max()
}

/// Whoever claims, by kind and name; a ClusterPropagationPolicy that has claimed something keeps it (fact 67).
pub fn claimant(policy: Option<&str>, cluster_policy: Option<&str>) -> Option<String> {
    let cluster_policy = cluster_policy.map(|name| format!("ClusterPropagationPolicy {name}"));
    cluster_policy.or_else(|| policy.map(|name| format!("PropagationPolicy {name}")))
}

/// The references to data in Karmada's record of dependencies, a JSON array of object references.
fn dependencies(text: &str) -> Vec<DataRef> {
    let list: Vec<BTreeMap<String, Value>> = serde_json::from_str(text).unwrap_or_default();
    let field = |entry: &BTreeMap<String, Value>, key: &str| {
        entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    list.iter().filter_map(|entry| format!("{}/{}", field(entry, "kind"), field(entry, "name")).parse().ok()).collect()
}

/// What one deployment sees of a companion's binding. Of the other deployments that need it, nothing is gathered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedBinding {
    /// Where the companion goes on its own account.
    pub clusters: Vec<String>,
    /// Where it goes because the deployment needs it.
    pub needed_on: Vec<String>,
    /// Of each cluster that the deployment goes to, whether it took the companion; if not, in Karmada's words.
    pub applied: BTreeMap<String, Result<(), String>>,
    /// What somebody has stopped of it.
    #[serde(default)]
    pub suspension: Suspension,
    /// Whether it is on its way out.
    pub terminating: bool,
}

impl AttachedBinding {
    /// As the deployment sees it whose own binding has this name and goes to these clusters.
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
