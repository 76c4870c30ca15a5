//! The server: TLS, limits of time and size, an orderly end. What is asked and answered is the router's business.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use hyper::{
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::tls::Certificate;

/// Largest request: two objects of the size that API servers take, with room for what stands around them.
pub(super) const MAX_BODY: usize = 7 << 20;

/// Bodies that are held at a time, all together, in KiB. An object takes several times its text.
const MAX_HELD_KIB: u32 = 8 << 10;

/// Connections at a time; those beyond wait to be accepted.
const MAX_CONNECTIONS: usize = 512;

/// Longest handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long a connection may be quiet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// From its handshake to the end of its first request's head.
    pub(super) first: Duration,
    /// From one request to the next, each with its answer.
    pub(super) next: Duration,
}

impl Default for Limits {
    /// API servers send at once where they connect, and give a connection up after 90 s without a request. Here it takes
    /// longer, so that none is cut just when the next request is sent into it.
    fn default() -> Self {
        Self { first: Duration::from_secs(10), next: Duration::from_secs(150) }
    }
}

/// Longest wait for a request's body, and for room to hold it.
const BODY: Duration = Duration::from_secs(5);

/// How long to go on after being asked to end: API servers come to know a little later that nobody is here any more.
const DRAIN: Duration = Duration::from_secs(3);

/// Longest that a request under way may take after that.
const LAST: Duration = Duration::from_secs(3);

/// Serves until a while after `stop`.
pub(super) async fn serve(
    listener: TcpListener,
    certificate: Certificate,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (mut connections, ended) = (JoinSet::new(), CancellationToken::new());
    let drained = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::pin!(drained);
    loop {
        let (stream, permit) = tokio::select! {
            () = &mut drained => break,
            accepted = accept(&listener, &room) => accepted,
        };
        while connections.try_join_next().is_some() {}
        // Without a certificate there is no way to say anything: the connection ends.
        let Some(config) = certificate.current() else { continue };
        let (router, ended) = (router.clone(), ended.clone());
        connections.spawn(async move {
            connection(stream, TlsAcceptor::from(config), router, limits, ended).await;
            drop(permit);
        });
    }
    ended.cancel();
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(LAST, rest).await.is_err() {
        tracing::warn!("some admission requests did not end in time");
    }
}

async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let permit = room.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            Err(error) => {
                // No more files, for a moment: to try again at once would only burn the processor.
                tracing::warn!(%error, "cannot accept an admission connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, tls: TlsAcceptor, router: Router, limits: Limits, ended: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let stream = match timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        // A port scan, a probe, or a client that does not trust us: it knows best what is wrong.
        Ok(Err(error)) => return tracing::debug!(%error, "no TLS"),
        Err(_) => return,
    };
    let (begun, requests) = watch::channel(());
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        begun.send_replace(());
        router.call(request)
    });
    // hyper's own limit is for heads alone, and the same for the first as for the next, which may be long in coming.
    let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        _ = &mut serving => return,
        () = quiet(requests, limits) => return,
        () = ended.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// Until a connection has been quiet for too long. That ends one as well whose answer nobody reads.
async fn quiet(mut requests: watch::Receiver<()>, limits: Limits) {
    let mut limit = limits.first;
    while let Ok(Ok(())) = timeout(limit, requests.changed()).await {
        limit = limits.next;
    }
}

/// How much of bodies is held.
#[derive(Clone)]
pub(super) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_HELD_KIB as usize)))
    }
}

impl Room {
    /// Reads a body, once there is room for it. The permit is to be kept as long as the body, and no longer: while a
    /// project's API server is waited for, others need the room.
    ///
    /// # Errors
    /// The answer to give instead.
    pub(super) async fn read(
        &self,
        length: Option<&axum::http::HeaderValue>,
        body: Body,
    ) -> Result<(Bytes, OwnedSemaphorePermit), Response> {
        let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok()).unwrap_or(MAX_BODY);
        if length > MAX_BODY {
            return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, &format!("at most {MAX_BODY} bytes")));
        }
        let kib = u32::try_from(length.div_ceil(1024)).unwrap_or(MAX_HELD_KIB);
        let read = async {
            let permit = self.0.clone().acquire_many_owned(kib).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
            let bytes = to_bytes(body, length).await.map_err(|_| StatusCode::BAD_REQUEST)?;
            Ok::<_, StatusCode>((bytes, permit))
        };
        match timeout(BODY, read).await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(code)) => Err(refuse(code, "the body broke off, or was longer than said")),
            Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
        }
    }
}

/// An answer that is no AdmissionReview, after which the connection ends: the rest of the body may still be on its way.
pub(super) fn refuse(code: StatusCode, why: &str) -> Response {
    (code, [(header::CONNECTION, "close")], why.to_owned()).into_response()
}
