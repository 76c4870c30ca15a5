//! The place of a city in one hub namespace: the bindings that its policy claimed, and the transfer that its policy records.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::{
    karmada::{PolicyPlacement, PropagationPolicy},
    meta::annotation,
};
use crate::plan::management::observed::{cluster::ClusterFacts, facts::BindingFacts, placement::MOVING_GROUP_PREFIX};

/// The place of a city in one hub namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementStatus {
    /// The city's share of each cluster.
    pub on: BTreeMap<String, ClusterShare>,
    /// The transfer that the policy asks for.
    pub transfer: Option<Transfer>,
    /// The clusters on which the city did not arrive, as the policy records it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, Failure>,
    /// The problem that blocks writes of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_trouble: Option<PolicyTrouble>,
}

/// The state of a namespace before its transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// True if an Instance was programmed.
    pub ran: bool,
    /// Deployments that were applied.
    pub applied: usize,
}

impl Before {
    /// The strictest state, if the state before is unknown.
    pub const FULL: Self = Self { ran: true, applied: usize::MAX };
}

/// Prefix of the name of an attempt to bring a namespace back.
const BACK: &str = "back-";

/// From which cluster to which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The cluster that the namespace leaves.
    pub from: String,
    /// The cluster that it goes to.
    pub to: String,
}

/// A transfer that a policy asks Karmada for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Source and target cluster.
    pub route: Route,
    /// Name of the attempt, at most 24 characters. Karmada's scheduler only tries again under a new name.
    pub attempt: String,
    /// Its record on the policy.
    pub record: Record,
}

/// The record of a transfer on its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When the transfer was first requested.
    pub requested: Timestamp,
    /// When the scheduler was asked last.
    pub asked: Timestamp,
    /// When its time to arrive began: with the last request before anything left.
    pub since: Timestamp,
    /// The state before the transfer.
    #[serde(flatten)]
    pub before: Before,
}

/// A failed transfer, because of which nothing more is sent to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The cluster's label and taints when it failed: once these change, it may be tried again.
    pub marks: String,
    /// The problem, for people.
    pub why: String,
    /// Time of the failure. Policies of an earlier version do not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

impl Failure {
    /// True if it still counts: the cluster is as it was, and the drain was not recalled since.
    pub fn counts(&self, cluster: Option<&ClusterFacts>, recalled: Option<Timestamp>) -> bool {
        let recalled = recalled.is_some_and(|recalled| self.at.is_none_or(|at| at <= recalled));
        !recalled && cluster.is_some_and(|now| now.marks() == self.marks)
    }
}

impl Transfer {
    /// The transfer that a policy asks for. If its record is missing, its time began with the attempt, which is named after it.
    pub fn of(policy: &PropagationPolicy, now: Timestamp) -> Option<Self> {
        let (route, attempt) = groups(&policy.spec.placement)?;
        let record = policy.annotations().get(annotation::DRAIN_TRANSFER);
        let record = record.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| {
            let named =
                attempt.trim_start_matches(BACK).parse().ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
            Record::begin(named.unwrap_or(now), Before::FULL)
        });
        Some(Self { route, attempt, record })
    }

    /// Returns a transfer that is requested now.
    pub(super) fn begin(route: Route, is_back: bool, before: Before, now: Timestamp) -> Self {
        Self { route, attempt: attempt(is_back, now), record: Record::begin(now, before) }
    }

    /// True if it returns a namespace that did not arrive.
    pub fn is_back(&self) -> bool {
        self.attempt.starts_with(BACK)
    }

    /// The same transfer under another name.
    pub(super) fn again(&self, now: Timestamp) -> Self {
        let record = Record { asked: now, ..self.record };
        Self { route: self.route.clone(), attempt: attempt(self.is_back(), now), record }
    }

    /// The same transfer, with a time to arrive that begins now.
    #[must_use]
    pub(super) fn counted_from(mut self, now: Timestamp) -> Self {
        self.record.since = now;
        self
    }

    /// The record, as the policy carries it.
    pub fn recorded(&self) -> String {
        json!(self.record).to_string()
    }
}

impl Record {
    fn begin(now: Timestamp, before: Before) -> Self {
        Self { requested: now, asked: now, since: now, before }
    }
}

/// A name that no attempt of the same policy has had before.
fn attempt(is_back: bool, now: Timestamp) -> String {
    format!("{}{}", if is_back { BACK } else { "" }, now.as_millisecond())
}

/// The route that a placement asks for, and the name of the attempt.
fn groups(placement: &PolicyPlacement) -> Option<(Route, String)> {
    let [first, second] = placement.cluster_affinities.as_deref()? else { return None };
    let attempt = first.affinity_name.strip_prefix(MOVING_GROUP_PREFIX)?.to_owned();
    let ([to], [from]) = (&first.group.cluster_names[..], &second.group.cluster_names[..]) else { return None };
    Some((Route { from: from.clone(), to: to.clone() }, attempt))
}

/// The clusters on which a namespace did not arrive, as its policy records it.
fn failed(policy: &PropagationPolicy) -> BTreeMap<String, Failure> {
    let text = policy.annotations().get(annotation::DRAIN_FAILED);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// A problem that blocks writes of a city's policy, so that Karmada does not get the decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyTrouble {
    /// The policy cannot be read, and is not changed.
    Unreadable,
    /// The policy is terminating. It is recreated after its deletion.
    Leaving,
    /// The place of the city is unknown; the reason.
    Unknown(String),
    /// The hub rejected the last write; its message.
    Refused(String),
}

impl PolicyTrouble {
    /// The message.
    pub fn words(&self) -> String {
        match self {
            Self::Unreadable => "this operator cannot read its PropagationPolicy, and does not change it".to_owned(),
            Self::Leaving => {
                "its PropagationPolicy is terminating, and a finalizer of another owner blocks its deletion".to_owned()
            }
            Self::Unknown(why) => format!("its PropagationPolicy is not changed: {why}"),
            Self::Refused(words) => format!("the hub rejects its PropagationPolicy: {words}"),
        }
    }
}

/// The share of a cluster in a city, in one hub namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterShare {
    /// Bindings that go there.
    pub bindings: usize,
    /// Bindings that the cluster has applied.
    pub applied: usize,
    /// Bindings with suspended scheduling.
    pub suspended: usize,
    /// Bindings that go to other clusters as well.
    #[serde(default)]
    pub shared: usize,
    /// Bindings without a report of the cell: the number of their Instances is unknown.
    pub unreported: usize,
    /// Desired Instances.
    pub desired: i64,
    /// Programmed Instances.
    pub current: i64,
}

impl ClusterShare {
    /// Counts one binding that goes to this cluster.
    pub fn add(&mut self, binding: &BindingFacts, cluster: &str) {
        let reported = binding.replicas.get(cluster).copied();
        let replicas = reported.unwrap_or_default();
        self.bindings += 1;
        self.applied += usize::from(binding.applied.get(cluster) == Some(&Ok(())));
        self.suspended += usize::from(binding.suspension.stops_scheduling());
        self.shared += usize::from(binding.clusters.len() > 1);
        self.unreported += usize::from(reported.is_none());
        self.desired += replicas.desired;
        self.current += replicas.current;
    }
}

impl PlacementStatus {
    /// The part that the city's policy records.
    pub fn of_policy(policy: &PropagationPolicy, now: Timestamp) -> Self {
        let leaving = policy.metadata.deletion_timestamp.is_some();
        Self {
            transfer: Transfer::of(policy, now),
            failed: failed(policy),
            policy_trouble: leaving.then_some(PolicyTrouble::Leaving),
            ..Self::default()
        }
    }

    /// Adds the clusters of a binding.
    #[must_use]
    pub fn with(mut self, binding: &BindingFacts) -> Self {
        for cluster in &binding.clusters {
            self.on.entry(cluster.clone()).or_default().add(binding, cluster);
        }
        self
    }

    /// True if everything is on this cluster, and on no other.
    pub fn is_complete_on(&self, cluster: &str) -> bool {
        self.on.keys().all(|name| name == cluster)
    }

    /// True if something is on this cluster.
    pub fn has(&self, cluster: &str) -> bool {
        self.on.contains_key(cluster)
    }

    /// True if everything is on this cluster. It may be on others as well.
    pub fn is_wholly_on(&self, cluster: &str) -> bool {
        self.has(cluster) && self.on.iter().all(|(name, there)| name == cluster || there.shared == there.bindings)
    }

    /// True if something has left the first cluster of a route for the second.
    pub fn has_begun(&self, route: &Route) -> bool {
        self.has(&route.to) && !self.is_wholly_on(&route.from)
    }

    /// True if a binding goes to several clusters.
    pub fn is_shared(&self) -> bool {
        self.on.values().any(|there| there.shared > 0)
    }

    /// The present state, as the measure of a later arrival. A shared binding counts on each cluster.
    pub fn before(&self) -> Before {
        let applied = self.on.values().map(|there| there.applied);
        let applied = if self.is_shared() { applied.max().unwrap_or_default() } else { applied.sum() };
        Before { ran: self.sum(|there| there.current) > 0, applied }
    }

    /// Why a shared namespace may not be left to this cluster alone, while it leaves `from`. `None` if it may, or if the cluster has
    /// nothing of it yet.
    pub fn unproved(&self, to: &str, from: &BTreeSet<String>) -> Option<String> {
        if !self.is_shared() {
            return None;
        }
        let others = self.on.keys().filter(|name| *name != to && !from.contains(*name));
        let others: Vec<&str> = others.map(String::as_str).collect();
        if !others.is_empty() {
            return Some(format!(
                "its deployments also run on {}, and no owner has decided which cluster keeps them",
                others.join(", ")
            ));
        }
        self.lacking(to, self.before()).filter(|_| self.has(to))
    }

    /// The sum of something over all clusters.
    pub fn sum<N: std::iter::Sum>(&self, of: impl Fn(&ClusterShare) -> N) -> N {
        self.on.values().map(of).sum()
    }

    /// Why it has not arrived on this cluster; `None` if it has.
    pub fn missing(&self, cluster: &str, before: Before) -> Option<String> {
        if let Some((elsewhere, there)) = self.on.iter().find(|(name, _)| *name != cluster) {
            return Some(format!("{} deployment(s) are still on {elsewhere}", there.bindings));
        }
        self.lacking(cluster, before)
    }

    /// The gap of this cluster, compared with the state before. `None` if there is no gap. Other clusters do not count.
    fn lacking(&self, cluster: &str, before: Before) -> Option<String> {
        let there = self.on.get(cluster).copied().unwrap_or_default();
        // Deployments that were applied nowhere before need not be applied here.
        let wanted = before.applied.min(there.bindings);
        if there.applied < wanted {
            let missing = wanted - there.applied;
            return Some(format!("{missing} of {} deployment(s) are not applied on {cluster}", there.bindings));
        }
        if !before.ran || there.current > 0 {
            return None;
        }
        if there.unreported > 0 {
            return Some(format!("{cluster} has not reported on {} deployment(s)", there.unreported));
        }
        (there.desired > 0).then(|| format!("none of {} instance(s) is programmed on {cluster}", there.desired))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::plan::management::observed::facts::Replicas;

    #[test]
    fn share_of_a_silent_cluster_is_unknown() {
        let taken = || BindingFacts { applied: [("b".to_owned(), Ok(()))].into(), ..BindingFacts::default() };
        let reported = |desired, current| BindingFacts {
            replicas: [("b".to_owned(), Replicas { desired, current })].into(),
            ..taken()
        };
        let refused =
            BindingFacts { applied: [("b".to_owned(), Err("no".to_owned()))].into(), ..BindingFacts::default() };
        let mut there = ClusterShare::default();
        for binding in [taken(), reported(3, 1), reported(0, 0), refused] {
            there.add(&binding, "b");
        }
        let expected =
            ClusterShare { bindings: 4, applied: 3, suspended: 0, shared: 0, unreported: 2, desired: 3, current: 1 };
        assert_eq!(there, expected);
    }

    /// Two large numbers of a cell overflowed their sum.
    #[test]
    fn share_with_extreme_numbers_does_not_overflow() {
        let mut there = ClusterShare::default();
        for (desired, current) in [(i64::MAX, i64::MAX), (i64::MAX, i64::MIN)] {
            let status = json!({ "desiredReplicas": desired, "currentReplicas": current });
            let replicas = [("b".to_owned(), Replicas::of(&status).unwrap())].into();
            there.add(&BindingFacts { replicas, ..BindingFacts::default() }, "b");
        }
        assert_eq!((there.desired, there.current), (2 * i64::from(i32::MAX), i64::from(i32::MAX)));
    }

    /// Every moving city returned from the new cluster if a suspended project had no running Instances there.
    #[test]
    fn suspended_deployment_arrives_without_an_instance() {
        let missing = |statuses: &[Value]| {
            let mut there = ClusterShare::default();
            for status in statuses {
                let item = json!({ "clusterName": "b", "applied": true, "status": status });
                let binding = json!({
                    "metadata": { "namespace": "ns-1", "name": "web" },
                    "spec": {
                        "resource": { "kind": "WorkloadDeployment", "name": "web" }, "clusters": [{ "name": "b" }],
                    },
                    "status": { "aggregatedStatus": [item] },
                });
                there.add(&BindingFacts::of(serde_json::from_value(binding).unwrap()), "b");
            }
            let places = PlacementStatus { on: [("b".to_owned(), there)].into(), ..PlacementStatus::default() };
            places.missing("b", Before { ran: true, applied: statuses.len() })
        };
        let reported = |current: u64, suspended: Value| json!({ "desiredReplicas": 2, "currentReplicas": current, "suspended": suspended });
        let (stopped, running) = (reported(0, json!(true)), reported(1, Value::Null));
        let awaited = || Some("none of 2 instance(s) is programmed on b".to_owned());
        for (statuses, expected) in [
            (vec![stopped.clone()], None),
            (vec![reported(0, json!(false))], awaited()),
            (vec![reported(0, Value::Null)], awaited()),
            (vec![stopped.clone(), reported(0, Value::Null)], awaited()),
            (vec![stopped.clone(), running], None),
            (vec![stopped, json!({})], Some("b has not reported on 1 deployment(s)".to_owned())),
        ] {
            assert_eq!(missing(&statuses), expected, "{statuses:?}");
        }
    }
}
