//! `/healthz`, `/readyz`, `/metrics` and `/waiting`.

mod access;
mod waiting;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio_util::sync::CancellationToken;

use self::access::{Access, Verdict};
pub use self::waiting::WaitingList;
use crate::{
    io::{
        clients::Connection,
        health::Health,
        server::{self, Certificate, Files, Limits, Transport},
    },
    metrics::Metrics,
};

/// Path of the metrics.
const METRICS: &str = "/metrics";

/// Path of the list of everything that waits.
const WAITING: &str = "/waiting";

/// Names in the self-signed certificate: those of the Service in `config/`.
const NAMES: [&str; 3] =
    ["compute-metrics.compute-system.svc", "compute-metrics.compute-system.svc.cluster.local", "localhost"];

/// Closes the connection after a refusal, so that refused callers do not hold the few connections.
const CLOSE: (header::HeaderName, &str) = (header::CONNECTION, "close");

/// Limits for scrapers, which are few.
const SCRAPERS: Limits = Limits { connections: 32, first: Duration::from_secs(10), next: Duration::from_secs(150) };

/// Limits for probes. A kubelet opens a connection for each probe and sends it at once.
const PROBES: Limits = Limits { connections: 32, first: Duration::from_secs(5), next: Duration::from_secs(30) };

/// Serves `/healthz` and `/readyz` until `stop`. On `[::]` it serves IPv4 as well. With admission webhooks it also serves
/// `/readyz/admission`, which checks only the webhooks' own needs.
///
/// # Errors
/// One line if the address is not available.
pub fn serve_health(
    at: SocketAddr,
    health: Health,
    admission: Option<Health>,
    stop: CancellationToken,
) -> Result<(), String> {
    let mut router = Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(health);
    if let Some(admission) = admission {
        router = router.merge(Router::new().route("/readyz/admission", get(readyz)).with_state(admission));
    }
    serve("health probes", at, router, PROBES, stop)
}

/// Serves `/metrics` to every client, as plain HTTP, until `stop`. On `[::]` it serves IPv4 as well.
///
/// # Errors
/// One line if the address is not available.
pub fn serve_metrics(at: SocketAddr, metrics: Metrics, stop: CancellationToken) -> Result<(), String> {
    let router = Router::new().route(METRICS, get(text)).with_state(metrics);
    serve("metrics", at, router, SCRAPERS, stop)
}

/// Serves `/metrics` and `/waiting` over TLS until `stop`, each to callers that the API server at `home` permits to get that path.
///
/// The certificate is read from `files`, and read again when they change. Without files, or until they exist, a self-signed
/// certificate is used, as in controller-runtime. `/readyz` reports missing files and stays ready.
///
/// # Errors
/// One line if the address is not available, or no certificate can be made.
pub fn serve_metrics_securely(
    at: SocketAddr,
    files: Option<Files>,
    home: Connection,
    (metrics, waiting): (Metrics, WaitingList),
    health: &Health,
    stop: CancellationToken,
) -> Result<(), String> {
    let listener = server::listen(at).map_err(|e| format!("cannot serve metrics on {at}: {e}"))?;
    tracing::info!(what = "metrics", at = %listener.local_addr().unwrap_or(at), tls = true, "serving");
    let certificate = Certificate::counted("metrics", &metrics).self_signed(&NAMES)?;
    if let Some(files) = files {
        let entry = health.tenant_watch("metrics certificate".into());
        tokio::spawn(certificate.clone().keep(files, entry, stop.clone()));
    }
    let scrape = Router::new().route(METRICS, get(text)).with_state(metrics);
    let list = Router::new().route(WAITING, get(waiting::list)).with_state(waiting);
    let router = guarded(scrape, METRICS, home.clone()).merge(guarded(list, WAITING, home));
    tokio::spawn(server::serve("metrics", listener, Transport::Tls(certificate), router, SCRAPERS, stop));
    Ok(())
}

/// Returns a router that answers only callers who may get `path`.
fn guarded(router: Router, path: &'static str, home: Connection) -> Router {
    router.layer(middleware::from_fn_with_state(Arc::new(Access::new(home, path)), permitted))
}

async fn permitted(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    match access.of(request.headers()).await {
        Verdict::Allowed => next.run(request).await,
        Verdict::Unauthenticated => (
            StatusCode::UNAUTHORIZED,
            [CLOSE, (header::WWW_AUTHENTICATE, "Bearer")],
            "a valid token of this cluster is required\n",
        )
            .into_response(),
        Verdict::Forbidden => {
            (StatusCode::FORBIDDEN, [CLOSE], format!("the user may not get {}\n", access.path())).into_response()
        }
        Verdict::Unknown => {
            (StatusCode::SERVICE_UNAVAILABLE, [CLOSE], "the API server does not answer the access review\n")
                .into_response()
        }
    }
}

fn serve(
    what: &'static str,
    at: SocketAddr,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) -> Result<(), String> {
    let listener = server::listen(at).map_err(|e| format!("cannot serve {what} on {at}: {e}"))?;
    tracing::info!(what, at = %listener.local_addr().unwrap_or(at), "serving");
    tokio::spawn(server::serve(what, listener, Transport::Plain, router, limits, stop));
    Ok(())
}

/// Alive while every watch keeps trying. An unreachable server is no reason for a restart.
async fn healthz(State(health): State<Health>) -> (StatusCode, String) {
    verdict(&health.dead(Instant::now()), "stopped")
}

/// Ready while every watch works. A failing watch of a single tenant is reported and does not affect readiness.
async fn readyz(State(health): State<Health>) -> (StatusCode, String) {
    let (code, text) = verdict(&health.waiting(), "waiting for");
    let notes = health.noted().into_iter().map(|note| format!("but {note}\n"));
    (code, notes.fold(text, |text, note| text + &note))
}

fn verdict(problems: &[String], word: &str) -> (StatusCode, String) {
    if problems.is_empty() {
        return (StatusCode::OK, "ok\n".into());
    }
    let lines: Vec<String> = problems.iter().map(|problem| format!("{word} {problem}")).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines.join("\n") + "\n")
}

async fn text(State(metrics): State<Metrics>) -> ([(&'static str, &'static str); 1], String) {
    ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], metrics.text())
}

#[cfg(test)]
mod tests;
