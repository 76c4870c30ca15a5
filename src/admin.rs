//! `/healthz`, `/readyz` and `/metrics`.

use std::{net::SocketAddr, time::Instant};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio_util::sync::CancellationToken;

use crate::{
    io::{health::Health, listen::listen},
    metrics::Metrics,
};

/// Serves `/healthz` and `/readyz` until `stop`; at `[::]`, for IPv4 as well. With admission webhooks also
/// `/readyz/admission`, which asks for what they need and nothing else.
///
/// # Errors
/// One line when the address cannot be had.
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
    serve("health probes", at, router, stop)
}

/// Serves `/metrics` until `stop`; at `[::]`, for IPv4 as well.
///
/// # Errors
/// One line when the address cannot be had.
pub fn serve_metrics(at: SocketAddr, metrics: Metrics, stop: CancellationToken) -> Result<(), String> {
    let router = Router::new().route("/metrics", get(text)).with_state(metrics);
    serve("metrics", at, router, stop)
}

fn serve(what: &'static str, at: SocketAddr, router: Router, stop: CancellationToken) -> Result<(), String> {
    let listener = listen(at).map_err(|e| format!("cannot serve {what} on {at}: {e}"))?;
    tracing::info!(what, at = %listener.local_addr().unwrap_or(at), "serving");
    tokio::spawn(async move {
        let stopped = stop.cancelled_owned();
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
            tracing::error!(what, %error, "server ended");
        }
    });
    Ok(())
}

/// Alive while every watch goes on trying. A server that is away is no reason to be restarted.
async fn healthz(State(health): State<Health>) -> (StatusCode, String) {
    verdict(&health.dead(Instant::now()), "stopped")
}

/// Ready while every watch works; those of single tenants among many are named when they do not, and no more.
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
