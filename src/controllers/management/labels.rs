//! Clusters that hold a city without carrying its label: the guard keeps the city there, and somebody is to know.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kube::ResourceExt;

use super::state::{Management, copy_city};
use crate::{
    api::{
        karmada::{Cluster, ClusterSpec},
        meta::{annotation, label},
        reason::Reason,
    },
    controllers::send,
    io::store::ObjectKey,
    plan::event::{self, Note, Severity},
};

/// Counts them, and reports it on the Cluster when it is news: `reported` has the city of each that was reported before.
pub(super) async fn look(all: &Arc<Management>, reported: &mut BTreeMap<String, String>) {
    if !all.hub.knows_karmada() {
        return;
    }
    let mut now = BTreeMap::new();
    for copy in all.hub.copies.values() {
        let Some(city) = copy_city(&copy) else { continue };
        let binding = all.hub.binding_of(&copy.namespace().unwrap_or_default(), &copy.name_any());
        for cluster in binding.iter().flat_map(|binding| binding.clusters.iter()) {
            let facts = all.hub.clusters.get(&ObjectKey::new("", cluster));
            if facts.is_some_and(|facts| facts.city.as_ref() != Some(&city)) {
                now.insert(cluster.clone(), city.to_string());
            }
        }
    }
    all.metrics.mislabelled(now.len());
    for (name, city) in &now {
        if reported.get(name) == Some(city) {
            continue;
        }
        let text = format!(
            "the label {} is not {city}, and what runs there of that city stays: put the label back, or annotate the \
             Cluster with {}=true to move the city",
            label::TOPOLOGY_CITY,
            annotation::DRAIN
        );
        let cluster = Cluster::new(name, ClusterSpec {});
        let note = Note { severity: Severity::Warning, reason: Reason::CityLabelLost, action: "Guarding", text: &text };
        let event = event::on(&cluster, "city-guard", &note, Timestamp::now());
        let _ = send(&all.hub.plane, &event, &all.metrics).await; // a lost Event is no error
        tracing::warn!(cluster = name, city, "cluster holds a city without its label");
    }
    *reported = now;
}
