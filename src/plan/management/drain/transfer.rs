//! The transfer of a city's part in one hub namespace from one cluster to another. Its stage is read off the policy and
//! its bindings; `docs/city.md` draws the stages.
//!
//! The policy carries everything that is needed later. Its two groups name the clusters. Two annotations record the time of the
//! transfer, the state before, and the clusters on which the namespace did not arrive.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::placement_status::{Before, Failure, PlacementStatus, Route, Transfer};
use crate::plan::management::observed::cluster::ClusterFacts;
use crate::{api::names::CityCode, timing::Timing};

/// The stage of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The namespace stays where it is.
    Resting,
    /// The scheduler is asked to move it, and nothing has left yet.
    Requested,
    /// Something has left for the other cluster, and has not proved to run there.
    Moving,
    /// The namespace did not arrive, and returns.
    Returning,
}

/// The instruction of the drain of a city to one hub namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instruction {
    /// True if the city leaves a cluster. Otherwise nothing more leaves, and namespaces that are half-way arrive.
    pub is_draining: bool,
    /// The route that the namespace may take now.
    pub go: Option<Route>,
    /// The cluster on which the city begins in a namespace that does not have it yet.
    pub home: Option<String>,
    /// When the drain was last recalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalled: Option<Timestamp>,
}

/// The transfer and the failures that the policy of a namespace is to carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// The transfer; `None` if the namespace stays where it is.
    pub transfer: Option<Transfer>,
    /// The clusters on which the namespace did not arrive.
    pub failed: BTreeMap<String, Failure>,
}

/// The facts that decide a transfer, besides its policy.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The hub namespace.
    pub namespace: &'a str,
    /// The city.
    pub city: &'a CityCode,
    /// The clusters of its route, at least.
    pub clusters: &'a BTreeMap<String, ClusterFacts>,
    /// The instruction of the drain.
    pub instruction: &'a Instruction,
    /// Periods.
    pub timing: &'a Timing,
    /// The present.
    pub now: Timestamp,
}

impl PlacementStatus {
    /// The stage of the namespace.
    pub fn stage(&self) -> Stage {
        match &self.transfer {
            None => Stage::Resting,
            Some(of) if of.is_back() => Stage::Returning,
            Some(of) if self.has_begun(&of.route) => Stage::Moving,
            Some(_) => Stage::Requested,
        }
    }

    /// True if the transfer has reached its end. Only a namespace that leaves a cluster for good has to prove that it runs.
    pub fn has_arrived(&self, of: &Transfer, is_draining: bool) -> bool {
        if of.is_back() || !is_draining {
            return self.is_complete_on(&of.route.to);
        }
        self.missing(&of.route.to, of.record.before).is_none()
    }
}

/// Decides the next state of the transfer of a namespace.
pub fn next(status: &PlacementStatus, context: &Context<'_>) -> Next {
    let recalled = context.instruction.recalled;
    let mut failed = status.failed.clone();
    failed.retain(|cluster, failure| failure.counts(context.clusters.get(cluster), recalled));
    let transfer = match (&status.transfer, status.stage()) {
        (Some(of), Stage::Requested) => context.requested(status, of, &failed),
        (Some(of), Stage::Moving) => context.moving(status, of, &mut failed),
        (Some(of), Stage::Returning) => context.returning(status, of),
        _ => context.begin(status, &failed),
    };
    if transfer.is_none() && !context.is_draining(status) {
        failed.clear();
    }
    Next { transfer, failed }
}

/// The record while the scheduler has not processed the request: the time to arrive does not count before something moves. `None`
/// if the record does not change.
pub fn waiting(status: &PlacementStatus, context: &Context<'_>) -> Option<Next> {
    let of = status.transfer.as_ref().filter(|_| status.stage() == Stage::Requested)?;
    let waited = context.now.duration_since(of.record.since).unsigned_abs();
    let is_due = waited >= context.timing.attempt();
    is_due.then(|| Next { transfer: Some(of.clone().counted_from(context.now)), failed: status.failed.clone() })
}

/// The transfer of a namespace whose policy was deleted while a part had left: the rest of it leaves the cluster that has to be
/// empty. `None` if the bindings do not show one.
pub fn interrupted(status: &PlacementStatus, context: &Context<'_>) -> Option<Transfer> {
    let (leaving, staying): (Vec<&String>, Vec<&String>) = status.on.keys().partition(|name| context.is_leaving(name));
    let ([from], [to]) = (&leaving[..], &staying[..]) else { return None };
    let route = Route { from: (*from).clone(), to: (*to).clone() };
    (!status.is_shared()).then(|| Transfer::begin(route, false, Before::FULL, context.now))
}

impl Context<'_> {
    fn begin(&self, status: &PlacementStatus, failed: &BTreeMap<String, Failure>) -> Option<Transfer> {
        let route = self.instruction.go.as_ref()?;
        let goes = status.has(&route.from) && !failed.contains_key(&route.to) && self.is_fit(&route.to);
        goes.then(|| Transfer::begin(route.clone(), false, status.before(), self.now))
    }

    /// Decides while no part has left yet. A namespace without leave stays where it is.
    fn requested(
        &self,
        status: &PlacementStatus,
        of: &Transfer,
        failed: &BTreeMap<String, Failure>,
    ) -> Option<Transfer> {
        if self.instruction.go.as_ref() != Some(&of.route) || !self.is_fit(&of.route.to) {
            return self.begin(status, failed);
        }
        let again = self.ask_again(status, of);
        // The time to arrive does not count before something moves.
        Some(again.map_or_else(|| of.clone(), |again| again.counted_from(self.now)))
    }

    fn moving(
        &self,
        status: &PlacementStatus,
        of: &Transfer,
        failed: &mut BTreeMap<String, Failure>,
    ) -> Option<Transfer> {
        let (is_draining, route) = (self.is_draining(status), &of.route);
        if status.has_arrived(of, is_draining) {
            return None;
        }
        let can_return = self.is_able(&route.from).is_ok();
        // If the target takes no more, the namespace becomes whole again on the old cluster.
        let is_stuck = !is_draining && self.is_able(&route.to).is_err() && can_return;
        let failure = if is_draining {
            late(self.namespace, status, of, self.clusters, self.timing, self.now)
        } else {
            is_stuck.then(|| failure(self.namespace, status, of, self.clusters, self.timing, self.now))
        };
        if let Some(failure) = failure {
            if self.clusters.contains_key(&route.to) {
                failed.entry(route.to.clone()).or_insert(failure);
            }
            if can_return {
                let back = Route { from: route.to.clone(), to: route.from.clone() };
                return Some(Transfer::begin(back, true, of.record.before, self.now));
            }
        }
        Some(self.ask_again(status, of).unwrap_or_else(|| of.clone()))
    }

    fn returning(&self, status: &PlacementStatus, of: &Transfer) -> Option<Transfer> {
        if status.is_complete_on(&of.route.to) {
            return None;
        }
        Some(self.ask_again(status, of).unwrap_or_else(|| of.clone()))
    }

    /// The same transfer under another name, if the scheduler has not moved everything although the target cluster is able.
    fn ask_again(&self, status: &PlacementStatus, of: &Transfer) -> Option<Transfer> {
        let waited = self.now.duration_since(of.record.asked).unsigned_abs();
        let asks = waited >= self.timing.attempt() && !status.is_complete_on(&of.route.to);
        (asks && self.is_able(&of.route.to).is_ok()).then(|| of.again(self.now))
    }

    fn is_able(&self, cluster: &str) -> Result<(), String> {
        is_able(self.clusters, cluster)
    }

    fn is_leaving(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some_and(ClusterFacts::is_leaving)
    }

    /// True if the city leaves a cluster. The instruction may be older than the status, so the clusters of the namespace count too.
    fn is_draining(&self, status: &PlacementStatus) -> bool {
        let of_route = status.transfer.iter().flat_map(|of| [&of.route.from, &of.route.to]);
        self.instruction.is_draining || status.on.keys().chain(of_route).any(|name| self.is_leaving(name))
    }

    fn is_fit(&self, cluster: &str) -> bool {
        let is_of_city = |facts: &ClusterFacts| !facts.is_leaving() && facts.city.as_ref() == Some(self.city);
        self.is_able(cluster).is_ok() && self.clusters.get(cluster).is_some_and(is_of_city)
    }
}

/// The failure of a transfer that has had its time to arrive, and of which something has left.
pub(super) fn late(
    namespace: &str,
    status: &PlacementStatus,
    of: &Transfer,
    clusters: &BTreeMap<String, ClusterFacts>,
    timing: &Timing,
    now: Timestamp,
) -> Option<Failure> {
    let is_late = now.duration_since(of.record.since).unsigned_abs() >= timing.arrival;
    let counts = is_late && status.stage() == Stage::Moving;
    counts.then(|| failure(namespace, status, of, clusters, timing, now))
}

fn failure(
    namespace: &str,
    status: &PlacementStatus,
    of: &Transfer,
    clusters: &BTreeMap<String, ClusterFacts>,
    timing: &Timing,
    now: Timestamp,
) -> Failure {
    let Route { from, to } = &of.route;
    let within = match is_able(clusters, to) {
        Err(why) => format!(", which {why}"),
        Ok(()) => format!(" within {} s", timing.arrival.as_secs()),
    };
    let missing = status.missing(to, of.record.before).unwrap_or_default();
    let fate = match is_able(clusters, from) {
        Ok(()) => "it is returned".to_owned(),
        Err(why) => format!("it stays there because Cluster {from} {why}"),
    };
    let marks = clusters.get(to).map(ClusterFacts::marks).unwrap_or_default();
    Failure { marks, why: format!("{namespace} did not arrive on {to}{within}: {missing}; {fate}"), at: Some(now) }
}

/// True if the scheduler would bring something new to a cluster.
///
/// # Errors
/// The reason, as a text that follows the Cluster's name.
pub(super) fn is_able(clusters: &BTreeMap<String, ClusterFacts>, cluster: &str) -> Result<(), String> {
    clusters.get(cluster).map_or(Err("does not exist".to_owned()), ClusterFacts::is_able)
}
