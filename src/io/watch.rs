//! The only constructor of watches: list in pages, then watch, forever.
//!
//! kube's `watcher` hides bookmarks and silent reconnects. With it, a quiet watch looks like a dead one, and `/readyz` cannot
//! report that a failing one has recovered. This loop uses kube's `list` and `watch` calls and keeps both visible. Each watch is
//! a task with its own back-off, so a failing one delays no other. The server ends each watch call after
//! [`WatchTiming::lifetime`]. A call that is silent for longer than [`WatchTiming::silence`] counts as dead and is replaced.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt};
use kube::{Api, ResourceExt, api::WatchParams, core::WatchEvent};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use super::watched::{Guarded, Metadata, Watched};
use super::{
    Error, REQUEST_TIMEOUT,
    clients::Connection,
    feed::pruned,
    health::{Entry, Health},
    queue::backoff,
    store::{Cache, Incoming, ObjectKey},
};
use crate::{metrics::Metrics, timing::WatchTiming};

/// A server may end a watch call this much earlier than requested.
const EARLY: Duration = Duration::from_secs(1);
/// A watch that failed must stay quiet this long to count as recovered.
const PROOF: Duration = Duration::from_secs(1);
/// Time for a server to answer after one of its watches went silent, before the server counts as silent.
const SILENCE_PROOF: Duration = Duration::from_secs(3);
/// Factor of the longest wait for a watch of one tenant among many.
const TENANT_RETRIES: u32 = 3;
/// Objects per page of a metadata list whose objects are all kept.
pub const PAGE_SIZE: u32 = 200;
/// Objects per page of a list of whole objects. Each list of the start holds a page as sent and as decoded. The cached values are
/// packed as each page arrives.
pub const WHOLE_PAGE_SIZE: u32 = 50;

/// The parameters of a watch.
pub struct Watch<W: Watched, V> {
    /// The kind of the objects, if their type does not define it.
    pub kind: W::DynamicType,
    /// The connection to the objects.
    pub connection: Connection,
    /// Their control plane, for people: `project single`, `hub`.
    pub place: String,
    /// The kind of that control plane, in metrics.
    pub plane: &'static str,
    /// Label selector. Empty for all objects.
    pub selector: String,
    /// Makes the cached value of an object.
    pub keep: fn(W::Object) -> V,
    /// The cache.
    pub cache: Arc<dyn Cache<V>>,
    /// Called after each complete list, and when a failing watch recovers. Failed work may then be retried.
    pub on_fresh: Arc<dyn Fn() + Send + Sync>,
    /// Objects per page of a list. Small if hardly any of them are kept.
    pub page: u32,
    /// True if this is the watch of one tenant among many, see [`Health::tenant_watch`].
    pub tenant: bool,
    /// Readiness and liveness.
    pub health: Health,
    /// Counters.
    pub metrics: Metrics,
    /// Timeouts.
    pub timing: WatchTiming,
}

impl<W: Watched, V: Send + Sync + 'static> Watch<W, V>
where
    W::Object: Send,
{
    /// Starts the watch. It ends with `stop`.
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
        // Counts in a row the lists whose version the server rejected right afterwards.
        let mut expired_lists = 0_u32;
        let mut histories = self.connection.histories();
        // The restore count that the cache reflects.
        let mut cached_history = *histories.borrow();
        loop {
            let known = *histories.borrow_and_update();
            let listed = self.list(entry, known != cached_history).await;
            let listed = listed.map(|(version, another_history)| {
                // If another watch reported this restore, do not report it again. If one was reported during
                // the list, all watches list again.
                if another_history && known == cached_history && *histories.borrow() == known {
                    self.connection.another_history();
                    histories.mark_unchanged();
                    cached_history = *histories.borrow();
                } else {
                    cached_history = known;
                }
                version
            });
            // A successful list does not prove the watch. The back-off is reset by a working watch.
            let Some(version) = self.settle(entry, listed, &mut failures).await else { continue };
            if expired_lists > 1 {
                // A server that returns lists and expires each at once has not recovered.
                entry.listed();
                self.cache.set_live(false);
            } else {
                entry.synced();
                (self.on_fresh)();
            }
            self.keep_watching(entry, version, &mut failures, &mut expired_lists, &mut histories).await;
        }
    }

    /// Watches from this version on, one call after the other, until everything must be listed again.
    async fn keep_watching(
        &self,
        entry: &Entry,
        mut version: u64,
        failures: &mut u32,
        expired_lists: &mut u32,
        histories: &mut tokio::sync::watch::Receiver<u64>,
    ) {
        // True if etcd may have been restored. A watch from a future version is silent forever.
        let mut doubtful = false;
        // True if the last watch was silent for too long although its server answered a request.
        let mut excused = false;
        loop {
            if doubtful {
                match self.is_rewound(version, REQUEST_TIMEOUT).await {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(error) => {
                        let away = error.is_of_transport();
                        self.settle::<()>(entry, Err(error), failures).await;
                        if away {
                            // The server may return restored from a backup, and pass our version before we can ask.
                            return;
                        }
                        continue;
                    }
                }
            }
            let opened = Instant::now();
            let ended = match self.follow(entry, &mut version, failures, histories).await {
                Ok(End::Expired { young }) => {
                    // The server no longer knows our version. List again: at once, unless the list was just taken.
                    *failures += u32::from(young);
                    *expired_lists = if young { *expired_lists + 1 } else { 0 };
                    return;
                }
                Ok(end) if opened.elapsed() > PROOF => {
                    doubtful = matches!(end, End::Cut);
                    (*expired_lists, excused) = (0, false);
                    continue;
                }
                Ok(End::Closed | End::Cut) => {
                    Error::Answer { call: self.call("watch"), why: "it ended at once".into() }
                }
                Err(error @ Error::Deadline { .. }) if !excused => {
                    // The silent watch may have been lost alone, or the server may have been slow for a moment. That is not
                    // reported. If the server does not answer now, it is reported as silent for the whole time.
                    excused = true;
                    match self.is_rewound(version, SILENCE_PROOF).await {
                        Ok(true) => return,
                        Ok(false) => continue,
                        Err(_) => error,
                    }
                }
                Err(error) => error,
            };
            let expired = ended.is_expired(); // refused before the watch began: pause, because the list was just taken
            doubtful = true;
            self.settle::<()>(entry, Err(ended), failures).await;
            if expired {
                *expired_lists += 1;
                return;
            }
        }
    }

    /// Records the failure of an attempt, and waits for the back-off.
    async fn settle<T>(&self, entry: &Entry, outcome: Result<T, Error>, failures: &mut u32) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                let problem = self.problem(&error);
                self.cache.set_live(false);
                // The server has been silent since the start of the deadline.
                let silence = if let Error::Deadline { after, .. } = &error { *after } else { Duration::ZERO };
                if entry.silent(&problem, &error.outline(), silence) {
                    tracing::warn!(watch = entry.what(), error = %problem, class = error.label(), "watch is failing");
                }
                self.metrics.watch_failed(self.plane, W::plural(&self.kind).as_ref(), error.label());
                *failures += 1;
                let longest = self.timing.retry_max * if self.tenant { TENANT_RETRIES } else { 1 };
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
        let seconds = u32::try_from(self.timing.lifetime.as_secs()).unwrap_or(40);
        let seconds = seconds.saturating_sub(fastrand::u32(0..=seconds / 5)).max(1);
        let params = WatchParams::default().labels(&self.selector).timeout(seconds);
        let from = version.to_string();
        let ends = Instant::now() + Duration::from_secs(seconds.into()).saturating_sub(EARLY);
        let stream =
            self.connection.within(REQUEST_TIMEOUT, || self.call("watch"), self.api().watch(&params, &from)).await?;
        // Count from the answer on, however long it took. Delivered events prove that the watch worked.
        let (began, mut has_brought) = (Instant::now(), false);
        let mut stream = std::pin::pin!(stream.peekable());
        if *failures > 0 {
            // A server that accepts a watch and drops it at once has not recovered. An event or a moment of quiet is the proof.
            let first = tokio::time::timeout(PROOF, stream.as_mut().peek()).await;
            if let Ok(Some(Err(_) | Ok(WatchEvent::Error(_))) | None) = first {
                return match stream.try_next().await {
                    Err(source) => Err(self.error_of(WatchEnd::Broken(source), began)),
                    Ok(Some(WatchEvent::Error(status))) => Err(self.error_of_status(status)),
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
                // Another watch of this server detected a restore. The sender lives as long as the connection.
                _ = histories.changed() => return Ok(End::Expired { young: false }),
                event = next(&mut stream, self.timing.silence) => event.map_err(|error| self.error_of(error, began))?,
            };
            let Some(event) = event else {
                return Ok(if Instant::now() < ends { End::Cut } else { End::Closed });
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let (key, of_object) = (ObjectKey::of(&object), number(object.meta().resource_version.as_deref()));
                    *version = (*version).max(of_object);
                    // An object that the answer to our own write brought is not decoded again.
                    if self.cache.wants(&key) && !self.cache.is_known(&key, of_object) {
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
                    // A watch that failed before gets twice the time, because its silence was the proof.
                    let young = !has_brought && began.elapsed() <= PROOF * 2;
                    return Ok(End::Expired { young });
                }
                WatchEvent::Error(status) => return Err(self.error_of_status(status)),
            }
            has_brought = true;
            entry.fine();
        }
    }

    fn error_of_status(&self, status: Box<kube::core::Status>) -> Error {
        Error::Api { call: self.call("watch"), source: Box::new(kube::Error::Api(status)) }
    }

    /// `began`: when the server accepted the watch.
    fn error_of(&self, end: WatchEnd, began: Instant) -> Error {
        match end {
            WatchEnd::Silent => {
                self.connection.renew(began);
                self.metrics.watch_replaced(self.plane, W::plural(&self.kind).as_ref());
                Error::Deadline { call: self.call("watch"), after: self.timing.silence }
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

/// Reason for the end of a watch call without an error.
enum End {
    /// Its time was over.
    Closed,
    /// It ended early: the server or a proxy is stopping.
    Cut,
    /// The server no longer knows its version.
    Expired {
        /// True if the server reported it before the watch had proved to work.
        young: bool,
    },
}

/// The way in which a watch call was lost.
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
