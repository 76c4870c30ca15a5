//! The server of every port, with or without TLS: its socket, its certificate, its limits and its graceful shutdown. Routers
//! define the content.

mod certificate;

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::Router;
use hyper::{
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use socket2::{Domain, Socket, Type};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use self::certificate::{Certificate, Files, expiry_of_pem};

/// Connections that may wait to be accepted. Beyond that a client retries after a second, which is the whole timeout of a probe.
const BACKLOG: i32 = 1024;

/// Listens at an address. `[::]` means every address of both families, because a kubelet probes either one. On a machine without
/// IPv6 it means all IPv4 addresses.
///
/// # Errors
/// If the address cannot be used.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    if at.ip() != Ipv6Addr::UNSPECIFIED {
        return bind(at);
    }
    bind(at).or_else(|error| match error.kind() {
        // Another process uses the port, or this one lacks the permission. Serving half of the addresses would hide that.
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
        _ => bind((Ipv4Addr::UNSPECIFIED, at.port()).into()),
    })
}

fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    if at.is_ipv6() {
        // The default of the machine may be either.
        socket.set_only_v6(at.ip() != Ipv6Addr::UNSPECIFIED)?;
    }
    // As in tokio's own listeners: connections of a process that has just ended do not block the port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Longest handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Largest head of a request in bytes, and the most that is read before the router. hyper's own limit is 400 KiB per connection.
const HEAD: usize = 32 << 10;

/// Limits of one port.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time. One more replaces the oldest one without a request.
    pub connections: usize,
    /// Time from the handshake to the end of the first request's head.
    pub first: Duration,
    /// Time from one request to the next, including its answer.
    pub next: Duration,
}

impl Default for Limits {
    /// API servers send a request as they connect, and close a connection after 90 s without one. This limit is longer, so no
    /// connection is closed just before the next request.
    fn default() -> Self {
        Self { connections: 512, first: Duration::from_secs(10), next: Duration::from_secs(150) }
    }
}

/// The transport of a port's requests.
#[derive(Clone)]
pub enum Transport {
    /// TCP without TLS.
    Plain,
    /// TLS with this certificate.
    Tls(Certificate),
}

/// Time of serving after the shutdown request: clients learn of the shutdown a little later.
const DRAIN: Duration = Duration::from_secs(3);

/// Longest time for requests in progress after that.
const LAST: Duration = Duration::from_secs(3);

/// Longest time from the shutdown request until [`serve`] ends.
pub const LONGEST_END: Duration = Duration::from_secs(DRAIN.as_secs() + LAST.as_secs());

/// Serves until a while after `stop`. `what` is for people, as in `admission`.
///
/// No client waits for another. If all connections are taken, a new one replaces the oldest that has sent no request yet, else
/// the oldest idle one. A probe sends its request as it connects, so it is answered even if other clients hold every connection.
pub async fn serve(
    what: &'static str,
    listener: TcpListener,
    transport: Transport,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let (mut connections, ended) = (JoinSet::new(), CancellationToken::new());
    let open = Open::default();
    let drained = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::pin!(drained);
    'serving: loop {
        let stream = tokio::select! {
            () = &mut drained => break,
            accepted = accept(what, &listener) => accepted,
        };
        while connections.try_join_next().is_some() {}
        while !open.has_room(limits.connections) {
            tokio::select! {
                () = &mut drained => break 'serving,
                () = open.0.changed.notified() => {}
            }
        }
        let place = Arc::new(open.take());
        let (transport, router, ended) = (transport.clone(), router.clone(), ended.clone());
        connections.spawn(async move {
            let displaced = place.displaced.clone();
            tokio::select! {
                () = connection(stream, transport, router, limits, ended, place) => {}
                () = displaced.cancelled() => tracing::debug!(what, "an idle connection is closed for a new one"),
            }
        });
        // Let it read its request before the next connection can replace it.
        tokio::task::yield_now().await;
    }
    ended.cancel();
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(LAST, rest).await.is_err() {
        tracing::warn!(what, "some requests did not finish before the shutdown deadline");
    }
}

async fn accept(what: &'static str, listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                // The process is out of file descriptors for a moment. An immediate retry would only use CPU.
                tracing::warn!(what, %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    transport: Transport,
    router: Router,
    limits: Limits,
    ended: CancellationToken,
    place: Arc<Place>,
) {
    let _ = stream.set_nodelay(true);
    let certificate = match transport {
        Transport::Plain => return requests(stream, router, limits, ended, place).await,
        Transport::Tls(certificate) => certificate,
    };
    // Without a certificate nothing can be answered, so the connection ends.
    let Some(config) = certificate.current() else { return };
    match timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, router, limits, ended, place).await,
        // A port scan, a probe, or a client that does not trust us. The client knows the reason best.
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => {}
    }
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    limits: Limits,
    ended: CancellationToken,
    place: Arc<Place>,
) {
    let (begun, requests) = watch::channel(());
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        begun.send_replace(());
        let busy = Busy::from(place.clone());
        let answer = router.call(request);
        async move {
            let answer = answer.await;
            drop(busy);
            answer
        }
    });
    // hyper's own timeout covers only heads, and is the same for the first and for later requests, which may come much later.
    let serving = http1::Builder::new().max_buf_size(HEAD).serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        _ = &mut serving => return,
        () = quiet(requests, limits) => return,
        () = ended.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// Returns when a connection has been quiet for too long. That also ends one whose answer is not read.
async fn quiet(mut requests: watch::Receiver<()>, limits: Limits) {
    let mut limit = limits.first;
    while let Ok(Ok(())) = timeout(limit, requests.changed()).await {
        limit = limits.next;
    }
}

/// The connections of a port.
#[derive(Clone, Default)]
struct Open(Arc<Connections>);

#[derive(Default)]
struct Connections {
    state: Mutex<State>,
    /// Notified when a connection ends or becomes idle.
    changed: Notify,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Standing>,
    /// Counts every change. A smaller number is older.
    count: u64,
}

/// State of a connection. The lesser one is replaced first.
#[derive(Clone)]
struct Standing {
    progress: Progress,
    since: u64,
    displaced: CancellationToken,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// No request has arrived yet.
    New,
    /// The last request has been answered.
    Idle,
    /// A request is in progress.
    Busy,
}

impl Open {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if one more connection can be served, if necessary in place of another. False while all are busy.
    fn has_room(&self, limit: usize) -> bool {
        let mut state = self.state();
        if state.open.len() < limit {
            return true;
        }
        let waiting = state.open.iter().filter(|(_, standing)| standing.progress != Progress::Busy);
        let oldest = waiting.min_by_key(|(_, standing)| (standing.progress, standing.since)).map(|(id, _)| *id);
        match oldest.and_then(|id| state.open.remove(&id)) {
            Some(standing) => {
                standing.displaced.cancel();
                true
            }
            None => false,
        }
    }

    fn take(&self) -> Place {
        let mut state = self.state();
        state.count += 1;
        let (id, displaced) = (state.count, CancellationToken::new());
        state.open.insert(id, Standing { progress: Progress::New, since: id, displaced: displaced.clone() });
        Place { id, displaced, open: self.clone() }
    }
}

/// A connection's slot in its port, released when it ends.
struct Place {
    id: u64,
    displaced: CancellationToken,
    open: Open,
}

impl Place {
    fn is(&self, progress: Progress) {
        let mut state = self.open.state();
        state.count += 1;
        let since = state.count;
        if let Some(standing) = state.open.get_mut(&self.id) {
            (standing.progress, standing.since) = (progress, since);
        }
        drop(state);
        self.open.0.changed.notify_one();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.state().open.remove(&self.id);
        self.open.0.changed.notify_one();
    }
}

/// A request in progress.
struct Busy(Arc<Place>);

impl From<Arc<Place>> for Busy {
    fn from(place: Arc<Place>) -> Self {
        place.is(Progress::Busy);
        Self(place)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.is(Progress::Idle);
    }
}

#[cfg(test)]
mod tests;
