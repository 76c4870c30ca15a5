//! The drains of all cities, and the reports on the Clusters.
//!
//! A notice is reported once. It is reported again if it returns after a while.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    city_drain::{self, Drain},
    placement_status::PlacementStatus,
};
use crate::plan::management::observed::cluster::ClusterFacts;
use crate::{
    api::{
        karmada::{Cluster, ClusterSpec},
        meta::{annotation, label},
        names::CityCode,
        reason::Reason,
    },
    plan::{
        Hub, Next, Plan, Write,
        event::{self, Note, Severity},
    },
    timing::Timing,
};

/// Places of the cities, and the last decision about them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Every member cluster.
    pub clusters: BTreeMap<String, ClusterFacts>,
    /// By city, the clusters that hold something of it.
    pub holders: BTreeMap<CityCode, BTreeSet<String>>,
    /// Hub namespaces of each city that moves, is to move, or is on several clusters.
    pub cities: BTreeMap<CityCode, BTreeMap<String, PlacementStatus>>,
    /// True if the city guard is on; without it nothing moves.
    pub guard: bool,
    /// When the drain of a Cluster was last recalled.
    pub recalled: BTreeMap<String, Timestamp>,
    /// The last decision.
    pub before: Decision,
    /// Periods.
    pub timing: Timing,
}

/// The decision about all cities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The cities that leave a cluster, or are not whole on one yet.
    pub drains: BTreeMap<CityCode, Drain>,
    /// Problems that are reported on Clusters while they last.
    pub notices: BTreeSet<Notice>,
}

/// Decides about every city. The decision is signalled: policies and deployments use it until the next one.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Write<Hub>, Decision> {
    let mut decision = Decision::default();
    let Observed { clusters, recalled, timing, .. } = observed;
    for (city, namespaces) in observed.cities.iter().filter(|_| observed.guard) {
        let before = observed.before.drains.get(city);
        let of_city = city_drain::City { code: city, namespaces, clusters, recalled, before, timing };
        decision.drains.extend(city_drain::next(&of_city, now).map(|drain| (city.clone(), drain)));
    }
    decision.notices = notices(observed, &decision.drains);
    let steps = events(observed, &decision, now);
    let next = if decision.drains.is_empty() { Next::Await } else { Next::After(observed.timing.poll) };
    Plan::until(steps, next).with([decision])
}

/// One problem that is reported on one Cluster while it lasts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Notice {
    /// The Cluster.
    pub cluster: String,
    /// Its topic.
    pub topic: Topic,
    /// The message.
    pub text: String,
}

/// The topic of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Topic {
    /// The Cluster holds a city without carrying its label.
    LabelLost,
    /// A city is on several Clusters, and nothing of it moves.
    Split,
    /// A drain waits.
    DrainWaiting,
    /// A drain has failed.
    DrainFailed,
}

impl Topic {
    fn reason(self) -> (Reason, &'static str) {
        match self {
            Self::LabelLost => (Reason::CityLabelLost, "Guarding"),
            Self::Split => (Reason::SeveralClusters, "Guarding"),
            Self::DrainWaiting => (Reason::DrainWaiting, "Draining"),
            Self::DrainFailed => (Reason::DrainFailed, "Draining"),
        }
    }
}

/// All notices that apply now.
fn notices(observed: &Observed, drains: &BTreeMap<CityCode, Drain>) -> BTreeSet<Notice> {
    let on = |cluster: &str, topic, text| Notice { cluster: cluster.to_owned(), topic, text };
    let lost = mislabelled(observed).map(|(cluster, city)| {
        let text = format!(
            "the label {} is not {city}, and deployments of {city} stay on the Cluster. Restore the label, or annotate \
             the Cluster with {}=true to move the city",
            label::TOPOLOGY_CITY,
            annotation::DRAIN
        );
        on(cluster, Topic::LabelLost, text)
    });
    let split = observed.cities.keys().filter(|city| observed.guard && !drains.contains_key(*city)).flat_map(|city| {
        let clusters = alone(observed, city);
        let names: Vec<&str> = clusters.iter().copied().collect();
        let text = format!(
            "{city} runs on Clusters {}, on each in different namespaces, and no namespace moves. To move the city to \
             one Cluster, annotate the others with {}=true",
            names.join(", "),
            annotation::DRAIN
        );
        let is_split = clusters.len() > 1;
        clusters.into_iter().filter(move |_| is_split).map(move |cluster| on(cluster, Topic::Split, text.clone()))
    });
    let waiting = drains.iter().flat_map(|(city, drain)| {
        let topic = if drain.has_failed { Topic::DrainFailed } else { Topic::DrainWaiting };
        let texts = drain.waits.iter().map(move |waits| format!("the drain of {city} is not complete: {waits}"));
        texts.flat_map(move |text| drain.concerned().into_iter().map(move |cluster| on(cluster, topic, text.clone())))
    });
    let unguarded = observed.clusters.iter().filter(|(_, facts)| !observed.guard && facts.draining).map(|(name, _)| {
        let text = format!(
            "the annotation {} has no effect: cityGuard is false in the configuration of compute-manager, so a city runs \
             on every Cluster with its label {}",
            annotation::DRAIN,
            label::TOPOLOGY_CITY
        );
        on(name, Topic::DrainWaiting, text)
    });
    lost.chain(split).chain(waiting).chain(unguarded).collect()
}

/// The Clusters that hold a city without its label, each with the city.
pub fn mislabelled(observed: &Observed) -> impl Iterator<Item = (&String, &CityCode)> {
    let held = observed.holders.iter().flat_map(|(city, on)| on.iter().map(move |cluster| (cluster, city)));
    held.filter(|(cluster, city)| {
        observed.clusters.get(*cluster).is_some_and(|facts| facts.city.as_ref() != Some(*city))
    })
}

/// The Clusters with a drain that is not carried out because the city guard is off, each with a city that it holds.
pub fn unguarded(observed: &Observed) -> impl Iterator<Item = (&String, &CityCode)> {
    let is_draining = |cluster: &String| observed.clusters.get(cluster).is_some_and(|facts| facts.draining);
    let held = observed.holders.iter().flat_map(|(city, on)| on.iter().map(move |cluster| (cluster, city)));
    held.filter(move |(cluster, _)| !observed.guard && is_draining(cluster))
}

/// The Clusters that are not ready, each with the cities that it holds and the one that its label names.
pub fn unready(observed: &Observed) -> BTreeSet<(&String, &CityCode)> {
    let held = observed.holders.iter().flat_map(|(city, on)| on.iter().map(move |cluster| (cluster, city)));
    let named = observed.clusters.iter().filter_map(|(cluster, facts)| Some((cluster, facts.city.as_ref()?)));
    let is_unready = |cluster: &String| observed.clusters.get(cluster).is_some_and(|facts| facts.ready.is_err());
    held.chain(named).filter(|(cluster, _)| is_unready(cluster)).collect()
}

/// Clusters with a deployment of a city that is on no other cluster.
fn alone<'a>(observed: &'a Observed, city: &CityCode) -> BTreeSet<&'a str> {
    let statuses = observed.cities.get(city).into_iter().flat_map(BTreeMap::values);
    let shares = statuses.flat_map(|there| &there.on).filter(|(_, share)| share.bindings > share.shared);
    shares.map(|(cluster, _)| cluster.as_str()).collect()
}

/// Events about new notices and ended drains.
fn events(observed: &Observed, decision: &Decision, now: Timestamp) -> Vec<Write<Hub>> {
    let before = &observed.before;
    let news = decision.notices.difference(&before.notices).map(|notice| {
        let (reason, action) = notice.topic.reason();
        event(&notice.cluster, Severity::Warning, reason, action, &notice.text, now)
    });
    let ended = before.drains.iter().filter(|(city, _)| !decision.drains.contains_key(*city));
    let ended = ended.flat_map(|(city, drain)| {
        let to = drain.to.as_ref().map(|to| format!("; its target was {to}")).unwrap_or_default();
        let text = format!("the drain of {city} has ended{to}");
        let on = drain.from.iter();
        on.map(move |cluster| event(cluster, Severity::Normal, Reason::DrainEnded, "Draining", &text, now))
    });
    news.chain(ended).collect()
}

fn event(
    cluster: &str,
    severity: Severity,
    reason: Reason,
    action: &'static str,
    text: &str,
    now: Timestamp,
) -> Write<Hub> {
    let note = Note { severity, reason, action, text };
    event::on(&Cluster::new(cluster, ClusterSpec::default()), "city-guard", &note, now)
}

#[cfg(test)]
#[path = "cities_tests.rs"]
mod tests;
