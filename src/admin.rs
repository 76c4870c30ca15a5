//! `/healthz`, `/readyz` and `/metrics`.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Instant,
};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{io::health::Health, metrics::Metrics};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Serves `/healthz` and `/readyz` until `stop`; at `[::]`, for IPv4 as well.
///
/// # Errors
/// One line when the address cannot be had.
pub fn serve_health(at: SocketAddr, health: Health, stop: CancellationToken) -> Result<(), String> {
    let router = Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(health);
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

/// Listens at an address. `[::]` means every address of both families: a kubelet probes whichever the pod has. On a machine
/// without IPv6 it means those of IPv4.
fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    if at.ip() != Ipv6Addr::UNSPECIFIED {
        return bind(at);
    }
    bind(at).or_else(|error| match error.kind() {
        // Somebody has the port, or it is not for us: to serve half of the addresses would hide that.
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
        _ => bind((Ipv4Addr::UNSPECIFIED, at.port()).into()),
    })
}

fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    if at.is_ipv6() {
        // The machine's default may be either.
        socket.set_only_v6(at.ip() != Ipv6Addr::UNSPECIFIED)?;
    }
    // As tokio's own listeners: connections of a process that ended a moment ago do not hold the port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
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

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;

    async fn answers(at: SocketAddr) -> bool {
        let Ok(mut stream) = TcpStream::connect(at).await else { return false };
        let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut text = String::new();
        stream.write_all(request.as_bytes()).await.is_ok()
            && stream.read_to_string(&mut text).await.is_ok()
            && text.starts_with("HTTP/1.1 200 OK")
    }

    #[tokio::test]
    async fn without_a_host_both_families_are_served() {
        for (text, v6, v4) in [("[::]:0", true, true), ("0.0.0.0:0", false, true), ("127.0.0.1:0", false, true)] {
            let listener = listen(text.parse().unwrap()).unwrap();
            let port = listener.local_addr().unwrap().port();
            let router = Router::new().route("/healthz", get(healthz)).with_state(Health::default());
            let server = tokio::spawn(async move { axum::serve(listener, router).await });
            assert_eq!(answers((Ipv4Addr::LOCALHOST, port).into()).await, v4, "{text} for IPv4");
            let ipv6 = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
            assert_eq!(answers((Ipv6Addr::LOCALHOST, port).into()).await, v6 && ipv6, "{text} for IPv6");
            server.abort();
        }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_an_error_and_not_half_a_success() {
        let first = listen("[::]:0".parse().unwrap()).unwrap();
        let error = listen(first.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
