//! The PropagationPolicy of each city in each hub namespace. The key is not an object but a namespace and a city.

use std::sync::Arc;

use super::state::{Management, city_index};
use crate::{
    api::names::CityCode,
    controllers::{Reconciler, send},
    io::{Error, queue::Key, store::ObjectKey},
    plan::{
        Next,
        hub::policy::{self, Observed},
    },
};

/// See the module.
pub(super) struct CityPolicy(pub(super) Arc<Management>);

impl Reconciler for CityPolicy {
    const NAME: &'static str = "city-policy";

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let hub = &self.0.hub;
        let Ok(city) = CityCode::parse(&key.name) else { return Ok(Next::Await) };
        if !hub.is_synced() {
            return Ok(Next::Await); // a fresh cache brings every key back
        }
        let namespace = &key.namespace;
        let Some(facts) = hub.namespaces.get(&ObjectKey::new("", namespace)) else { return Ok(Next::Await) };
        let mirrored = facts.upstream().and_then(|(project, own)| Some((self.0.project(project.as_str())?, own)));
        let (wanted, complete) = match mirrored {
            Some((project, own)) => {
                let deployments = project.deployments.by_index(&city_index(own, &city));
                let alive = deployments.iter().any(|wd| wd.metadata.deletion_timestamp.is_none());
                (alive, project.is_synced() && !project.deployments.has_unreadable(own))
            }
            None => (false, false),
        };
        let policy = hub.policies.get(&ObjectKey::new(namespace, &city.policy_name()));
        let plan = policy::plan(&Observed {
            namespace,
            city: &city,
            copies: hub.copies.by_index(&city_index(namespace, &city)).len(),
            wanted,
            complete: complete && !hub.copies.has_unreadable(namespace),
            namespace_lives: !facts.terminating,
            policy: policy.as_deref(),
        });
        for write in &plan.steps {
            send(&hub.plane, write, &self.0.metrics).await?;
        }
        Ok(plan.next)
    }
}
