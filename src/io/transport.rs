//! HTTP clients of API servers. kube's own client speaks HTTP/1.1, with a connection for each watch and each concurrent request.
//! This one speaks HTTP/2 where the server does, so that one connection carries all of them, as with client-go.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::{
        Client as HttpClient,
        connect::{Connection as _, HttpConnector},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt as _},
};
use tokio::{net::TcpStream, sync::OnceCell};
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
        .service(Transport::new(&config, tls.of(&config)?)?);
    Ok(ClientBuilder::new(service, namespace).with_layer(observer).build())
}

/// Sends requests in the version of HTTP that the server speaks. The first request finds it out.
#[derive(Clone)]
struct Transport {
    connector: Connector,
    http1: HttpClient<Connector, Body>,
    http2: HttpClient<Connector, Body>,
    speaks_http2: Arc<OnceCell<bool>>,
}

impl Transport {
    fn new(config: &Config, tls: ClientConfig) -> kube::Result<Self> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A request is several small frames. Without this, the last one would wait for the acknowledgement of the first.
        tcp.set_nodelay(true);
        let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
        if let Some(name) = &config.tls_server_name {
            let name = name.clone().try_into().map_err(|e| kube::Error::Service(Box::new(e)))?;
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let https = builder.enable_all_versions().wrap_connector(tcp);
        let connector = Connector { https, within: config.connect_timeout, spare: Arc::default() };
        let http1 = HttpClient::builder(TokioExecutor::new()).build(connector.clone());
        // Without `http2_only`, requests that begin together would make a connection each.
        let http2 = HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .http2_only(true)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING_AFTER)
            .http2_keep_alive_timeout(PING_ANSWER)
            .build(connector.clone());
        Ok(Self { connector, http1, http2, speaks_http2: Arc::default() })
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (this, server) = (self.clone(), request.uri().clone());
        Box::pin(async move {
            let speaks_http2 = || this.connector.speaks_http2(server);
            let client = if *this.speaks_http2.get_or_try_init(speaks_http2).await? { this.http2 } else { this.http1 };
            Ok(client.request(request).await?)
        })
    }
}

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Opens connections.
#[derive(Clone)]
struct Connector {
    https: HttpsConnector<HttpConnector>,
    /// Longest time for TCP and TLS together.
    within: Option<Duration>,
    /// The connection that found out the version. The next request uses it.
    spare: Arc<Mutex<Option<Stream>>>,
}

impl Connector {
    fn take_spare(&self) -> Option<Stream> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Opens a connection, keeps it for the next request, and returns true if the server chose HTTP/2.
    async fn speaks_http2(&self, server: Uri) -> Result<bool, BoxError> {
        let stream = self.open(server).await?;
        let http2 = stream.connected().is_negotiated_h2();
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        Ok(http2)
    }

    async fn open(&self, server: Uri) -> Result<Stream, BoxError> {
        let mut https = self.https.clone();
        let opened = async {
            poll_fn(|context| https.poll_ready(context)).await?;
            https.call(server).await
        };
        match self.within {
            Some(within) => {
                tokio::time::timeout(within, opened).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
            }
            None => opened.await,
        }
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            match this.take_spare() {
                Some(stream) => Ok(stream),
                None => this.open(server).await,
            }
        })
    }
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
