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
                Ok(true) => return,
                Ok(false) => {
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
            match tokio::time::timeout_at(end, self.attempt()).await {
                Ok(Ok(true)) => renewed = began,
                Ok(Ok(false)) => return tracing::error!(lease = self.place, "another process leads"),
                Ok(Err(error)) => tracing::warn!(lease = self.place, %error, "cannot renew"),
                Err(_) => return tracing::error!(lease = self.place, "not renewed in time"),
            }
        }
    }

    /// Takes or renews the Lease. `false` when somebody else holds it.
    async fn attempt(&mut self) -> Result<bool, Error> {
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

    async fn take_or_renew(&mut self) -> Result<bool, Error> {
        let place = self.place.clone();
        let call = |verb: &str| format!("{verb} {place}");
        let Some(mut lease) = deadline(ATTEMPT_TIMEOUT, || call("get"), self.api().get_opt(LEASE)).await? else {
            let lease = Lease { metadata: named(), spec: Some(self.record(0)) };
            let created =
                deadline(ATTEMPT_TIMEOUT, || call("create"), self.api().create(&PostParams::default(), &lease)).await;
            return lost_race(created);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(&self.identity);
        if !ours && self.is_held(&spec) {
            return Ok(false);
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
        lost_race(replaced)
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

fn lost_race(outcome: Result<Lease, Error>) -> Result<bool, Error> {
    match outcome {
        Ok(_) => Ok(true),
        Err(error) if error.class() == Class::Conflict => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Found by reading: an attempt that began within the deadline went on for twice three seconds, and was given up a
    /// second after somebody else could have taken the Lease.
    #[tokio::test]
    async fn an_attempt_to_renew_ends_with_the_deadline() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let config = kube::Config::new(url.parse().unwrap());
        let deadline = Duration::from_millis(300);
        let timing =
            Timing { lease_retry: Duration::from_millis(50), lease_renew_deadline: deadline, ..Timing::default() };
        let connection = Connection::new(config).unwrap();
        let mut candidate = Candidate::new(connection, "ns", "me".into(), &Health::default(), timing);
        let began = Instant::now();
        candidate.hold(&CancellationToken::new()).await;
        let held = began.elapsed();
        assert!((deadline..ATTEMPT_TIMEOUT).contains(&held), "{held:?}");
    }
}
