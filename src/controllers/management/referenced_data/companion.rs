//! The companion of each ConfigMap and Secret that deployments refer to. The key names the source in its project.
//!
//! Content is read when a copy is due, compared, and dropped; what is kept is which versions were seen to be equal.

use std::{sync::Arc, time::Duration};

use kube::core::ObjectMeta;

use crate::controllers::management::{
    hub::{hub_cache::HubCache, hub_outage::companions_fail},
    projects::{project_cache::ProjectCache, registry::ProjectRegistry},
    referenced_data::sources::{self, News},
    wiring::{index::source_index, queues::CompanionKey, triggers::Triggers, watches::ManagementWatches},
};
use crate::{
    api::{names, referenced::DataRef},
    controllers::{Reconciler, compact::PackedDeployment, failure_of, record, send},
    io::{Class, Error, clock::Now, health::Health, store::ObjectKey},
    metrics::Metrics,
    plan::{
        Failure, NamespaceFacts, Next, Object, ObjectVersion, Op, Shared, Step,
        management::{
            collector::relabel::relabel,
            referenced_data::{
                companion::{self, Decided, Observed, Reading, Signal, SourceState, User},
                many_users,
                resolve::{Limits, Source, does_without, lets_go, wants_companion, wants_companions},
            },
        },
        ownership,
        payload::Payload,
    },
    timing::Timing,
};

/// Keeps the companion of each ConfigMap and Secret that a project's deployments refer to.
pub(crate) struct Companion {
    pub(crate) hub: Arc<HubCache>,
    pub(crate) projects: Arc<ProjectRegistry>,
    pub(crate) triggers: Arc<Triggers>,
    /// Sources are watched from the first reference on.
    pub(crate) watches: Arc<ManagementWatches>,
    pub(crate) limits: Limits,
    pub(crate) timing: Timing,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
}

/// What has become of the content that was offered to the hub, if any was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offer {
    Settled,
    Refused,
}

/// A deployment that refers to the source.
type PackedUser = (ObjectKey, Arc<PackedDeployment>);

/// One key, with everything that it stands for.
pub(crate) struct ResolvedKey<'a> {
    pub(crate) of: &'a Companion,
    pub(crate) project: &'a ProjectCache,
    key: &'a CompanionKey,
    pub(crate) namespace: &'a str,
    pub(crate) hub_namespace: String,
    pub(crate) data_ref: &'a DataRef,
    source: ObjectKey,
}

impl Reconciler for Companion {
    const NAME: &'static str = "referenced-data";
    type Key = CompanionKey;

    /// 1. Waits until the caches of project and hub are filled, and companions are known as they are at present; a cache that has
    ///    been filled anew enqueues every key, and so does a namespace whose deployments can all be read again.
    /// 2. Reads the source, when it is in use and not known.
    /// 3. Observes the companion and who uses it, and decides.
    /// 4. Where the decision depends on content, reads source and companion, and decides once more.
    /// 5. Writes, and notes which version of the companion has the content of the source.
    async fn reconcile(&self, key: &CompanionKey, now: Now, failing: Duration) -> Result<Next, Error> {
        if !key.data_ref.is_valid() {
            return Ok(Next::Await); // no such object can be
        }
        let Some(project) = self.projects.get(&key.project) else { return Ok(Next::Await) };
        if !project.is_synced() || !self.hub.is_synced() || companions_fail(&self.hub, &self.health, now) {
            return Ok(Next::Await);
        }
        // Also where the namespace has gone before the last that used the source there.
        let users = source_index(&key.namespace, &key.data_ref);
        if project.deployments.count_by_index(&users) == 0 && !project.deployments.has_unreadable(&key.namespace) {
            project.sources(key.data_ref.kind).forget(&key.source());
        }
        // Without its namespace nobody knows where copies are.
        let Some(uid) = project.namespace_uid(&key.namespace) else { return Ok(Next::Await) };
        let hub_namespace = names::hub_namespace(&uid);
        let facts = self.hub.namespaces.get(&ObjectKey::new("", &hub_namespace));
        if self.projects.rival(&key.project, &hub_namespace, facts.as_deref(), &self.hub).is_some() {
            return Ok(Next::Await); // what is there is the other's, whose Secrets these would replace
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
                // Gone in between, one or the other: their events enqueue the key, or the end of the wait for the source.
                return Ok(self.source_state(&users, now).next(self.of.timing.source_retry));
            }
        }
        if self.carry_out(&observed, &plan, now).await? == Offer::Refused {
            // Who uses it, and what is left on it, is no matter of its content.
            (observed, plan) = self.decide(&users, Reading::Unknown, now);
            self.carry_out(&observed, &plan, now).await?;
        }
        Ok(self.source_state(&users, now).next(self.of.timing.source_retry))
    }

    /// Notes why the copy that is due does not come about, for whoever refers to the source. What the hub refuses for its content is
    /// noted where it is refused, and takes nothing from what else may fail.
    fn note_late(&self, failure: Option<Failure>) {
        let sources = self.project.sources(self.data_ref.kind);
        self.notify_users(sources.note_late(&self.source, failure, &self.of.timing));
    }

    fn source_state(&self, users: &[PackedUser], now: Now) -> SourceState {
        let sources = self.project.sources(self.data_ref.kind);
        let (present, last) = (sources.get(&self.source), sources.last(&self.source));
        let offered_in = sources.offered_in(&self.source, now.instant);
        let may_return_in = sources.may_return_in(&self.source, now.instant, self.of.timing.delivery_grace);
        SourceState { used: !users.is_empty(), present, last, failing: sources.is_failing(), offered_in, may_return_in }
    }

    fn decide(&self, users: &[PackedUser], reading: Reading, now: Now) -> (Observed, Decided) {
        let observed = self.observe(users, reading, now);
        let plan = companion::plan(&observed, now.time);
        record(Companion::NAME, self.key, &observed, now, &plan);
        (observed, plan)
    }

    /// Everything that is known about the companion, each object looked up once.
    fn observe(&self, users: &[PackedUser], reading: Reading, now: Now) -> Observed {
        let hub = &self.of.hub;
        let companion = hub.companion(&self.hub_namespace, self.data_ref);
        let sources = self.project.sources(self.data_ref.kind);
        let copied = sources.copy(&self.source);
        let stands = companion.as_ref().map(|companion| ObjectVersion::new(&companion.uid, &companion.version));
        let namespace = hub.namespaces.get(&ObjectKey::new("", &self.hub_namespace));
        let source = sources.get(&self.source);
        let in_use = |(_, wd): &&PackedUser| {
            // Only then is the whole of it asked for.
            !does_without(wd.references(), self.data_ref, &source) || !lets_go(&wd.open(), self.data_ref, &source)
        };
        let user = |(key, deployment): &PackedUser| {
            let copy = hub.copies.get(&ObjectKey::new(&self.hub_namespace, &key.name));
            let promised = copy.is_some_and(|copy| copy.expects(self.data_ref));
            User {
                name: key.name.to_string(),
                wants_copy: !deployment.is_deleting() && self.wants_companion(deployment, promised),
                promised,
            }
        };
        let users = users.iter().filter(in_use).map(user);
        // With each of many who come, all others would be asked what they want.
        let many = companion.as_ref().is_some_and(|companion| companion.has_many_users());
        let users = if many { many_users::enough(users) } else { users.collect() };
        let is_own = |facts: &NamespaceFacts| facts.mirrors(&self.project.name, self.namespace);
        Observed {
            data_ref: self.data_ref.clone(),
            namespace: self.namespace.to_owned(),
            hub_namespace: self.hub_namespace.clone(),
            hub_namespace_lives: namespace.is_some_and(|facts| !facts.terminating && is_own(&facts)),
            unknown_users: self.project.deployments.has_unreadable(self.namespace),
            former_users: companion.as_ref().map(|companion| self.former_users(&users, companion)).unwrap_or_default(),
            expecting: companion.as_ref().and_then(|companion| self.expecting(users.len(), companion)),
            residue: companion.as_ref().and_then(|companion| self.residue(companion)),
            fresh: copied.is_some() && copied == stands,
            waits: sources.offered_in(&self.source, now.instant).is_some(),
            companion: companion.map(Shared::from),
            users,
            reading,
        }
    }

    /// Reads what is missing in a reading: the source's content, and the companion's, when there is one.
    async fn read(&self, reading: Reading, companion_is_there: bool, now: Now) -> Result<Reading, Error> {
        let source = match reading {
            Reading::Source(source) | Reading::Both { source, .. } => Some(source),
            Reading::Unknown => self.read_source(now).await?,
        };
        let Some(source) = source else { return Ok(Reading::Unknown) };
        if !companion_is_there {
            return Ok(Reading::Source(source));
        }
        let companion = self.of.hub.plane.read_payload(&self.hub_namespace, self.data_ref).await?;
        Ok(match companion {
            Some((version, companion)) => Reading::Both { source, version, companion },
            None => Reading::Source(source),
        })
    }

    /// Reads the source and notes what it is. Its content, when it may be copied.
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
            // Tools that keep Secrets replace them: the copy of one that comes back at once is to stay as it is.
            Ok(None)
                if sources
                    .missing_for(&self.source, now.instant)
                    .is_some_and(|missing| missing < self.of.timing.delivery_grace) =>
            {
                return Ok(None);
            }
            Ok(None) => (sources::Reading { source: Source::Absent, ..Default::default() }, None),
            // Credentials expire, and are renewed: only what lasts is said, to all who refer to it.
            Err(error)
                if error.class() == Class::Unauthenticated
                    && sources.unread_for(&self.source, now.instant) < self.of.timing.delivery_grace =>
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
        let fits = |payload: &Payload| payload.size() <= self.of.limits.per_object;
        if payload.as_ref().is_some_and(|payload| !fits(payload)) {
            self.notify_users(sources.accept(&self.source)); // none is to be made: that is what is said of it now
        }
        Ok(payload.filter(fits))
    }

    /// Sends the writes, and notes the version that has the source's content afterwards.
    async fn carry_out(&self, observed: &Observed, plan: &Decided, now: Now) -> Result<Offer, Error> {
        let (hub, metrics) = (&self.of.hub.plane, &self.of.metrics);
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
                    let (why, retry) = (error.words_for_tenants(), self.of.timing.source_retry);
                    tracing::info!(object = %self.key, %error, "the hub refuses a copy");
                    self.notify_users(sources.refuse(&self.source, why, now.instant, retry));
                    return Ok(Offer::Refused);
                }
                Err(error) if error.class() == Class::Invalid && claims => {
                    self.book(copied); // the content is what it is to be, whoever is told to use it
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
        self.book(copied);
        if plan.signals.contains(&Signal::Unused) {
            metrics.collected(self.data_ref.kind.as_str());
        }
        Ok(Offer::Settled)
    }

    /// Notes that this version of the companion has what the source has.
    fn book(&self, copied: Option<ObjectVersion>) {
        let Some(copied) = copied else { return };
        let sources = self.project.sources(self.data_ref.kind);
        let known = sources.copy(&self.source).map(|copy| copy.uid);
        let other = known.as_ref() != Some(&copied.uid);
        sources.copied(&self.source, copied);
        let accepted = sources.accept(&self.source);
        self.notify_users(if other { News::Confirmed } else { accepted });
    }

    /// The companion, by name.
    fn object(&self) -> Object {
        let (kind, name) = (self.data_ref.kind.into(), self.data_ref.name.clone());
        Object { kind, namespace: self.hub_namespace.clone(), name }
    }

    /// What is where the companion is to be, whoever has made it.
    async fn read_place(&self) -> Result<Option<ObjectMeta>, Error> {
        self.of.hub.plane.read_metadata(&self.object()).await
    }

    /// Notes that the companion's name belongs to something else.
    fn note_taken(&self) {
        let sources = self.project.sources(self.data_ref.kind);
        let epoch = sources.begin(&self.source);
        let reading = sources::Reading { source: Source::Taken, ..Default::default() };
        self.notify_users(sources.read(&self.source, epoch, reading));
    }

    /// What is known of the source has changed: whoever refers to it may have to say something else, and when it was the
    /// last that was missing, the other companions of that deployment are due as well.
    fn notify_users(&self, news: News) {
        if news == News::Nothing {
            return;
        }
        let users = self.project.deployments.entries_by_index(&source_index(self.namespace, self.data_ref));
        for (key, user) in users {
            if news == News::Changed && self.wants_companions(&user) {
                self.of.triggers.enqueue_companions_of(self.project, &user.open());
            }
            self.of.triggers.enqueue_federator(self.project, key);
        }
    }

    /// Whether a deployment that refers to the source wants it to be copied now.
    fn wants_companion(&self, user: &PackedDeployment, promised: bool) -> bool {
        let (references, limits) = (user.references(), self.of.limits);
        let sources = self.project.read_sources(self.namespace, references);
        wants_companion(references, self.data_ref, self.namespace, limits, &sources, promised)
    }

    /// Whether a deployment that refers to the source wants all that it refers to to be copied now. What the hub refuses is
    /// offered again, each by itself: no other waits for it.
    fn wants_companions(&self, user: &PackedDeployment) -> bool {
        let sources = self.project.read_sources(self.namespace, user.references());
        wants_companions(user.references(), self.namespace, self.of.limits, &sources)
    }
}

/// Whether what was found is no companion, and was never one.
fn is_strange(found: &ObjectMeta) -> bool {
    !ownership::is_companion(found) && !ownership::is_unlabelled_companion(found)
}

/// Whether the hub does not take a copy, and will not by itself: its content, or by a quota, a webhook or a right that is lacking.
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
