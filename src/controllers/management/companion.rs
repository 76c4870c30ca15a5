//! The companion of each ConfigMap and Secret that deployments refer to. The key names the source in its project.
//!
//! Content is read when a copy is due, compared, and dropped; what is kept is which versions were seen to be equal.

use std::{sync::Arc, time::Duration};

use kube::core::ObjectMeta;

use super::{index::source_index, project_cache::ProjectCache, state::Management};
use crate::{
    api::{compute::WorkloadDeployment, meta::label, names, referenced::Token},
    controllers::{Reconciler, send},
    io::{
        Class, Error,
        clock::Now,
        queue::Key,
        sources::{Copied, News, Reading},
        store::ObjectKey,
    },
    plan::{
        Next, Object, Op, Step,
        management::{
            companion::{self, Decision, Observed, User},
            facts::{self, CompanionFacts},
            resolve::{Source, wants_companions},
        },
        ownership,
        payload::{Payload, Seen},
    },
};

/// How often to look again at what no watch reports of: rights, and names that others hold.
const SOURCE_RETRY: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Companion(pub(super) Arc<Management>);

/// One key, with everything that it stands for.
struct Work<'a> {
    all: &'a Management,
    project: &'a ProjectCache,
    namespace: &'a str,
    hub_namespace: String,
    token: Token,
    source: ObjectKey,
}

impl Reconciler for Companion {
    const NAME: &'static str = "referenced-data";

    async fn reconcile(&self, key: &Key, _: Now) -> Result<Next, Error> {
        let Some(project) = self.0.project(&key.lane) else { return Ok(Next::Await) };
        let Ok(token) = key.name.parse::<Token>() else { return Ok(Next::Await) };
        // What cannot be read may refer to anything; and without its namespace nobody knows where copies are.
        if !project.is_synced() || !self.0.hub.is_synced() || project.deployments.has_unreadable(&key.namespace) {
            return Ok(Next::Await); // a fresh cache brings every key back
        }
        let Some(uid) = project.namespace_uid(&key.namespace) else { return Ok(Next::Await) };
        let work = Work {
            all: &self.0,
            project: &project,
            namespace: &key.namespace,
            hub_namespace: names::hub_namespace(&uid),
            source: ObjectKey::new(&key.namespace, &token.name),
            token,
        };
        work.run().await
    }
}

impl Work<'_> {
    async fn run(&self) -> Result<Next, Error> {
        let users = self.project.deployments.by_index(&source_index(self.namespace, &self.token));
        let sources = self.project.sources(self.token.kind);
        let mut payload = None;
        if users.is_empty() {
            sources.forget(&self.source);
        } else {
            self.all.watch_sources(self.project);
            // What the hub refused it would refuse again, until the source is another.
            let known =
                matches!(sources.get(&self.source), Source::Absent | Source::Present { .. } | Source::Refused(_));
            if !known || sources.is_failing() {
                payload = self.read_source().await?;
            }
        }
        let companion = self.all.hub.companion(&self.hub_namespace, &self.token);
        let copied = sources.copy(&self.source);
        let fresh = copied
            .as_ref()
            .zip(companion.as_ref())
            .is_some_and(|(copied, companion)| (&copied.uid, &copied.version) == (&companion.uid, &companion.version));
        let mut content = None;
        let decision = self.decide(&users, companion.as_deref(), fresh, payload.as_ref(), content.as_ref());
        let steps = match decision {
            Decision::Plan(plan) => plan.steps,
            Decision::Read => {
                if payload.is_none() {
                    payload = self.read_source().await?;
                }
                if companion.is_some() {
                    content = self.all.hub.plane.read_payload(&self.hub_namespace, &self.token).await?;
                }
                match self.decide(&users, companion.as_deref(), fresh, payload.as_ref(), content.as_ref()) {
                    Decision::Plan(plan) => plan.steps,
                    // Gone in between, one or the other: their events bring us back.
                    Decision::Read => return Ok(Next::Await),
                }
            }
        };
        self.carry_out(&steps, fresh, content.as_ref().map(|(seen, _)| seen)).await?;
        let last = sources.last(&self.source);
        let waits = matches!(last, Source::Unauthorized(_) | Source::Taken) || sources.is_failing();
        Ok(if waits && !users.is_empty() { Next::After(SOURCE_RETRY) } else { Next::Await })
    }

    fn decide(
        &self,
        users: &[Arc<WorkloadDeployment>],
        companion: Option<&CompanionFacts>,
        fresh: bool,
        source: Option<&Payload>,
        content: Option<&(Seen, Payload)>,
    ) -> Decision {
        let Management { hub, options, .. } = self.all;
        let last = |token: &Token| self.project.sources(token.kind).last(&ObjectKey::new(self.namespace, &token.name));
        let users: Vec<User<'_>> = users
            .iter()
            .map(|wd| User { deployment: wd, resolved: wants_companions(wd, options.limits, &last) })
            .collect();
        let namespace = hub.namespaces.get(&ObjectKey::new("", &self.hub_namespace));
        let binding = names::binding_name(self.token.kind.as_str(), &self.token.name);
        companion::plan(&Observed {
            token: &self.token,
            namespace: self.namespace,
            hub_namespace: &self.hub_namespace,
            hub_namespace_lives: namespace.is_some_and(|facts| !facts.terminating),
            users: &users,
            deployment: &|name| self.project.deployments.get(&ObjectKey::new(self.namespace, name)),
            copy: &|name| hub.copies.get(&ObjectKey::new(&self.hub_namespace, name)),
            companion,
            binding: hub.bindings.get(&ObjectKey::new(&self.hub_namespace, &binding)).as_deref(),
            is_city_policy: &|name| {
                let policy = hub.policies.get(&ObjectKey::new(&self.hub_namespace, name));
                // One that still selects companions would claim it again.
                policy.is_some_and(|p| ownership::is_managed(p.as_ref()) && !facts::selects_companions(&p.spec))
            },
            fresh,
            source,
            content,
        })
    }

    /// Reads the source and notes what it is. Its content, when it may be copied.
    async fn read_source(&self) -> Result<Option<Payload>, Error> {
        let sources = self.project.sources(self.token.kind);
        let taken = sources.last(&self.source) == Source::Taken;
        let epoch = sources.begin(&self.source);
        let (reading, payload) = match self.project.plane.read_payload(self.namespace, &self.token).await {
            Ok(Some((seen, payload))) => {
                let source = Source::Present { size: payload.size() };
                let version = seen.version.parse().unwrap_or(0);
                (Reading { uid: seen.uid, version, source }, Some(payload))
            }
            Ok(None) => (Reading { source: Source::Absent, ..Reading::default() }, None),
            Err(error) if error.class() == Class::Forbidden => {
                let source = Source::Unauthorized(error.to_string());
                (Reading { source, ..Reading::default() }, None)
            }
            Err(error) => return Err(error),
        };
        if taken && payload.is_some() && self.is_taken().await? {
            return Ok(None);
        }
        self.notify_users(sources.read(&self.source, epoch, reading));
        Ok(payload.filter(|payload| payload.size() <= self.all.options.limits.per_object))
    }

    /// Sends the writes. `fresh`: whether the companion had the source's content before; `read`: the version of it that
    /// was compared with the source.
    async fn carry_out(
        &self,
        steps: &[Step<crate::plan::Project, crate::plan::Hub>],
        fresh: bool,
        read: Option<&Seen>,
    ) -> Result<(), Error> {
        let (hub, metrics) = (&self.all.hub.plane, &self.all.metrics);
        let mut copied = read.map(|seen| Copied { uid: seen.uid.clone(), version: seen.version.clone() });
        for step in steps {
            let write = match step {
                Step::Local(confirm) => {
                    send(&self.project.plane, confirm, metrics).await?;
                    continue;
                }
                Step::Remote(write) => write,
            };
            let creates = matches!(write.op, Op::Create { .. });
            let stored = match send(hub, write, metrics).await {
                Err(error) if creates && error.class() == Class::Conflict && self.is_taken().await? => {
                    self.put_aside(Source::Taken);
                    return Ok(());
                }
                Err(error) if error.class() == Class::Invalid => {
                    self.put_aside(Source::Refused(error.to_string()));
                    return Ok(());
                }
                sent => sent?,
            };
            if !write.object.kind.is_confidential() {
                continue;
            }
            copied = stored
                .filter(|_| creates || fresh || read.is_some())
                .map(|stored| Copied { uid: stored.uid, version: stored.resource_version });
        }
        let Some(copied) = copied else { return Ok(()) };
        let sources = self.project.sources(self.token.kind);
        let known = sources.copy(&self.source).map(|copy| copy.uid);
        let news = known.as_ref() != Some(&copied.uid);
        sources.copied(&self.source, copied);
        if news {
            self.notify_users(News::Confirmed);
        }
        Ok(())
    }

    /// Whether an object that is no companion holds the name.
    async fn is_taken(&self) -> Result<bool, Error> {
        let object = Object {
            kind: self.token.kind.into(),
            namespace: self.hub_namespace.clone(),
            name: self.token.name.clone(),
        };
        let found = self.all.hub.plane.read_metadata(&object).await?;
        let is_companion = |found: &ObjectMeta| {
            found.labels.as_ref().is_some_and(|labels| labels.contains_key(label::REFERENCED_DATA))
        };
        Ok(found.is_some_and(|found| !is_companion(&found)))
    }

    fn put_aside(&self, source: Source) {
        let sources = self.project.sources(self.token.kind);
        let epoch = sources.begin(&self.source);
        self.notify_users(sources.read(&self.source, epoch, Reading { source, ..Reading::default() }));
    }

    /// What is known of the source has changed: whoever refers to it may have to say something else, and when it was the
    /// last that was missing, the other companions of that deployment are due as well.
    fn notify_users(&self, news: News) {
        if news == News::Nothing {
            return;
        }
        let last = |token: &Token| self.project.sources(token.kind).last(&ObjectKey::new(self.namespace, &token.name));
        for user in self.project.deployments.by_index(&source_index(self.namespace, &self.token)) {
            self.all.enqueue_federator(self.project, &user);
            if news == News::Changed && wants_companions(&user, self.all.options.limits, &last) {
                self.all.enqueue_companions_of(self.project, &user);
            }
        }
    }
}
