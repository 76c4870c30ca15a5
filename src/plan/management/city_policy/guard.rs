//! The placement of a city policy: the one cluster that has the city, and a second group that keeps it there.
//!
//! Karmada removes everything from a cluster that loses the label that its policy selects by (fact 42). A second group of
//! clusters, by name, keeps running deployments where they are (fact 46). No group ever names two clusters: every deployment
//! would run on both. The cluster that has the city is read off the bindings that the city's own policy claimed. Bindings of
//! other policies, and an earlier placement of the policy, do not count.
//!
//! A transfer has two groups as well: first the new cluster, then the old one, each under a new name. Karmada's scheduler
//! begins at the group that it observed last, if that still exists (fact 64), so that it only tries again under new names.
//! Deployments that the new cluster refuses stay on the old one.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::api::{
    karmada::{ClusterAffinity, ClusterAffinityTerm, LabelSelector, PolicyPlacement},
    meta::label,
    names::CityCode,
};
use crate::plan::management::{
    drain::{
        placement_status::{ClusterShare, Transfer},
        transfer::Instruction,
    },
    observed::{
        cluster::ClusterFacts,
        placement::{CITY_GROUP, HOLDING_GROUP, LEAVING_GROUP_PREFIX, MOVING_GROUP_PREFIX},
    },
};

/// The Cluster in the policy of a city that waits for its first one. Karmada takes only DNS labels as names of Clusters, which
/// have no dot, so no Cluster has this name. The label alone would select each Cluster that gets it, before the operator
/// reconciles.
const NO_CLUSTER_YET: &str = "no-cluster.yet";

/// The place of a city, for its policy in one hub namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The clusters of each binding that the city's policy claimed and that is not terminating. Bindings without clusters are
    /// left out.
    pub on: Vec<BTreeSet<String>>,
    /// True if the scheduler has not processed the policy yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub under_way: bool,
    /// The clusters that carry the city's label in any spelling, those of the city's bindings, and those of its transfer.
    pub clusters: BTreeMap<String, ClusterFacts>,
    /// Bindings of the city in other namespaces, by cluster. Only gathered if `on` is empty.
    pub elsewhere: BTreeMap<String, usize>,
    /// The city's share of each cluster in this namespace.
    #[serde(default)]
    pub shares: BTreeMap<String, ClusterShare>,
    /// The instruction of the drain to this namespace.
    #[serde(default)]
    pub instruction: Instruction,
}

/// The placement of a city's policy, and a note about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// The placement.
    pub placement: PolicyPlacement,
    /// The message if one of several clusters was chosen, or several have the city.
    pub note: Option<String>,
}

/// Decides the placement of a city's policy. `spellings` are those of its deployments, `live` is the present placement, and
/// `transfer` the one that the policy is to ask for.
pub fn decide(
    city: &CityCode,
    spellings: &BTreeSet<String>,
    live: Option<&PolicyPlacement>,
    observed: &Observed,
    transfer: Option<&Transfer>,
) -> Guarded {
    let selector = selector(city, spellings, &observed.clusters);
    let quiet = |placement| Guarded { placement, note: None };
    let known = |name: &&String| observed.clusters.contains_key(*name);
    let places: BTreeSet<BTreeSet<String>> = observed
        .on
        .iter()
        .map(|on| on.iter().filter(known).cloned().collect())
        .filter(|on: &BTreeSet<_>| !on.is_empty())
        .collect();
    let all: BTreeSet<&String> = places.iter().flatten().collect();
    match (all.iter().collect::<Vec<_>>().as_slice(), transfer) {
        ([], _) => fresh(city, selector, observed),
        // The group behind stays until the move is proved.
        (_, Some(transfer)) => quiet(moving(selector, transfer, observed)),
        ([holder], None) => quiet(held(selector, holder)),
        _ if places.iter().all(|place| place.len() == 1) => {
            quiet(live.cloned().unwrap_or_else(|| by_label(selector, None)))
        }
        _ => shared(city, selector, &all),
    }
}

/// The plain placement of the contract, without a guard. It selects the label in the one spelling of deployments and clusters, or
/// in all their spellings if they differ. Without a guard, the city leaves a Cluster if the label changes its spelling.
pub fn plain(
    city: &CityCode,
    spellings: &BTreeSet<String>,
    clusters: &BTreeMap<String, ClusterFacts>,
) -> PolicyPlacement {
    by_label(selector(city, spellings, clusters), None)
}

/// The spellings of a city's label on its clusters.
pub fn labels<'a>(city: &CityCode, clusters: &'a BTreeMap<String, ClusterFacts>) -> impl Iterator<Item = &'a String> {
    let of_city = clusters.values().filter(|cluster| cluster.city.as_ref() == Some(city));
    of_city.filter_map(|cluster| cluster.label.as_ref())
}

/// Selects the city's label in every spelling that its deployments and its clusters have.
fn selector(city: &CityCode, spellings: &BTreeSet<String>, clusters: &BTreeMap<String, ClusterFacts>) -> LabelSelector {
    let mut values: BTreeSet<String> = labels(city, clusters).chain(spellings).cloned().collect();
    if values.is_empty() {
        values.insert(city.as_str().to_owned());
    }
    LabelSelector::one_of(label::TOPOLOGY_CITY, &values)
}

/// The label. If a cluster is named, only that one of the clusters with the label.
fn by_label(selector: LabelSelector, cluster: Option<&str>) -> PolicyPlacement {
    let group = ClusterAffinity {
        label_selector: Some(selector),
        cluster_names: cluster.into_iter().map(str::to_owned).collect(),
        ..ClusterAffinity::default()
    };
    PolicyPlacement { cluster_affinity: Some(group), ..PolicyPlacement::default() }
}

/// One cluster by its name.
fn by_name(cluster: &str) -> ClusterAffinity {
    ClusterAffinity { cluster_names: vec![cluster.to_owned()], ..ClusterAffinity::default() }
}

fn groups(first: (String, ClusterAffinity), second: (String, ClusterAffinity)) -> PolicyPlacement {
    let term = |(affinity_name, group)| ClusterAffinityTerm { affinity_name, group };
    PolicyPlacement { cluster_affinities: Some(vec![term(first), term(second)]), ..PolicyPlacement::default() }
}

/// A city that stays. The first group selects the label and names the cluster. Without the name, a label that moves to another
/// cluster in one step would take the city along before the second group counts.
fn held(selector: LabelSelector, holder: &str) -> PolicyPlacement {
    let city = ClusterAffinity { label_selector: Some(selector), ..by_name(holder) };
    groups((CITY_GROUP.into(), city), (HOLDING_GROUP.into(), by_name(holder)))
}

/// A city that moves. Only a cluster to which it returns may lack the label.
fn moving(selector: LabelSelector, transfer: &Transfer, observed: &Observed) -> PolicyPlacement {
    let labelled = observed.clusters.get(&transfer.route.to).is_some_and(|cluster| cluster.label.is_some());
    let by_label = labelled || !transfer.is_back();
    let first = ClusterAffinity { label_selector: by_label.then_some(selector), ..by_name(&transfer.route.to) };
    let name = |prefix: &str| format!("{prefix}{}", transfer.attempt);
    groups((name(MOVING_GROUP_PREFIX), first), (name(LEAVING_GROUP_PREFIX), by_name(&transfer.route.from)))
}

/// A namespace in which the city is nowhere yet. It begins on the cluster of the city's other namespaces, else on one of the
/// clusters with the label. While there is none, it waits: two clusters that get the label at once would both be taken.
fn fresh(city: &CityCode, selector: LabelSelector, observed: &Observed) -> Guarded {
    let stays = |name: &String| observed.clusters.get(name).is_some_and(|cluster| !cluster.is_leaving());
    // The scheduler brings nothing to a cluster that is being deleted.
    let usable = |name: &str| observed.clusters.get(name).is_some_and(|cluster| !cluster.deleting);
    let held_elsewhere = observed.elsewhere.iter().filter(|(name, _)| usable(name));
    let home = observed.instruction.home.as_ref().filter(|home| usable(home));
    let home = home.or_else(|| held_elsewhere.max_by_key(|(name, count)| (stays(name), **count)).map(|(name, _)| name));
    if let Some(home) = home {
        return Guarded { placement: held(selector, home), note: None };
    }
    let candidates = candidates(city, &observed.clusters);
    let Some(chosen) = candidates.first() else {
        return Guarded { placement: by_label(selector, Some(NO_CLUSTER_YET)), note: None };
    };
    let note = (candidates.len() > 1).then(|| {
        format!(
            "Clusters {} have the label of {city}, and none of them runs it yet. The policy selects {chosen}, the first \
             able one by name",
            candidates.join(", ")
        )
    });
    Guarded { placement: by_label(selector, Some(chosen)), note }
}

/// The clusters that carry a city's label, the one to be chosen first: those that stay, then those that are able, then
/// by name.
pub fn candidates<'a>(city: &CityCode, clusters: &'a BTreeMap<String, ClusterFacts>) -> Vec<&'a str> {
    let mut all: Vec<(&String, &ClusterFacts)> =
        clusters.iter().filter(|(_, cluster)| cluster.city.as_ref() == Some(city)).collect();
    all.sort_by_key(|(name, cluster)| (cluster.is_leaving(), cluster.is_able().is_err(), name.as_str()));
    all.into_iter().map(|(name, _)| name.as_str()).collect()
}

/// A city of which each deployment runs on several clusters, as under a policy of the Go operator if several carry the label.
/// It is not known which of them is to keep the city, so all do.
fn shared(city: &CityCode, selector: LabelSelector, on: &BTreeSet<&String>) -> Guarded {
    let names: Vec<&str> = on.iter().map(|name| name.as_str()).collect();
    let note = format!(
        "each deployment of {city} here runs on Clusters {}. Remove the city's label from all but one. Until then, the \
         city is not protected against the loss of a label",
        names.join(", ")
    );
    Guarded { placement: by_label(selector, None), note: Some(note) }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
