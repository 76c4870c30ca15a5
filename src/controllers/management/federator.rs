//! WorkloadDeployment of a project -> its copy on the hub, and the copy's status back.

use std::sync::Arc;

use super::state::Management;
use crate::{
    api::{names, referenced::Token},
    controllers::{Reconciler, carry_out},
    io::{Error, clock::Now, queue::Key, store::ObjectKey},
    plan::{
        Next,
        management::{
            facts::Phase,
            federate::{self, Karmada, Observed},
            resolve::View,
        },
        ownership,
    },
};

/// See the module.
pub(super) struct Federator(pub(super) Arc<Management>);

impl Reconciler for Federator {
    const NAME: &'static str = "workload-deployment-federator";

    async fn reconcile(&self, key: &Key, now: Now) -> Result<Next, Error> {
        let (Some(project), hub) = (self.0.project(&key.lane), &self.0.hub) else { return Ok(Next::Await) };
        if !project.is_synced() || !hub.is_synced() {
            return Ok(Next::Await); // a fresh cache brings every key back
        }
        let namespace_uid = project.namespace_uid(&key.namespace);
        let Some(deployment) = project.deployments.get(&ObjectKey::new(&key.namespace, &key.name)) else {
            project.blocked.note(&ObjectKey::new(&key.namespace, &key.name), None, now.instant);
            let Some(uid) = namespace_uid.filter(|_| !project.deployments.has_unreadable(&key.namespace)) else {
                return Ok(Next::Await);
            };
            let Some(copy) = hub.copies.get(&ObjectKey::new(&names::hub_namespace(&uid), &key.name)) else {
                return Ok(Next::Await);
            };
            let plan = federate::plan_orphan(&key.namespace, &uid, &copy);
            return Ok(carry_out(&project.plane, &hub.plane, &plan, &self.0.metrics).await?);
        };
        // What is looked up there is looked up in the namespace that the plan derives as well.
        let namespace = namespace_uid.as_deref().map(names::hub_namespace).unwrap_or_default();
        let key = ObjectKey::new(&key.namespace, &key.name);
        let source = |token: &Token| ObjectKey::new(&key.namespace, &token.name);
        let companion = |token: &Token| hub.companion(&namespace, token);
        let karmada = Karmada {
            policy_lives: &|name| {
                let policy = hub.policies.get(&ObjectKey::new(&namespace, name));
                policy.is_some_and(|policy| ownership::is_managed(policy.as_ref()))
            },
            phase: &|name| {
                let policy = hub.policies.get(&ObjectKey::new(&namespace, name));
                policy.map_or(Phase::Dependencies, |policy| Phase::of(&policy.spec))
            },
            binding: &|name| hub.bindings.get(&ObjectKey::new(&namespace, name)),
            companion: &companion,
            cluster: &|name| hub.clusters.get(&ObjectKey::new("", name)),
            clusters_of: &|city| hub.clusters_of(city),
        };
        let blocked_since = project.blocked.of(&key, now.instant);
        let decision = federate::plan(
            &Observed {
                project: &project.name,
                deployment: &deployment,
                namespace_uid: namespace_uid.as_deref(),
                hub_namespace: &|name| hub.namespaces.get(&ObjectKey::new("", name)).map(|facts| (*facts).clone()),
                copy: &|namespace| hub.copies.get(&ObjectKey::new(namespace, &key.name)),
                data: View {
                    limits: self.0.options.limits,
                    source: &|token| project.sources(token.kind).last(&source(token)),
                    companion: &companion,
                    fresh: &|token| {
                        let copied = project.sources(token.kind).copy(&source(token));
                        copied.zip(companion(token)).is_some_and(|(copied, companion)| copied.uid == companion.uid)
                    },
                },
                karmada: hub.knows_karmada().then_some(karmada),
                blocked_since: blocked_since.as_ref().map(|(what, since)| (what.as_str(), *since)),
                may_repair: project.blocked.may_repair(&key, now.instant),
            },
            now.time,
        );
        project.blocked.note(&key, decision.blocker.as_deref(), now.instant);
        if decision.repairs {
            project.blocked.repaired(&key, now.instant);
            self.0.metrics.repaired();
        }
        Ok(carry_out(&project.plane, &hub.plane, &decision.plan, &self.0.metrics).await?)
    }
}
