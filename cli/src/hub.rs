//! What the hub shows of all deployments: their cities, clusters and counts.

use std::collections::BTreeMap;

use compute_operator::{
    api::{
        compute::WorkloadDeployment,
        karmada::{Cluster, ResourceBinding},
        meta::label,
        names::{CityCode, CityPolicyName, Template},
    },
    plan::management::observed::{cluster::ClusterFacts, facts::BindingFacts},
};
use jiff::Timestamp;
use kube::{Api, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::{
    planes::Planes,
    seen::{Seen, list},
    trace::facts::NO_HUB,
};

/// What the hub shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HubFacts {
    /// Time of the reads.
    pub now: Timestamp,
    /// Member clusters, by name.
    pub clusters: Seen<BTreeMap<String, ClusterFacts>>,
    /// Copies of the projects' deployments.
    pub copies: Seen<Vec<Copy>>,
    /// Karmada's bindings of deployments and of their data.
    pub bindings: Seen<Vec<Bound>>,
}

/// A deployment on the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// Its namespace on the hub.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its namespace in the project, by its label.
    pub upstream: Option<String>,
    /// Its city.
    pub city: String,
    /// Number of wanted Instances.
    pub desired: i64,
    /// Number of ready Instances, on all clusters.
    pub ready: i64,
}

/// A binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Its namespace on the hub.
    pub namespace: String,
    /// The deployment that it is for. `None` if it is for a ConfigMap or Secret.
    pub deployment: Option<String>,
    /// City of the policy that claims it.
    pub city: Option<CityCode>,
    /// The clusters that it goes to.
    pub clusters: BTreeMap<String, OnCluster>,
    /// Why Karmada's scheduler finds no cluster.
    pub unscheduled: Option<String>,
}

/// Result of a binding on one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnCluster {
    /// Number of wanted Instances, as the cluster reports it.
    pub desired: Option<i64>,
    /// Number of ready Instances.
    pub ready: Option<i64>,
    /// Why the object could not be applied.
    pub trouble: Option<String>,
}

impl HubFacts {
    /// Reads the hub.
    pub async fn read(planes: &Planes, now: Timestamp) -> Self {
        let Some(hub) = &planes.hub else {
            let why = || NO_HUB.to_owned();
            return Self {
                now,
                clusters: Seen::NotAsked(why()),
                copies: Seen::NotAsked(why()),
                bindings: Seen::NotAsked(why()),
            };
        };
        let (clusters, copies, bindings) = (Api::all(hub.clone()), Api::all(hub.clone()), Api::all(hub.clone()));
        let (clusters, copies, bindings) =
            futures::future::join3(list(&clusters, None), list(&copies, None), list(&bindings, None)).await;
        let clusters = clusters.map(|all: Vec<Cluster>| {
            all.into_iter().map(|cluster| (cluster.name_any(), ClusterFacts::of(cluster))).collect()
        });
        let copies = copies.map(|all: Vec<WorkloadDeployment>| all.iter().map(Copy::of).collect());
        let bindings = bindings.map(|all: Vec<ResourceBinding>| all.into_iter().filter_map(Bound::of).collect());
        Self { now, clusters, copies, bindings }
    }

    /// Returns why a part is not visible.
    pub fn hidden(&self) -> Vec<String> {
        let part = |name: &str, why: Option<String>| why.map(|why| format!("{name}: {why}"));
        let parts = [
            part("clusters", self.clusters.hidden()),
            part("deployments", self.copies.hidden()),
            part("bindings", self.bindings.hidden()),
        ];
        parts.into_iter().flatten().collect()
    }

    /// Returns each deployment with its binding, if it has one.
    pub fn deployments(&self) -> Vec<(&Copy, Option<&Bound>)> {
        let bindings = self.bindings.found().into_iter().flatten();
        let bindings: BTreeMap<(&str, &str), &Bound> =
            bindings.filter_map(|bound| Some(((&*bound.namespace, bound.deployment.as_deref()?), bound))).collect();
        let copies = self.copies.found().into_iter().flatten();
        copies.map(|copy| (copy, bindings.get(&(&*copy.namespace, &*copy.name)).copied())).collect()
    }

    /// Returns the number of ConfigMaps and Secrets that go to a cluster.
    pub fn data_on(&self, cluster: &str) -> usize {
        let bindings = self.bindings.found().into_iter().flatten();
        bindings.filter(|bound| bound.deployment.is_none() && bound.clusters.contains_key(cluster)).count()
    }
}

impl Copy {
    fn of(object: &WorkloadDeployment) -> Self {
        let ready = object.status.as_ref().map_or(0, |status| status.ready_replicas);
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            upstream: object.labels().get(label::UPSTREAM_NAMESPACE).cloned(),
            city: object.spec.city_code.clone(),
            desired: object.spec.desired_replicas().into(),
            ready: ready.into(),
        }
    }
}

impl Bound {
    /// Extracts the facts. `None` if it is for an object that is not the operator's.
    fn of(binding: ResourceBinding) -> Option<Self> {
        let namespace = binding.namespace().unwrap_or_default();
        let statuses = binding.status.as_ref().map(|status| status.aggregated_status.clone()).unwrap_or_default();
        let facts = BindingFacts::of(binding);
        let deployment = match &facts.template {
            Template::Deployment(name) => Some(name.clone()),
            Template::Companion(_) => None,
            Template::Foreign => return None,
        };
        let own = facts.clusters.iter().cloned();
        let required = facts.required_by.iter().flat_map(|by| by.clusters.iter().map(|cluster| cluster.name.clone()));
        let mut clusters: BTreeMap<String, OnCluster> =
            own.chain(required).map(|name| (name, OnCluster::default())).collect();
        for item in statuses {
            if let Some(on) = clusters.get_mut(&item.cluster_name) {
                let count = |field: &str| item.status.get(field).and_then(serde_json::Value::as_i64);
                (on.desired, on.ready) = (count("desiredReplicas"), count("readyReplicas"));
                on.trouble = (!item.applied).then(|| item.applied_message.clone());
            }
        }
        let failed = facts.scheduled.as_ref().filter(|scheduled| !scheduled.succeeded);
        let unscheduled = failed.map(|scheduled| format!("{}: {}", scheduled.reason, scheduled.message));
        let city = facts.policy.as_deref().and_then(CityPolicyName::parse);
        Some(Self { namespace, deployment, city, clusters, unscheduled })
    }
}
