//! Clusters that are to be drained while the city guard is off -> that nothing moves for it, told once on each.
//!
//! Plain policies have no second group that a move could keep until it is proved: a city is wherever Clusters carry its label.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        karmada::{Cluster, ClusterSpec},
        meta::{annotation, label},
        names::CityCode,
        reason::Reason,
    },
    plan::{
        Hub, Plan, Write,
        event::{self, Note, Severity},
    },
};

/// Everything that is known about drains that nobody carries out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Of each Cluster that is to be drained: the cities that it has.
    pub draining: BTreeMap<String, BTreeSet<CityCode>>,
    /// The Clusters on which it has been told.
    pub told: BTreeSet<String>,
}

impl Observed {
    /// How many cities wait for a drain that nobody carries out.
    pub fn waiting(&self) -> usize {
        self.draining.values().flatten().collect::<BTreeSet<_>>().len()
    }
}

/// Decides on which Clusters it is told. Those on which it is told by then come as signals.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Write<Hub>, String> {
    let text = format!(
        "nothing moves for the annotation {}: cityGuard is false in the configuration of compute-manager, and a city is \
         wherever Clusters carry its label {}",
        annotation::DRAIN,
        label::TOPOLOGY_CITY
    );
    let note = Note { severity: Severity::Warning, reason: Reason::DrainWaiting, action: "Draining", text: &text };
    let news = observed.draining.keys().filter(|name| !observed.told.contains(*name));
    let events = news.map(|name| event::on(&Cluster::new(name, ClusterSpec::default()), "city-guard", &note, now));
    Plan::writes(events.collect()).with(observed.draining.keys().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_that_nobody_carries_out_is_told_once_on_each_cluster_and_anew_when_it_is_asked_for_again() {
        let city = |code: &str| CityCode::parse(code).unwrap();
        let mut observed = Observed::default();
        let mut look = |draining: &[(&str, &[&str])]| {
            let cities = |codes: &[&str]| codes.iter().map(|code| city(code)).collect();
            observed.draining = draining.iter().map(|(name, codes)| ((*name).to_owned(), cities(codes))).collect();
            let plan = plan(&observed, Timestamp::UNIX_EPOCH);
            observed.told = plan.signals.into_iter().collect();
            let on: Vec<String> = plan.steps.iter().map(|event| format!("{event:?}")).collect();
            assert!(on.iter().all(|event| event.contains("DrainWaiting") && event.contains("cityGuard is false")));
            (on.len(), observed.waiting())
        };
        assert_eq!(look(&[]), (0, 0));
        assert_eq!(look(&[("a", &["dfw", "ord"])]), (1, 2));
        assert_eq!(look(&[("a", &["dfw", "ord"]), ("b", &["dfw"])]), (1, 2));
        assert_eq!(look(&[("a", &["dfw"]), ("b", &[])]), (0, 1));
        assert_eq!(look(&[]), (0, 0));
        assert_eq!(look(&[("a", &[])]), (1, 0));
    }
}
