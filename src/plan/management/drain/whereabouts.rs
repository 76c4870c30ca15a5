//! Where a city is, and where it is on its way to: what the moves of cities are decided by, and what is remembered of them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::attempt::Before;
use crate::api::{karmada::PropagationPolicy, meta::annotation};
use crate::plan::management::{city_policy::guard::Transfer, observed::facts::BindingFacts};

/// Where a city is in one hub namespace: the bindings that its policy claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// What is on each cluster.
    pub on: BTreeMap<String, Presence>,
    /// The move that its policy stands for.
    pub standing: Option<Transfer>,
    /// The clusters on which it did not arrive, as its policy says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, Failure>,
    /// What keeps its policy from being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_trouble: Option<PolicyTrouble>,
}

/// What keeps a city's policy from being written, so that Karmada has not been asked for what is decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyTrouble {
    /// It cannot be read, and is left as it is.
    Unreadable,
    /// It is on its way out: it is made anew when it is gone.
    Leaving,
    /// It is not known where the city is; why, in words.
    Unknown(String),
    /// The hub did not take the last write; in its words.
    Refused(String),
}

impl PolicyTrouble {
    /// The same in words.
    pub fn words(&self) -> String {
        match self {
            Self::Unreadable => "this operator cannot read its PropagationPolicy, and leaves it as it is".to_owned(),
            Self::Leaving => "its PropagationPolicy is being deleted, and somebody's finalizer holds it".to_owned(),
            Self::Unknown(why) => format!("its PropagationPolicy stays as it is: {why}"),
            Self::Refused(words) => format!("the hub does not take its PropagationPolicy: {words}"),
        }
    }
}

/// What a city has on one cluster, in one hub namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Bindings that go there.
    pub bindings: usize,
    /// Of these, how many the cluster has taken.
    pub applied: usize,
    /// Of these, how many nobody schedules elsewhere because somebody has suspended that.
    pub suspended: usize,
    /// Of these, how many go to other clusters as well.
    #[serde(default)]
    pub shared: usize,
    /// Of these, how many no cell has reported on yet: how many Instances are asked for there is not known.
    pub unreported: usize,
    /// Instances that are asked for there.
    pub desired: i64,
    /// Instances that are programmed there.
    pub current: i64,
}

impl Presence {
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

impl Whereabouts {
    /// What a city's policy says of it; what is on each cluster is not said there.
    pub fn of_policy(policy: &PropagationPolicy) -> Self {
        let failed = policy.annotations().get(annotation::DRAIN_FAILED);
        let failed = failed.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let standing = Transfer::of(&policy.spec.placement);
        let leaving = policy.metadata.deletion_timestamp.is_some();
        Self { standing, failed, policy_trouble: leaving.then_some(PolicyTrouble::Leaving), ..Self::default() }
    }

    /// Whether everything is on this cluster.
    pub fn is_complete_on(&self, cluster: &str) -> bool {
        self.on.keys().all(|name| name == cluster)
    }

    /// Whether something is on this cluster.
    pub fn has(&self, cluster: &str) -> bool {
        self.on.contains_key(cluster)
    }

    /// Whether everything is on this cluster, be it elsewhere as well or not.
    pub fn is_wholly_on(&self, cluster: &str) -> bool {
        self.has(cluster) && self.on.iter().all(|(name, there)| name == cluster || there.shared == there.bindings)
    }

    /// Whether something has left a cluster for another one.
    pub fn has_begun(&self, transfer: &Transfer) -> bool {
        self.has(&transfer.to) && !self.is_wholly_on(&transfer.from)
    }

    /// Whether some of it runs on several clusters at once.
    pub fn is_shared(&self) -> bool {
        self.on.values().any(|there| there.shared > 0)
    }

    /// How it is now, for what comes of it elsewhere to be measured by. What several clusters have is counted on each.
    pub fn before(&self) -> Before {
        let applied = self.on.values().map(|there| there.applied);
        let applied = if self.is_shared() { applied.max().unwrap_or_default() } else { applied.sum() };
        Before { ran: self.sum(|there| there.current) > 0, applied }
    }

    /// Why the part of it that several clusters have may not be left to this one, while it leaves others; nothing where it may, or
    /// where that one has nothing yet. The proof is there before anything is given up.
    pub fn unproved(&self, to: &str, from: &BTreeSet<String>) -> Option<String> {
        if !self.is_shared() {
            return None;
        }
        let others = self.on.keys().filter(|name| *name != to && !from.contains(*name));
        let others: Vec<&str> = others.map(String::as_str).collect();
        if !others.is_empty() {
            return Some(format!(
                "what runs there runs on {} as well, and nobody has said which is to have it",
                others.join(", ")
            ));
        }
        self.lacking(to, self.before()).filter(|_| self.has(to))
    }

    /// The sum of something over all clusters.
    pub fn sum<N: std::iter::Sum>(&self, of: impl Fn(&Presence) -> N) -> N {
        self.on.values().map(of).sum()
    }

    /// Why it has not arrived on this cluster, after it was like this; nothing when it has.
    pub fn missing(&self, cluster: &str, before: Before) -> Option<String> {
        if let Some((elsewhere, there)) = self.on.iter().find(|(name, _)| *name != cluster) {
            return Some(format!("{} deployment(s) are still on {elsewhere}", there.bindings));
        }
        self.lacking(cluster, before)
    }

    /// What is not in order on this cluster, whatever is elsewhere, after it was like this; nothing when all is.
    fn lacking(&self, cluster: &str, before: Before) -> Option<String> {
        let there = self.on.get(cluster).copied().unwrap_or_default();
        // What no cluster took before is not to be taken by this one.
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

/// A city that leaves a cluster, or is to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The clusters that it leaves.
    pub from: BTreeSet<String>,
    /// The cluster that takes it; nothing while there is none.
    pub to: Option<String>,
    /// The namespaces that are on their way.
    pub transfers: BTreeMap<String, UnderWay>,
    /// The namespaces that did not begin to move in time, and so gave their place to others, until they begin.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub aside: BTreeMap<String, Aside>,
    /// Where the city begins in a namespace that does not have it yet.
    pub home: Option<String>,
    /// Since when it has been said that what does not arrive could not come back; nothing where it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_way: Option<Timestamp>,
    /// What it waits for, in words.
    pub waits: Option<String>,
    /// What went wrong, by the cluster on which it did not arrive.
    pub failed: BTreeMap<String, Failure>,
}

impl Move {
    /// The clusters on which it is told what it waits for: those that it leaves, and those between which a namespace is.
    pub fn concerned(&self) -> BTreeSet<&str> {
        let between = self.transfers.values().flat_map(|of| [&of.transfer.from, &of.transfer.to]);
        self.from.iter().chain(between).map(String::as_str).collect()
    }
}

/// A namespace's part of a city, on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    /// From where, and where to.
    pub transfer: Transfer,
    /// When it got its place among those that are under way.
    pub admitted: Timestamp,
    /// When it was sent: of what has not begun to move, when the scheduler was asked last.
    pub since: Timestamp,
    /// When the scheduler was asked last.
    pub asked: Timestamp,
    /// How it was before.
    pub before: Before,
    /// What is told of it, since the scheduler has left it where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
}

impl UnderWay {
    /// One that is sent now.
    pub fn begin(transfer: Transfer, before: Before, now: Timestamp) -> Self {
        Self { transfer, admitted: now, since: now, asked: now, before, told: None }
    }
}

/// A namespace's part of a city that did not begin to move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    /// The move that it was to be.
    pub of: UnderWay,
    /// When its place was given to others.
    pub since: Timestamp,
    /// Why it had not begun, in words.
    pub why: String,
}

/// Why nothing more is sent to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The hub namespace whose part of the city did not arrive: its policy says so to managers that come after.
    pub namespace: String,
    /// What people had said of it, when it failed: once that changes, it may be tried again.
    pub marks: String,
    /// What went wrong, in words.
    pub why: String,
}

impl Move {
    /// The metric's label: whether it waits, has failed, or goes on.
    pub fn state(&self) -> &'static str {
        match (self.why_failed(), &self.waits) {
            (Some(_), _) => "failed",
            (None, Some(_)) => "waiting",
            (None, None) => "moving",
        }
    }

    /// What went wrong on each cluster, in words; nothing where nothing did.
    pub fn why_failed(&self) -> Option<String> {
        let all: Vec<&str> = self.failed.values().map(|failure| failure.why.as_str()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// The metric's labels.
    pub const STATES: [&'static str; 3] = ["failed", "waiting", "moving"];

    /// The clusters on which a hub namespace's part did not arrive, as its policy is to say.
    pub fn failed_of(&self, namespace: &str) -> Option<String> {
        let failed = self.failed.iter().filter(|(_, failure)| failure.namespace == namespace);
        let failed: BTreeMap<&String, &Failure> = failed.collect();
        (!failed.is_empty()).then(|| json!(failed).to_string())
    }

    /// Whether a hub namespace is to move, and where.
    pub fn transfer(&self, namespace: &str) -> Option<&Transfer> {
        self.transfers.get(namespace).map(|of| &of.transfer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::plan::management::observed::facts::Replicas;

    #[test]
    fn what_a_binding_does_not_say_of_a_cluster_is_not_known_there() {
        let taken = || BindingFacts { applied: [("b".to_owned(), Ok(()))].into(), ..BindingFacts::default() };
        let reported = |desired, current| BindingFacts {
            replicas: [("b".to_owned(), Replicas { desired, current })].into(),
            ..taken()
        };
        let refused =
            BindingFacts { applied: [("b".to_owned(), Err("no".to_owned()))].into(), ..BindingFacts::default() };
        let mut there = Presence::default();
        for binding in [taken(), reported(3, 1), reported(0, 0), refused] {
            there.add(&binding, "b");
        }
        let expected =
            Presence { bindings: 4, applied: 3, suspended: 0, shared: 0, unreported: 2, desired: 3, current: 1 };
        assert_eq!(there, expected);
    }

    /// Found by reading: cells report the numbers, whatever they are, and two of them were too much for their sum.
    #[test]
    fn what_a_cell_makes_up_does_not_break_the_sums() {
        let mut there = Presence::default();
        for (desired, current) in [(i64::MAX, i64::MAX), (i64::MAX, i64::MIN)] {
            let status = json!({ "desiredReplicas": desired, "currentReplicas": current });
            let replicas = [("b".to_owned(), Replicas::of(&status).unwrap())].into();
            there.add(&BindingFacts { replicas, ..BindingFacts::default() }, "b");
        }
        assert_eq!((there.desired, there.current), (2 * i64::from(i32::MAX), i64::from(i32::MAX)));
    }

    /// Found by reading: a project that was suspended turned back every city that moved, since none of its Instances came up.
    #[test]
    fn what_is_suspended_has_arrived_without_an_instance() {
        let missing = |statuses: &[Value]| {
            let mut there = Presence::default();
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
            let places = Whereabouts { on: [("b".to_owned(), there)].into(), ..Whereabouts::default() };
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
