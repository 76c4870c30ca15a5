//! How far the clock of an API server is from ours, by the `Date` of its answers: what stands in an object was written by the
//! server's clock, and is compared with that one alone.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll},
};

use http::{Request, Response, header};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};
use kube::client::Body;
use tower_layer::Layer;
use tower_service::Service;

/// A `Date` has whole seconds, and an answer takes a moment: less than this is no difference.
const RESOLUTION: i64 = 2;

/// By how many seconds a server's clock is ahead of ours, as its last answer said.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<AtomicI64>);

impl ServerClock {
    /// The server's time while ours is `ours`; the same as long as it has not answered.
    pub fn time(&self, ours: Timestamp) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.0.load(Ordering::Relaxed));
        ours.checked_add(ahead).unwrap_or(ours)
    }

    /// Takes note of an answer that arrived at `ours`, and of its `Date`. What is no date says nothing.
    fn answered(&self, date: &[u8], ours: Timestamp) {
        let Ok(server) = DateTimeParser::new().parse_timestamp(date) else { return };
        let ahead = server.as_second().saturating_sub(ours.as_second());
        self.0.store(if ahead.abs() < RESOLUTION { 0 } else { ahead }, Ordering::Relaxed);
    }
}

impl<S> Layer<S> for ServerClock {
    type Service = Clocked<S>;

    fn layer(&self, inner: S) -> Clocked<S> {
        Clocked { inner, clock: self.clone() }
    }
}

/// A client's stack that reads the `Date` of each answer.
#[derive(Clone)]
pub struct Clocked<S> {
    inner: S,
    clock: ServerClock,
}

impl<S, B> Service<Request<Body>> for Clocked<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (clock, answer) = (self.clock.clone(), self.inner.call(request));
        Box::pin(async move {
            let answer = answer.await;
            if let Some(date) = answer.as_ref().ok().and_then(|answer| answer.headers().get(header::DATE)) {
                clock.answered(date.as_bytes(), super::clock::Now::read().time);
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_time_follows_the_date_of_its_last_answer() {
        let ours: Timestamp = "2026-05-01T12:00:00.5Z".parse().unwrap();
        let clock = ServerClock::default();
        assert_eq!(clock.time(ours), ours, "nothing is known");
        for (date, ahead) in [
            ("Fri, 01 May 2026 12:05:00 GMT", 300),
            ("no date", 300),
            ("Fri, 01 May 2026 11:59:00 GMT", -60),
            ("Fri, 01 May 2026 12:00:01 GMT", 0),
            ("Fri, 01 May 2026 11:59:59 GMT", 0),
        ] {
            clock.answered(date.as_bytes(), ours);
            assert_eq!(clock.time(ours), ours + SignedDuration::from_secs(ahead), "{date}");
        }
    }
}
