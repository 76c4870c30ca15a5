//! The drain of one city: the namespaces that may go, and the problem that it waits for. `docs/city.md` draws the stages.
//!
//! One namespace moves first. The others follow, at most as many at a time as have arrived. If a namespace did not arrive on a
//! cluster, nothing more goes there until its label or taints change, or the drain is requested again. A cluster that the scheduler
//! would refuse is not tried.
//!
//! Each decision reads everything off the policies and bindings. Only the leave to go is kept from the last decision, so that a
//! namespace that does not begin takes turns with others.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    placement_status::{Before, Failure, PlacementStatus, Route, Transfer},
    transfer::{self, Instruction, Stage, is_able},
};
use crate::plan::{
    management::{city_policy::guard, observed::cluster::ClusterFacts},
    text::named,
};
use crate::{
    api::{meta::annotation, names::CityCode},
    timing::Timing,
};

/// Namespaces that a message names; the others are counted.
const MAX_NAMED: usize = 3;

/// The drain of one city.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// The clusters that the city leaves; none if the drain was recalled.
    pub from: BTreeSet<String>,
    /// The cluster that takes the city.
    pub to: Option<String>,
    /// The cluster on which the city begins in a namespace that does not have it yet.
    pub home: Option<String>,
    /// The namespaces that may go, and of which nothing has left yet.
    pub go: BTreeMap<String, Order>,
    /// The namespaces that did not begin in time, and gave their place to others.
    pub yielded: BTreeMap<String, Yielded>,
    /// Time since when a missing way back has been reported. `None` if namespaces that do not arrive could return.
    pub one_way: Option<Timestamp>,
    /// When the drain was last recalled.
    pub recalled: Option<Timestamp>,
    /// The clusters between which a namespace is.
    pub between: BTreeSet<String>,
    /// The problem that the drain waits for.
    pub waits: Option<String>,
    /// True if a namespace did not arrive.
    pub has_failed: bool,
}

/// Leave for one namespace to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Source and target cluster.
    pub route: Route,
    /// When it was given.
    pub since: Timestamp,
}

/// A namespace that did not begin in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Yielded {
    /// The cluster that it was to leave.
    pub from: String,
    /// When its place was given to others.
    pub since: Timestamp,
    /// The reason, for people.
    pub why: String,
}

impl Drain {
    /// Values of the metric's label.
    pub const STATES: [&'static str; 3] = ["failed", "waiting", "moving"];

    /// The metric's label.
    pub fn state(&self) -> &'static str {
        match (self.has_failed, &self.waits) {
            (true, _) => "failed",
            (false, Some(_)) => "waiting",
            (false, None) => "moving",
        }
    }

    /// The clusters on which the drain is reported.
    pub fn concerned(&self) -> BTreeSet<&str> {
        self.from.iter().chain(&self.between).map(String::as_str).collect()
    }

    /// The instruction of the drain to one namespace.
    pub fn instruction(&self, namespace: &str) -> Instruction {
        Instruction {
            is_draining: !self.from.is_empty(),
            go: self.go.get(namespace).map(|order| order.route.clone()),
            home: self.home.clone(),
            recalled: self.recalled,
        }
    }

    /// The message for the deployments on a cluster that the city leaves, or between two.
    pub fn note(&self, city: &CityCode) -> Option<String> {
        let waits = self.waits.as_ref()?;
        if self.from.is_empty() {
            return Some(format!(
                "the drain of {city} was cancelled, and the city is still on several Clusters: {waits}"
            ));
        }
        let from: Vec<&str> = self.from.iter().map(String::as_str).collect();
        let drain = annotation::DRAIN;
        Some(format!("the drain of {city} from Cluster {} ({drain}=true) is not complete: {waits}", from.join(", ")))
    }
}

/// A city that has something on a cluster that it is to leave, that moves, or moved in the last decision.
#[derive(Clone, Copy, Debug)]
pub struct City<'a> {
    /// Its code.
    pub code: &'a CityCode,
    /// Its hub namespaces.
    pub namespaces: &'a BTreeMap<String, PlacementStatus>,
    /// Every member cluster.
    pub clusters: &'a BTreeMap<String, ClusterFacts>,
    /// When the drain of a Cluster was last recalled.
    pub recalled: &'a BTreeMap<String, Timestamp>,
    /// The drain of the last decision.
    pub before: Option<&'a Drain>,
    /// Periods.
    pub timing: &'a Timing,
}

/// Decides the drain of one city. `None` if nothing of it is to move.
pub fn next(city: &City<'_>, now: Timestamp) -> Option<Drain> {
    let City { code: city, namespaces, clusters, before, timing, recalled } = *city;
    let mut look = Look { city, namespaces, clusters, timing, now, is_draining: true };
    let held: BTreeSet<&String> = namespaces.values().flat_map(|there| there.on.keys()).collect();
    // Also clusters that hold nothing at the moment: the last namespace has left, or returns.
    let between = look.between();
    let known = held.into_iter().chain(&between);
    let from: BTreeSet<String> = known.filter(|name| look.is_leaving(name)).cloned().collect();
    look.is_draining = !from.is_empty();
    let recalled = from.iter().filter_map(|name| recalled.get(name)).max().copied();
    let recalled = recalled.max(before.and_then(|before| before.recalled)).filter(|_| look.is_draining);
    let failed = look.failed(recalled);
    let words: Vec<&str> = failed.values().map(|failure| failure.why.as_str()).collect();
    let words = (!words.is_empty()).then(|| words.join("; "));
    let mut next = Drain { from, recalled, between: look.between(), has_failed: words.is_some(), ..Drain::default() };
    if !look.is_draining {
        // Only namespaces that are half-way go on, because none may stay on two clusters.
        next.home = before.and_then(|before| before.home.clone());
        next.waits = words.or_else(|| look.obstacles(&next, &Staying::default()));
        return look.under_way().next().is_some().then_some(next);
    }
    next.home = next.from.iter().max_by_key(|name| look.count(name)).cloned();
    next.one_way = before.and_then(|before| before.one_way);
    next.yielded = look.yielded(before);
    next.to = look.target(before, &failed);
    let Some(to) = next.to.clone() else {
        next.waits = words.or_else(|| Some(format!("no other Cluster has the label of {city}")));
        return Some(next);
    };
    if let Err(why) = is_able(clusters, &to) {
        next.waits = words.or_else(|| Some(format!("Cluster {to}, which has the label of {city}, {why}")));
        return Some(next);
    }
    look.keep_orders(&mut next, before, &to);
    next.waits = look.no_way_back(&mut next, &to);
    if next.waits.is_none() {
        let staying = look.admit(&mut next, &to);
        next.waits = look.obstacles(&next, &staying).or(words);
    }
    Some(next)
}

/// The namespaces that are not sent anywhere.
#[derive(Debug, Default)]
struct Staying {
    /// Namespaces with suspended scheduling.
    suspended: Vec<String>,
    /// Shared namespaces that the target cluster does not run yet; each with the reason.
    shared: Vec<String>,
}

/// State of one decision about a city.
struct Look<'a> {
    city: &'a CityCode,
    namespaces: &'a BTreeMap<String, PlacementStatus>,
    clusters: &'a BTreeMap<String, ClusterFacts>,
    timing: &'a Timing,
    now: Timestamp,
    is_draining: bool,
}

impl<'a> Look<'a> {
    /// The transfers of namespaces of which something has left, until they have arrived.
    fn under_way(&self) -> impl Iterator<Item = (&'a String, &'a Transfer)> {
        let is_draining = self.is_draining;
        self.namespaces.iter().filter(|(_, there)| !there.on.is_empty()).filter_map(move |(name, there)| {
            let of = there.transfer.as_ref()?;
            let has_left = matches!(there.stage(), Stage::Moving | Stage::Returning);
            (has_left && !there.has_arrived(of, is_draining)).then_some((name, of))
        })
    }

    /// The clusters between which a namespace is.
    fn between(&self) -> BTreeSet<String> {
        self.under_way().flat_map(|(_, of)| [of.route.from.clone(), of.route.to.clone()]).collect()
    }

    /// The namespaces that do not move now: those that are not under way, and have no leave to go.
    fn resting(&self, next: &Drain) -> Vec<(&'a String, &'a PlacementStatus)> {
        let under_way: BTreeSet<&String> = self.under_way().map(|(name, _)| name).collect();
        let rests = |name: &String| !next.go.contains_key(name) && !under_way.contains(name);
        self.namespaces.iter().filter(|(name, there)| !there.on.is_empty() && rests(name)).collect()
    }

    fn is_leaving(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some_and(ClusterFacts::is_leaving)
    }

    /// The bindings of the city on a cluster.
    fn count(&self, cluster: &str) -> usize {
        self.namespaces.values().filter_map(|there| there.on.get(cluster)).map(|there| there.bindings).sum()
    }

    fn has_passed(&self, since: Timestamp, period: Duration) -> bool {
        self.now.duration_since(since).unsigned_abs() >= period
    }

    /// The clusters on which a namespace did not arrive, even if its policy does not record it yet.
    fn failed(&self, recalled: Option<Timestamp>) -> BTreeMap<String, Failure> {
        let recorded = self.namespaces.values().flat_map(|there| &there.failed);
        let counting = recorded.filter(|(name, failure)| failure.counts(self.clusters.get(*name), recalled));
        let mut failed: BTreeMap<String, Failure> =
            counting.map(|(name, failure)| (name.clone(), failure.clone())).collect();
        for (namespace, of) in self.under_way().filter(|_| self.is_draining) {
            let status = &self.namespaces[namespace];
            if let Some(failure) = transfer::late(namespace, status, of, self.clusters, self.timing, self.now) {
                failed.entry(of.route.to.clone()).or_insert(failure);
            }
        }
        failed
    }

    /// Namespaces that did not begin in time, and have not begun since.
    fn yielded(&self, before: Option<&Drain>) -> BTreeMap<String, Yielded> {
        let stays = |name: &String, from: &str| self.namespaces.get(name).is_some_and(|there| there.is_wholly_on(from));
        let yielded = before.into_iter().flat_map(|before| &before.yielded);
        let kept = yielded.filter(|(name, yielded)| stays(name, &yielded.from));
        kept.map(|(name, yielded)| (name.clone(), yielded.clone())).collect()
    }

    /// The target: the cluster to which something is sent already, else the able one that has most.
    fn target(&self, before: Option<&Drain>, failed: &BTreeMap<String, Failure>) -> Option<String> {
        let fits = |name: &&str| !self.is_leaving(name) && !failed.contains_key(*name);
        let labelled: Vec<&str> = guard::candidates(self.city, self.clusters).into_iter().filter(fits).collect();
        let sent = self.namespaces.values().filter_map(|there| there.transfer.as_ref()).map(|of| &of.route.to);
        let ordered = before.into_iter().flat_map(|before| before.go.values()).map(|order| &order.route.to);
        let kept = sent.chain(ordered).find(|to| labelled.contains(&to.as_str())).cloned();
        let rank = |name: &&str| (is_able(self.clusters, name).is_err(), Reverse(self.count(name)), (*name).to_owned());
        kept.or_else(|| labelled.into_iter().min_by_key(rank).map(str::to_owned))
    }

    /// Keeps the leave of namespaces that have not begun, for the time that a namespace may take to arrive.
    fn keep_orders(&self, next: &mut Drain, before: Option<&Drain>, to: &str) {
        for (name, there) in self.namespaces.iter().filter(|(_, there)| !there.on.is_empty()) {
            let given = match before {
                Some(before) => before.go.get(name).cloned(),
                // Another process has requested the transfer.
                None => there.transfer.as_ref().map(|of| Order { route: of.route.clone(), since: of.record.requested }),
            };
            // Without a transfer, parts on both clusters are an old state.
            let asks = |route: &Route| there.transfer.as_ref().is_some_and(|of| of.route == *route);
            let has_begun = |route: &Route| asks(route) && there.has_begun(route) || !self.is_leaving(&route.from);
            let Some(order) = given.filter(|order| order.route.to == to && !has_begun(&order.route)) else { continue };
            if self.has_passed(order.since, self.timing.arrival) {
                let why = self.why_left(there, &order.route);
                next.yielded.insert(name.clone(), Yielded { from: order.route.from, since: self.now, why });
            } else {
                next.go.insert(name.clone(), order);
            }
        }
    }

    /// Why nothing begins yet: a namespace that does not arrive could not come back, and that was reported a short time ago.
    /// Karmada's scheduler lets a tainted cluster keep its objects, but refuses those that have left (fact 64).
    fn no_way_back(&self, next: &mut Drain, to: &str) -> Option<String> {
        let resting = self.resting(next);
        let to_begin = |from: &String| resting.iter().any(|(_, there)| there.has(from));
        let closed = next.from.iter().filter(|from| to_begin(from)).find_map(|from| {
            let facts = self.clusters.get(from)?;
            let answers = facts.ready.is_ok() && !facts.dead && !facts.deleting;
            Some((from, facts.obstacle.as_ref().filter(|_| answers)?))
        });
        let Some((from, obstacle)) = closed else {
            next.one_way = None;
            return None;
        };
        let since = next.one_way.unwrap_or(self.now);
        let pause = self.timing.arrival;
        let why = format!(
            "Cluster {from} {obstacle}, so a namespace that does not arrive on {to} cannot return. Fix this, or the drain \
             starts in {} s without a way back",
            pause.as_secs()
        );
        next.one_way = Some(since);
        (!self.has_passed(since, pause)).then_some(why)
    }

    /// Gives leave to more namespaces: at most as many are under way as have arrived, but at least one. A late namespace that cannot
    /// return does not block others. Returns the namespaces that do not go.
    fn admit(&self, next: &mut Drain, to: &str) -> Staying {
        let resting = self.resting(next);
        // Applied, and programmed if an Instance is desired. An Instance that was there before the drain counts too.
        let arrived = resting.iter().filter(|(_, there)| there.missing(to, Before::FULL).is_none()).count();
        let mut waiting: Vec<(&String, &PlacementStatus, &String)> = Vec::new();
        let mut staying = Staying::default();
        for (name, there) in resting {
            let Some(from) = there.on.keys().find(|cluster| next.from.contains(*cluster)) else { continue };
            if there.sum(|on| on.suspended) > 0 {
                staying.suspended.push(name.clone());
            } else if let Some(why) = there.unproved(to, &next.from) {
                staying.shared.push(format!("{name}: {why}"));
            } else {
                waiting.push((name, there, from));
            }
        }
        // Small namespaces with running Instances show most, and go first. Those that did not begin go after all others, in turns.
        waiting.sort_by_key(|(name, there, _)| {
            let yielded = next.yielded.get(*name).map(|yielded| yielded.since);
            (yielded, there.sum(|on| on.current) == 0, there.sum(|on| on.bindings), name.as_str())
        });
        let is_urgent = next.from.iter().any(|name| self.clusters.get(name).is_some_and(|cluster| cluster.deleting));
        // The time of a late namespace starts again when it is returned.
        let turns = |name: &String, of: &Transfer| {
            let can_return = !of.is_back() && is_able(self.clusters, &of.route.from).is_ok();
            can_return && self.namespaces[name].policy_trouble.is_none()
        };
        let is_in_time = |of: &Transfer| !self.has_passed(of.record.since, self.timing.arrival);
        let busy = self.under_way().filter(|(name, of)| is_in_time(of) || turns(name, of)).count() + next.go.len();
        let room = if is_urgent { waiting.len() } else { arrived.max(1).saturating_sub(busy) };
        for (name, _, from) in waiting.into_iter().take(room) {
            let route = Route { from: from.clone(), to: to.to_owned() };
            next.go.insert(name.clone(), Order { route, since: self.now });
        }
        if arrived > 0 {
            next.home = Some(to.to_owned());
        }
        staying
    }

    /// The reason why a namespace has not moved.
    fn why_left(&self, there: &PlacementStatus, route: &Route) -> String {
        let to = &route.to;
        let others: Vec<&str> = there.on.keys().filter(|name| *name != to).map(String::as_str).collect();
        let why = match (is_able(self.clusters, to), &there.policy_trouble) {
            (Err(why), _) => format!("Cluster {to} {why}"),
            (Ok(()), Some(trouble)) => trouble.words(),
            (Ok(()), None) if there.transfer.as_ref().is_some_and(|of| of.route.to == *to) => {
                "Karmada has not moved the deployments, and is asked again".to_owned()
            }
            (Ok(()), None) => "its PropagationPolicy is not changed yet".to_owned(),
        };
        format!("it is still on {}; {why}", others.join(", "))
    }

    /// The obstacles: namespaces that did not begin, and one that Karmada has not moved. If nothing else is under way, also those
    /// that are not sent anywhere.
    fn obstacles(&self, next: &Drain, staying: &Staying) -> Option<String> {
        let yielded: Vec<String> = next.yielded.iter().map(|(name, of)| format!("{name}: {}", of.why)).collect();
        let yielded = (!yielded.is_empty()).then(|| {
            let within = self.timing.arrival.as_secs();
            format!(
                "these did not start to move within {within} s, and are retried after the others: {}",
                named(&yielded, MAX_NAMED)
            )
        });
        let sent = self.under_way().map(|(name, of)| (name, &of.route, of.record.requested));
        let ordered = next.go.iter().map(|(name, order)| (name, &order.route, order.since));
        let mut others = sent.chain(ordered).filter(|(name, ..)| !next.yielded.contains_key(*name)).peekable();
        let is_idle = others.peek().is_none();
        let left = others.find_map(|(name, route, since)| {
            let there = &self.namespaces[name];
            let lasts = self.has_passed(since, self.timing.attempt()) && !there.is_complete_on(&route.to);
            lasts.then(|| format!("{name} is moving to {}: {}", route.to, self.why_left(there, route)))
        });
        let shared = (is_idle && !staying.shared.is_empty()).then(|| {
            let named = named(&staying.shared, MAX_NAMED);
            format!("duplicates are not removed before the target cluster runs the deployments: {named}")
        });
        let suspended = (is_idle && !staying.suspended.is_empty()).then(|| {
            let why = "spec.suspension.scheduling of ResourceBindings there blocks scheduling";
            format!("not moved: {}: {why}", staying.suspended.join(", "))
        });
        let all: Vec<String> = [yielded, left, shared, suspended].into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

#[cfg(test)]
#[path = "city_drain_tests.rs"]
mod tests;
