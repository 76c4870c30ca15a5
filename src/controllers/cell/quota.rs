//! Controller of quota: claims it for each Instance in the project's control plane, and reports the result.

use std::{sync::Arc, time::Duration};

use kube::ResourceExt;

use super::{
    caches::Caches,
    quota_backends::{Backend, QuotaBackends, QuotaKey},
};
use crate::{
    api::{compute::Instance, names, neighbours::ResourceClaim},
    controllers::{
        End, Reconciler, Stopped, came_of, carry_out, carry_out_each, contests::Contests, failure_of, record, send,
    },
    io::{
        Class, Error,
        clock::Now,
        store::{Incoming, ObjectKey},
    },
    metrics::Metrics,
    plan::{
        Cell, Next, Object, Plan, Project, Shared, Step,
        cell::{
            claim::{Address, Identity},
            quota::{self, Cause, Claim, Observed, Signal, Trouble},
            reclaim,
        },
        contest::{Regarding, Sent},
        ownership::Holder,
    },
    timing::Timing,
};

/// Longest time for a project's watch of ResourceClaims to start. Then claims are read one by one.
const WATCH_PATIENCE: Duration = Duration::from_secs(2);

/// Claims quota for each Instance in its project, and releases it.
pub(super) struct QuotaController {
    pub(super) caches: Arc<Caches>,
    pub(super) contests: Contests,
    pub(super) backends: Arc<QuotaBackends>,
    pub(super) timing: Timing,
    pub(super) metrics: Metrics,
}

impl Reconciler for QuotaController {
    const NAME: &'static str = "quota";
    type Key = QuotaKey;

    fn by_server(&self, _: &QuotaKey, now: Now) -> Now {
        now.on(self.caches.plane.connection().clock())
    }

    /// 1. Observe the Instance and the address of its claim, from the caches. Wait until they are filled and the cell's identity
    ///    is known. Release the claim of an Instance that does not exist.
    /// 2. Observe its claim, from the watch of its project, or by a live read while that watch does not work.
    /// 3. Plan the claim, the finalizer that holds it, or the status of the Instance.
    /// 4. Write. If the project's control plane refuses, observe that and plan once more.
    async fn reconcile(&self, key: &QuotaKey, now: Now, failing: Duration) -> Result<Next, Error> {
        let caches = &self.caches;
        // Each missing fact enqueues every key once it is known.
        let Some(cell) = self.backends.identity() else { return Ok(Next::Await) };
        if !caches.is_synced() || caches.instances.is_unreadable(&key.instance) {
            return Ok(Next::Await);
        }
        // Each Instance belongs to one lane: two lanes would create its claim at the same time.
        let right = self.backends.key(&key.instance);
        if right != *key && !self.is_claims_alone(key) {
            self.backends.queue.add(right);
            return Ok(Next::Await);
        }
        let address = Address::from_labels(&caches.labels_of(&key.instance.namespace));
        let Some(instance) = caches.instances.get(&key.instance) else {
            self.contests.forget(&key.instance);
            return self.reclaim(cell, key, address.ok(), now).await;
        };
        // A terminating Instance may have lost its owner, and still have a claim to release.
        if instance.metadata.deletion_timestamp.is_none() && caches.owner(&instance).is_none() {
            return Ok(Next::Await);
        }
        let found = match address {
            Err(message) => Err(Trouble { cause: Cause::Unresolvable, message }),
            Ok(address) => self.backends.backend(&address.project, now.instant).map(|backend| (address, backend)),
        };
        let observed = Observed {
            instance: instance.into(),
            address: None,
            claim: Claim::Absent,
            watched: false,
            cell,
            timing: self.timing,
        };
        let (address, backend) = match found {
            Ok(found) => found,
            Err(trouble) => {
                return self.report(key, Observed { claim: Claim::Unknown(trouble), ..observed }, now).await;
            }
        };
        // An Instance that runs on a grant causes no request. It is reconciled once the watch works.
        if !backend.claims.is_synced() && quota::runs_on_a_grant(&observed.instance) {
            return Ok(Next::Await);
        }
        if !backend.claims.is_synced() && now.instant.duration_since(backend.since) < WATCH_PATIENCE {
            return Ok(Next::After(WATCH_PATIENCE / 4));
        }
        self.ensure(key, Observed { address: Some(address), ..observed }, (&backend, failing), now).await
    }
}

impl QuotaController {
    /// Observes the claim, plans and writes. A failure of the backend becomes the reason on the Instance.
    async fn ensure(
        &self,
        key: &QuotaKey,
        mut observed: Observed,
        (backend, failing): (&Backend, Duration),
        now: Now,
    ) -> Result<Next, Error> {
        let namespace = observed.address.as_ref().map(|address| address.namespace.clone()).unwrap_or_default();
        let place = ObjectKey::new(&namespace, &names::resource_claim_name(&observed.instance.name_any()));
        // A working watch is complete, except for another cell's claim, which it does not show. Without it, each reconcile reads
        // the claim. It never tries to create an existing claim.
        observed.watched = backend.claims.is_live() && !quota::is_held_elsewhere(&observed.instance);
        let mut seen = if observed.watched {
            Ok(backend.claims.get(&place).map(Shared::from))
        } else {
            self.read(&observed.cell, &observed.instance, backend, &place).await
        };
        let mut retried = false;
        loop {
            let failed;
            (observed.claim, failed) = match seen {
                Ok(Some(claim)) => (Claim::Present(claim), None),
                Ok(None) => (Claim::Absent, None),
                Err(error) => (Claim::Unknown(trouble(&error)), Some(error)),
            };
            let mut plan = self.plan(key, &observed, now);
            let is_gone = matches!(&observed.claim, Claim::Unknown(trouble) if trouble.cause == Cause::NoProject);
            if is_gone && plan.signals.contains(&Signal::Orphaned) {
                backend.give_up();
            }
            let regarding = Regarding::of(&*observed.instance);
            let mut round = self.contests.begin(&key.instance, &mut plan, &regarding, now.time);
            let came = |sent| round.came(sent);
            let done = carry_out_each(&self.caches.plane, &backend.plane, &plan, &self.metrics, came).await;
            match (done, failed) {
                // The failure is reported. The error makes the next attempt wait with back-off.
                (Ok(Next::After(_)), Some(error)) => return Err(error),
                (Err(Stopped { at: End::Remote, error }), None) if !retried => {
                    retried = true;
                    seen = match error {
                        // The claim was deleted after it was judged: the backend has answered.
                        Error::NotThere(_) => Ok(None),
                        // There is a claim of this name that our watch does not show, or does not show yet.
                        error if error.class() == Class::Conflict => {
                            observed.watched = false;
                            self.read(&observed.cell, &observed.instance, backend, &place).await
                        }
                        error => Err(error),
                    };
                }
                (Err(Stopped { at: End::Local, error }), _) => {
                    let status = quota::refused(&observed, &failure_of(&error, failing), now.time);
                    if let Some(status) = status {
                        send(&self.caches.plane, &status, &self.metrics).await?;
                    }
                    return Err(error);
                }
                (done, _) => return Ok(done?),
            }
        }
    }

    /// Reads a claim live. The cache stores it if the watch selects it. Otherwise the next reconcile would take it as absent, and
    /// create it again.
    async fn read(
        &self,
        cell: &Identity,
        instance: &Instance,
        backend: &Backend,
        place: &ObjectKey,
    ) -> Result<Option<Shared<ResourceClaim>>, Error> {
        let Some(claim) = backend.plane.read::<ResourceClaim>(&place.namespace, &place.name).await? else {
            return Ok(None);
        };
        let namespace = instance.namespace().unwrap_or_default();
        if cell.is_watched(&claim) && cell.holder(&claim, &namespace) != Holder::Other {
            backend.claims.wrote(Incoming::new(&claim, Some(claim.clone())));
        }
        Ok(Some(claim.into()))
    }

    /// Plans, and counts the signals of the plan.
    fn plan(&self, key: &QuotaKey, observed: &Observed, now: Now) -> Plan<Step<Cell, Project>, Signal> {
        let plan = quota::plan(observed, now.time);
        record(Self::NAME, key, observed, now, &plan);
        for signal in &plan.signals {
            match signal {
                Signal::Failed(cause) => self.metrics.quota_failed(cause.label()),
                Signal::Orphaned => self.metrics.quota_orphaned(),
            }
        }
        plan
    }

    /// Reports on the Instance why quota cannot be requested. The namespace's labels enqueue the Instance again, and so does the
    /// end of the interval.
    async fn report(&self, key: &QuotaKey, observed: Observed, now: Now) -> Result<Next, Error> {
        let mut plan = self.plan(key, &observed, now);
        let regarding = Regarding::of(&*observed.instance);
        let mut round = self.contests.begin(&key.instance, &mut plan, &regarding, now.time);
        for step in &plan.steps {
            round.came(match step {
                Step::Local(write) => came_of(send(&self.caches.plane, write, &self.metrics).await?),
                Step::Remote(_) => Sent::Refused,
            });
        }
        Ok(plan.next)
    }

    /// True if the Instance and its namespace no longer exist on this cell. Then only the claim itself names its owner.
    fn is_claims_alone(&self, key: &QuotaKey) -> bool {
        let namespace = ObjectKey::new("", &key.instance.namespace);
        key.project.is_some()
            && !self.caches.namespaces.contains(&namespace)
            && !self.caches.instances.contains(&key.instance)
    }

    /// Releases the claim of an Instance that does not exist. The claim was left behind during a long outage of its backend, or
    /// the Instance was deleted by hand together with its namespace.
    async fn reclaim(&self, cell: Identity, key: &QuotaKey, address: Option<Address>, now: Now) -> Result<Next, Error> {
        let project = address.as_ref().map(|address| &address.project).or(key.project.as_ref());
        let Some(backend) = project.and_then(|project| self.backends.known(project)) else { return Ok(Next::Await) };
        let name = names::resource_claim_name(&key.instance.name);
        let claim = match &address {
            Some(address) => backend.claims.get(&ObjectKey::new(&address.namespace, &name)),
            None => backend.claim_for(&cell, &key.instance),
        };
        let Some(claim) = claim else { return Ok(Next::Await) };
        let instance = Object::named::<Instance>(&key.instance.namespace, &key.instance.name);
        let observed = reclaim::Observed { claim: claim.into(), cell, instance };
        let plan = reclaim::plan(&observed, now.time);
        record("quota-reclaim", key, &observed, now, &plan);
        Ok(carry_out(&self.caches.plane, &backend.plane, &plan, &self.metrics).await?)
    }
}

/// Translates a failed call into the trouble to report on the Instance.
fn trouble(error: &Error) -> Trouble {
    let cause = match (error.missing(), error.class()) {
        (Some("projects"), _) => Cause::NoProject,
        (Some("namespaces"), _) => Cause::NoNamespace,
        (Some(_), _) | (None, Class::Unauthenticated | Class::Forbidden | Class::Invalid) => Cause::Misconfigured,
        _ => Cause::Unavailable,
    };
    Trouble { cause, message: error.words_for_tenants() }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
