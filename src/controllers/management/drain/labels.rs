//! Clusters that hold a city without carrying its label, and cities that several of them hold: what is known of them, and what
//! their plans report.

use std::{collections::BTreeMap, sync::Arc};

use crate::controllers::management::{drain::move_memory::Moves, hub::hub_cache::HubCache, wiring::index::label_city};
use crate::{
    api::names::CityCode,
    controllers::{record, send},
    io::clock::Now,
    metrics::Metrics,
    plan::management::drain::{
        labels::{self, Observed},
        split::{self, Holders},
    },
};

/// Looks for them.
pub(crate) struct ClusterLabels {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) moves: Arc<Moves>,
    pub(crate) metrics: Metrics,
}

/// What was reported before.
#[derive(Default)]
pub(crate) struct Reported {
    /// Of each cluster, the city that it holds without its label.
    mislabelled: BTreeMap<String, CityCode>,
    /// Of each city that is not in one place, the clusters that hold it.
    split: Holders,
}

impl ClusterLabels {
    /// Counts them, and reports on the Clusters what is news.
    pub(crate) async fn look(&self, reported: &mut Reported, now: Now) {
        if !self.hub.knows_karmada() {
            return;
        }
        let observed = self.observe(&reported.mislabelled);
        self.look_for_split(&observed, &mut reported.split, now).await;
        let plan = labels::plan(&observed, now.time);
        record("cluster-labels", &"every cluster", &observed, now, &plan);
        let found: BTreeMap<String, CityCode> = plan.signals.iter().cloned().collect();
        self.metrics.mislabelled(found.len());
        for event in &plan.steps {
            let _ = send(&self.hub.plane, event, &self.metrics).await; // a lost Event is no error
        }
        let before = &mut reported.mislabelled;
        for (cluster, city) in found.iter().filter(|(cluster, city)| before.get(*cluster) != Some(*city)) {
            tracing::warn!(cluster, %city, "cluster holds a city without its label");
        }
        *before = found;
    }

    /// Reports on the Clusters that a city is on several of them, each deployment on one, and stays so.
    async fn look_for_split(&self, seen: &Observed, reported: &mut Holders, now: Now) {
        if !self.moves.are_known() {
            return;
        }
        let mut holders = Holders::new();
        for (city, on) in seen.holders.iter().filter(|(_, on)| on.len() == 1) {
            holders.entry(city.clone()).or_default().extend(on.iter().cloned());
        }
        let moving = self.moves.all().into_keys().collect();
        let observed = split::Observed { holders, moving, reported: std::mem::take(reported) };
        let plan = split::plan(&observed, now.time);
        record("split-cities", &"every city", &observed, now, &plan);
        for event in &plan.steps {
            let _ = send(&self.hub.plane, event, &self.metrics).await; // a lost Event is no error
        }
        *reported = plan.signals.into_iter().collect();
    }

    fn observe(&self, reported: &BTreeMap<String, CityCode>) -> Observed {
        let mut observed = Observed { reported: reported.clone(), ..Observed::default() };
        for (key, copy) in self.hub.copies.entries() {
            let Some(city) = label_city(&copy) else { continue };
            let binding = self.hub.binding_of(&key.namespace, &key.name);
            if let Some(binding) = binding {
                // Where another policy sends it is no matter of the city's label.
                if binding.is_of_city(&city) {
                    observed.holders.push((city, binding.clusters.to_vec()));
                }
            }
        }
        for key in self.hub.clusters.keys() {
            if let Some(facts) = self.hub.clusters.get(&key) {
                observed.clusters.insert(key.name.to_string(), facts.city.clone());
            }
        }
        observed
    }
}
