//! Leader election by a `coordination.k8s.io` Lease, with client-go's timing.
//!
//! Losing the Lease ends the process: whoever else leads must not find us still writing.

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
    deadline,
    health::{Entry, Health},
};
use crate::{api::meta::LEASE, timing::Timing};

/// Longest wait for an answer: a dead connection must leave time for a second attempt within [`Timing::lease_renew_deadline`].
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long after a conflict the Lease is read again while it is ours.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// What came of an attempt to take or renew the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// It is ours.
    Held,
    /// It names another holder, whose time is not over.
    OfAnother,
    /// Somebody wrote to it between our read and our write. Who holds it only another read can tell.
    Conflict,
}

/// Longest time that taking, renewing or giving up the Lease takes: a read and a write.
pub const LONGEST_ATTEMPT: Duration = Duration::from_secs(2 * ATTEMPT_TIMEOUT.as_secs());

/// A candidate for the Lease.
pub struct Candidate {
    connection: Connection,
    namespace: String,
    identity: String,
    place: String,
    /// Says in `/readyz` when we cannot even take part.
    health: Entry,
    /// The holder's record and when we first saw it: expiry is judged by our own clock, not by the holder's.
    seen: Option<(LeaseSpec, Instant)>,
    timing: Timing,
}

impl Candidate {
    /// A candidate named `identity` in `namespace`.
    pub fn new(connection: Connection, namespace: &str, identity: String, health: &Health, timing: Timing) -> Self {
        let place = format!("Lease {namespace}/{LEASE}");
        let health = health.watch(place.clone());
        Self { connection, namespace: namespace.to_owned(), identity, place, health, seen: None, timing }
    }

    /// Waits until the Lease is ours. Failures are logged when they are news, and tried again.
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
            tokio::time::sleep(self.timing.lease_retry.mul_f64(0.9 + fastrand::f64() / 5.0)).await;
        }
    }

    /// Renews the Lease for as long as it can. Returns when it is lost, or when `stop` comes, after giving it up.
    pub async fn hold(&mut self, stop: &CancellationToken) {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return self.give_up().await,
                () = tokio::time::sleep(self.timing.lease_retry) => {}
            }
            // Others count from when they see it, which is after this moment.
            let began = Instant::now();
            // An attempt ends before the Lease does, for then somebody else may lead.
            let end = renewed + self.timing.lease_renew_deadline;
            match tokio::time::timeout_at(end, self.renew()).await {
                Ok(Ok(Attempt::Held)) => renewed = began,
                Ok(Ok(_)) => return tracing::error!(lease = self.place, "another process leads"),
                Ok(Err(error)) => tracing::warn!(lease = self.place, %error, "cannot renew"),
                Err(_) => return tracing::error!(lease = self.place, "not renewed in time"),
            }
        }
    }

    /// Renews the Lease while it is ours. A conflict says that somebody wrote to it, a label perhaps, and not that it is theirs:
    /// it is read again for as long as the caller waits.
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
            Err(error) => {
                if matches!(error, Error::Deadline { .. }) {
                    self.connection.renew();
                }
                self.health.failed(&error.to_string());
            }
        }
        outcome
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.connection.client(), &self.namespace)
    }

    async fn take_or_renew(&mut self) -> Result<Attempt, Error> {
        let place = self.place.clone();
        let call = |verb: &str| format!("{verb} {place}");
        let Some(mut lease) = deadline(ATTEMPT_TIMEOUT, || call("get"), self.api().get_opt(LEASE)).await? else {
            let lease = Lease { metadata: named(), spec: Some(self.record(0)) };
            let created =
                deadline(ATTEMPT_TIMEOUT, || call("create"), self.api().create(&PostParams::default(), &lease)).await;
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
        // The resourceVersion we read goes along, so that of two candidates one fails.
        let replaced =
            deadline(ATTEMPT_TIMEOUT, || call("update"), self.api().replace(LEASE, &PostParams::default(), &lease))
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
        let Ok(Some(mut lease)) = deadline(ATTEMPT_TIMEOUT, String::new, self.api().get_opt(LEASE)).await else {
            return;
        };
        let Some(spec) = lease.spec.as_mut().filter(|s| s.holder_identity.as_deref() == Some(&self.identity)) else {
            return;
        };
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        let _ = deadline(ATTEMPT_TIMEOUT, String::new, self.api().replace(LEASE, &PostParams::default(), &lease)).await;
    }

    fn record(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime(Timestamp::now().round(jiff::Unit::Microsecond).unwrap_or_default());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.timing.lease_duration.as_secs()).unwrap_or(15)),
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

    /// An API server with one Lease, which names this holder and gives a conflict to so many updates of it; what it names, and how
    /// many updates it took.
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
        let timing =
            Timing { lease_retry: Duration::from_millis(50), lease_renew_deadline: deadline, ..Timing::default() };
        let connection = Connection::new(kube::Config::new(url.parse().unwrap())).unwrap();
        Candidate::new(connection, "ns", "me".into(), &Health::default(), timing)
    }

    /// A label or annotation that somebody wrote to the Lease ended the leader: the conflict counted as another leader.
    #[tokio::test]
    async fn leader_lease_is_written_by_others_keeps_leading() {
        let (url, named, updates) = server("me", 3).await;
        let mut candidate = candidate(&url, Duration::from_secs(5));
        let holds = tokio::spawn(async move { candidate.hold(&CancellationToken::new()).await });
        for _ in 0..100 {
            if updates.load(Ordering::SeqCst) > 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(updates.load(Ordering::SeqCst) > 1 && !holds.is_finished(), "it leads on");
        *named.lock().unwrap() = "another".to_owned();
        tokio::time::timeout(Duration::from_secs(3), holds).await.expect("another leads").unwrap();
    }

    #[tokio::test]
    async fn leader_conflicts_without_end_stop_at_the_deadline() {
        let (url, _, updates) = server("me", usize::MAX).await;
        let deadline = Duration::from_millis(600);
        let began = Instant::now();
        candidate(&url, deadline).hold(&CancellationToken::new()).await;
        assert!((deadline..ATTEMPT_TIMEOUT).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert_eq!(updates.load(Ordering::SeqCst), 0);
    }

    /// Found by reading: an attempt that began within the deadline went on for twice three seconds, and was given up a
    /// second after somebody else could have taken the Lease.
    #[tokio::test]
    async fn an_attempt_to_renew_ends_with_the_deadline() {
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
