//! Controller of companions: the copies of the ConfigMaps and Secrets that deployments refer to. The key names the source in its
//! project.
//!
//! Content is read when a copy is due, compared and dropped. Only the versions that were seen to be equal are kept.

use std::{sync::Arc, time::Duration};

use kube::core::ObjectMeta;

use crate::controllers::management::{
    Context,
    hub::hub_outage::companions_fail,
    projects::project_cache::ProjectCache,
    referenced_data::sources::{self, News},
    wiring::{index::source_index, queues::CompanionKey, watches::ManagementWatches},
};
use crate::{
    api::{names, referenced::DataRef},
    controllers::{Reconciler, compact::PackedDeployment, failure_of, record, rest_after, send},
    io::{Class, Error, clock::Now, queue::Key as _, store::ObjectKey},
    plan::{
        Failure, NamespaceFacts, Next, Object, ObjectVersion, Op, Shared, Step,
        management::{
            collector::relabel::relabel,
            referenced_data::{
                companion::{self, Decided, Observed, Reading, Signal, SourceState},
                resolve::{Source, wants_companions},
            },
        },
        ownership,
        payload::Payload,
    },
};

/// Reconciles the companion of each ConfigMap and Secret that a project's deployments refer to.
pub(crate) struct Companion {
    pub(crate) ctx: Arc<Context>,
    /// Watches of the project. The watch of sources starts with the first reference.
    pub(crate) watches: Arc<ManagementWatches>,
}

/// Result of offering content to the hub.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offer {
    Settled,
    Refused,
}

/// Deployment that refers to the source.
pub(crate) type PackedUser = (ObjectKey, Arc<PackedDeployment>);

/// Key of a companion, with its project and its names resolved.
pub(crate) struct ResolvedKey<'a> {
    pub(crate) of: &'a Companion,
    pub(crate) project: &'a ProjectCache,
    key: &'a CompanionKey,
    pub(crate) namespace: &'a str,
    pub(crate) hub_namespace: String,
    pub(crate) data_ref: &'a DataRef,
    pub(crate) source: ObjectKey,
}

impl Reconciler for Companion {
    const NAME: &'static str = "referenced-data";
    type Key = CompanionKey;

    /// Each run reads all users of the source.
    fn rest(&self, key: &CompanionKey) -> Duration {
        let users = self
            .ctx
            .projects
            .get(&key.project)
            .map_or(0, |project| project.deployments.count_by_index(&source_index(&key.namespace, &key.data_ref)));
        rest_after(CompanionKey::REST, users)
    }

    fn by_server(&self, _: &CompanionKey, now: Now) -> Now {
        now.on(self.ctx.hub.plane.connection().clock())
    }

    /// 1. Waits until the caches of project and hub are filled and the companions are current. A filled cache enqueues every key,
    ///    and so does a namespace whose deployments are all readable again.
    /// 2. Reads the source if it is in use and unknown.
    /// 3. Observes the companion and its users, and plans the writes.
    /// 4. If the plan depends on content, reads source and companion, and plans again.
    /// 5. Sends the writes, and records the version of the companion that has the content of the source.
    async fn reconcile(&self, key: &CompanionKey, now: Now, failing: Duration) -> Result<Next, Error> {
        if !key.data_ref.is_valid() {
            return Ok(Next::Await); // such an object cannot exist
        }
        let Some(project) = self.ctx.projects.get(&key.project) else { return Ok(Next::Await) };
        if !project.is_synced() || !self.ctx.hub.is_synced() || companions_fail(&self.ctx.hub, &self.ctx.health, now) {
            return Ok(Next::Await);
        }
        // Also if the namespace was deleted before the last user of the source there.
        let users = source_index(&key.namespace, &key.data_ref);
        if project.deployments.count_by_index(&users) == 0 && !project.deployments.has_unreadable(&key.namespace) {
            project.sources(key.data_ref.kind).forget(&key.source());
        }
        // Without the project's namespace the hub namespace of the copies is unknown.
        let Some(uid) = project.namespace_uid(&key.namespace) else { return Ok(Next::Await) };
        let hub_namespace = names::hub_namespace(&uid);
        let facts = self.ctx.hub.namespaces.get(&ObjectKey::new("", &hub_namespace));
        if self.ctx.projects.rival(&key.project, &hub_namespace, facts.as_deref(), &self.ctx.hub).is_some() {
            return Ok(Next::Await); // the hub namespace and its Secrets are another project's
        }
        let resolved = ResolvedKey {
            of: self,
            project: &project,
            key,
            namespace: &key.namespace,
            hub_namespace,
            source: key.source(),
            data_ref: &key.data_ref,
        };
        let done = resolved.run(now).await;
        resolved.note_late(done.as_ref().err().map(|error| failure_of(error, failing)));
        done
    }
}

impl ResolvedKey<'_> {
    async fn run(&self, now: Now) -> Result<Next, Error> {
        let users = self.project.deployments.entries_by_index(&source_index(self.namespace, self.data_ref));
        let mut reading = Reading::Unknown;
        if !users.is_empty() {
            self.of.watches.watch_sources(self.project);
        }
        if self.source_state(&users, now).is_read_first() {
            reading = self.read_source(now).await?.map_or(Reading::Unknown, Reading::Source);
        }
        let (mut observed, mut plan) = self.decide(&users, reading, now);
        if plan.signals.contains(&Signal::Read) {
            let reading = self.read(observed.reading, observed.companion.is_some(), now).await?;
            (observed, plan) = self.decide(&users, reading, now);
            if plan.signals.contains(&Signal::Read) {
                // Source or companion was deleted since. Its event enqueues the key, or the wait for the source ends.
                return Ok(self.source_state(&users, now).next(self.retry()));
            }
        }
        if self.carry_out(&observed, &plan, now).await? == Offer::Refused {
            // Users and residue are written even if the content is refused.
            (observed, plan) = self.decide(&users, Reading::Unknown, now);
            self.carry_out(&observed, &plan, now).await?;
        }
        Ok(self.source_state(&users, now).next(self.retry()))
    }

    /// Records why a due copy fails, for the deployments that refer to the source. A refusal of the content is recorded
    /// elsewhere, and does not replace this cause.
    fn note_late(&self, failure: Option<Failure>) {
        let sources = self.project.sources(self.data_ref.kind);
        self.notify_users(sources.note_late(&self.source, failure, &self.of.ctx.options.timing));
    }

    /// Returns the time until the source is read again, if no watch shows the change.
    fn retry(&self) -> Duration {
        self.of.ctx.options.timing.poll * companion::POLLS_PER_READ
    }

    fn source_state(&self, users: &[PackedUser], now: Now) -> SourceState {
        let sources = self.project.sources(self.data_ref.kind);
        let (present, last) = (sources.get(&self.source), sources.last(&self.source));
        let offered_in = sources.offered_in(&self.source, now.instant);
        let may_return_in = sources.may_return_in(&self.source, now.instant, self.of.ctx.options.timing.delivery_grace);
        SourceState { used: !users.is_empty(), present, last, failing: sources.is_failing(), offered_in, may_return_in }
    }

    fn decide(&self, users: &[PackedUser], reading: Reading, now: Now) -> (Observed, Decided) {
        let observed = self.observe(users, reading, now);
        let plan = companion::plan(&observed, now.time);
        record(Companion::NAME, self.key, &observed, now, &plan);
        (observed, plan)
    }

    /// Returns the snapshot of the companion. Each object is read once.
    fn observe(&self, users: &[PackedUser], reading: Reading, now: Now) -> Observed {
        let hub = &self.of.ctx.hub;
        let companion = hub.companion(&self.hub_namespace, self.data_ref);
        let sources = self.project.sources(self.data_ref.kind);
        let copied = sources.copy(&self.source);
        let present = companion.as_ref().map(|companion| ObjectVersion::new(&companion.uid, &companion.version));
        let namespace = hub.namespaces.get(&ObjectKey::new("", &self.hub_namespace));
        let is_own = |facts: &NamespaceFacts| facts.mirrors(&self.project.name, self.namespace);
        Observed {
            data_ref: self.data_ref.clone(),
            namespace: self.namespace.to_owned(),
            hub_namespace: self.hub_namespace.clone(),
            hub_namespace_lives: namespace.is_some_and(|facts| !facts.terminating && is_own(&facts)),
            users: self.users(users, companion.as_deref()),
            residue: companion.as_ref().and_then(|companion| self.residue(companion)),
            fresh: copied.is_some() && copied == present,
            waits: sources.offered_in(&self.source, now.instant).is_some(),
            companion: companion.map(Shared::from),
            reading,
        }
    }

    /// Reads the missing contents: the source's, and the companion's if it exists.
    async fn read(&self, reading: Reading, companion_is_there: bool, now: Now) -> Result<Reading, Error> {
        let source = match reading {
            Reading::Source(source) | Reading::Both { source, .. } => Some(source),
            Reading::Unknown => self.read_source(now).await?,
        };
        let Some(source) = source else { return Ok(Reading::Unknown) };
        if !companion_is_there {
            return Ok(Reading::Source(source));
        }
        let companion = self.of.ctx.hub.plane.read_payload(&self.hub_namespace, self.data_ref).await?;
        Ok(match companion {
            Some((version, companion)) => Reading::Both { source, version, companion },
            None => Reading::Source(source),
        })
    }

    /// Reads the source and records its state. Returns its content if it may be copied.
    async fn read_source(&self, now: Now) -> Result<Option<Payload>, Error> {
        let sources = self.project.sources(self.data_ref.kind);
        let taken = sources.last(&self.source) == Source::Taken;
        let epoch = sources.begin(&self.source);
        let (reading, payload) = match self.project.plane.read_payload(self.namespace, self.data_ref).await {
            Ok(Some((seen, payload))) => {
                let source = Source::Present { size: payload.size() };
                let version = seen.resource_version.parse().unwrap_or(0);
                (sources::Reading { uid: seen.uid, version, source }, Some(payload))
            }
            // Tools that manage Secrets replace them. If the Secret returns at once, its copy must not change.
            Ok(None)
                if sources
                    .missing_for(&self.source, now.instant)
                    .is_some_and(|missing| missing < self.of.ctx.options.timing.delivery_grace) =>
            {
                return Ok(None);
            }
            Ok(None) => (sources::Reading { source: Source::Absent, ..Default::default() }, None),
            // Credentials expire and are renewed. Only a lasting failure is reported on all users.
            Err(error)
                if error.class() == Class::Unauthenticated
                    && sources.unread_for(&self.source, now.instant) < self.of.ctx.options.timing.delivery_grace =>
            {
                return Err(error);
            }
            Err(error) if matches!(error.class(), Class::Unauthenticated | Class::Forbidden) => {
                let source = Source::Unauthorized(error.to_string());
                (sources::Reading { source, ..Default::default() }, None)
            }
            Err(error) => return Err(error),
        };
        let (mut reading, mut payload) = (reading, payload);
        if taken && payload.is_some() && self.read_place().await?.as_ref().is_some_and(is_strange) {
            (reading.source, payload) = (Source::Taken, None);
        }
        self.notify_users(sources.read(&self.source, epoch, reading));
        let fits = |payload: &Payload| payload.size() <= self.of.ctx.options.limits.per_object;
        if payload.as_ref().is_some_and(|payload| !fits(payload)) {
            self.notify_users(sources.accept(&self.source)); // too large for a copy: this replaces the hub's refusal
        }
        Ok(payload.filter(fits))
    }

    /// Sends the writes, and records the version that has the source's content afterwards.
    async fn carry_out(&self, observed: &Observed, plan: &Decided, now: Now) -> Result<Offer, Error> {
        let (hub, metrics) = (&self.of.ctx.hub.plane, &self.of.ctx.metrics);
        let sources = self.project.sources(self.data_ref.kind);
        let equal = plan.signals.contains(&Signal::Equal);
        let mut copied = match &observed.reading {
            Reading::Both { version, .. } if equal => Some(version.clone()),
            _ => None,
        };
        for step in &plan.steps {
            let write = match step {
                Step::Local(confirm) => {
                    send(&self.project.plane, confirm, metrics).await?;
                    continue;
                }
                Step::Remote(write) => write,
            };
            let (creates, brings) = (matches!(write.op, Op::Create { .. }), companion::brings_content(write));
            let claims = write.object.kind.is_confidential() && !brings;
            let stored = match send(hub, write, metrics).await {
                Err(error) if creates && error.class() == Class::Conflict => {
                    let found = self.read_place().await?;
                    if let Some(label) = found.as_ref().and_then(|found| relabel(&self.object(), found)) {
                        tracing::warn!(object = %self.key, "a companion that has lost its label gets it back");
                        send(hub, &label, metrics).await?;
                        return Ok(Offer::Settled); // its event enqueues the key
                    }
                    if !found.as_ref().is_some_and(is_strange) {
                        return Err(error);
                    }
                    self.note_taken();
                    return Ok(Offer::Settled);
                }
                Err(error) if brings && is_refusal(&error) => {
                    let (why, retry) = (error.words_for_tenants(), self.retry());
                    tracing::info!(object = %self.key, %error, "the hub refuses a copy");
                    self.notify_users(sources.refuse(&self.source, why, now.instant, retry));
                    return Ok(Offer::Refused);
                }
                Err(error) if error.class() == Class::Invalid && claims => {
                    self.note_copied(copied); // the content is correct, only the list of users is refused
                    self.notify_users(sources.note_full(&self.source, Some(error.to_string())));
                    return Err(error);
                }
                sent => sent?,
            };
            if claims {
                self.notify_users(sources.note_full(&self.source, None));
            }
            if write.object.kind.is_confidential() {
                copied = stored.map(|stored| stored.version).filter(|_| brings || observed.fresh || equal);
            }
        }
        self.note_copied(copied);
        if plan.signals.contains(&Signal::Unused) {
            metrics.collected(self.data_ref.kind.as_str());
        }
        Ok(Offer::Settled)
    }

    /// Records that this version of the companion has the source's content.
    fn note_copied(&self, copied: Option<ObjectVersion>) {
        let Some(copied) = copied else { return };
        let sources = self.project.sources(self.data_ref.kind);
        let known = sources.copy(&self.source).map(|copy| copy.uid);
        let other = known.as_ref() != Some(&copied.uid);
        sources.copied(&self.source, copied);
        let accepted = sources.accept(&self.source);
        self.notify_users(if other { News::Confirmed } else { accepted });
    }

    /// Returns the reference to the companion.
    fn object(&self) -> Object {
        let (kind, name) = (self.data_ref.kind.into(), self.data_ref.name.clone());
        Object { kind, namespace: self.hub_namespace.clone(), name }
    }

    /// Reads the metadata of the object with the companion's name, even if it is not ours.
    async fn read_place(&self) -> Result<Option<ObjectMeta>, Error> {
        self.of.ctx.hub.plane.read_metadata(&self.object()).await
    }

    /// Records that another object has the companion's name.
    fn note_taken(&self) {
        let sources = self.project.sources(self.data_ref.kind);
        let epoch = sources.begin(&self.source);
        let reading = sources::Reading { source: Source::Taken, ..Default::default() };
        self.notify_users(sources.read(&self.source, epoch, reading));
    }

    /// Enqueues the users of the source after a change of its state, because their report may change. If the source was the last
    /// missing one of a deployment, the deployment's other companions are due too.
    fn notify_users(&self, news: News) {
        if news == News::Nothing {
            return;
        }
        let users = self.project.deployments.entries_by_index(&source_index(self.namespace, self.data_ref));
        for (key, user) in users {
            if news == News::Changed && self.wants_companions(&user) {
                self.of.ctx.triggers.enqueue_companions_of(self.project, &user.open());
            }
            self.of.ctx.triggers.enqueue_federator(self.project, key);
        }
    }

    /// True if a deployment that refers to the source needs copies of all its sources now. Sources that the hub refuses are
    /// offered again one by one, and no other source waits for them.
    fn wants_companions(&self, user: &PackedDeployment) -> bool {
        let sources = self.project.read_sources(self.namespace, user.references());
        wants_companions(user.references(), self.namespace, self.of.ctx.options.limits, &sources)
    }
}

/// True if the found object is not a companion and never was one.
fn is_strange(found: &ObjectMeta) -> bool {
    !ownership::is_companion(found) && !ownership::is_unlabelled_companion(found)
}

/// True if the hub refuses a copy for a lasting cause: its content, a quota, a webhook or a missing permission.
fn is_refusal(error: &Error) -> bool {
    match error.class() {
        Class::Invalid => true,
        Class::Forbidden => !error.is_of_terminating_namespace(),
        _ => false,
    }
}

#[cfg(test)]
#[path = "companion_tests.rs"]
mod tests;
