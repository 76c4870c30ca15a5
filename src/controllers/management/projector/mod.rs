//! Controller of projections: shows the Instances of the hub in their projects.

pub(crate) mod quarantine;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::ResourceExt;

use crate::controllers::management::{
    Context,
    projects::project_cache::ProjectCache,
    wiring::{
        index::{origin_deployment_index, origin_place_index},
        queues::{InstanceKey, ProjectKey},
    },
};
use crate::{
    api::{compute::Instance, names, neighbours::ResourceClaim},
    controllers::{End, Reconciler, carry_out, compact::PackedInstance, is_silence, record, send},
    io::{Class, Error, clock::Now, store::ObjectKey},
    plan::{
        Failure, Hub, Next, Plan, Project, Shared, Step,
        management::projector::{
            dead_claim,
            leftover::{self, Former, WrittenAgain},
            projection::{self, Misplaced, Observed, Origin, Quarantine},
            quarantine::Report,
        },
    },
};

/// Requeue delay until the successor of a removed cell has taken over the objects that it needs.
const LEFTOVER_PAUSE: Duration = Duration::from_mins(1);

/// Places in projects with a leftover copy that was given away. Whenever their number has doubled, places of deleted deployments
/// are forgotten.
#[derive(Default)]
pub(crate) struct Given {
    keys: BTreeSet<InstanceKey>,
    kept: usize,
}

impl Given {
    /// Number of places that are kept without a check.
    const ROOM: usize = 256;

    fn insert(&mut self, key: InstanceKey, may_be_looked_at: impl Fn(&InstanceKey) -> bool) {
        self.keys.insert(key);
        if self.keys.len() > Self::ROOM.max(2 * self.kept) {
            self.keys.retain(may_be_looked_at);
            self.kept = self.keys.len();
        }
    }
}

/// Reconciles the projections of hub Instances in their projects, and reports Instances that cannot be shown.
pub(crate) struct Projector {
    pub(crate) ctx: Arc<Context>,
    /// Places where a leftover copy of the Go operator was given away since the start of this manager.
    pub(crate) given: Mutex<Given>,
}

impl Reconciler for Projector {
    const NAME: &'static str = "instance-projector";
    type Key = InstanceKey;

    fn by_server(&self, _: &InstanceKey, now: Now) -> Now {
        now.on(self.ctx.hub.plane.connection().clock())
    }

    /// 1. Waits until the Instances of hub and project are in the caches. A filled cache enqueues every key.
    /// 2. Observes the place in the project, its hub Instance, and other hub Instances that name the place.
    /// 3. Plans the writes.
    /// 4. Records Instances that cannot be shown, and reports each once after the grace period.
    /// 5. Sends the writes. If the projection is refused, or another owner has its place, the Instance cannot be shown either.
    ///    The deployment reports that. An unknown object in the place is read, and restored if it is a projection.
    /// 6. Cleans up after a removed cell: copies without an owner, and claims that an Instance waits for.
    async fn reconcile(&self, key: &InstanceKey, now: Now, failing: Duration) -> Result<Next, Error> {
        if !self.ctx.hub.instances.is_synced() {
            return Ok(Next::Await);
        }
        let place = match key {
            InstanceKey::Place(place) => place,
            InstanceKey::Unresolved(instance) => return self.unresolved(instance, now).await,
        };
        let Some(project) = self.ctx.projects.get(&place.project) else { return Ok(Next::Await) };
        if !project.is_synced() || !project.instances.is_synced() {
            return Ok(Next::Await);
        }
        let Some(mut observed) = self.observe(&project, &place.object) else { return Ok(Next::Await) };
        if !self.read_elsewhere(&project, &place.object, &mut observed).await? {
            return Ok(Next::Await);
        }
        let plan = projection::plan(&observed, now.time);
        record(Self::NAME, key, &observed, now, &plan);
        let mut next = plan.next;
        for misplaced in &plan.signals {
            next = next.or_sooner(self.quarantine(&misplaced.instance, misplaced.why, now).await?.0);
        }
        if let Some(refused) = self.write(key, &project, &observed, &plan, (now, failing)).await? {
            let (again, is_new) = self.quarantine(&refused.instance, refused.why, now).await?;
            next = next.or_sooner(again);
            if let Some(note) = projection::tell_tenant(&observed, refused.why, now.time).filter(|_| is_new) {
                send(&project.plane, &note, &self.ctx.metrics).await?;
            }
        }
        next = next.or_sooner(self.give_away(key, &project, &observed, now).await?);
        self.free_claim(key, &project, observed, now).await?;
        Ok(next)
    }
}

impl Projector {
    /// Frees the claim of a removed cell if the Instance waits for it. The claim is read only in that case.
    async fn free_claim(
        &self,
        key: &InstanceKey,
        project: &ProjectCache,
        observed: Observed,
        now: Now,
    ) -> Result<(), Error> {
        let members = observed.members;
        let waits =
            |source: &Instance| dead_claim::former(source, observed.bound.as_ref(), members.as_deref()).is_some();
        let Some(source) = observed.source.filter(|source| waits(source)) else { return Ok(()) };
        let found = read_claim(project, &observed.namespace, &observed.name).await;
        let Some(claim) = readable(found)? else { return Ok(()) };
        let observed =
            dead_claim::Observed { source, deployment: observed.deployment, bound: observed.bound, members, claim };
        let plan = dead_claim::plan(&observed, now.time);
        record("dead-claim", key, &observed, now, &plan);
        carry_out(&project.plane, &self.ctx.hub.plane, &plan, &self.ctx.metrics).await?;
        Ok(())
    }

    /// Gives the leftover copy of a removed cell to its successor, after the claim is freed.
    async fn give_away(
        &self,
        key: &InstanceKey,
        project: &ProjectCache,
        observed: &Observed,
        now: Now,
    ) -> Result<Next, Error> {
        let Observed { namespace, name, source, deployment, bound, members, .. } = observed;
        let Some(source) = source else { return Ok(Next::Await) };
        let suspected = leftover::suspected(source, deployment.as_deref(), members.as_deref());
        let (Some(suspected), Some(of)) = (suspected, deployment.as_deref()) else { return Ok(Next::Await) };
        // Other objects show when the successor is ready, and their events do not enqueue this key. Go cells may have more copies
        // than the deployment asks for in ordinary operation. A sweep checks those.
        let again = if suspected == Former::GoOperator { Next::Await } else { Next::After(LEFTOVER_PAUSE) };
        if !leftover::is_answered(of, bound.as_ref(), members.as_deref()) {
            return Ok(again);
        }
        let index = origin_deployment_index(&project.name, namespace, &of.name_any());
        let siblings = self.ctx.hub.instances.by_index(&index);
        let siblings = siblings.iter().map(|sibling| Shared::from(Instance::clone(sibling))).collect();
        let (deployment, bound, members) = (deployment.clone(), bound.clone(), members.clone());
        let left = dead_claim::Observed { source: source.clone(), deployment, bound, members, claim: None };
        let mut observed = leftover::Observed { left, siblings, given_before: self.given().keys.contains(key) };
        if observed.former().is_none() {
            return Ok(again);
        }
        if let Former::Cell(_) = suspected {
            let Some(claim) = readable(read_claim(project, namespace, name).await)? else { return Ok(Next::Await) };
            observed.left.claim = claim;
        }
        let plan = leftover::plan(&observed, now.time);
        record("leftover", key, &observed, now, &plan);
        carry_out(&project.plane, &self.ctx.hub.plane, &plan, &self.ctx.metrics).await?;
        if plan.signals.contains(&WrittenAgain) {
            tracing::warn!(namespace, name, "a copy without a cell's uid was handed over and exists again: it is kept");
        } else if suspected == Former::GoOperator {
            self.given().insert(key.clone(), |key| self.may_be_given(key));
        }
        Ok(Next::Await)
    }

    /// True if a place may be reconciled again: its project is engaged, and its deployment exists or may exist.
    fn may_be_given(&self, key: &InstanceKey) -> bool {
        let InstanceKey::Place(ProjectKey { project, object: place }) = key else { return false };
        let Some(project) = self.ctx.projects.get(project) else { return false };
        let deployment = names::deployment_of_instance(&place.name);
        let is_there = |name| project.deployments.contains(&ObjectKey::new(&place.namespace, name));
        !project.is_synced() || deployment.is_some_and(is_there)
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the Instances of a place that the caches do not keep whole. False if one has changed, because its event enqueues the
    /// key.
    async fn read_elsewhere(
        &self,
        project: &ProjectCache,
        key: &ObjectKey,
        observed: &mut Observed,
    ) -> Result<bool, Error> {
        if let Some(source) = &observed.source
            && let Some(namespace) = source.namespace()
            && self
                .ctx
                .hub
                .instances
                .get(&ObjectKey::new(&namespace, &key.name))
                .is_some_and(|kept| kept.is_elsewhere())
        {
            let found = self.ctx.hub.plane.read::<Instance>(&namespace, &key.name).await?;
            let Some(found) = found.filter(|found| found.resource_version() == source.resource_version()) else {
                return Ok(false);
            };
            observed.source = Some(found.into());
        }
        if let Some(projection) = &observed.projection
            && project.instances.get(key).is_some_and(|kept| kept.is_elsewhere())
        {
            let found = project.plane.read::<Instance>(&key.namespace, &key.name).await?;
            let Some(found) = found.filter(|found| found.resource_version() == projection.resource_version()) else {
                return Ok(false);
            };
            observed.projection = Some(found.into());
        }
        Ok(true)
    }

    /// Reconciles a hub Instance that names no engaged project.
    async fn unresolved(&self, key: &ObjectKey, now: Now) -> Result<Next, Error> {
        let Some(instance) = self.ctx.hub.instances.get(key) else { return Ok(Next::Await) };
        match projection::identify(&instance) {
            Err(why) => Ok(self.quarantine(&instance, why, now).await?.0),
            Ok(origin) if !self.ctx.projects.is_engaged(&origin.project) => {
                Ok(self.quarantine(&instance, Quarantine::ProjectAbsent, now).await?.0)
            }
            Ok(_) => {
                self.ctx.triggers.enqueue_projection(&instance); // the project was engaged since
                Ok(Next::Await)
            }
        }
    }

    /// Returns the snapshot of one place. `None` while an object of it is unreadable. `None` also if its hub Instance names
    /// another place, which has its own key.
    fn observe(&self, project: &ProjectCache, key: &ObjectKey) -> Option<Observed> {
        let hub = &self.ctx.hub;
        let facts = project.namespaces.get(&ObjectKey::new("", &key.namespace));
        let hub_namespace = facts.as_ref().map(|facts| names::hub_namespace(&facts.uid));
        // An unreadable object may be one of the objects of this place: unknown is not absent.
        if project.deployments.has_unreadable(&key.namespace)
            || hub_namespace.as_ref().is_some_and(|namespace| hub.instances.has_unreadable(namespace))
        {
            return None;
        }
        let source = hub_namespace.and_then(|namespace| hub.instances.get(&ObjectKey::new(&namespace, &key.name)));
        let projection = project.instances.get(key);
        let too_large = source.iter().chain(&projection).any(|instance| instance.is_too_large());
        let source = source.map(|source| source.open());
        let origin = source.as_ref().map(projection::identify);
        let belongs = |origin: &Origin| origin.project == project.name && *origin.namespace == *key.namespace;
        let origin = match origin {
            None => None,
            Some(Ok(origin)) if belongs(&origin) => Some(origin),
            Some(_) => return None,
        };
        let deployment =
            origin.and_then(|origin| project.deployment(&ObjectKey::new(&key.namespace, &origin.deployment)));
        let bound = source.as_ref().map(|source| hub.cell_of(source)).transpose();
        let claimants = hub.instances.by_index(&origin_place_index(&project.name, &key.namespace, &key.name));
        let is_foreign =
            |claimant: &Arc<PackedInstance>| source.as_ref().map(|source| source.uid()) != Some(claimant.uid());
        // Only the origin of the others is used.
        let foreign = claimants.iter().filter(|claimant| is_foreign(claimant));
        Some(Observed {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            foreign: foreign.map(|claimant| Shared::from(Instance::clone(claimant))).collect(),
            facts: facts.as_deref().cloned(),
            source: source.map(Shared::from),
            deployment,
            projection: projection.map(|projection| projection.open().into()),
            too_large,
            unbound: bound.as_ref().err().cloned(),
            bound: bound.ok().flatten(),
            members: hub.members(),
        })
    }

    /// Carries the plan out. Returns the hub Instance if the project refuses its content, or has another owner's Instance there.
    /// The next sweep tries again, and so does a change of the Instance or of its place.
    async fn write(
        &self,
        key: &InstanceKey,
        project: &ProjectCache,
        observed: &Observed,
        plan: &Plan<Step<Project, Hub>, Misplaced>,
        (now, failing): (Now, Duration),
    ) -> Result<Option<Misplaced>, Error> {
        let done = carry_out(&project.plane, &self.ctx.hub.plane, plan, &self.ctx.metrics).await;
        let failure = match &done {
            Err(stopped) if stopped.at == End::Local && !stopped.error.is_of_others_fields() => {
                let error = &stopped.error;
                let is_final = error.class() == Class::Invalid || error.is_denied();
                Some(Failure { words: error.words_in_project(), is_final, lasted: failing })
            }
            _ => None,
        };
        let is_due = failure.as_ref().is_some_and(|failure| failure.is_due(&self.ctx.options.timing));
        self.note_unshown(project, observed, failure);
        let Some(source) = &observed.source else { return Ok(done.map(|_| None)?) };
        match done {
            Ok(_) => {
                if !plan.signals.iter().any(|misplaced| misplaced.instance.uid() == source.uid()) {
                    self.ctx.quarantine.remove(&ObjectKey::of(&**source));
                }
                Ok(None)
            }
            Err(stopped) if stopped.at == End::Local && stopped.error.class() == Class::Invalid => {
                let (namespace, name) = (&observed.namespace, &observed.name);
                tracing::warn!(namespace, name, error = %stopped.error, "the project rejects a projection");
                Ok(Some(Misplaced { instance: source.clone(), why: Quarantine::Refused }))
            }
            Err(stopped) if stopped.at == End::Local && stopped.error.is_of_others_fields() => {
                let live = project.plane.read::<Instance>(&observed.namespace, &observed.name).await?;
                let Some(live) = live else { return Err(stopped.into()) };
                let Some(observed) = projection::with_unlabelled(observed, live) else {
                    return Ok(Some(Misplaced { instance: source.clone(), why: Quarantine::PlaceTaken }));
                };
                let plan = projection::plan(&observed, now.time);
                record(Self::NAME, key, &observed, now, &plan);
                Box::pin(self.write(key, project, &observed, &plan, (now, failing))).await
            }
            Err(stopped) => {
                // A project without an answer does not refuse one of its Instances.
                if is_due && !is_silence(&stopped.error) && !stopped.error.is_of_transport() {
                    self.quarantine(source, Quarantine::Denied, now).await?;
                }
                Err(stopped.into())
            }
        }
    }

    /// Records the project's refusal of an Instance, and enqueues its deployment if the report changes.
    fn note_unshown(&self, project: &ProjectCache, observed: &Observed, failure: Option<Failure>) {
        let Some(deployment) = names::deployment_of_instance(&observed.name) else { return };
        let deployment = ProjectKey::new(&project.name, &observed.namespace, deployment);
        if self.ctx.unshown.note(&deployment, &observed.name.as_str().into(), failure, &self.ctx.options.timing) {
            self.ctx.triggers.enqueue_federator(project, deployment.object);
        }
    }

    /// Puts an Instance into quarantine. Returns the next requeue, and true if it was reported now.
    async fn quarantine(&self, instance: &Instance, why: Quarantine, now: Now) -> Result<(Next, bool), Error> {
        match self.ctx.quarantine.put(instance, why, now.instant) {
            Report::Already => Ok((Next::Await, false)),
            Report::After(after) => Ok((Next::After(after), false)),
            Report::Now => {
                let name = instance.name_any();
                tracing::warn!(
                    namespace = instance.namespace(),
                    name,
                    reason = why.label(),
                    "hub Instance is quarantined"
                );
                send(&self.ctx.hub.plane, &projection::report(instance, why, now.time), &self.ctx.metrics).await?;
                Ok((Next::Await, true))
            }
        }
    }
}

/// Reads the claim of an Instance from the project's API server.
async fn read_claim(
    project: &ProjectCache,
    namespace: &str,
    instance: &str,
) -> Result<Option<Shared<ResourceClaim>>, Error> {
    let claim = project.plane.read::<ResourceClaim>(namespace, &names::resource_claim_name(instance)).await?;
    Ok(claim.map(Shared::from))
}

/// Returns the result of a read. `None` if the operator may not read the kind, or if the kind is not served. The Instance is
/// shown without it.
fn readable<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if matches!(error.class(), Class::Unauthenticated | Class::Forbidden | Class::Gone) => {
            tracing::warn!(%error, "the ResourceClaim of an Instance cannot be read");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "projector_tests.rs"]
mod tests;
