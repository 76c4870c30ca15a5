//! HTTP clients of API servers. kube's own client speaks HTTP/1.1, with a connection for each watch and each concurrent request.
//! This one speaks HTTP/2 where the server does, so that one connection carries all of them, as with client-go.
//!
//! hyper's pool is not used for HTTP/2. If it reconnects, a request that is given up fails all others that wait for the
//! connection, and it cannot follow a server that stops to offer HTTP/2.

use std::{
    error::Error as StdError,
    fmt,
    future::poll_fn,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    FutureExt, TryFutureExt,
    future::{BoxFuture, Shared},
};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, combinators::MapErr};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client as HttpClient,
        connect::{Connection as _, HttpConnector},
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt as _},
};
use tokio_rustls::rustls::ClientConfig;
use tower::{BoxError, ServiceBuilder};
use tower_service::Service;

use super::requests::Observer;

/// A connection that was silent for this time is asked if it still works, and has this time to answer. client-go has the same values.
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(15);

/// Bytes that a server may send ahead of a reader. One stream must not use up the window of its connection: a request waits for its
/// answer while a watch is not read.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;

/// The TLS settings of one set of credentials. Clients that share them resume each other's sessions.
#[derive(Clone, Default)]
pub(super) struct Tls(Arc<Mutex<Option<ClientConfig>>>);

impl Tls {
    /// Returns the settings, and reads the files of certificates if they were not read yet. A plugin's certificate can end, so the
    /// plugin is asked again for each client.
    fn of(&self, config: &Config) -> kube::Result<ClientConfig> {
        if config.auth_info.exec.is_some() {
            return config.rustls_client_config();
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tls) = &*known {
            return Ok(tls.clone());
        }
        let tls = config.rustls_client_config()?;
        *known = Some(tls.clone());
        Ok(tls)
    }
}

/// Makes a client of this configuration. Sends nothing yet.
///
/// It speaks HTTP/1.1 with a server that offers no HTTP/2, through a proxy, and without TLS.
///
/// # Errors
/// If the files or settings of the configuration cannot be used.
pub(super) fn client(config: Config, tls: &Tls, observer: &Observer) -> kube::Result<Client> {
    if config.proxy_url.is_some() || config.cluster_url.scheme_str() != Some("https") {
        return Ok(ClientBuilder::try_from(config)?.with_layer(observer).build());
    }
    let namespace = config.default_namespace.clone();
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Transport::new(&config, &tls.of(&config)?)?);
    Ok(ClientBuilder::new(service, namespace).with_layer(observer).build())
}

/// Sends requests in the version of HTTP that the server chooses for a connection.
#[derive(Clone)]
struct Transport {
    connector: HttpsConnector<HttpConnector>,
    /// Longest time for TCP and TLS together.
    connect_timeout: Option<Duration>,
    http1: HttpClient<HttpsConnector<HttpConnector>, Body>,
    /// The present connection, or the attempt to open it, which all requests share.
    connecting: Arc<Mutex<Option<Connecting>>>,
}

type Http2 = SendRequest<Body>;

/// An attempt to connect. `None` if the server does not choose HTTP/2.
type Connecting = Shared<BoxFuture<'static, Result<Option<Http2>, ConnectError>>>;

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

impl Transport {
    fn new(config: &Config, tls: &ClientConfig) -> kube::Result<Self> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A request is several small frames. Without this, the last one would wait for the acknowledgement of the first.
        tcp.set_nodelay(true);
        let builder = || {
            let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_only();
            let Some(name) = &config.tls_server_name else { return Ok(builder) };
            let name = name.clone().try_into().map_err(|e| kube::Error::Service(Box::new(e)))?;
            Ok::<_, kube::Error>(builder.with_server_name_resolver(FixedServerNameResolver::new(name)))
        };
        let connector = builder()?.enable_all_versions().wrap_connector(tcp.clone());
        let http1 = builder()?.enable_http1().wrap_connector(tcp);
        Ok(Self {
            connector,
            connect_timeout: config.connect_timeout,
            http1: HttpClient::builder(TokioExecutor::new()).build(http1),
            connecting: Arc::default(),
        })
    }

    async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let mut is_repeated = false;
        loop {
            let Some(mut http2) = self.connection(request.uri()).await? else {
                return Ok(self.http1.request(request).await?);
            };
            let mut error = match http2.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            match error.take_message() {
                // The connection has ended, and nothing was sent.
                Some(unsent) if !is_repeated => (request, is_repeated) = (unsent, true),
                _ => return Err(error.into_error().into()),
            }
        }
    }

    /// Returns the present connection. If there is none, a new attempt to connect begins.
    fn connection(&self, server: &Uri) -> Connecting {
        let mut present = self.connecting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_usable = |connecting: &Connecting| match connecting.peek() {
            Some(Ok(Some(http2))) => !http2.is_closed(),
            Some(Ok(None)) | None => true,
            Some(Err(_)) => false,
        };
        if let Some(connecting) = present.as_ref().filter(|connecting| is_usable(connecting)) {
            return connecting.clone();
        }
        // A task of its own: a request that is given up must not end the attempt of the others.
        let attempt = tokio::spawn(connect(self.connector.clone(), server.clone(), self.connect_timeout));
        let connecting =
            attempt.map(|ended| ended?).map_err(|error: BoxError| ConnectError(Arc::new(error))).boxed().shared();
        *present = Some(connecting.clone());
        connecting
    }
}

/// Opens a connection and serves it in the background.
async fn connect(
    mut connector: HttpsConnector<HttpConnector>,
    server: Uri,
    within: Option<Duration>,
) -> Result<Option<Http2>, BoxError> {
    let opened = async {
        poll_fn(|context| connector.poll_ready(context)).await?;
        connector.call(server).await
    };
    let stream = match within {
        Some(within) => tokio::time::timeout(within, opened).await.map_err(io::Error::from)??,
        None => opened.await?,
    };
    if !stream.connected().is_negotiated_h2() {
        return Ok(None);
    }
    let (http2, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_ANSWER)
        .handshake(stream)
        .await?;
    tokio::spawn(connection); // its end is seen by every request on it
    Ok(Some(http2))
}

/// The body of an answer.
type Answer = MapErr<Incoming, fn(hyper::Error) -> BoxError>;

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

impl Service<Request<Body>> for Transport {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let response = this.send(request).await?;
            Ok(response.map(|body| body.map_err(unexpected_end as fn(hyper::Error) -> BoxError)))
        })
    }
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
