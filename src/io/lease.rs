//! Leader election by a `coordination.k8s.io` Lease, with client-go's timing.
//!
//! Losing the Lease ends the process: a new leader must not find this one still writing.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Class, Error,
    clients::Connection,
    health::{Entry, Health},
};
use crate::{api::meta::LEASE, timing::Timing};

/// Longest wait for an answer. After a dead connection, a second attempt must fit into the time for a renewal.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause after a conflict before the Lease is read again, while it is ours.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// Result of an attempt to take or renew the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// The Lease is ours.
    Held,
    /// Another holder has the Lease, and it has not expired.
    OfAnother,
    /// Another client wrote to the Lease between our read and our write. Only another read shows the holder.
    Conflict,
}

/// Longest time to take, renew or release the Lease: a read and a write.
pub const LONGEST_ATTEMPT: Duration = Duration::from_secs(2 * ATTEMPT_TIMEOUT.as_secs());

/// A candidate for the Lease.
pub struct Candidate {
    connection: Connection,
    namespace: String,
    identity: String,
    place: String,
    /// Reports in `/readyz` if the candidate cannot reach the Lease.
    health: Entry,
    /// The holder's record and when we first saw it. Expiry is judged by our own clock, not by the holder's.
    seen: Option<(LeaseSpec, Instant)>,
    timing: Timing,
}

impl Candidate {
    /// Creates a candidate named `identity` in `namespace`.
    pub fn new(connection: Connection, namespace: &str, identity: String, health: &Health, timing: Timing) -> Self {
        let place = format!("Lease {namespace}/{LEASE}");
        let health = health.watch(place.clone());
        Self { connection, namespace: namespace.to_owned(), identity, place, health, seen: None, timing }
    }

    /// Returns the time between two attempts, in client-go's proportion to the duration of the Lease.
    fn retry(&self) -> Duration {
        self.timing.lease_duration * 2 / 15
    }

    /// Returns the time in which a leader must renew the Lease. After it, the leader stops its work.
    fn renew_deadline(&self) -> Duration {
        self.timing.lease_duration * 2 / 3
    }

    /// Waits until the Lease is ours. Retries failures, and logs each new one.
    pub async fn acquire(&mut self) {
        let mut reported = String::new();
        loop {
            match self.attempt().await {
                Ok(Attempt::Held) => return,
                Ok(Attempt::OfAnother | Attempt::Conflict) => {
                    let holder =
                        self.seen.as_ref().and_then(|(spec, _)| spec.holder_identity.clone()).unwrap_or_default();
                    if reported != holder {
                        tracing::info!(lease = self.place, %holder, "waiting to lead");
                        reported = holder;
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    if reported != text {
                        tracing::warn!(lease = self.place, error = text, "cannot take part in leader election");
                        reported = text;
                    }
                }
            }
            tokio::time::sleep(self.retry().mul_f64(0.9 + fastrand::f64() / 5.0)).await;
        }
    }

    /// Renews the Lease. Returns when the Lease is lost, or after `stop`, when it is released.
    pub async fn hold(&mut self, stop: &CancellationToken) {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return self.give_up().await,
                () = tokio::time::sleep(self.retry()) => {}
            }
            // Other candidates count from when they see the renewal, which is after this moment.
            let began = Instant::now();
            // An attempt must end before the Lease expires, because another candidate may lead then.
            let end = renewed + self.renew_deadline();
            match tokio::time::timeout_at(end, self.renew()).await {
                Ok(Ok(Attempt::Held)) => renewed = began,
                Ok(Ok(_)) => return tracing::error!(lease = self.place, "another process leads"),
                Ok(Err(error)) => tracing::warn!(lease = self.place, %error, "cannot renew the lease"),
                Err(_) => return tracing::error!(lease = self.place, "the lease was not renewed in time"),
            }
        }
    }

    /// Renews the Lease while it is ours. After a conflict, reads it again: another client may have written only a label. The
    /// caller limits the time.
    async fn renew(&mut self) -> Result<Attempt, Error> {
        loop {
            match self.attempt().await? {
                Attempt::Conflict => tokio::time::sleep(CONFLICT_PAUSE).await,
                done => return Ok(done),
            }
        }
    }

    /// Takes or renews the Lease.
    async fn attempt(&mut self) -> Result<Attempt, Error> {
        self.health.trying();
        let outcome = self.take_or_renew().await;
        match &outcome {
            Ok(_) => self.health.synced(),
            Err(error) => drop(self.health.failed(&error.to_string())),
        }
        outcome
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.connection.client(), &self.namespace)
    }

    async fn take_or_renew(&mut self) -> Result<Attempt, Error> {
        let place = self.place.clone();
        let call = |verb: &str| format!("{verb} {place}");
        let Some(mut lease) =
            self.connection.within(ATTEMPT_TIMEOUT, || call("get"), self.api().get_opt(LEASE)).await?
        else {
            let lease = Lease { metadata: named(), spec: Some(self.record(0)) };
            let created = self
                .connection
                .within(ATTEMPT_TIMEOUT, || call("create"), self.api().create(&PostParams::default(), &lease))
                .await;
            return attempted(created);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(&self.identity);
        if !ours && self.is_held(&spec) {
            return Ok(Attempt::OfAnother);
        }
        let transitions = spec.lease_transitions.unwrap_or(0);
        let mut record = self.record(if ours { transitions } else { transitions + 1 });
        if ours {
            record.acquire_time = spec.acquire_time;
        }
        lease.spec = Some(record);
        // The update carries the resourceVersion that we read, so of two candidates one fails.
        let replaced = self
            .connection
            .within(ATTEMPT_TIMEOUT, || call("update"), self.api().replace(LEASE, &PostParams::default(), &lease))
            .await;
        attempted(replaced)
    }

    fn is_held(&mut self, spec: &LeaseSpec) -> bool {
        if spec.holder_identity.as_deref().is_none_or(str::is_empty) {
            return false;
        }
        let seen = match &self.seen {
            Some((before, at)) if before == spec => *at,
            _ => {
                let now = Instant::now();
                self.seen = Some((spec.clone(), now));
                now
            }
        };
        let hold = spec
            .lease_duration_seconds
            .and_then(|s| u64::try_from(s).ok())
            .map_or(self.timing.lease_duration, Duration::from_secs);
        seen.elapsed() < hold
    }

    async fn give_up(&self) {
        let Ok(Some(mut lease)) = self.connection.within(ATTEMPT_TIMEOUT, String::new, self.api().get_opt(LEASE)).await
        else {
            return;
        };
        let Some(spec) = lease.spec.as_mut().filter(|s| s.holder_identity.as_deref() == Some(&self.identity)) else {
            return;
        };
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        let _ = self
            .connection
            .within(ATTEMPT_TIMEOUT, String::new, self.api().replace(LEASE, &PostParams::default(), &lease))
            .await;
    }

    fn record(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime(Timestamp::now().round(jiff::Unit::Microsecond).unwrap_or_default());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            // The API takes whole seconds. Rounded up, it lasts longer than the leader works without a renewal.
            lease_duration_seconds: Some(
                i32::try_from(self.timing.lease_duration.as_millis().div_ceil(1000)).unwrap_or(15),
            ),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

fn named() -> ObjectMeta {
    ObjectMeta { name: Some(LEASE.into()), ..ObjectMeta::default() }
}

fn attempted(written: Result<Lease, Error>) -> Result<Attempt, Error> {
    match written {
        Ok(_) => Ok(Attempt::Held),
        Err(error) if error.class() == Class::Conflict => Ok(Attempt::Conflict),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// An API server with one Lease of this holder, which answers the first updates with a conflict. Returns the URL, the holder
    /// and the count of successful updates.
    async fn server(holder: &'static str, conflicts: usize) -> (String, Arc<Mutex<String>>, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (named, updates) = (Arc::new(Mutex::new(holder.to_owned())), Arc::new(AtomicUsize::new(0)));
        let (served, counted) = (named.clone(), updates.clone());
        tokio::spawn(async move {
            let left = AtomicUsize::new(conflicts);
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 8192];
                let n = stream.read(&mut request).await.unwrap_or(0);
                let holder = served.lock().unwrap().clone();
                let conflict = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"modified","reason":"Conflict","code":409}"#;
                let lease = format!(
                    r#"{{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{{"name":"l","resourceVersion":"1"}},"spec":{{"holderIdentity":"{holder}","leaseDurationSeconds":15}}}}"#
                );
                let is_update = request[..n].starts_with(b"PUT");
                let fails =
                    is_update && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
                counted.fetch_add(usize::from(is_update && !fails), Ordering::SeqCst);
                let (status, body) = if fails { ("409 Conflict", conflict) } else { ("200 OK", &*lease) };
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        (url, named, updates)
    }

    fn candidate(url: &str, deadline: Duration) -> Candidate {
        let timing = Timing { lease_duration: deadline * 3 / 2, ..Timing::default() };
        let connection = Connection::new(kube::Config::new(url.parse().unwrap())).unwrap();
        Candidate::new(connection, "ns", "me".into(), &Health::default(), timing)
    }

    /// A label or annotation that another client wrote to the Lease ended the leader: the conflict counted as another leader.
    #[tokio::test]
    async fn leader_lease_changed_by_another_client_keeps_leading() {
        let (url, named, updates) = server("me", 3).await;
        let mut candidate = candidate(&url, Duration::from_secs(5));
        let holds = tokio::spawn(async move { candidate.hold(&CancellationToken::new()).await });
        for _ in 0..100 {
            if updates.load(Ordering::SeqCst) > 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(updates.load(Ordering::SeqCst) > 1 && !holds.is_finished(), "it keeps leading");
        *named.lock().unwrap() = "another".to_owned();
        tokio::time::timeout(Duration::from_secs(3), holds).await.expect("another leads").unwrap();
    }

    /// The Lease had one second, and its leader worked for longer than that without a renewal.
    #[tokio::test]
    async fn lease_of_a_fraction_outlasts_the_work_without_a_renewal() {
        for (millis, recorded) in [(15_000, 15), (1_900, 2), (500, 1)] {
            let mut candidate = candidate("http://127.0.0.1:1", Duration::from_millis(1));
            candidate.timing.lease_duration = Duration::from_millis(millis);
            let seconds = candidate.record(0).lease_duration_seconds.unwrap();
            assert_eq!(seconds, recorded);
            assert!(candidate.renew_deadline() < Duration::from_secs(u64::try_from(seconds).unwrap()));
        }
    }

    #[tokio::test]
    async fn leader_with_endless_conflicts_stops_at_the_deadline() {
        let (url, _, updates) = server("me", usize::MAX).await;
        let deadline = Duration::from_millis(600);
        let began = Instant::now();
        candidate(&url, deadline).hold(&CancellationToken::new()).await;
        assert!((deadline..ATTEMPT_TIMEOUT).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert_eq!(updates.load(Ordering::SeqCst), 0);
    }

    /// An attempt that began within the deadline ran for up to six seconds, and ended after another candidate could have taken
    /// the Lease.
    #[tokio::test]
    async fn leader_renewal_without_an_answer_stops_at_the_deadline() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let deadline = Duration::from_millis(300);
        let mut candidate = candidate(&url, deadline);
        let began = Instant::now();
        candidate.hold(&CancellationToken::new()).await;
        let held = began.elapsed();
        assert!((deadline..ATTEMPT_TIMEOUT).contains(&held), "{held:?}");
    }
}
