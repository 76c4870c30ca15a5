//! Clusters that hold a city without carrying its label: the guard keeps the city there, and somebody is to know.

use std::collections::BTreeMap;

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

/// What is known of the clusters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// Of each deployment's copy: its city, and the clusters that hold it.
    pub holders: Vec<(CityCode, Vec<String>)>,
    /// The city that each cluster's label names. One that is not there is not known.
    pub clusters: BTreeMap<String, Option<CityCode>>,
    /// The clusters that were reported before, and the city of each.
    pub reported: BTreeMap<String, CityCode>,
}

/// Decides what is reported of clusters that hold a city without its label. Every one of them is signalled, with the city;
/// the last by name where it holds several.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan<Write<Hub>, (String, CityCode)> {
    let found = mislabelled(observed);
    let news = found.iter().filter(|(cluster, city)| observed.reported.get(*cluster) != Some(*city));
    let events = news.map(|(cluster, city)| report(cluster, city, now)).collect();
    Plan::writes(events).with(found)
}

/// The clusters that hold a city without its label, and the city; the last by name where a cluster holds several.
fn mislabelled(observed: &Observed) -> BTreeMap<String, CityCode> {
    let mut found: BTreeMap<String, CityCode> = BTreeMap::new();
    for (city, clusters) in &observed.holders {
        for cluster in clusters {
            let lost = observed.clusters.get(cluster).is_some_and(|label| label.as_ref() != Some(city));
            if lost && found.get(cluster).is_none_or(|known| known < city) {
                found.insert(cluster.clone(), city.clone());
            }
        }
    }
    found
}

/// Reports on a Cluster that it holds a city without its label.
fn report(cluster: &str, city: &CityCode, now: Timestamp) -> Write<Hub> {
    let text = format!(
        "the label {} is not {city}, and what runs there of that city stays: put the label back, or annotate the \
         Cluster with {}=true to move the city",
        label::TOPOLOGY_CITY,
        annotation::DRAIN
    );
    let cluster = Cluster::new(cluster, ClusterSpec::default());
    let note = Note { severity: Severity::Warning, reason: Reason::CityLabelLost, action: "Guarding", text: &text };
    event::on(&cluster, "city-guard", &note, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::recorded::recorded;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn city(code: &str) -> CityCode {
        CityCode::parse(code).unwrap()
    }

    #[test]
    fn a_cluster_that_holds_a_city_carries_its_label() {
        type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, Option<&'a str>)], &'a [(&'a str, &'a str)]);
        let cases: [Case<'_>; 7] = [
            ("nothing is anywhere", &[], &[("a", None)], &[]),
            ("the label is there", &[("dfw", "a")], &[("a", Some("dfw"))], &[]),
            ("the label is gone", &[("dfw", "a")], &[("a", None)], &[("a", "dfw")]),
            ("the label names another city", &[("dfw", "a")], &[("a", Some("ord"))], &[("a", "dfw")]),
            ("a cluster that nobody knows", &[("dfw", "a")], &[], &[]),
            (
                "two cities on it, of which one is right",
                &[("dfw", "a"), ("ord", "a")],
                &[("a", Some("ord"))],
                &[("a", "dfw")],
            ),
            ("two cities on it, in whatever order", &[("ord", "a"), ("dfw", "a")], &[("a", None)], &[("a", "ord")]),
        ];
        for (what, holders, clusters, expected) in cases {
            let observed = Observed {
                holders: holders.iter().map(|(code, cluster)| (city(code), vec![(*cluster).to_owned()])).collect(),
                clusters: clusters.iter().map(|(name, code)| ((*name).to_owned(), code.map(city))).collect(),
                reported: BTreeMap::new(),
            };
            let expected = expected.iter().map(|(name, code)| ((*name).to_owned(), city(code))).collect();
            assert_eq!(mislabelled(&observed), expected, "{what}");
            let (plan, again) = (plan(&observed, NOW), plan(&recorded(&observed), NOW));
            assert_eq!(format!("{plan:?}"), format!("{again:?}"), "{what}: decided again from its record");
        }
    }

    #[test]
    fn it_is_reported_once_for_each_city() {
        let mut observed = Observed {
            holders: vec![(city("dfw"), vec!["a".to_owned()])],
            clusters: [("a".to_owned(), None)].into(),
            reported: BTreeMap::new(),
        };
        let first = plan(&observed, NOW);
        let text = format!("{:?}", first.steps);
        assert!(text.contains("CityLabelLost") && text.contains("is not dfw, and what runs there"), "{text}");
        observed.reported.insert("a".into(), city("dfw"));
        let again = plan(&observed, NOW);
        assert!(again.steps.is_empty() && again.signals == first.signals, "{again:?}");
        observed.reported.insert("a".into(), city("ord"));
        assert_eq!(plan(&observed, NOW).steps.len(), 1, "another city");
    }
}
