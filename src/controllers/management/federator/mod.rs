//! Controller of federation: writes the copy of each WorkloadDeployment on the hub, and the copy's status back to the project.

pub(crate) mod blocked;
pub(crate) mod latency;
pub(crate) mod pace;
pub(crate) mod reports;
pub(crate) mod unshown;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;

use self::pace::Pace;
use crate::controllers::management::{
    Context,
    collector::{Collector, relabel},
    hub::hub_outage::{companions_fail, outage},
    projects::project_cache::ProjectCache,
    wiring::queues::{PolicyKey, ProjectKey},
};
use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::annotation,
        names::{self, CityCode},
        referenced::DataRef,
        user_list::UserName,
    },
    controllers::{
        End, Reconciler, Stopped, carry_out_each, compact::PackedDeployment, contests::Contests, is_silence, record,
        report,
    },
    io::{Class, Error, clock::Now, store::ObjectKey},
    plan::{
        NamespaceFacts, Next, Object, ObjectVersion, Project, Shared, Step, Write,
        contest::{Regarding, Sent},
        management::{
            federator::{
                diagnosis::Karmada,
                federate::{self, Decided, HiddenCopy, Observed, Signal},
                hub_trouble::{self, Cause},
                latency::Look,
            },
            observed::facts::{AttachedBinding, Phase, SharedCompanion},
            projects::rival::Rival,
            referenced_data::resolve::View,
        },
        ownership,
        references::{Reference, annotated},
    },
};

/// Requeue delay of a repair after other deployments have used up the budget.
const RACE_PAUSE: Duration = Duration::from_secs(1);

/// Time for which the reason of a blocked namespace deletion is cached.
const NAMESPACE_WORDS_FOR: Duration = Duration::from_mins(1);

/// Reconciles the hub copies of the projects' deployments, and reports on each deployment the state of its copy.
pub(crate) struct Federator {
    pub(crate) ctx: Arc<Context>,
    pub(crate) collector: Collector,
    pub(crate) pace: Pace,
    pub(crate) contests: Contests<ProjectKey>,
    /// Reasons why hub namespaces are not deleted, with the time of the read.
    pub(crate) namespaces_told: Mutex<BTreeMap<String, (Instant, String)>>,
}

impl Reconciler for Federator {
    const NAME: &'static str = "workload-deployment-federator";
    type Key = ProjectKey;

    fn by_server(&self, _: &ProjectKey, now: Now) -> Now {
        now.on(self.ctx.hub.plane.connection().clock())
    }

    /// 1. Waits until the caches of the project are filled. If the deployment is gone, deletes a copy that an unfinished write has
    ///    recreated.
    /// 2. Waits until the caches of the hub are filled. A filled cache enqueues every key. An outage of the hub is reported even
    ///    before that.
    /// 3. Observes the deployment, its data, its copy, and the state of the copy in Karmada.
    /// 4. Plans the writes. A plan with a repair is requeued if other deployments have used up the budget.
    /// 5. Sends the writes, except those that another client reverts again and again, or that the hub does not store. If the
    ///    first write is refused for a hub namespace or a copy that no cache shows, reads that object and plans again.
    /// 6. Reports refusals of the hub or the project on the deployment.
    /// 7. Records the blocker of the delivery, and measures the latency of what was delivered.
    async fn reconcile(&self, key: &ProjectKey, now: Now, failing: Duration) -> Result<Next, Error> {
        let (Some(project), hub) = (self.ctx.projects.get(&key.project), &self.ctx.hub) else {
            // A reconcile that ran while the project was disengaged may have left an entry.
            self.note(key, &[], now);
            self.ctx.latency.forget(key);
            self.contests.forget(key);
            return Ok(Next::Await);
        };
        if !project.is_synced() {
            return Ok(Next::Await);
        }
        let Some(packed) = project.deployments.get(&key.object) else {
            self.note(key, &[], now);
            self.ctx.latency.forget(key);
            self.ctx.unshown.forget(key);
            self.contests.forget(key);
            if let Some(uid) = project.namespace_uid(&key.object.namespace).filter(|_| hub.is_synced()) {
                let copy = ObjectKey::new(&names::hub_namespace(&uid), &key.object.name);
                self.collector.collect_copy(&project.name, &copy, now).await?;
            }
            return Ok(Next::Await);
        };
        let outage = outage(hub, &self.ctx.health, now);
        if !hub.is_synced() && outage.is_none() {
            return Ok(Next::Await);
        }
        let mut observed = self.observe(&project, key, &packed, now);
        observed.outage = outage;
        if hub_trouble::is_namespace_overdue(&observed) {
            observed.namespace_words = Some(self.namespace_words(&observed, now).await);
        }
        let (plan, done, sent) = loop {
            let mut plan = federate::plan(&observed, now.time);
            record(Self::NAME, key, &observed, now, &plan);
            if !self.take_budgets(key, &observed, &plan, now) {
                self.note(key, &plan.signals, now);
                return Ok(Next::After(RACE_PAUSE));
            }
            let report = federate::status_of(&plan).map(|status| self.ctx.reports.write(key, status));
            let (done, sent) = self.carry_out(&project, key, &observed, &mut plan, now).await;
            drop(report);
            let Err(stopped) = &done else { break (plan, done, sent) };
            match self.read_hidden(&mut observed, stopped).await {
                Ok(true) => {}
                Ok(false) => break (plan, done, sent),
                Err(error) => break (plan, Err(Stopped { at: End::Remote, error }), sent),
            }
        };
        match done {
            Ok(next) => {
                self.note(key, &plan.signals, now);
                self.measure(key, &observed, &plan, now);
                if self.has_to_look_again(&project, key, &observed, &plan) {
                    self.ctx.queues.federator.add(key.clone());
                }
                Ok(next)
            }
            Err(Stopped { at: End::Local, error }) => {
                self.report_project(&project, key, &observed, (plan, sent), (&error, failing), now).await;
                Err(error)
            }
            Err(Stopped { at: End::Remote, error }) => {
                // A failed repair is not reported itself. The problem that it should repair is reported, and retried with
                // back-off.
                if plan.signals.iter().any(|signal| matches!(signal, Signal::Repaired(_))) {
                    self.note(key, &plan.signals, now);
                } else {
                    self.report_hub(&project, key, &observed, (&error, failing), plan.signals, now).await?;
                }
                // A copy without its label is in no cache. With the label restored, the next reconcile deletes it.
                if matches!(error, Error::StillThere(_)) {
                    let deployment = &observed.deployment;
                    let namespace = federate::copy_namespace(deployment, observed.namespace_uid.as_deref());
                    let object = Object::named::<WorkloadDeployment>(&namespace.unwrap_or_default(), &key.object.name);
                    relabel(hub, &object, &self.ctx.metrics).await?;
                }
                Err(error)
            }
        }
    }
}

impl Federator {
    /// Takes the plan's share of the budgets. False if other deployments have used up the budget of repairs since the snapshot.
    fn take_budgets(&self, key: &ProjectKey, observed: &Observed, plan: &Decided, now: Now) -> bool {
        for signal in &plan.signals {
            if let Signal::Repaired(absence) = signal {
                if !self.ctx.blocked.take(key, *absence, &self.ctx.options.timing, now.instant) {
                    return false;
                }
                self.ctx.metrics.repaired();
            }
        }
        if plan.signals.contains(&Signal::AwaitsTurn) || plan.steps.iter().any(federate::applies_copy) {
            self.pace.take(key, &observed.deployment.spec.template, now.instant);
        }
        true
    }

    /// True if another look has to follow the status that a plan has written. That has not enqueued the deployment, see
    /// [`Reports`](reports::Reports).
    fn has_to_look_again(&self, project: &ProjectCache, key: &ProjectKey, observed: &Observed, plan: &Decided) -> bool {
        let Some(written) = federate::status_of(plan) else { return false };
        let asks =
            |stored: Arc<PackedDeployment>| federate::asks_for_another_look(observed, plan, &written, &stored.open());
        // A contest ends with a look that finds nothing to write.
        self.contests.are_about(key) || project.deployments.get(&key.object).is_some_and(asks)
    }

    /// Reads the object behind a refused write that no cache shows: a hub namespace or a copy. True if it was read now, so that
    /// the plan must be made again.
    async fn read_hidden(&self, observed: &mut Observed, stopped: &Stopped) -> Result<bool, Error> {
        if stopped.error.is_there_already("namespaces") && observed.hub_namespace_version.is_none() {
            self.read_namespace(observed).await?;
            return Ok(true);
        }
        let is_conflict = stopped.at == End::Remote && stopped.error.class() == Class::Conflict;
        if is_conflict && observed.hidden_copy.is_none() { self.read_hidden_copy(observed).await } else { Ok(false) }
    }

    /// Carries a plan out, except writes that another client reverts again and again, or that the server does not store. Returns
    /// the result and the number of steps that were sent.
    async fn carry_out(
        &self,
        project: &ProjectCache,
        key: &ProjectKey,
        observed: &Observed,
        plan: &mut Decided,
        now: Now,
    ) -> (Result<Next, Stopped>, usize) {
        let regarding = Regarding::of(&*observed.deployment);
        let mut round = self.contests.begin(key, plan, &regarding, now.time);
        let mut sent = 0;
        let came = |came: Sent| {
            round.came(came);
            sent += 1;
        };
        let done = carry_out_each(&project.plane, &self.ctx.hub.plane, plan, &self.ctx.metrics, came).await;
        (done, sent)
    }

    /// Reads the hub namespace, and updates its facts and the rival in the snapshot.
    async fn read_namespace(&self, observed: &mut Observed) -> Result<(), Error> {
        let namespace = federate::copy_namespace(&observed.deployment, observed.namespace_uid.as_deref());
        let namespace = namespace.unwrap_or_default();
        let found = self.ctx.hub.plane.read_metadata(&Object::named::<Namespace>("", &namespace)).await?;
        observed.hub_namespace_version = found.as_ref().map(ObjectVersion::of);
        let facts = found.map(NamespaceFacts::of);
        observed.rival = self.ctx.projects.rival(&observed.project, &namespace, facts.as_ref(), &self.ctx.hub);
        observed.hub_namespace = facts.map(Shared::from);
        Ok(())
    }

    /// Reads a copy that no cache shows. False if the cache has the copy, or if there is none.
    async fn read_hidden_copy(&self, observed: &mut Observed) -> Result<bool, Error> {
        let deployment = &observed.deployment;
        let is_read = observed.copy.is_none() && deployment.metadata.deletion_timestamp.is_none();
        let namespace = federate::copy_namespace(deployment, observed.namespace_uid.as_deref());
        let Some(namespace) = namespace.filter(|_| is_read) else { return Ok(false) };
        let object = Object::named::<WorkloadDeployment>(&namespace, &deployment.name_any());
        let found = self.ctx.hub.plane.read_metadata(&object).await?;
        observed.hidden_copy = found.map(|found| HiddenCopy {
            version: ObjectVersion::of(&found),
            annotations: found.annotations.unwrap_or_default(),
        });
        Ok(observed.hidden_copy.is_some())
    }

    /// Reports a refusal by the project. After the grace period the refusal itself is reported, before that the plan's own
    /// report.
    async fn report_project(
        &self,
        project: &ProjectCache,
        key: &ProjectKey,
        observed: &Observed,
        (plan, sent): (Decided, usize),
        (error, failing): (&Error, Duration),
        now: Now,
    ) {
        // A live read shows a changed object, or the report itself is refused.
        let is_moot = |write: &Write<Project>| write.reports() || write.op.is_look();
        let is_moot = matches!(plan.steps.get(sent), Some(Step::Local(write)) if is_moot(write));
        let trouble = (cause_in_project(error), error.words_in_project());
        let refusal = hub_trouble::project_refused(observed, trouble, failing, now.time);
        let is_due = refusal.is_some();
        let plan = refusal.unwrap_or(plan);
        // A project that does not answer gets no more requests before the grace period ends. A hanging webhook looks the same.
        if is_due || !is_moot && !is_silence(error) {
            report(&project.plane, &plan, &self.ctx.metrics).await;
        }
        self.note(key, &plan.signals, now);
    }

    /// Reports a failed call to the hub. If the failure is not worth a report, records the `signals` of the plan.
    async fn report_hub(
        &self,
        project: &ProjectCache,
        key: &ProjectKey,
        observed: &Observed,
        (error, failing): (&Error, Duration),
        signals: Vec<Signal>,
        now: Now,
    ) -> Result<(), Error> {
        if let Some(trouble) = self.trouble_of(error, observed, failing) {
            return self.report_trouble(project, key, observed, trouble, now).await;
        }
        self.note(key, &signals, now);
        Ok(())
    }

    /// Returns the cause of a failed call to the hub, its message, and the time waited for it. `None` if another client was only
    /// faster.
    fn trouble_of(&self, error: &Error, observed: &Observed, failing: Duration) -> Option<(Cause, String, Duration)> {
        let lasts = self.ctx.options.timing.outlasts_grace(failing);
        let waited = if let Error::Deadline { after, .. } = error { *after } else { Duration::ZERO };
        let waited = if lasts { waited.max(failing) } else { waited };
        let cause = match (error, error.class()) {
            // A live read finds the object, and no watch shows it.
            (Error::StillThere(_), _) => {
                let deployment = &observed.deployment;
                let namespace =
                    federate::copy_namespace(deployment, observed.namespace_uid.as_deref()).unwrap_or_default();
                let name = deployment.name_any();
                let is_unreadable = self.ctx.hub.copies.is_unreadable(&ObjectKey::new(&namespace, &name));
                let words = if is_unreadable { hub_trouble::unreadable_words } else { hub_trouble::hidden_words }(
                    &namespace, &name,
                );
                return Some((Cause::CopyHeld, words, waited));
            }
            (_, Class::Conflict) if !lasts => return None,
            // The hub answers. Only its webhook does not.
            (_, Class::Retry) if error.is_of_webhook() => Cause::Refused,
            (_, Class::Retry | Class::Unauthenticated) => Cause::Unavailable,
            (_, Class::Forbidden | Class::Invalid | Class::Gone | Class::Conflict) => Cause::Refused,
        };
        // The API server's message about the object helps its author. Messages about the operator, webhooks and addresses belong
        // in the platform's log.
        let words = error.words_for_tenants();
        Some((cause, words, waited))
    }

    /// Reports a failure of the hub on a deployment, and records it as the blocker of the delivery.
    async fn report_trouble(
        &self,
        project: &ProjectCache,
        key: &ProjectKey,
        observed: &Observed,
        (cause, words, waited): (Cause, String, Duration),
        now: Now,
    ) -> Result<(), Error> {
        let mut trouble = hub_trouble::lasting(observed, cause, words);
        // One write without an answer is no outage. Repeated ones are.
        if !trouble.lasted.is_zero() || self.ctx.options.timing.outlasts_grace(waited) {
            trouble.lasted = trouble.lasted.max(waited);
        }
        let mut report = hub_trouble::told(observed, &trouble, now.time);
        record("hub-trouble", key, observed, now, &report);
        let (done, _) = self.carry_out(project, key, observed, &mut report, now).await;
        self.note(key, &report.signals, now);
        done?;
        Ok(())
    }

    /// Returns the hub's reason why a deployment's namespace there is not deleted. All deployments of a namespace get the same
    /// text, which is read once a minute.
    async fn namespace_words(&self, observed: &Observed, now: Now) -> String {
        let namespace = federate::copy_namespace(&observed.deployment, observed.namespace_uid.as_deref());
        let namespace = namespace.unwrap_or_default();
        let known = self.namespaces_told.lock().unwrap_or_else(PoisonError::into_inner).get(&namespace).cloned();
        let fresh = |(at, _): &(Instant, String)| now.instant.saturating_duration_since(*at) < NAMESPACE_WORDS_FOR;
        if let Some((_, words)) = known.filter(fresh) {
            return words;
        }
        // Without an answer a default text is used.
        let found = self.ctx.hub.plane.read::<Namespace>("", &namespace).await.ok().flatten();
        let words = found.as_ref().and_then(hub_trouble::namespace_words);
        let words = words.unwrap_or_else(|| format!("Namespace {namespace}, with no cause reported by its API server"));
        let mut all = self.namespaces_told.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, known| fresh(known));
        all.insert(namespace, (now.instant, words.clone()));
        words
    }

    /// Records the blocker of a deployment.
    fn note(&self, key: &ProjectKey, signals: &[Signal], now: Now) {
        blocked::tell(&self.ctx.metrics, &self.ctx.blocked.note(key, signals, now.instant));
    }

    /// Measures the legs of federation that the plan has ended.
    fn measure(&self, key: &ProjectKey, observed: &Observed, plan: &Decided, began: Now) {
        if observed.deployment.metadata.deletion_timestamp.is_some() {
            return self.ctx.latency.forget(key);
        }
        self.ctx.latency.looked(key, &Look::of(observed, plan), began.instant, &self.ctx.metrics);
    }

    /// Returns the snapshot of one deployment. Each object is read once.
    fn observe(&self, project: &ProjectCache, key: &ProjectKey, packed: &PackedDeployment, now: Now) -> Observed {
        let hub = &self.ctx.hub;
        let (place, deployment) = (&key.object, packed.open());
        let namespace_uid = project.namespace_uid(&place.namespace);
        let namespace = federate::copy_namespace(&deployment, namespace_uid.as_deref()).unwrap_or_default();
        let copy = hub.copy(&ObjectKey::new(&namespace, &place.name));
        // While the companions are not current, only their failing watch is reported.
        let knows_data = packed.references().is_empty() || !companions_fail(hub, &self.ctx.health, now);
        let city = CityCode::parse(&deployment.spec.city_code).ok().filter(|_| hub.knows_karmada() && knows_data);
        let (blocked, timing) = (&self.ctx.blocked, self.ctx.options.timing);
        let hub_namespace = hub.namespaces.get(&ObjectKey::new("", &namespace));
        let rival = self.ctx.projects.rival(&project.name, &namespace, hub_namespace.as_deref(), hub);
        if rival == Some(Rival::Lives) {
            self.ctx.projects.note_rival(&project.name, &namespace);
        }
        let turn_in = self.pace.wait(key, &deployment.spec.template, now.instant);
        Observed {
            rival,
            hub_namespace_version: None,
            project: project.name.clone(),
            keeper: self.ctx.projects.keeper(project),
            namespace_uid,
            hub_namespace: hub_namespace.map(Shared::from),
            data: self.observe_data(
                project,
                &namespace,
                place,
                packed.references(),
                [Some(&deployment), copy.as_deref()],
            ),
            karmada: city.zip(copy.as_deref()).map(|(city, copy)| self.observe_karmada(&namespace, &city, copy)),
            deployment,
            is_first_copy: copy.is_none() && !hub.has_copies(&namespace),
            copy,
            hidden_copy: None,
            turn_in,
            unshown: self.ctx.unshown.of(key),
            outage: None,
            namespace_words: None,
            blocked: blocked.of(key, now.instant),
            capacity: blocked.capacity(key, &timing, now.instant),
            timing,
        }
    }

    /// Returns the snapshot of a deployment's data. `both` are the deployment and its copy. Of a companion it contains only the
    /// part for this deployment, because thousands of others may use it.
    fn observe_data(
        &self,
        project: &ProjectCache,
        hub_namespace: &str,
        place: &ObjectKey,
        references: &[Reference],
        both: [Option<&WorkloadDeployment>; 2],
    ) -> View {
        let user = UserName::new(&place.namespace, &place.name);
        let sources = project.told_sources(&place.namespace, references);
        let expected = both.into_iter().flatten();
        let expected = expected.flat_map(|of| annotated(of, annotation::EXPECTED_REFERENCED_DATA));
        let data_refs: BTreeSet<DataRef> = sources.keys().cloned().chain(expected).collect();
        let companion = |data_ref: DataRef| {
            let facts = self.ctx.hub.companion(hub_namespace, &data_ref)?;
            let (sources, source) = (project.sources(data_ref.kind), ObjectKey::new(&place.namespace, &data_ref.name));
            let copied = sources.copy(&source);
            let companion = SharedCompanion::of(&facts, &user, copied.as_ref().map(|copied| &*copied.uid));
            Some((data_ref, SharedCompanion { full: sources.full(&source), ..companion }))
        };
        let companions = data_refs.into_iter().filter_map(companion).collect();
        let late = |data_ref: &DataRef| {
            let source = ObjectKey::new(&place.namespace, &data_ref.name);
            Some((data_ref.clone(), project.sources(data_ref.kind).late(&source)?))
        };
        let late = sources.keys().filter_map(late).collect();
        View { limits: self.ctx.options.limits, sources, companions, late }
    }

    /// Returns the state in Karmada of a copy and of the companions that it expects.
    fn observe_karmada(&self, namespace: &str, city: &CityCode, copy: &WorkloadDeployment) -> Karmada {
        let hub = &self.ctx.hub;
        let written = hub.copies.get(&ObjectKey::new(namespace, &copy.name_any())).and_then(|copy| copy.written());
        let at = ObjectKey::new(namespace, &city.policy_name());
        let policy = hub.policies.get(&at);
        let policy_trouble = if hub.policies.is_unreadable(&at) {
            Some("this operator cannot read it, and does not change it".to_owned())
        } else {
            let refused = self.ctx.refused.of(&PolicyKey { namespace: namespace.into(), city: city.clone() });
            refused.or_else(|| hub.hides_places(namespace))
        };
        let parent = names::deployment_binding(&copy.name_any());
        let binding = hub.bindings.get(&ObjectKey::new(namespace, &parent));
        let goes_to = binding.as_ref().map_or(&[][..], |binding| &binding.clusters);
        let attached = |data_ref: DataRef| {
            let name = names::binding_name(data_ref.kind.as_str(), &data_ref.name);
            let facts = hub.bindings.get(&ObjectKey::new(namespace, &name))?;
            Some((data_ref, AttachedBinding::of(&facts, &parent, goes_to)))
        };
        let clusters: BTreeSet<String> = goes_to.iter().cloned().chain(hub.clusters_of(city)).collect();
        let cluster = |name: String| {
            let facts = hub.clusters.get(&ObjectKey::new("", &name))?;
            Some((name, (*facts).clone()))
        };
        let expected = annotated(copy, annotation::EXPECTED_REFERENCED_DATA);
        Karmada {
            policy_lives: policy.as_ref().is_some_and(|policy| ownership::is_managed(policy.as_ref())),
            policy_trouble,
            phase: policy.map_or(Phase::Dependencies, |policy| Phase::of(&policy.spec)),
            attached: expected.into_iter().filter_map(attached).collect(),
            clusters: clusters.into_iter().filter_map(cluster).collect(),
            drain_waits: self.ctx.drains.note(city, goes_to),
            written,
            binding: binding.map(|binding| (*binding).clone()),
        }
    }
}

/// Returns the cause of a write that a project's API server did not carry out. It decides who acts.
fn cause_in_project(error: &Error) -> Cause {
    match error.class() {
        Class::Forbidden if error.is_of_terminating_namespace() => Cause::ProjectRefused,
        Class::Forbidden if !error.is_denied() => Cause::ProjectForbidden,
        Class::Forbidden | Class::Invalid => Cause::ProjectDenied,
        Class::Retry | Class::Unauthenticated | Class::Conflict | Class::Gone => Cause::ProjectRefused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::reason::Who;

    /// A webhook that did not answer stalled the deployment, as if its tenant had to act.
    #[test]
    fn party_of_a_write_that_the_project_did_not_carry_out() {
        let away = r#"Internal error occurred: failed calling webhook "guard.example.com": failed to call webhook: dial tcp 10.0.0.7:443: connect: connection refused"#;
        let late = r#"Internal error occurred: failed calling webhook "guard.example.com": context deadline exceeded"#;
        let denies = r#"admission webhook "guard.example.com" denied the request: no"#;
        let rbac = r#"workloaddeployments is forbidden: User "system:serviceaccount:c:m" cannot patch resource"#;
        let policy =
            r#"x "web" is forbidden: ValidatingAdmissionPolicy 'freeze' with binding 'all' denied request: no"#;
        for (code, words, cause, who) in [
            (500, away, Cause::ProjectRefused, Who::Platform),
            (500, late, Cause::ProjectRefused, Who::Platform),
            (500, denies, Cause::ProjectRefused, Who::Platform),
            (503, "not ready", Cause::ProjectRefused, Who::Platform),
            (401, "Unauthorized", Cause::ProjectRefused, Who::Platform),
            (403, rbac, Cause::ProjectForbidden, Who::Platform),
            (403, denies, Cause::ProjectDenied, Who::Tenant),
            (400, denies, Cause::ProjectDenied, Who::Tenant),
            (422, policy, Cause::ProjectDenied, Who::Tenant),
            (403, r#"x "web" is forbidden: exceeded quota: small, used: 1"#, Cause::ProjectDenied, Who::Tenant),
            (422, "spec.x: Invalid value", Cause::ProjectDenied, Who::Tenant),
        ] {
            let status = kube::core::Status::failure(words, "").with_code(code).boxed();
            let error = Error::Api { call: "apply x".into(), source: Box::new(kube::Error::Api(status)) };
            let found = cause_in_project(&error);
            assert_eq!((found, found.reason().entry().unwrap().who), (cause, who), "{code} {words}");
        }
        let silent = Error::Deadline { call: "apply x".into(), after: Duration::from_secs(10) };
        assert_eq!(cause_in_project(&silent), Cause::ProjectRefused);
    }
}
