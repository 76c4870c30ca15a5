//! A client layer that sees each answer of an API server. It counts and times requests, and compares clocks.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use http::{Method, Request, Response, StatusCode, header};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};
use kube::client::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::clock::Now;
use crate::metrics::{Host, Metrics};

/// A `Date` has whole seconds and an answer takes a moment, so a smaller difference is ignored.
const RESOLUTION: i64 = 2;

/// Counts the requests to one kind of API server.
#[derive(Clone)]
pub struct Meter {
    metrics: Metrics,
    host: Host,
}

impl Meter {
    /// Counts requests to such a server.
    pub fn new(metrics: &Metrics, host: Host) -> Self {
        Self { metrics: metrics.clone(), host }
    }

    fn answered(&self, method: &'static str, code: &'static str, began: Instant) {
        self.metrics.requested(self.host, method, code, began.elapsed());
    }
}

/// The difference between a server's clock and ours in seconds, as of its last answer. Times in objects were written by the
/// server's clock and are compared with that clock only.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<AtomicI64>);

impl ServerClock {
    /// Returns the server's time at our time `ours`. Equal to `ours` until the server has answered.
    pub fn time(&self, ours: Timestamp) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.0.load(Ordering::Relaxed));
        ours.checked_add(ahead).unwrap_or(ours)
    }

    /// Updates the difference from the `Date` of an answer that arrived at `ours`. Ignores an invalid date.
    fn answered(&self, date: &[u8], ours: Timestamp) {
        let Ok(server) = DateTimeParser::new().parse_timestamp(date) else { return };
        let ahead = server.as_second().saturating_sub(ours.as_second());
        self.0.store(if ahead.abs() < RESOLUTION { 0 } else { ahead }, Ordering::Relaxed);
    }
}

/// A client layer that sees each answer.
#[derive(Clone)]
pub(super) struct Observer {
    pub(super) meter: Option<Meter>,
    pub(super) clock: ServerClock,
}

impl<S> Layer<S> for Observer {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed { inner, observer: self.clone() }
    }
}

/// A client's stack with an observer on top.
#[derive(Clone)]
pub(super) struct Observed<S> {
    inner: S,
    observer: Observer,
}

impl<S, B> Service<Request<Body>> for Observed<S>
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
        let (Observer { meter, clock }, method, began) =
            (self.observer.clone(), method(request.method()), Instant::now());
        let answer = self.inner.call(request);
        Box::pin(async move {
            // A request that is given up is dropped here, and counts as unanswered.
            let mut unanswered = Unanswered { meter: meter.as_ref(), method, began };
            let answer = answer.await;
            unanswered.meter = None;
            if let Some(meter) = &meter {
                meter.answered(method, answer.as_ref().map_or(NO_ANSWER, |answer| code(answer.status())), began);
            }
            if let Some(date) = answer.as_ref().ok().and_then(|answer| answer.headers().get(header::DATE)) {
                clock.answered(date.as_bytes(), Now::read().time);
            }
            answer
        })
    }
}

/// The code of a request without an answer, as in client-go.
const NO_ANSWER: &str = "<error>";

/// A request in progress. Dropping it counts it as unanswered.
struct Unanswered<'a> {
    meter: Option<&'a Meter>,
    method: &'static str,
    began: Instant,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(meter) = self.meter {
            meter.answered(self.method, NO_ANSWER, self.began);
        }
    }
}

/// Returns the method as a label, one of those that clients of API servers use.
fn method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

/// Returns the status code as a label, one of those that API servers and proxies answer with.
fn code(code: StatusCode) -> &'static str {
    const KNOWN: [(u16, &str); 21] = [
        (101, "101"),
        (200, "200"),
        (201, "201"),
        (202, "202"),
        (204, "204"),
        (400, "400"),
        (401, "401"),
        (403, "403"),
        (404, "404"),
        (405, "405"),
        (406, "406"),
        (409, "409"),
        (410, "410"),
        (413, "413"),
        (415, "415"),
        (422, "422"),
        (429, "429"),
        (500, "500"),
        (502, "502"),
        (503, "503"),
        (504, "504"),
    ];
    KNOWN.iter().find(|(known, _)| *known == code.as_u16()).map_or("other", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_unknown_method_or_code_is_labelled_other() {
        for (given, label) in [(200, "200"), (409, "409"), (503, "503"), (299, "other"), (418, "other"), (999, "other")]
        {
            assert_eq!(code(StatusCode::from_u16(given).unwrap()), label);
        }
        assert_eq!((method(&Method::PATCH), method(&Method::TRACE)), ("PATCH", "other"));
        assert_eq!(method(&Method::from_bytes(b"MADEUP").unwrap()), "other");
    }

    #[tokio::test]
    async fn requests_answered_failed_and_dropped_are_counted() {
        let metrics = Metrics::default();
        let ask = |answer: Option<u16>| {
            let inner = tower_service_fn(move || answer);
            Observer { meter: Some(Meter::new(&metrics, Host::Hub)), clock: ServerClock::default() }
                .layer(inner)
                .call(Request::get("/x").body(Body::empty()).unwrap())
        };
        let _ = ask(Some(200)).await;
        let _ = ask(Some(0)).await;
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(10), ask(None)).await;
        assert!(given_up.is_err());
        let text = metrics.text();
        for (code, times) in [("200", 1), (NO_ANSWER, 2)] {
            let line = format!("rest_client_requests_total{{code=\"{code}\",host=\"hub\",method=\"GET\"}} {times}");
            assert!(text.contains(&line), "{line}: {text}");
        }
        assert!(text.contains("rest_client_request_duration_seconds_count{host=\"hub\",verb=\"GET\"} 3"), "{text}");
    }

    /// Answers with a code, with an error for 0, or never.
    struct Answers<F>(F);

    fn tower_service_fn<F: Fn() -> Option<u16>>(answer: F) -> Answers<F> {
        Answers(answer)
    }

    impl<F: Fn() -> Option<u16>> Service<Request<Body>> for Answers<F> {
        type Response = Response<Body>;
        type Error = std::io::Error;
        type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, std::io::Error>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            let answer = (self.0)();
            Box::pin(async move {
                match answer {
                    None => std::future::pending().await,
                    Some(0) => Err(std::io::Error::other("no way there")),
                    Some(code) => Ok(Response::builder().status(code).body(Body::empty()).unwrap()),
                }
            })
        }
    }

    #[test]
    fn server_clock_follows_the_date_of_the_last_answer() {
        let ours: Timestamp = "2026-05-01T12:00:00.5Z".parse().unwrap();
        let clock = ServerClock::default();
        assert_eq!(clock.time(ours), ours, "no answer yet");
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
