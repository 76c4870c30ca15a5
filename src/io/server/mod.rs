//! The server of every port, with TLS or without it: its socket and certificate, limits of connections, heads and time, and an
//! orderly end. Routers define what is served.

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

pub(super) use self::certificate::expiry_of_chain;
pub use self::certificate::{Certificate, Files};

/// Connections that may wait to be accepted. Beyond that a client tries again after a second, which is all that a probe has.
const BACKLOG: i32 = 1024;

/// Listens at an address. `[::]` means every address of both families: a kubelet probes whichever the pod has. On a machine
/// without IPv6 it means those of IPv4.
///
/// # Errors
/// When the address cannot be had.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    if at.ip() != Ipv6Addr::UNSPECIFIED {
        return bind(at);
    }
    bind(at).or_else(|error| match error.kind() {
        // Another process has the port, or this one may not use it. To serve half of the addresses would hide that.
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

/// Longest handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Largest head of a request, in bytes, and the most that is read of a connection ahead of its router. hyper's own limit is
/// 400 KiB, for each connection.
const HEAD: usize = 32 << 10;

/// Limits of one port.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time. One more takes the place of the oldest whose request has not come.
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

/// Carrier of a port's requests.
#[derive(Clone)]
pub enum Transport {
    /// TCP alone.
    Plain,
    /// TLS with this certificate.
    Tls(Certificate),
}

/// Time that is still served after being asked to end: clients learn of the end a little later.
const DRAIN: Duration = Duration::from_secs(3);

/// Longest that a request under way may take after that.
const LAST: Duration = Duration::from_secs(3);

/// Longest time from the request to end until [`serve`] has ended.
pub const LONGEST_END: Duration = Duration::from_secs(DRAIN.as_secs() + LAST.as_secs());

/// Serves until a while after `stop`. `what` is for people, as in `admission`.
///
/// No client waits for another: if all connections are taken, a new one takes the place of the oldest that has not sent a
/// request yet, else of the oldest that has none in progress. A probe sends its request as it connects, and so is answered
/// while others hold every connection with requests that never end.
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
                () = displaced.cancelled() => tracing::debug!(what, "a new connection takes the place of an idle one"),
            }
        });
        // It reads what has come before the next one can take its place.
        tokio::task::yield_now().await;
    }
    ended.cancel();
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(LAST, rest).await.is_err() {
        tracing::warn!(what, "some requests did not end in time");
    }
}

async fn accept(what: &'static str, listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                // No more files, for a moment: to try again at once would only burn the processor.
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
    // Without a certificate there is no way to say anything: the connection ends.
    let Some(config) = certificate.current() else { return };
    match timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, router, limits, ended, place).await,
        // A port scan, a probe, or a client that does not trust us: it knows best what is wrong.
        Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
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
    // hyper's own limit of time is for heads alone, and the same for the first as for the next, which may be long in coming.
    let serving = http1::Builder::new().max_buf_size(HEAD).serve_connection(TokioIo::new(stream), service);
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

/// The connections of a port.
#[derive(Clone, Default)]
struct Open(Arc<Connections>);

#[derive(Default)]
struct Connections {
    state: Mutex<State>,
    /// A connection ended, or has no request in progress any more.
    changed: Notify,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Standing>,
    /// Counts every change: a smaller number is of an older one.
    count: u64,
}

/// State of a connection; of two, the lesser gives way to a new connection.
#[derive(Clone)]
struct Standing {
    progress: Progress,
    since: u64,
    displaced: CancellationToken,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// No request has come yet.
    New,
    /// Its last request has been answered.
    Idle,
    /// A request is in progress.
    Busy,
}

impl Open {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if one more connection can be served, possibly in the place of another. False while all are busy.
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

/// A connection's place among those of its port, given back when it ends.
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
