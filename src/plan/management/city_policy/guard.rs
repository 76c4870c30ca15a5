//! Where a city's deployments may be: the one cluster that has the city, and behind it a second group that keeps it there.
//!
//! Karmada takes everything away from a cluster that loses the label its policy selects by (fact 42). A second group of
//! clusters, by name, keeps what runs where it is (fact 46). No group ever names two clusters: every deployment would run
//! on both. Who has the city is read off the bindings that the city's own policy claimed; what another policy sent
//! somewhere, or what stands in the policy from before, says nothing of it.
//!
//! Moving a city is a matter of two groups as well: first the new cluster, then the old one, each under a name that the
//! scheduler has not seen yet. It begins at the group that it observed last, where that still stands (fact 64), so that
//! only new names have it try again; what the new cluster refuses stays on the old one.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::plan::management::{
    drain::attempt::{Attempt, LEAVING_GROUP_PREFIX, MOVING_GROUP_PREFIX},
    observed::cluster::ClusterFacts,
};
use crate::{
    api::{
        karmada::{ClusterAffinity, ClusterAffinityTerm, LabelSelector, PolicyPlacement},
        meta::label,
        names::CityCode,
    },
    plan::hash,
};

/// Names of the two groups of a city that stays.
const CITY_GROUP: &str = "city";
const HOLDING_GROUP: &str = "holding";
/// What the policy of a city that waits for its first Cluster names: Karmada takes only DNS labels as names of Clusters, which have
/// no dot, so that none is ever called this. The label alone would take each Cluster that gets it, until this operator has looked.
const NO_CLUSTER_YET: &str = "no-cluster.yet";

/// What is known of where a city is, for its policy in one hub namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Of each binding there that the city's policy claimed, and that stays: the clusters that it goes to. One that goes
    /// nowhere is left out.
    pub on: Vec<BTreeSet<String>>,
    /// Whether what the policy asks for now is on its way: where that ends is not known yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub under_way: bool,
    /// The clusters that carry the city's label, in whatever spelling, and those that bindings of the city go to.
    pub clusters: BTreeMap<String, ClusterFacts>,
    /// How many bindings of the city in other namespaces go to each cluster. Only gathered where `on` says nothing.
    pub elsewhere: BTreeMap<String, usize>,
    /// Where the city begins in a namespace that does not have it yet, while it moves.
    pub home: Option<String>,
    /// Where the city is to move in this namespace.
    pub transfer: Option<Transfer>,
    /// Where it did not arrive, as the policy is to say in [`annotation::DRAIN_FAILED`](crate::api::meta::annotation::DRAIN_FAILED).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A move of the city in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The cluster that it leaves.
    pub from: String,
    /// The cluster that it goes to.
    pub to: String,
    /// Tells this attempt from earlier ones; at most 24 characters.
    pub attempt: String,
}

impl Transfer {
    /// The move that a placement stands for.
    pub fn of(placement: &PolicyPlacement) -> Option<Self> {
        let [first, second] = placement.cluster_affinities.as_deref()? else { return None };
        let attempt = first.affinity_name.strip_prefix(MOVING_GROUP_PREFIX)?.to_owned();
        let ([to], [from]) = (&first.group.cluster_names[..], &second.group.cluster_names[..]) else { return None };
        Some(Self { from: from.clone(), to: to.clone(), attempt })
    }
}

/// Whether everything is still where a move begins, be it elsewhere as well or not.
fn stays(of: &Transfer, observed: &Observed) -> bool {
    observed.on.iter().all(|on| on.contains(&of.from))
}

/// Whether a placement that is on its way may be crossed by another word: it stands for a move that nobody wants any more, and
/// everything is still where it was. Whoever gets to it later would carry it out.
pub fn is_revoked(placement: &PolicyPlacement, observed: &Observed) -> bool {
    observed.transfer.is_none()
        && !observed.on.is_empty()
        && Transfer::of(placement).is_some_and(|of| stays(&of, observed))
}

/// The city that a placement was made for, if it has a form that city policies have.
pub fn made_for(placement: &PolicyPlacement) -> Option<CityCode> {
    let group = match (&placement.cluster_affinity, placement.cluster_affinities.as_deref()) {
        (Some(plain), None) => plain,
        (None, Some([first, _]))
            if first.affinity_name == CITY_GROUP || first.affinity_name.starts_with(MOVING_GROUP_PREFIX) =>
        {
            &first.group
        }
        _ => return None,
    };
    let spellings = group.label_selector.as_ref()?.values_of(label::TOPOLOGY_CITY);
    let cities: BTreeSet<CityCode> =
        spellings.iter().map(|spelt| CityCode::parse(spelt)).collect::<Result<_, _>>().ok()?;
    cities.first().filter(|_| cities.len() == 1).cloned()
}

/// Digest of a placement, to tell whether what stands somewhere came of it.
pub fn digest(placement: &PolicyPlacement) -> String {
    hash::digest(&json!(placement))
}

/// Where a city's policy sends it, and what is to be said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// The placement.
    pub placement: PolicyPlacement,
    /// That one of several clusters was chosen, or that several have the city, in words.
    pub note: Option<String>,
}

/// The placement of a city's policy. `spellings`: those of its deployments; `live`: the placement that stands.
pub fn decide(
    city: &CityCode,
    spellings: &BTreeSet<String>,
    live: Option<&PolicyPlacement>,
    observed: &Observed,
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
    let standing = live.and_then(Transfer::of);
    match all.iter().collect::<Vec<_>>()[..] {
        [] => fresh(city, selector, observed),
        [holder] => quiet(match &observed.transfer {
            // The group behind stays until the move is proved.
            Some(transfer) if transfer.to == **holder && standing.as_ref() == Some(transfer) => {
                moving(selector, transfer, observed)
            }
            Some(transfer) if transfer.to != **holder => moving(selector, transfer, observed),
            _ => held(selector, holder),
        }),
        _ if places.iter().all(|place| place.len() == 1) => match (&observed.transfer, standing) {
            // On its way: some have moved, the others follow or stay as the scheduler decides.
            (Some(transfer), _) => quiet(moving(selector, transfer, observed)),
            (None, Some(transfer)) => quiet(moving(selector, &transfer, observed)),
            (None, None) => quiet(live.cloned().unwrap_or_else(|| by_label(selector, None))),
        },
        // Whoever is to keep what several have was seen to run it before a move was asked for; and the group behind brings it back.
        _ => match observed.transfer.clone().or(standing.filter(|of| !stays(of, observed))) {
            Some(transfer) => quiet(moving(selector, &transfer, observed)),
            None => shared(city, selector, &all),
        },
    }
}

/// The plain placement of the contract, without a guard: the label in the one spelling that deployments and clusters have, or in
/// all of theirs where they differ. Nothing holds the city on a Cluster that is respelt.
pub fn plain(
    city: &CityCode,
    spellings: &BTreeSet<String>,
    clusters: &BTreeMap<String, ClusterFacts>,
) -> PolicyPlacement {
    by_label(selector(city, spellings, clusters), None)
}

/// How the clusters that carry a city's label spell it.
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

/// The label, and of those who carry it one cluster alone where that is named.
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

/// A city that stays. The label alone sends nothing elsewhere: one that is moved in a single step, or swapped with
/// another, would take the city along before the second group could speak.
fn held(selector: LabelSelector, holder: &str) -> PolicyPlacement {
    let city = ClusterAffinity { label_selector: Some(selector), ..by_name(holder) };
    groups((CITY_GROUP.into(), city), (HOLDING_GROUP.into(), by_name(holder)))
}

/// A city that moves. It may go back to a cluster that has lost the label, and to no other without it.
fn moving(selector: LabelSelector, transfer: &Transfer, observed: &Observed) -> PolicyPlacement {
    let labelled = observed.clusters.get(&transfer.to).is_some_and(|cluster| cluster.label.is_some());
    let by_label = labelled || !Attempt::is_back(&transfer.attempt);
    let first = ClusterAffinity { label_selector: by_label.then_some(selector), ..by_name(&transfer.to) };
    let name = |prefix: &str| format!("{prefix}{}", transfer.attempt);
    groups((name(MOVING_GROUP_PREFIX), first), (name(LEAVING_GROUP_PREFIX), by_name(&transfer.from)))
}

/// A namespace in which the city is nowhere yet: it begins where the city's other namespaces have it, else on the cluster
/// that is chosen of those with the label. While there is none, it waits until one is chosen: two that get the label at once
/// would both be taken, and keep what they have.
fn fresh(city: &CityCode, selector: LabelSelector, observed: &Observed) -> Guarded {
    let stays = |name: &String| observed.clusters.get(name).is_some_and(|cluster| !cluster.is_leaving());
    // The scheduler brings nothing to a cluster that is being deleted.
    let usable = |name: &str| observed.clusters.get(name).is_some_and(|cluster| !cluster.deleting);
    let held_elsewhere = observed.elsewhere.iter().filter(|(name, _)| usable(name));
    let home = observed.home.as_ref().filter(|home| usable(home));
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
            "Clusters {} carry the label of {city}, and nothing of it is anywhere yet: {chosen} is chosen, the first by name \
             of those that are able",
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

/// A city of which each deployment runs on several clusters, as a policy of the Go operator has it where several carry the
/// label. Nobody can tell which of them to give up, so they stay.
fn shared(city: &CityCode, selector: LabelSelector, on: &BTreeSet<&String>) -> Guarded {
    let names: Vec<&str> = on.iter().map(|name| name.as_str()).collect();
    let note = format!(
        "each deployment of {city} here runs on Clusters {}: take the city's label off all but one; until then nothing \
         guards against the loss of a label",
        names.join(", ")
    );
    Guarded { placement: by_label(selector, None), note: Some(note) }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
