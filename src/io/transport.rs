//! HTTP clients of API servers. kube's own client speaks HTTP/1.1, with a connection for each watch and each concurrent request.
//! This one speaks HTTP/2 where the server does, so that one connection carries all of them, as with client-go. Elsewhere it uses
//! kube's.
//!
//! hyper's pool is not used for HTTP/2. If it reconnects, a request that is given up fails all others that wait for the
//! connection, and it cannot follow a server that stops to offer HTTP/2. Its HTTP/2 would also be compiled once for each of kube's
//! connectors, which takes 1 MiB of the binary.

use std::{
    error::Error as StdError,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt, TryFutureExt,
    future::{BoxFuture, Shared},
};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Either, combinators::MapErr};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::{
    client::legacy::connect::HttpConnector,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kube::{
    Client, Config,
    client::{
        Body, ClientBuilder, ConfigExt as _,
        middleware::{AuthLayer, BaseUriLayer},
    },
};
use tokio::{net::TcpStream, sync::OnceCell};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, pki_types::ServerName},
};
use tower::{BoxError, ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};
use tower_service::Service;

use super::requests::Observer;

/// The protocol of a connection, as TLS names it.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// A connection that was silent for this time is asked if it still works, and has this time to answer. client-go has the same values.
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(15);

/// Bytes that a server may send ahead of a reader. One stream must not use up the window of its connection: a request waits for its
/// answer while a watch is not read.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;

/// What one set of credentials brings to a client: TLS settings, and the header that it adds. Clients that share it resume each
/// other's TLS sessions, and a plugin runs once for all of them. Only for a client certificate over HTTP/1.1 it runs once more for
/// each client.
#[derive(Clone)]
pub(super) struct Access {
    tls: Arc<ClientConfig>,
    auth: Option<Arc<AuthLayer>>,
    /// True if `auth` is of a plugin, which need not run again for its token.
    gives_token: bool,
}

impl Access {
    /// Reads the files of certificates, and runs a plugin. Blocks.
    ///
    /// # Errors
    /// If a file or the plugin's answer cannot be used. Without a credential of the plugin, requests would be those of an anonymous
    /// user.
    pub(super) fn read(config: &Config) -> kube::Result<Self> {
        let auth = config.auth_layer()?.map(Arc::new);
        let gives_token = config.auth_info.exec.is_some() && auth.is_some();
        let mut tls = without_plugin(config, gives_token).rustls_client_config()?;
        if config.auth_info.exec.is_some() && auth.is_none() && !tls.client_auth_cert_resolver.has_certs() {
            return Err(kube::Error::Service(NoCredential.into()));
        }
        tls.alpn_protocols = [HTTP2, HTTP1].map(<[u8]>::to_vec).into();
        Ok(Self { tls: Arc::new(tls), auth, gives_token })
    }
}

/// Returns the configuration, without its plugin if that has run.
fn without_plugin(config: &Config, has_run: bool) -> Config {
    let mut config = config.clone();
    if has_run {
        config.auth_info.exec = None;
    }
    config
}

/// A plugin gave no credential.
#[derive(Debug)]
struct NoCredential;

impl fmt::Display for NoCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the credential plugin gave neither a token nor a client certificate")
    }
}

impl StdError for NoCredential {}

/// Makes a client for a server, with the other settings of this configuration. Sends nothing yet, and runs no plugin.
///
/// It speaks HTTP/1.1 with a server that offers no HTTP/2, through a proxy, and without TLS.
///
/// # Errors
/// If the address or the headers of the configuration cannot be used.
pub(super) fn client(
    config: Arc<Config>,
    address: Uri,
    proxy: Option<Uri>,
    access: &Access,
    observer: &Observer,
) -> kube::Result<Client> {
    let namespace = config.default_namespace.clone();
    let direct = if proxy.is_none() && address.scheme_str() == Some("https") {
        let server = Arc::new(Server::new(&config, address.clone(), access.tls.clone())?);
        let to = server.clone();
        let http2 = ServiceBuilder::new()
            .layer(BaseUriLayer::new(address.clone()))
            .option_layer(access.auth.as_deref())
            .layer(config.extra_headers_layer()?)
            .map_err(BoxError::from)
            .service_fn(move |request| send(to.clone(), request));
        Some(Direct { server, http2 })
    } else {
        None
    };
    let transport =
        Arc::new(Transport { direct, http1: OnceCell::new(), address, proxy, config, access: access.clone() });
    let sends = tower::service_fn(move |request| transport.clone().send(request));
    Ok(ClientBuilder::new(sends, namespace).with_layer(observer).build())
}

/// The way to a server that may speak HTTP/2.
struct Direct<S> {
    server: Arc<Server>,
    /// Adds the address and the credentials to a request, and [sends](send) it.
    http2: S,
}

/// Sends requests in the version of HTTP that the server chooses for a connection.
struct Transport<S> {
    /// `None` if only HTTP/1.1 is possible.
    direct: Option<Direct<S>>,
    /// kube's client, from the first request on that needs it.
    http1: OnceCell<OldClient>,
    address: Uri,
    proxy: Option<Uri>,
    /// The other settings.
    config: Arc<Config>,
    access: Access,
}

/// kube's client.
type OldClient = BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>;

impl<S> Transport<S>
where
    S: Service<Request<Body>, Response = Response<Answer>, Error = BoxError> + Clone,
{
    async fn send(self: Arc<Self>, request: Request<Body>) -> Result<Response<Either<Answer, OldAnswer>>, BoxError> {
        if let Some(direct) = &self.direct
            && direct.server.connection().await?.is_some()
        {
            return Ok(direct.http2.clone().oneshot(request).await?.map(Either::Left));
        }
        let make = async || {
            let mut config = without_plugin(&self.config, self.access.gives_token);
            (config.cluster_url, config.proxy_url) = (self.address.clone(), self.proxy.clone());
            // It runs a plugin for its certificate, which takes its time.
            let made = tokio::task::spawn_blocking(move || ClientBuilder::try_from(config).map(ClientBuilder::build));
            let auth = self.access.auth.as_deref().filter(|_| self.access.gives_token);
            let client = made.await??;
            let sends = tower::service_fn(move |request| {
                let client = client.clone();
                async move { client.send(request).await.map_err(BoxError::from) }
            });
            Ok::<_, BoxError>(BoxCloneSyncService::new(ServiceBuilder::new().option_layer(auth).service(sends)))
        };
        let sent = self.http1.get_or_try_init(make).await?.clone().oneshot(request).await;
        if let (Err(_), Some(direct)) = (&sent, &self.direct) {
            // The server may have changed: it is asked again which version it speaks.
            direct.server.forget();
        }
        Ok(sent?.map(|body| Either::Right(body.map_err(BoxError::from as fn(kube::Error) -> BoxError))))
    }
}

/// Body of an answer over HTTP/2.
type Answer = MapErr<Incoming, fn(hyper::Error) -> BoxError>;
/// Body of an answer over HTTP/1.1.
type OldAnswer = MapErr<Body, fn(kube::Error) -> BoxError>;

/// Sends a request over the connection of a server.
async fn send(server: Arc<Server>, mut request: Request<Body>) -> Result<Response<Answer>, BoxError> {
    let mut is_repeated = false;
    loop {
        let Some(mut http2) = server.connection().await? else { return Err(NoHttp2.into()) };
        let mut error = match http2.try_send_request(request).await {
            Ok(response) => return Ok(response.map(|body| body.map_err(unexpected_end as fn(_) -> _))),
            Err(error) => error,
        };
        match error.take_message() {
            // The connection has ended, and nothing was sent.
            Some(unsent) if !is_repeated => (request, is_repeated) = (unsent, true),
            _ => return Err(error.into_error().into()),
        }
    }
}

/// The server has just stopped to offer HTTP/2. The next request is sent in HTTP/1.1.
#[derive(Debug)]
struct NoHttp2;

impl fmt::Display for NoHttp2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server offers HTTP/2 no more")
    }
}

impl StdError for NoHttp2 {}

/// An API server, and the connection to it.
struct Server {
    address: Uri,
    /// Name that the certificate of the server must have.
    name: ServerName<'static>,
    tls: TlsConnector,
    /// Longest time for TCP and TLS together.
    connect_timeout: Option<Duration>,
    /// The present connection, or the attempt to open it, which all requests share.
    connecting: Mutex<Option<Connecting>>,
}

/// An attempt to connect. `None` if the server does not choose HTTP/2.
type Connecting = Shared<BoxFuture<'static, Result<Option<SendRequest<Body>>, ConnectError>>>;

/// The failure of an attempt, for all requests that wait for it.
#[derive(Clone, Debug)]
struct ConnectError(Arc<BoxError>);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot connect")
    }
}

impl StdError for ConnectError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&**self.0)
    }
}

impl Server {
    fn new(config: &Config, address: Uri, tls: Arc<ClientConfig>) -> kube::Result<Self> {
        let host = address.host().unwrap_or_default().trim_matches(['[', ']']);
        let name = config.tls_server_name.as_deref().unwrap_or(host).to_owned();
        let name = name.try_into().map_err(|e| kube::Error::Service(Box::new(e)))?;
        Ok(Self {
            address,
            name,
            tls: TlsConnector::from(tls),
            connect_timeout: config.connect_timeout,
            connecting: Mutex::default(),
        })
    }

    /// Returns the present connection. If there is none, a new attempt to connect begins.
    fn connection(self: &Arc<Self>) -> Connecting {
        let mut present = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
        // It is polled, because `peek` does not see the end of an attempt that no request waits for.
        let is_usable = |connecting: &Connecting| match connecting.clone().now_or_never() {
            Some(Ok(Some(http2))) => !http2.is_closed(),
            Some(Ok(None)) | None => true,
            Some(Err(_)) => false,
        };
        if let Some(connecting) = present.as_ref().filter(|connecting| is_usable(connecting)) {
            return connecting.clone();
        }
        // A task of its own: a request that is given up must not end the attempt of the others.
        let attempt = tokio::spawn(self.clone().connect());
        let connecting =
            attempt.map(|ended| ended?).map_err(|error: BoxError| ConnectError(Arc::new(error))).boxed().shared();
        *present = Some(connecting.clone());
        connecting
    }

    /// The next request begins a new attempt to connect.
    fn forget(&self) {
        *self.connecting.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Opens a connection and serves it in the background.
    async fn connect(self: Arc<Self>) -> Result<Option<SendRequest<Body>>, BoxError> {
        let stream = match self.connect_timeout {
            Some(within) => tokio::time::timeout(within, self.open()).await.map_err(io::Error::from)??,
            None => self.open().await?,
        };
        if stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
            return Ok(None);
        }
        let (http2, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_ANSWER)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection); // its end is seen by every request on it
        Ok(Some(http2))
    }

    async fn open(&self) -> Result<TlsStream<TcpStream>, BoxError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A request is several small frames. Without this, the last one would wait for the acknowledgement of the first.
        tcp.set_nodelay(true);
        // Is shared between the addresses of a name.
        tcp.set_connect_timeout(self.connect_timeout);
        let stream = tcp.oneshot(self.address.clone()).await?.into_inner();
        Ok(self.tls.connect(self.name.clone(), stream).await?)
    }
}

/// Marks the error of a lost connection as an unexpected end. kube ends a watch then, as with HTTP/1.1. Otherwise each lost
/// connection would count as a failed watch.
fn unexpected_end(error: hyper::Error) -> BoxError {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if inner.downcast_ref::<h2::Error>().is_some_and(h2::Error::is_io) {
            return io::Error::new(io::ErrorKind::UnexpectedEof, error).into();
        }
        cause = inner.source();
    }
    error.into()
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
