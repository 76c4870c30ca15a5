//! Cities that different clusters have in different namespaces, while nothing of them moves: a drain that was called off half-way
//! leaves one so, and somebody is to know.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        karmada::{Cluster, ClusterSpec},
        meta::annotation,
        names::CityCode,
        reason::Reason,
    },
    plan::{
        Hub, Plan, Write,
        event::{self, Note, Severity},
    },
};

/// The clusters that have each city.
pub type Holders = BTreeMap<CityCode, BTreeSet<String>>;

/// What is known of where cities are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Of each city, the clusters that have a deployment of it, each for itself alone.
    pub holders: Holders,
    /// The cities that are on their way.
    pub moving: BTreeSet<CityCode>,
    /// The cities that were reported before, with their clusters.
    pub reported: Holders,
}

/// Decides what is reported on the clusters of a city that is not in one place. Every such city is signalled, with them.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Write<Hub>, (CityCode, BTreeSet<String>)> {
    let stays = |city: &CityCode| !observed.moving.contains(city);
    let found: Holders = observed
        .holders
        .iter()
        .filter(|(city, on)| on.len() > 1 && stays(city))
        .map(|(c, on)| (c.clone(), on.clone()))
        .collect();
    let news = found.iter().filter(|(city, on)| observed.reported.get(*city) != Some(*on));
    let events = news.flat_map(|(city, on)| on.iter().map(move |cluster| report(city, on, cluster, now)));
    Plan::writes(events.collect()).with(found)
}

/// Reports on one of the clusters that have a city.
fn report(city: &CityCode, on: &BTreeSet<String>, cluster: &str, now: Timestamp) -> Write<Hub> {
    let names: Vec<&str> = on.iter().map(String::as_str).collect();
    let text = format!(
        "{city} is on Clusters {}, on each in other namespaces, and nothing of it moves: annotate those that are to give it up \
         with {}=true, and have one keep it",
        names.join(", "),
        annotation::DRAIN
    );
    let cluster = Cluster::new(cluster, ClusterSpec::default());
    let note = Note { severity: Severity::Warning, reason: Reason::SeveralClusters, action: "Guarding", text: &text };
    event::on(&cluster, "city-guard", &note, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::recorded::recorded;

    /// Found by reading: where a drain was called off half-way, no policy by itself saw that the city was in two places, and
    /// nobody said so.
    #[test]
    fn a_city_that_is_in_two_places_and_stays_is_told_once_on_each() {
        let city = |code: &str| CityCode::parse(code).unwrap();
        let on = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let holders: Holders = [(city("dfw"), on(&["a", "b"])), (city("ord"), on(&["c"]))].into();
        let told = |moving: &[&str], reported: &[&[&str]]| {
            let observed = Observed {
                holders: holders.clone(),
                moving: moving.iter().map(|code| city(code)).collect(),
                reported: reported.iter().map(|names| (city("dfw"), on(names))).collect(),
            };
            let decided = plan(&observed, Timestamp::UNIX_EPOCH);
            let again = plan(&recorded(&observed), Timestamp::UNIX_EPOCH);
            assert_eq!(format!("{decided:?}"), format!("{again:?}"));
            (decided.steps.len(), decided.signals.len(), format!("{:?}", decided.steps))
        };
        let (events, cities, text) = told(&[], &[]);
        assert!(
            (events, cities) == (2, 1) && text.contains("dfw is on Clusters a, b") && !text.contains("ord"),
            "{text}"
        );
        assert_eq!(told(&[], &[&["a", "b"]]).0, 0, "once");
        assert_eq!(told(&[], &[&["a", "c"]]).0, 2, "it is on others now");
        assert_eq!(told(&["dfw"], &[]).1, 0, "that is told by its move");
        assert_eq!(told(&["ord"], &[]).1, 1);
    }
}
