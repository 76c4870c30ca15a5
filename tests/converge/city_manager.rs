//! What the manager knows of a city that moves, and decides.

use std::collections::{BTreeMap, BTreeSet};

use compute_operator::{
    api::names::CityCode,
    plan::{
        Hub, Shared, Write,
        management::{
            city_policy::{
                guard,
                migration::probe::Probe,
                policy::{self, Propagation},
            },
            drain::{
                cities::{self, Decision},
                placement_status::PlacementStatus,
            },
            observed::{facts, placement},
        },
    },
    timing::Timing,
};
use jiff::Timestamp;

use super::cities::{CITY, City, NAMESPACES, namespace};

/// The memory of one manager.
#[derive(Clone, Debug, Default)]
pub struct Manager {
    decision: Decision,
    recalled: BTreeMap<String, Timestamp>,
}

fn code() -> CityCode {
    CityCode::parse(CITY).unwrap()
}

impl Manager {
    /// Somebody has recalled the drain of a cluster.
    pub fn drain_is_recalled(&mut self, cluster: &str, now: Timestamp) {
        self.recalled.insert(cluster.to_owned(), now);
    }

    pub fn look(&mut self, city: &City) {
        let status = |n: usize| {
            let of = city.policy(n).map(|policy| PlacementStatus::of_policy(&policy, city.now)).unwrap_or_default();
            city.facts(n).iter().fold(of, PlacementStatus::with)
        };
        let namespaces: BTreeMap<_, _> =
            (0..NAMESPACES).map(|n| (namespace(n), status(n))).filter(|(_, there)| !there.on.is_empty()).collect();
        let holders = namespaces.values().flat_map(|there| there.on.keys().cloned()).collect();
        let observed = cities::Observed {
            clusters: city.clusters(),
            holders: [(code(), holders)].into(),
            cities: [(code(), namespaces)].into(),
            guard: true,
            recalled: self.recalled.clone(),
            before: std::mem::take(&mut self.decision),
            timing: Timing::default(),
        };
        let mut signals = cities::plan(&observed, city.now).signals;
        self.decision = signals.pop().unwrap();
    }

    pub fn decide(&self, city: &City, n: usize) -> Vec<Write<Hub>> {
        let policy = city.policy(n);
        let asked = policy.as_ref().map(|policy| placement::digest(&policy.spec.placement));
        let binding = city.facts(n);
        let bindings: Vec<_> = binding.iter().collect();
        let (on, under_way) = facts::places(&code(), asked.as_deref(), &bindings);
        let shares = bindings.iter().fold(PlacementStatus::default(), |status, binding| status.with(binding)).on;
        let drain = self.decision.drains.get(&code());
        let instruction = drain.map(|drain| drain.instruction(&namespace(n))).unwrap_or_default();
        let clusters = city.clusters();
        let place = guard::Observed { on, under_way, clusters, shares, instruction, ..guard::Observed::default() };
        let observed = policy::Observed {
            namespace: namespace(n),
            spellings: BTreeSet::new(),
            copies: 1,
            wanted: true,
            complete: true,
            namespace_lives: true,
            policy: policy.map(Shared::from),
            place: Some(place),
            guard: true,
            delivered_by_dependency: false,
            claimed: 0,
            probe: Probe::Passed,
            propagation: Propagation::Dependencies,
            problem: None,
            rollback_impact: None,
            rollback_waits: Vec::new(),
            timing: Timing::default(),
            city: code(),
        };
        policy::plan(&observed, city.now).steps
    }
}
