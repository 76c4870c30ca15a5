//! The only constructor of watches: list in pages, then watch, for ever.
//!
//! kube's `watcher` hides bookmarks and silent reconnects, so that nobody could tell a quiet watch from a dead one or
//! say in `/readyz` when a failing one has recovered; this loop is kube's `list` and `watch` calls with that kept visible.
//! Each watch is a task of its own with its own back-off: one that fails delays no other. The server ends each watch
//! call after [`Timing::watch_lifetime`]; one that stays silent for longer than [`Timing::watch_silence`] is dead and replaced.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt};
use kube::{Api, ResourceExt, api::WatchParams, core::WatchEvent};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use super::watched::{Guarded, Metadata, Watched};
use super::{
    Error,
    clients::Connection,
    deadline,
    feed::pruned,
    health::{Entry, Health},
    queue::backoff,
    store::{Cache, Incoming, ObjectKey},
};
use crate::{metrics::Metrics, timing::Timing};

/// How much sooner than it was asked to a server ends a watch call.
const EARLY: Duration = Duration::from_secs(1);
/// Objects per page of a list of metadata, where all are kept.
pub const PAGE_SIZE: u32 = 200;
/// Objects per page of a list of whole ones. A page is in memory as the server sends it and as it is read, for each of the
/// lists that begin with the process; what is kept of each object is packed as its page comes in.
pub const WHOLE_PAGE_SIZE: u32 = 50;

/// What a watch needs to run.
pub struct Watch<W: Watched, V> {
    /// The kind of the objects, as far as their type does not say it.
    pub kind: W::DynamicType,
    /// The way to the objects.
    pub connection: Connection,
    /// Where they are, for people: `project single`, `hub`.
    pub place: String,
    /// The kind of that control plane, in metrics.
    pub plane: &'static str,
    /// Label selector; empty for all.
    pub selector: String,
    /// What is kept of each object.
    pub keep: fn(W::Object) -> V,
    /// Where it is kept.
    pub cache: Arc<dyn Cache<V>>,
    /// Called after each complete list, and when a failing watch works again: whoever failed meanwhile may try now.
    pub on_fresh: Arc<dyn Fn() + Send + Sync>,
    /// Objects per page of a list: few where hardly any of them are kept.
    pub page: u32,
    /// Whether this is one tenant's among many, see [`Health::tenant_watch`].
    pub tenant: bool,
    /// Readiness and liveness.
    pub health: Health,
    /// Counters.
    pub metrics: Metrics,
    /// How long to wait for what.
    pub timing: Timing,
}

impl<W: Watched, V: Send + Sync + 'static> Watch<W, V>
where
    W::Object: Send,
{
    /// Starts the watch; it ends with `stop`.
    pub fn start(self, stop: CancellationToken) {
        let entry = self.health.watch_in(&W::plural(&self.kind), &self.place, self.tenant);
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.run(&entry) => {}
            }
        });
    }

    async fn run(&self, entry: &Entry) {
        let mut failures = 0;
        // How often in a row the server has not known the version of the list that it had just given.
        let mut expired_lists = 0_u32;
        let mut histories = self.connection.histories();
        // The history that the cache is of.
        let mut of = *histories.borrow();
        loop {
            let known = *histories.borrow_and_update();
            let listed = self.list(entry, known != of).await;
            let listed = listed.map(|(version, another_history)| {
                // Whoever was told of it tells nobody; where somebody has told meanwhile, all list again as it is.
                if another_history && known == of && *histories.borrow() == known {
                    self.connection.another_history();
                    histories.mark_unchanged();
                    of = *histories.borrow();
                } else {
                    of = known;
                }
                version
            });
            // That a list succeeds proves no watch: patience ends with one that works.
            let Some(version) = self.settle(entry, listed, &mut failures).await else { continue };
            if expired_lists > 1 {
                // That it gives lists, and takes each back at once, is no end of it.
                entry.listed();
                self.cache.set_live(false);
            } else {
                entry.synced();
                (self.on_fresh)();
            }
            self.keep_watching(entry, version, &mut failures, &mut expired_lists, &mut histories).await;
        }
    }

    /// Watches from this version on, with one call after the other, until all has to be listed again.
    async fn keep_watching(
        &self,
        entry: &Entry,
        mut version: u64,
        failures: &mut u32,
        expired_lists: &mut u32,
        histories: &mut tokio::sync::watch::Receiver<u64>,
    ) {
        // Whether the server may have another history by now: a watch from a version of its future is silent for ever.
        let mut doubtful = false;
        // Whether the last watch was silent for too long, though its server answered when it was asked.
        let mut excused = false;
        loop {
            if doubtful {
                match self.is_rewound(version).await {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => {
                        let away = error.is_of_transport();
                        self.settle::<()>(entry, Err(error), failures).await;
                        if away {
                            // It may come back with the state of a backup, and pass our version before it is asked.
                            return;
                        }
                        continue;
                    }
                }
            }
            let opened = Instant::now();
            let ended = match self.follow(entry, &mut version, failures, histories).await {
                Ok(End::Expired { young }) => {
                    // The server no longer knows our version: list again, at once unless the list is as young as that.
                    *failures += u32::from(young);
                    *expired_lists = if young { *expired_lists + 1 } else { 0 };
                    return;
                }
                Ok(end) if opened.elapsed() > self.timing.watch_proof => {
                    doubtful = matches!(end, End::Cut);
                    (*expired_lists, excused) = (0, false);
                    continue;
                }
                Ok(End::Closed | End::Cut) => {
                    Error::Answer { call: self.call("watch"), why: "it ended at once".into() }
                }
                Err(error @ Error::Deadline { .. }) if !excused => {
                    // A watch that went over its time may have been lost alone, or its server may have been slow for a
                    // moment: nobody is told of that. One that does not answer now is told as silent for all that time.
                    excused = true;
                    self.connection.renew();
                    match tokio::time::timeout(self.timing.silence_proof, self.is_rewound(version)).await {
                        Ok(Ok(true)) => return,
                        Ok(Ok(false)) => continue,
                        _ => error,
                    }
                }
                Err(error) => error,
            };
            let expired = ended.is_expired(); // said before the watch began, it is worth a pause: the list was young
            doubtful = true;
            self.settle::<()>(entry, Err(ended), failures).await;
            if expired {
                *expired_lists += 1;
                return;
            }
        }
    }

    /// Books the failure of an attempt, and waits after it.
    async fn settle<T>(&self, entry: &Entry, outcome: Result<T, Error>, failures: &mut u32) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                if matches!(error, Error::Deadline { .. }) {
                    self.connection.renew();
                }
                let problem = self.problem(&error);
                self.cache.set_live(false);
                // Nothing has been heard since before that.
                let silence = if let Error::Deadline { after, .. } = &error { *after } else { Duration::ZERO };
                if entry.silent(&problem, &error.outline(), silence) {
                    tracing::warn!(watch = entry.what(), error = %problem, class = error.label(), "watch is failing");
                }
                self.metrics.watch_failed(self.plane, W::plural(&self.kind).as_ref(), error.label());
                *failures += 1;
                let longest =
                    if self.tenant { self.timing.tenant_watch_retry_max } else { self.timing.watch_retry_max };
                tokio::time::sleep(backoff(*failures, Duration::from_millis(250), longest)).await;
                None
            }
        }
    }

    fn api(&self) -> Api<W> {
        Api::all_with(self.connection.client(), &self.kind)
    }

    fn problem(&self, error: &Error) -> String {
        let kind = format!("{}.{}", W::plural(&self.kind), W::group(&self.kind));
        match error.missing() {
            Some(_) => format!("CRD {} is not installed in {}", kind.trim_end_matches('.'), self.place),
            None => error.to_string(),
        }
    }

    async fn follow(
        &self,
        entry: &Entry,
        version: &mut u64,
        failures: &mut u32,
        histories: &mut tokio::sync::watch::Receiver<u64>,
    ) -> Result<End, Error> {
        entry.trying();
        let seconds = u32::try_from(self.timing.watch_lifetime.as_secs()).unwrap_or(40);
        let seconds = seconds.saturating_sub(fastrand::u32(0..=seconds / 5)).max(1);
        let params = WatchParams::default().labels(&self.selector).timeout(seconds);
        let from = version.to_string();
        let ends = Instant::now() + Duration::from_secs(seconds.into()).saturating_sub(EARLY);
        let stream = deadline(super::REQUEST_TIMEOUT, || self.call("watch"), self.api().watch(&params, &from)).await?;
        // From the answer on, however long that took. What a watch has brought proves that it worked.
        let (began, mut has_brought) = (Instant::now(), false);
        let mut stream = std::pin::pin!(stream.peekable());
        if *failures > 0 {
            // A server that accepts a watch only to drop it has not recovered: some event, or a moment of quiet, proves it.
            let first = tokio::time::timeout(self.timing.watch_proof, stream.as_mut().peek()).await;
            if let Ok(Some(Err(_) | Ok(WatchEvent::Error(_))) | None) = first {
                return match stream.try_next().await {
                    Err(source) => Err(self.error_of(WatchEnd::Broken(source))),
                    Ok(Some(WatchEvent::Error(status))) => Err(self.error_said(status)),
                    Ok(_) => Ok(End::Cut),
                };
            }
            *failures = 0;
            entry.fine();
            self.cache.set_live(true);
            (self.on_fresh)();
        }
        entry.fine();
        self.cache.set_live(true);
        loop {
            let event = tokio::select! {
                biased;
                // Another watch of this server has found it; the sender lives as long as the connection.
                _ = histories.changed() => return Ok(End::Expired { young: false }),
                event = next(&mut stream, self.timing.watch_silence) => event.map_err(|error| self.error_of(error))?,
            };
            let Some(event) = event else {
                return Ok(if Instant::now() < ends { End::Cut } else { End::Closed });
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    *version = (*version).max(number(object.meta().resource_version.as_deref()));
                    if self.cache.wants(&ObjectKey::of(&object)) {
                        self.cache.observe(self.take_in(object));
                    }
                }
                WatchEvent::Deleted(object) => {
                    *version = (*version).max(number(object.meta().resource_version.as_deref()));
                    self.cache.pass(*version);
                    self.cache.forget(&ObjectKey::of(&object), &object.uid().unwrap_or_default());
                }
                WatchEvent::Bookmark(bookmark) => {
                    *version = (*version).max(number(Some(&bookmark.metadata.resource_version)));
                    self.cache.pass(*version);
                }
                WatchEvent::Error(status) if status.code == 410 => {
                    // A watch that failed before is given as long once more, in which its silence was the proof.
                    let young = !has_brought && began.elapsed() <= self.timing.watch_proof * 2;
                    return Ok(End::Expired { young });
                }
                WatchEvent::Error(status) => return Err(self.error_said(status)),
            }
            has_brought = true;
            entry.fine();
        }
    }

    fn error_said(&self, status: Box<kube::core::Status>) -> Error {
        Error::Api { call: self.call("watch"), source: Box::new(kube::Error::Api(status)) }
    }

    fn error_of(&self, end: WatchEnd) -> Error {
        match end {
            WatchEnd::Silent => {
                self.metrics.watch_replaced(self.plane, W::plural(&self.kind).as_ref());
                Error::Deadline { call: self.call("watch"), after: self.timing.watch_silence }
            }
            WatchEnd::Broken(source) => Error::Api { call: self.call("watch"), source: Box::new(source) },
        }
    }

    fn take_in(&self, object: W) -> Incoming<V> {
        let frame = Incoming::new::<W>(&object, None);
        let value = match object.open() {
            Ok(object) => Some(Arc::new((self.keep)(pruned(&W::kind(&self.kind), object)))),
            Err(error) => {
                let (kind, key) = (W::kind(&self.kind), &frame.key);
                tracing::error!(%kind, object = %key, place = self.place, %error, "object cannot be read and is skipped");
                self.metrics.undecodable(&kind);
                None
            }
        };
        Incoming { value, ..frame }
    }

    fn call(&self, verb: &str) -> String {
        let (plural, group) = (W::plural(&self.kind), W::group(&self.kind));
        let dot = if group.is_empty() { "" } else { "." };
        format!("{verb} {plural}{dot}{group} in {}", self.place)
    }
}

/// Why a watch call ended without an error.
enum End {
    /// Its time was over.
    Closed,
    /// Before its time: the server goes, or what is between.
    Cut,
    /// The server does not know its version any more.
    Expired {
        /// Whether it said so before the watch had proved to work.
        young: bool,
    },
}

/// How a watch call was lost.
enum WatchEnd {
    Silent,
    Broken(kube::Error),
}

async fn next<W>(
    stream: &mut (impl Stream<Item = kube::Result<WatchEvent<W>>> + Unpin),
    silence: Duration,
) -> Result<Option<WatchEvent<W>>, WatchEnd> {
    tokio::time::timeout(silence, stream.try_next()).await.map_err(|_| WatchEnd::Silent)?.map_err(WatchEnd::Broken)
}

fn number(version: Option<&str>) -> u64 {
    version.and_then(|v| v.parse().ok()).unwrap_or(0)
}

mod listing;

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
