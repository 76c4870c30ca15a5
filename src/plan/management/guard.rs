//! Where a city's deployments may be: the city's label, and behind it the clusters that have them now.
//!
//! Karmada takes everything away from a cluster that loses the label its policy selects by (fact 42). A second group of
//! clusters, by name, keeps what runs where it is (fact 46). It is never widened by a guess: with two clusters in it,
//! every deployment would run on both.

use std::{collections::BTreeSet, sync::Arc};

use super::facts::{BindingFacts, ClusterFacts};
use crate::api::{
    karmada::{ClusterAffinity, ClusterAffinityTerm, MatchLabels, PolicyPlacement},
    meta::label,
    names::CityCode,
};

/// Names of the two groups.
const CITY: &str = "city";
const HOLDING: &str = "holding";

/// What is known of the clusters of one city.
pub struct Clusters<'a> {
    /// Bindings of the city's deployments in one hub namespace.
    pub bindings: &'a [Arc<BindingFacts>],
    /// A member cluster by name.
    pub cluster: &'a dyn Fn(&str) -> Option<Arc<ClusterFacts>>,
    /// The clusters that carry a city's label.
    pub clusters_of: &'a dyn Fn(&CityCode) -> Vec<String>,
}

/// The placement of a city's policy. `live`: the one that stands.
pub fn placement(city: &CityCode, live: Option<&PolicyPlacement>, clusters: &Clusters<'_>) -> PolicyPlacement {
    let leaving = leaving(city, clusters);
    let selector = MatchLabels { match_labels: [(label::TOPOLOGY_CITY.to_owned(), city.as_str().to_owned())].into() };
    let holding = holding(live, &leaving, clusters);
    // Once somebody holds the city, the label alone sends nothing elsewhere: one that is moved in a single step, or
    // swapped with another, would take the city along before the second group could speak.
    let by_label = ClusterAffinity {
        label_selector: Some(selector),
        cluster_names: holding.clone(),
        exclude: leaving.iter().cloned().collect(),
    };
    if holding.is_empty() {
        return PolicyPlacement { cluster_affinity: Some(by_label), cluster_affinities: None };
    }
    let names = ClusterAffinity { cluster_names: holding, ..ClusterAffinity::default() };
    let term = |name: &str, group| ClusterAffinityTerm { affinity_name: name.into(), group };
    PolicyPlacement {
        cluster_affinity: None,
        cluster_affinities: Some(vec![term(CITY, by_label), term(HOLDING, names)]),
    }
}

/// The plain placement of the contract, without a guard.
pub fn plain(city: &CityCode) -> PolicyPlacement {
    let none = Clusters { bindings: &[], cluster: &|_| None, clusters_of: &|_| Vec::new() };
    placement(city, None, &none)
}

/// Clusters that are to be drained, and can be: another one that is ready carries the city's label.
fn leaving(city: &CityCode, clusters: &Clusters<'_>) -> BTreeSet<String> {
    let labelled = (clusters.clusters_of)(city);
    let facts = |name: &String| (clusters.cluster)(name);
    let takes_over = labelled.iter().filter_map(facts).any(|cluster| !cluster.draining && cluster.ready.is_ok());
    if !takes_over {
        return BTreeSet::new();
    }
    let holders = clusters.bindings.iter().flat_map(|binding| binding.clusters.iter());
    let all: BTreeSet<&String> = labelled.iter().chain(holders).collect();
    all.into_iter().filter(|name| facts(name).is_some_and(|cluster| cluster.draining)).cloned().collect()
}

/// The clusters that the guard names: those it names already, as far as they are still there; at first those that every
/// deployment of the city is on.
fn holding(live: Option<&PolicyPlacement>, leaving: &BTreeSet<String>, clusters: &Clusters<'_>) -> Vec<String> {
    let stays = |name: &String| (clusters.cluster)(name).is_some() && !leaving.contains(name);
    let terms = live.and_then(|placement| placement.cluster_affinities.as_ref()).into_iter().flatten();
    let named: Vec<String> = terms
        .filter(|term| term.affinity_name == HOLDING)
        .flat_map(|term| term.group.cluster_names.iter())
        .filter(|name| stays(name))
        .cloned()
        .collect();
    if !named.is_empty() {
        return named;
    }
    let mut places = clusters.bindings.iter().filter(|b| !b.terminating && !b.clusters.is_empty()).map(|binding| {
        let on: BTreeSet<String> = binding.clusters.iter().filter(|name| stays(name)).cloned().collect();
        on
    });
    let Some(first) = places.next() else { return Vec::new() };
    if first.is_empty() || places.any(|other| other != first) { Vec::new() } else { first.into_iter().collect() }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
