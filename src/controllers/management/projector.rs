//! Instances on the hub -> projections in the projects they belong to.

use std::sync::Arc;

use kube::ResourceExt;

use super::{
    index::claimed_place_index,
    project_cache::ProjectCache,
    state::{Management, UNRESOLVED_LANE},
};
use crate::{
    api::{compute::Instance, names},
    controllers::{End, Reconciler, carry_out, send},
    io::{Class, Error, clock::Now, queue::Key, store::ObjectKey},
    plan::{
        NamespaceFacts, Next,
        management::{
            projection::{self, Observed, Quarantine},
            quarantine::Report,
        },
    },
};

/// See the module.
pub(super) struct Projector(pub(super) Arc<Management>);

impl Reconciler for Projector {
    const NAME: &'static str = "instance-projector";

    async fn reconcile(&self, key: &Key, now: Now) -> Result<Next, Error> {
        let hub = &self.0.hub;
        if !hub.instances.is_synced() {
            return Ok(Next::Await); // a fresh cache brings every key back
        }
        if &*key.lane == UNRESOLVED_LANE {
            return self.lost(&ObjectKey::new(&key.namespace, &key.name), now).await;
        }
        let Some(project) = self.0.project(&key.lane) else { return Ok(Next::Await) };
        if !project.is_synced() || !project.instances.is_synced() {
            return Ok(Next::Await);
        }
        self.show(&project, key, now).await
    }
}

impl Projector {
    /// A hub Instance that names no project of ours.
    async fn lost(&self, key: &ObjectKey, now: Now) -> Result<Next, Error> {
        let Some(instance) = self.0.hub.instances.get(key) else { return Ok(Next::Await) };
        match projection::identify(&instance) {
            Err(why) => self.quarantine(&instance, why, now).await,
            Ok(claimed) if !self.0.is_engaged(&claimed.project) => {
                self.quarantine(&instance, Quarantine::ProjectAbsent, now).await
            }
            Ok(_) => {
                self.0.enqueue_projection(&instance); // engaged meanwhile
                Ok(Next::Await)
            }
        }
    }

    async fn show(&self, project: &ProjectCache, key: &Key, now: Now) -> Result<Next, Error> {
        let hub = &self.0.hub;
        let facts = project.namespaces.get(&ObjectKey::new("", &key.namespace));
        let hub_namespace = facts.as_ref().map(|facts| names::hub_namespace(&facts.uid));
        // An object that cannot be read may be any of the ones we look for: unknown is not absent.
        if project.deployments.has_unreadable(&key.namespace)
            || hub_namespace.as_ref().is_some_and(|namespace| hub.instances.has_unreadable(namespace))
        {
            return Ok(Next::Await);
        }
        let claims_to_be_here = |instance: &Instance| {
            projection::identify(instance)
                .is_ok_and(|claimed| claimed.project == project.name && *claimed.namespace == *key.namespace)
        };
        let here = hub_namespace.and_then(|namespace| hub.instances.get(&ObjectKey::new(&namespace, &key.name)));
        if here.as_deref().is_some_and(|instance| !claims_to_be_here(instance)) {
            return Ok(Next::Await); // what it claims instead is looked at by itself
        }
        let foreigns = self.quarantine_foreign(project, key, here.as_deref(), now).await?;
        Ok(self.show_here(project, key, facts.as_deref(), here, now).await?.or_sooner(foreigns))
    }

    /// The projection of what belongs here, if anything does.
    async fn show_here(
        &self,
        project: &ProjectCache,
        key: &Key,
        facts: Option<&NamespaceFacts>,
        here: Option<Arc<Instance>>,
        now: Now,
    ) -> Result<Next, Error> {
        let place = ObjectKey::new(&key.namespace, &key.name);
        let deployment = here
            .as_deref()
            .and_then(|instance| projection::identify(instance).ok())
            .and_then(|claimed| project.deployments.get(&ObjectKey::new(&key.namespace, &claimed.deployment)));
        let projection = project.instances.get(&place);
        let plan = projection::plan(&Observed {
            namespace: &key.namespace,
            name: &key.name,
            facts,
            source: here.as_deref(),
            deployment: deployment.as_deref(),
            projection: projection.as_deref(),
        });
        let plan = match (plan, &here) {
            (Ok(plan), _) => plan,
            (Err(why), Some(instance)) => return self.quarantine(instance, why, now).await,
            (Err(_), None) => return Ok(Next::Await),
        };
        match (carry_out(&project.plane, &self.0.hub.plane, &plan, &self.0.metrics).await, here) {
            (Ok(next), Some(instance)) => {
                self.0.quarantine.remove(&ObjectKey::of(instance.as_ref()));
                Ok(next)
            }
            // What is refused for what it says is tried again by the next sweep, and when it or its place changes.
            (Err(stopped), Some(instance)) if stopped.at == End::Local && stopped.error.class() == Class::Invalid => {
                tracing::warn!(object = %place, error = %stopped.error, "a projection is refused");
                self.quarantine(&instance, Quarantine::Refused, now).await
            }
            (done, _) => Ok(done?),
        }
    }

    /// Hub Instances that claim this very place from a namespace that is not the place's.
    async fn quarantine_foreign(
        &self,
        project: &ProjectCache,
        key: &Key,
        here: Option<&Instance>,
        now: Now,
    ) -> Result<Next, Error> {
        let mut next = Next::Await;
        let index = claimed_place_index(&project.name, &key.namespace, &key.name);
        for foreign in self.0.hub.instances.by_index(&index) {
            if here.map(ResourceExt::uid) != Some(foreign.uid()) {
                next = next.or_sooner(self.quarantine(&foreign, Quarantine::Unidentifiable, now).await?);
            }
        }
        Ok(next)
    }

    async fn quarantine(&self, instance: &Instance, why: Quarantine, now: Now) -> Result<Next, Error> {
        match self.0.quarantine.put(instance, why, now.instant) {
            Report::Already => Ok(Next::Await),
            Report::After(after) => Ok(Next::After(after)),
            Report::Now => {
                let name = instance.name_any();
                tracing::warn!(namespace = instance.namespace(), name, reason = why.label(), "hub Instance put aside");
                send(&self.0.hub.plane, &projection::report(instance, why, now.time), &self.0.metrics).await?;
                Ok(Next::Await)
            }
        }
    }
}
