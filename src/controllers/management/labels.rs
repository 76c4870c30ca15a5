//! Clusters that hold a city without carrying its label: what is known of them, and what their plan reports.

use std::{collections::BTreeMap, sync::Arc};

use super::{hub_cache::HubCache, index::label_city};
use crate::{
    api::names::CityCode,
    controllers::{record, send},
    io::clock::Now,
    metrics::Metrics,
    plan::management::labels::{self, Observed},
};

/// Looks for them.
pub(super) struct ClusterLabels {
    pub(super) hub: Arc<HubCache>,
    pub(super) metrics: Metrics,
}

impl ClusterLabels {
    /// Counts them, and reports it on the Cluster when it is news: `reported` has the city of each that was reported before.
    pub(super) async fn look(&self, reported: &mut BTreeMap<String, CityCode>, now: Now) {
        if !self.hub.knows_karmada() {
            return;
        }
        let observed = self.observe(reported);
        let plan = labels::plan(&observed, now.time);
        record("cluster-labels", &"every cluster", &observed, now, &plan);
        let found: BTreeMap<String, CityCode> = plan.signals.iter().cloned().collect();
        self.metrics.mislabelled(found.len());
        for event in &plan.steps {
            let _ = send(&self.hub.plane, event, &self.metrics).await; // a lost Event is no error
        }
        for (cluster, city) in found.iter().filter(|(cluster, city)| reported.get(*cluster) != Some(*city)) {
            tracing::warn!(cluster, %city, "cluster holds a city without its label");
        }
        *reported = found;
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
