//! Clusters that are to be drained -> which namespace of a city moves when, and what a drain waits for.
//!
//! One namespace goes first. The others follow, at most as many at a time as have arrived: what has arrived is applied,
//! and where it is to have Instances, one has been programmed. What does not arrive in time is brought back, and nothing
//! more goes until the new cluster changes or the drain is asked for anew. A cluster that the scheduler would refuse is not
//! tried. Where everything is is read off the bindings at each look; what is remembered is since when, and what failed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    cluster::ClusterFacts,
    guard::{self, Turn},
};
use crate::{
    api::{
        karmada::{Cluster, ClusterSpec},
        meta::annotation,
        names::CityCode,
        reason::Reason,
    },
    plan::{
        Hub, Next, Plan, Write,
        event::{self, Note, Severity},
    },
    timing::Timing,
};

/// Everything that is known about the cities that are, or were, to leave a cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Every member cluster.
    pub clusters: BTreeMap<String, ClusterFacts>,
    /// Of each city that has something on a cluster that is to be left, or that moved at the last look: its hub namespaces.
    pub cities: BTreeMap<CityCode, BTreeMap<String, Whereabouts>>,
    /// What the last look decided.
    pub before: BTreeMap<CityCode, Move>,
}

/// Where a city is in one hub namespace: the bindings that its policy claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// What is on each cluster.
    pub on: BTreeMap<String, Presence>,
    /// The move that its policy stands for.
    pub standing: Option<Turn>,
}

/// What a city has on one cluster, in one hub namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Bindings that go there.
    pub bindings: usize,
    /// Of these, how many the cluster has taken.
    pub applied: usize,
    /// Instances that are asked for there.
    pub desired: i64,
    /// Instances that are programmed there.
    pub current: i64,
}

impl Whereabouts {
    /// Whether everything is on this cluster.
    fn is_whole_on(&self, cluster: &str) -> bool {
        self.on.keys().all(|name| name == cluster)
    }

    /// Whether some of it is on this cluster, and some is elsewhere.
    fn is_split_by(&self, cluster: &str) -> bool {
        self.on.contains_key(cluster) && !self.is_whole_on(cluster)
    }

    /// Why it has not arrived on this cluster; nothing when it has. `ran`: whether something is to run there.
    fn missing(&self, cluster: &str, ran: bool) -> Option<String> {
        if let Some((elsewhere, there)) = self.on.iter().find(|(name, _)| *name != cluster) {
            return Some(format!("{} deployment(s) are still on {elsewhere}", there.bindings));
        }
        let there = self.on.get(cluster).copied().unwrap_or_default();
        if there.applied < there.bindings {
            let missing = there.bindings - there.applied;
            return Some(format!("{missing} of {} deployment(s) are not applied on {cluster}", there.bindings));
        }
        let idle = ran && there.desired > 0 && there.current == 0;
        idle.then(|| format!("none of {} instance(s) is programmed on {cluster}", there.desired))
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
    pub turns: BTreeMap<String, UnderWay>,
    /// Where the city begins in a namespace that does not have it yet.
    pub home: Option<String>,
    /// What it waits for, in words.
    pub waits: Option<String>,
    /// What went wrong, and the attempt at which it did.
    pub failed: Option<(String, String)>,
}

/// A namespace's part of a city, on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    /// From where, and where to.
    pub turn: Turn,
    /// When it was sent.
    pub since: Timestamp,
    /// Whether an Instance was programmed before, and so is to be programmed where it arrives.
    pub ran: bool,
}

impl Move {
    /// The metric's label: whether it waits, has failed, or goes on.
    pub fn state(&self) -> &'static str {
        match (&self.failed, &self.waits) {
            (Some(_), _) => "failed",
            (None, Some(_)) => "waiting",
            (None, None) => "moving",
        }
    }

    /// The metric's labels.
    pub const STATES: [&'static str; 3] = ["failed", "waiting", "moving"];

    /// Whether a hub namespace is to move, and where.
    pub fn turn(&self, namespace: &str) -> Option<&Turn> {
        self.turns.get(namespace).map(|of| &of.turn)
    }
}

/// Decides how every move goes on. What is remembered for the next look comes as a signal, one for each city.
pub fn plan(observed: &Observed, timing: &Timing, now: Timestamp) -> Plan<Write<Hub>, (CityCode, Move)> {
    let mut plan = Plan::nothing();
    for (city, namespaces) in &observed.cities {
        let before = observed.before.get(city);
        let next = step(city, namespaces, before, &observed.clusters, timing, now);
        plan.steps.extend(report(city, before, next.as_ref(), now));
        plan.signals.extend(next.map(|next| (city.clone(), next)));
    }
    if !plan.signals.is_empty() {
        plan.next = Next::After(timing.policy_poll);
    }
    plan
}

/// One look at one city; nothing once nothing of it is to move.
fn step(
    city: &CityCode,
    namespaces: &BTreeMap<String, Whereabouts>,
    before: Option<&Move>,
    clusters: &BTreeMap<String, ClusterFacts>,
    timing: &Timing,
    now: Timestamp,
) -> Option<Move> {
    let on: BTreeSet<&String> = namespaces.values().flat_map(|there| there.on.keys()).collect();
    let leaving = |name: &str| clusters.get(name).is_some_and(ClusterFacts::is_leaving);
    let from: BTreeSet<String> = on.iter().filter(|name| leaving(name)).map(|name| (*name).clone()).collect();
    let mut turns = under_way(namespaces, before, now);
    if from.is_empty() {
        // Called off, or done. What is half-way goes on, for a namespace is never to be on two clusters; what has arrived,
        // or has not left, stays where it is.
        turns.retain(|namespace, UnderWay { turn, ran, .. }| {
            let there = &namespaces[namespace];
            there.is_split_by(&turn.to) || (leaving(&turn.from) && there.missing(&turn.to, *ran).is_some())
        });
        let unfinished = !turns.is_empty();
        return unfinished.then(|| Move { turns, home: before.and_then(|b| b.home.clone()), ..Move::default() });
    }
    let home = from.iter().max_by_key(|name| count(namespaces, name)).cloned();
    let mut next = Move { from, turns, home, ..Move::default() };
    let candidates = guard::candidates(city, clusters);
    let fit: Vec<&str> = candidates.into_iter().filter(|name| !leaving(name)).collect();
    let kept = before.and_then(|before| before.to.as_deref()).filter(|to| fit.contains(to) && !next.turns.is_empty());
    let able = |name: &str| clusters.get(name).is_some_and(|cluster| cluster.is_able().is_ok());
    let best =
        || fit.iter().copied().min_by_key(|name| (!able(name), std::cmp::Reverse(count(namespaces, name)), *name));
    let Some(to) = kept.or_else(best) else {
        next.waits = Some(format!("no other Cluster carries the label of {city}"));
        next.turns.retain(|namespace, of| namespaces[namespace].is_split_by(&of.turn.to));
        return Some(next);
    };
    next.to = Some(to.to_owned());
    let facts = clusters.get(to)?;
    if let Err(why) = facts.is_able() {
        next.waits = Some(format!("Cluster {to}, which carries the label of {city}, {why}"));
        next.turns.retain(|namespace, of| namespaces[namespace].is_split_by(&of.turn.to));
        return Some(next);
    }
    let attempts = settle(&mut next, namespaces, before, clusters, (to, timing.drain_arrival), now);
    let urgent = next.from.iter().any(|name| clusters.get(name).is_some_and(|cluster| cluster.deleting));
    if next.failed.is_none() {
        admit(&mut next, namespaces, to, &attempts, urgent, now);
    }
    next.waits = next.failed.as_ref().map(|(_, why)| why.clone());
    Some(next)
}

/// How many bindings of the city a cluster has.
fn count(namespaces: &BTreeMap<String, Whereabouts>, cluster: &str) -> usize {
    namespaces.values().filter_map(|there| there.on.get(cluster)).map(|there| there.bindings).sum()
}

/// The moves that are under way: those that were remembered, and those that a policy stands for (another process began
/// them).
fn under_way(
    namespaces: &BTreeMap<String, Whereabouts>,
    before: Option<&Move>,
    now: Timestamp,
) -> BTreeMap<String, UnderWay> {
    let remembered = |namespace: &String| before.and_then(|before| before.turns.get(namespace)).cloned();
    let standing = |there: &Whereabouts| {
        let turn = there.standing.clone().filter(|_| before.is_none())?;
        Some(UnderWay { turn, since: now, ran: true })
    };
    let there = namespaces.iter().filter(|(_, there)| !there.on.is_empty());
    there.filter_map(|(name, there)| Some((name.clone(), remembered(name).or_else(|| standing(there))?))).collect()
}

/// The names of attempts at a cluster as it is now, in order.
struct Attempts {
    generation: i64,
    number: u32,
}

impl Attempts {
    fn name(&self) -> String {
        format!("{}-{}", self.generation, self.number)
    }

    /// Number of an attempt of this generation; none when it is of another one, or a way back.
    fn number(&self, attempt: &str) -> Option<u32> {
        let (generation, number) = attempt.split_once('-')?;
        number.parse().ok().filter(|_| generation == self.generation.to_string())
    }
}

/// What begins the name of an attempt to bring a namespace back.
const BACK: &str = "back-";

/// Ends the turns of those that have arrived, and turns those around that have not in time.
fn settle(
    next: &mut Move,
    namespaces: &BTreeMap<String, Whereabouts>,
    before: Option<&Move>,
    clusters: &BTreeMap<String, ClusterFacts>,
    (to, limit): (&str, Duration),
    now: Timestamp,
) -> Attempts {
    let generation = clusters.get(to).map_or(0, |facts| facts.generation);
    let mut attempts = Attempts { generation, number: 0 };
    let known = namespaces.values().filter_map(|there| there.standing.as_ref());
    let known = known.chain(next.turns.values().map(|of| &of.turn));
    attempts.number = known.filter_map(|turn| attempts.number(&turn.attempt)).max().unwrap_or_default();
    // What failed stays failed until the cluster is another one, or is changed.
    next.failed = before.and_then(|before| before.failed.clone()).filter(|(at, _)| attempts.number(at).is_some());
    let late = |since: &Timestamp| now.duration_since(*since).unsigned_abs() >= limit;
    let mut retry = false;
    let turns = std::mem::take(&mut next.turns);
    for (namespace, of) in turns {
        let (there, turn) = (&namespaces[&namespace], &of.turn);
        if turn.attempt.starts_with(BACK) {
            if !there.is_whole_on(&turn.to) {
                next.turns.insert(namespace, of);
            }
            continue;
        }
        let Some(missing) = there.missing(&turn.to, of.ran) else { continue };
        if !late(&of.since) {
            next.turns.insert(namespace, of);
        } else if !there.on.contains_key(&turn.to) {
            // The scheduler has refused it all that time: nothing has moved, and nothing has to come back.
            retry = true;
        } else {
            let why = format!("{namespace} did not arrive on {to} within {} s: {missing}", limit.as_secs());
            let able = clusters.get(&turn.from).map_or(Err("is not there any more".to_owned()), ClusterFacts::is_able);
            if let Err(obstacle) = able {
                let why = format!("{why}; it stays there, for Cluster {} {obstacle}", turn.from);
                next.failed.get_or_insert((turn.attempt.clone(), why));
                next.turns.insert(namespace, of);
                continue;
            }
            let why = format!("{why}; it is brought back");
            let (from, back_to, attempt) = (turn.to.clone(), turn.from.clone(), format!("{BACK}{}", turn.attempt));
            let back = Turn { from, to: back_to, attempt };
            next.failed.get_or_insert((turn.attempt.clone(), why));
            next.turns.insert(namespace, UnderWay { turn: back, since: now, ran: of.ran });
        }
    }
    attempts.number += u32::from(retry);
    attempts
}

/// Has more namespaces begin: at most as many are under way as have arrived, and one to begin with.
fn admit(
    next: &mut Move,
    namespaces: &BTreeMap<String, Whereabouts>,
    to: &str,
    attempts: &Attempts,
    urgent: bool,
    now: Timestamp,
) {
    let arrived = namespaces
        .iter()
        .filter(|(name, there)| !there.on.is_empty() && there.is_whole_on(to) && !next.turns.contains_key(*name));
    let arrived = arrived.count();
    if arrived > 0 {
        next.home = Some(to.to_owned());
    }
    let mut waiting: Vec<(&String, &Whereabouts, &String)> = Vec::new();
    for (name, there) in namespaces.iter().filter(|(name, _)| !next.turns.contains_key(*name)) {
        let leaves = there.on.keys().find(|cluster| next.from.contains(*cluster));
        waiting.extend(leaves.map(|from| (name, there, from)));
    }
    // First those of whom the most can be learnt: somebody runs there, and they are few.
    waiting.sort_by_key(|(name, there, _)| {
        let running: i64 = there.on.values().map(|on| on.current).sum();
        let bindings: usize = there.on.values().map(|on| on.bindings).sum();
        (running == 0, bindings, name.as_str())
    });
    let room = if urgent { waiting.len() } else { arrived.max(1).saturating_sub(next.turns.len()) };
    for (name, there, from) in waiting.into_iter().take(room) {
        let turn = Turn { from: from.clone(), to: to.to_owned(), attempt: attempts.name() };
        let ran = there.on.values().any(|on| on.current > 0);
        next.turns.insert(name.clone(), UnderWay { turn, since: now, ran });
    }
}

/// Says on the Clusters what is news: what a drain waits for, that it failed, that it is done.
fn report(city: &CityCode, before: Option<&Move>, next: Option<&Move>, now: Timestamp) -> Vec<Write<Hub>> {
    let said = before.and_then(|before| before.waits.as_ref());
    let (on, severity, reason, text) = match next {
        Some(next) => match &next.waits {
            Some(waits) if said != Some(waits) => {
                let reason = if next.failed.is_some() { Reason::DrainFailed } else { Reason::DrainWaiting };
                let text = format!("{city} stays here for now: {waits}");
                (&next.from, Severity::Warning, reason, text)
            }
            _ => return Vec::new(),
        },
        None => match before {
            Some(before) if !before.from.is_empty() => {
                let to = before.to.as_deref().unwrap_or_default();
                let text = format!("nothing of {city} is to leave any more; it has been moving to {to:?}");
                (&before.from, Severity::Normal, Reason::DrainEnded, text)
            }
            _ => return Vec::new(),
        },
    };
    let event = |name: &String| {
        let note = Note { severity, reason: reason.clone(), action: "Draining", text: &text };
        event::on(&Cluster::new(name, ClusterSpec::default()), "city-guard", &note, now)
    };
    on.iter().map(event).collect()
}

/// What the deployments of a city that waits are to say, for those on a cluster that it is to leave.
pub fn note(city: &CityCode, of: &Move) -> Option<String> {
    let waits = of.waits.as_ref()?;
    let from: Vec<&str> = of.from.iter().map(String::as_str).collect();
    Some(format!(
        "{city} is to leave Cluster {} ({}=true), and stays for now: {waits}",
        from.join(", "),
        annotation::DRAIN
    ))
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
