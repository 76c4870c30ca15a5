//! Clusters that are to be drained -> which namespace of a city moves when, and what a drain waits for.
//!
//! One namespace goes first. The others follow, at most as many at a time as have arrived: what has arrived is applied,
//! and where an Instance ran, one has been programmed. What does not arrive in time is brought back, and nothing more goes
//! to that cluster until people say something else of it (its label, their taints) or ask for the drain anew. A cluster that
//! the scheduler would refuse is not tried. Where everything is is read off the bindings at each look; what is remembered is
//! since when, what failed, and how each namespace was before, which the name of its attempt says as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    attempt::{Attempt, Before},
    move_reports::{self, Staying, report},
    whereabouts::{Aside, Failure, UnderWay},
};
pub use super::{
    move_reports::note,
    whereabouts::{Move, PolicyTrouble, Whereabouts},
};
use crate::plan::management::{
    city_policy::guard::{self, Transfer},
    observed::cluster::ClusterFacts,
};
use crate::{
    api::names::CityCode,
    plan::{Hub, Next, Plan, Write},
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
    /// Whether there was none: what failed is read off the policies then, and only then, for these follow a moment later.
    pub first: bool,
    /// How long to wait for what.
    pub timing: Timing,
}

/// Decides how every move goes on. What is remembered for the next look comes as a signal, one for each city.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Write<Hub>, (CityCode, Move)> {
    let timing = &observed.timing;
    let mut plan = Plan::nothing();
    for (city, namespaces) in &observed.cities {
        let before = observed.before.get(city);
        let next = step(observed, city, namespaces, now);
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
    observed: &Observed,
    city: &CityCode,
    namespaces: &BTreeMap<String, Whereabouts>,
    now: Timestamp,
) -> Option<Move> {
    let Observed { clusters, timing, .. } = observed;
    let before = observed.before.get(city);
    let look = Look { city, namespaces, clusters, timing, now };
    let transfers = look.under_way(before);
    let held: BTreeSet<&String> = namespaces.values().flat_map(|there| there.on.keys()).collect();
    // Also what the last namespace has left a moment ago, until it is known to have arrived.
    let known = held.iter().copied().chain(transfers.values().map(|of| &of.transfer.from));
    let from: BTreeSet<String> = known.filter(|name| look.is_leaving(name)).cloned().collect();
    let called_off = from.is_empty();
    let home = from.iter().max_by_key(|name| count(namespaces, name)).cloned();
    let said = || namespaces.values().flat_map(|there| there.failed.clone()).collect();
    let mut failed = if observed.first { said() } else { before.map(|of| of.failed.clone()).unwrap_or_default() };
    failed.retain(|cluster, failure| clusters.get(cluster).is_some_and(|now| now.marks() == failure.marks));
    let one_way = before.and_then(|before| before.one_way).filter(|_| !called_off);
    let mut next = Move { from, home, one_way, failed, ..Move::default() };
    if !called_off {
        next.aside = look.aside(before);
    }
    look.follow(&mut next, transfers, called_off);
    if called_off {
        // What is half-way goes on, for a namespace is never to be on two clusters; everything else stays where it is.
        next.home = before.and_then(|before| before.home.clone());
        next.waits = next.why_failed().or_else(|| move_reports::told(&next, &Staying::default(), timing));
        return (!next.transfers.is_empty()).then_some(next);
    }
    if next.transfers.is_empty() && !held.iter().any(|name| look.is_leaving(name)) {
        return None;
    }
    look.choose(&mut next);
    Some(next)
}

/// How many bindings of the city a cluster has.
fn count(namespaces: &BTreeMap<String, Whereabouts>, cluster: &str) -> usize {
    namespaces.values().filter_map(|there| there.on.get(cluster)).map(|there| there.bindings).sum()
}

/// One look at one city.
struct Look<'a> {
    city: &'a CityCode,
    namespaces: &'a BTreeMap<String, Whereabouts>,
    clusters: &'a BTreeMap<String, ClusterFacts>,
    timing: &'a Timing,
    now: Timestamp,
}

impl Look<'_> {
    /// The moves that are under way: those that were remembered, and those that a policy stands for (another process began
    /// them). One that is complete, and that nobody asks for any more, has only not been taken out of its policy yet.
    fn under_way(&self, before: Option<&Move>) -> BTreeMap<String, UnderWay> {
        let remembered = |namespace: &String| before.and_then(|before| before.transfers.get(namespace)).cloned();
        // The scheduler has moved it after all, before its policy said otherwise.
        let begun_late = |namespace: &String, there: &Whereabouts| {
            let of = &before?.aside.get(namespace)?.of;
            there.has_begun(&of.transfer).then(|| UnderWay::begin(of.transfer.clone(), of.before, self.now))
        };
        let is_over = |there: &Whereabouts, of: &Transfer| there.is_complete_on(&of.to) && !self.is_leaving(&of.from);
        let standing = |there: &Whereabouts| {
            let transfer = there.standing.clone().filter(|of| before.is_none() && !is_over(there, of))?;
            let before = Attempt::parse(&transfer.attempt).and_then(|attempt| attempt.before);
            Some(UnderWay::begin(transfer, before.unwrap_or(Before::FULL), self.now))
        };
        let known = |name: &String, there: &Whereabouts| {
            remembered(name).or_else(|| begun_late(name, there)).or_else(|| standing(there))
        };
        let there = self.namespaces.iter().filter(|(_, there)| !there.on.is_empty());
        there.filter_map(|(name, there)| Some((name.clone(), known(name, there)?))).collect()
    }

    /// The namespaces that did not begin to move, and have not since.
    fn aside(&self, before: Option<&Move>) -> BTreeMap<String, Aside> {
        let stays = |name: &String, from: &str| self.namespaces.get(name).is_some_and(|there| there.is_wholly_on(from));
        let aside = before.into_iter().flat_map(|before| &before.aside);
        let aside = aside.filter(|(name, aside)| stays(name, &aside.of.transfer.from));
        aside.map(|(name, aside)| (name.clone(), aside.clone())).collect()
    }

    /// A name for an attempt at a cluster that no attempt has had before: the scheduler tries again only what it has not
    /// seen. The cluster's generation is part of it, so that a number need not be remembered for ever; another cluster's may be
    /// the same.
    fn attempt(&self, back: bool, cluster: &str, last: Option<&str>, before: Option<Before>) -> String {
        let generation = self.clusters.get(cluster).map_or(0, |facts| facts.generation);
        let number = |name: &str| {
            let known = Attempt::parse(name).filter(|known| known.back == back && known.generation == generation);
            known.map(|known| known.number)
        };
        let standing = || self.namespaces.values().filter_map(|there| there.standing.as_ref());
        let known =
            |here: bool| standing().filter(|of| (of.to == cluster) == here).filter_map(|of| number(&of.attempt)).max();
        let after = |known: Option<u32>| known.map_or(0, |known| known + 1);
        let number = match last {
            Some(last) => after(known(true).max(known(false)).max(number(last))),
            None => known(true).unwrap_or_default().max(after(known(false))),
        };
        Attempt { back, generation, number, before }.to_string()
    }

    fn is_able(&self, cluster: &str) -> Result<(), String> {
        self.clusters.get(cluster).map_or(Err("is not there any more".to_owned()), ClusterFacts::is_able)
    }

    fn is_leaving(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some_and(ClusterFacts::is_leaving)
    }

    /// Whether it carries the city's label, in whatever spelling.
    fn is_labelled(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some_and(|facts| facts.city.as_ref() == Some(self.city))
    }

    fn passed(&self, since: Timestamp, period: Duration) -> bool {
        self.now.duration_since(since).unsigned_abs() >= period
    }

    /// Goes on with what is under way: ends the transfers that have arrived, asks the scheduler again for those that
    /// it has refused, puts aside those that do not begin in time, and turns back those that do not arrive.
    fn follow(&self, next: &mut Move, transfers: BTreeMap<String, UnderWay>, called_off: bool) {
        for (namespace, of) in transfers {
            let (there, transfer) = (&self.namespaces[&namespace], &of.transfer);
            let back = Attempt::is_back(&transfer.attempt);
            let arrived = if back || called_off {
                there.is_complete_on(&transfer.to)
            } else {
                there.missing(&transfer.to, of.before).is_none()
            };
            let not_begun = !there.has_begun(transfer);
            let refused = self.is_able(&transfer.to).is_err();
            let unfit = refused || self.is_leaving(&transfer.to) || !self.is_labelled(&transfer.to);
            if arrived || not_begun && !back && (unfit || called_off) {
                continue; // what has not begun stays where it is
            }
            if not_begun && !back && self.passed(of.admitted, self.timing.drain_arrival) {
                let why = self.why_left(there, transfer);
                next.aside.insert(namespace, Aside { of, since: self.now, why });
                continue;
            }
            let late = !called_off && self.passed(of.since, self.timing.drain_arrival);
            // What is half-way to a cluster that takes no more of it, and is to stay, is whole again where it came from.
            let stuck = called_off && refused && self.is_able(&transfer.from).is_ok();
            let turns = !back && !not_begun && (late || stuck);
            let kept = if turns { self.turn_around(next, &namespace, of) } else { self.ask_again(&namespace, of) };
            next.transfers.insert(namespace, kept);
        }
    }

    /// Why a namespace's part is not, or not wholly, where it is sent.
    fn why_left(&self, there: &Whereabouts, transfer: &Transfer) -> String {
        let missing = there.missing(&transfer.to, Before::FULL).unwrap_or_default();
        let why = match (self.is_able(&transfer.to), &there.policy_trouble) {
            (Err(why), _) => format!("Cluster {} {why}", transfer.to),
            (Ok(()), Some(trouble)) => trouble.words(),
            (Ok(()), None) if there.standing.as_ref().is_some_and(|standing| standing.to == transfer.to) => {
                "Karmada leaves them there, and is asked again".to_owned()
            }
            (Ok(()), None) => "its PropagationPolicy does not say so yet".to_owned(),
        };
        format!("{missing}; {why}")
    }

    /// Asks the scheduler again, under another name, for what it has left where it was although the cluster is able.
    fn ask_again(&self, namespace: &str, of: UnderWay) -> UnderWay {
        let (there, transfer) = (&self.namespaces[namespace], &of.transfer);
        if there.is_complete_on(&transfer.to) {
            return UnderWay { told: None, ..of };
        }
        if !self.passed(of.asked, self.timing.drain_retry) {
            return of;
        }
        let why = self.why_left(there, transfer);
        let told = Some(format!("{namespace} is on its way to {}: {why}", transfer.to));
        if self.is_able(&transfer.to).is_err() {
            return UnderWay { told, ..of };
        }
        let back = Attempt::is_back(&transfer.attempt);
        let before = (!back).then_some(of.before);
        let attempt = self.attempt(back, &transfer.to, Some(&transfer.attempt), before);
        let transfer = Transfer { attempt, ..transfer.clone() };
        // What has not begun has not used up any of its time to arrive.
        let since = if back || there.has_begun(&transfer) { of.since } else { self.now };
        UnderWay { transfer, since, asked: self.now, told, ..of }
    }

    /// Sends back what has not arrived in time, if it can go back, and nothing more to that cluster.
    fn turn_around(&self, next: &mut Move, namespace: &str, of: UnderWay) -> UnderWay {
        let (transfer, there) = (&of.transfer, &self.namespaces[namespace]);
        let missing = there.missing(&transfer.to, of.before).unwrap_or_default();
        let within = match self.is_able(&transfer.to) {
            Err(why) => format!(", which {why}"),
            Ok(()) => format!(" within {} s", self.timing.drain_arrival.as_secs()),
        };
        let able = self.is_able(&transfer.from);
        let fate = match &able {
            Ok(()) => "it is to be brought back".to_owned(),
            Err(why) => format!("it stays there, for Cluster {} {why}", transfer.from),
        };
        let why = format!("{namespace} did not arrive on {}{within}: {missing}; {fate}", transfer.to);
        let marks = self.clusters.get(&transfer.to).map(ClusterFacts::marks).unwrap_or_default();
        next.failed.entry(transfer.to.clone()).or_insert_with(|| Failure {
            namespace: namespace.to_owned(),
            marks,
            why,
        });
        if able.is_err() {
            return self.ask_again(namespace, of);
        }
        let (from, to) = (transfer.to.clone(), transfer.from.clone());
        let attempt = self.attempt(true, &to, None, None);
        UnderWay::begin(Transfer { from, to, attempt }, of.before, self.now)
    }

    /// Chooses the cluster that takes the city, and has namespaces begin when it is able; or says what is in the way.
    fn choose(&self, next: &mut Move) {
        let fits = |name: &str| !self.is_leaving(name) && !next.failed.contains_key(name);
        let labelled = guard::candidates(self.city, self.clusters);
        let labelled: Vec<&str> = labelled.into_iter().filter(|name| fits(name)).collect();
        let kept = next.transfers.values().map(|of| of.transfer.to.clone()).find(|to| labelled.contains(&to.as_str()));
        let rank = |name: &&str| {
            (self.is_able(name).is_err(), std::cmp::Reverse(count(self.namespaces, name)), (*name).to_owned())
        };
        next.to = kept.or_else(|| labelled.into_iter().min_by_key(rank).map(str::to_owned));
        let told = next.why_failed();
        let waits = match &next.to {
            None => Some(format!("no other Cluster carries the label of {}", self.city)),
            Some(to) => {
                let obstacle = self.is_able(to).err();
                obstacle.map(|why| format!("Cluster {to}, which carries the label of {}, {why}", self.city))
            }
        };
        match (waits, next.to.clone()) {
            (None, Some(to)) => {
                if let Some(why) = self.no_way_back(next, &to) {
                    next.waits = Some(why);
                } else {
                    let stay = self.admit(next, &to);
                    next.waits = move_reports::told(next, &stay, self.timing).or(told);
                }
            }
            (waits, _) => next.waits = told.or(waits),
        }
    }

    /// Why nothing begins yet: what does not arrive could not come back, and that was said only a while ago. Karmada's scheduler
    /// lets a cluster keep what it has, whatever its taints; what has left it, it refuses like anything new (fact 64).
    fn no_way_back(&self, next: &mut Move, to: &str) -> Option<String> {
        let to_begin = |from: &String| {
            self.namespaces.iter().any(|(name, there)| there.has(from) && !next.transfers.contains_key(name))
        };
        let closed = next.from.iter().filter(|from| to_begin(from)).find_map(|from| {
            let facts =
                self.clusters.get(from).filter(|facts| facts.ready.is_ok() && !facts.dead && !facts.deleting)?;
            Some((from, facts.obstacle.as_ref()?))
        });
        let Some((from, obstacle)) = closed else {
            next.one_way = None;
            return None;
        };
        let since = *next.one_way.get_or_insert(self.now);
        let pause = self.timing.drain_arrival;
        (!self.passed(since, pause)).then(|| {
            format!(
                "Cluster {from} {obstacle}, so that what does not arrive on {to} could not come back: mend that, or in {} s \
                 the drain begins without a way back",
                pause.as_secs()
            )
        })
    }

    /// Has more namespaces begin: at most as many are under way as have arrived, and one to begin with. What is over its time,
    /// and cannot be brought back, holds up no other. Returns those that do not begin.
    fn admit(&self, next: &mut Move, to: &str) -> Staying {
        let resting: Vec<(&String, &Whereabouts)> = self
            .namespaces
            .iter()
            .filter(|(name, there)| !there.on.is_empty() && !next.transfers.contains_key(*name))
            .collect();
        // Applied and, where an Instance is asked for, programmed: of one that has been there all the time as well.
        let arrived = resting.iter().filter(|(_, there)| there.missing(to, Before::FULL).is_none()).count();
        let mut waiting: Vec<(&String, &Whereabouts, &String)> = Vec::new();
        let mut stay = Staying::default();
        for (name, there) in resting {
            let Some(from) = there.on.keys().find(|cluster| next.from.contains(*cluster)) else { continue };
            if there.sum(|on| on.suspended) > 0 {
                stay.suspended.push(name.clone());
            } else if let Some(why) = there.unproved(to, &next.from) {
                stay.shared.push(format!("{name}: {why}"));
            } else {
                waiting.push((name, there, from));
            }
        }
        // First those of whom the most can be learnt: somebody runs there, and they are few. Those that did not begin come after
        // all others, and take turns.
        let aside = |name: &String| next.aside.get(name);
        waiting.sort_by_key(|(name, there, _)| {
            let since = aside(name).map(|aside| aside.since);
            (since, there.sum(|on| on.current) == 0, there.sum(|on| on.bindings), name.as_str())
        });
        let urgent = next.from.iter().any(|name| self.clusters.get(name).is_some_and(|cluster| cluster.deleting));
        let in_time = |of: &&UnderWay| !self.passed(of.since, self.timing.drain_arrival);
        let busy = next.transfers.values().filter(in_time).count();
        let room = if urgent { waiting.len() } else { arrived.max(1).saturating_sub(busy) };
        let begun = waiting.into_iter().take(room).map(|(name, there, from)| {
            let before = there.before();
            let last = aside(name).map(|aside| aside.of.transfer.attempt.as_str());
            let attempt = self.attempt(false, to, last, Some(before));
            let transfer = Transfer { from: from.clone(), to: to.to_owned(), attempt };
            (name.clone(), UnderWay::begin(transfer, before, self.now))
        });
        let begun: Vec<(String, UnderWay)> = begun.collect();
        if arrived > 0 {
            next.home = Some(to.to_owned());
        }
        next.transfers.extend(begun);
        stay
    }
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
