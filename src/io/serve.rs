//! A server with TLS: limits of time, an orderly end. What is asked and answered is the router's business.

use std::{sync::Arc, time::Duration};

use axum::Router;
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

use super::certificate::Certificate;

/// Longest handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How many connections there may be, and how long one may be quiet.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; those beyond wait to be accepted.
    pub connections: usize,
    /// From its handshake to the end of its first request's head.
    pub first: Duration,
    /// From one request to the next, each with its answer.
    pub next: Duration,
}

impl Default for Limits {
    /// API servers send at once where they connect, and give a connection up after 90 s without a request. Here it takes
    /// longer, so that none is cut just when the next request is sent into it.
    fn default() -> Self {
        Self { connections: 512, first: Duration::from_secs(10), next: Duration::from_secs(150) }
    }
}

/// How long to go on after being asked to end: clients come to know a little later that nobody is here any more.
const DRAIN: Duration = Duration::from_secs(3);

/// Longest that a request under way may take after that.
const LAST: Duration = Duration::from_secs(3);

/// Longest time from the request to end until [`serve`] has ended.
pub const LONGEST_END: Duration = Duration::from_secs(DRAIN.as_secs() + LAST.as_secs());

/// Serves until a while after `stop`. `what` is for people, as in `admission`.
pub async fn serve(
    what: &'static str,
    listener: TcpListener,
    certificate: Certificate,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(limits.connections));
    let (mut connections, ended) = (JoinSet::new(), CancellationToken::new());
    let drained = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::pin!(drained);
    loop {
        let (stream, permit) = tokio::select! {
            () = &mut drained => break,
            accepted = accept(what, &listener, &room) => accepted,
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
        tracing::warn!(what, "some requests did not end in time");
    }
}

async fn accept(
    what: &'static str,
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let permit = room.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            Err(error) => {
                // No more files, for a moment: to try again at once would only burn the processor.
                tracing::warn!(what, %error, "cannot accept a connection");
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
